//! `rbd:POOL/IMAGE` on a Ceph cluster that runs, and `ceph-local`, by fio's engine for RBD, or at a rate by `coquina bench io`,
//! which makes whole objects in any case.

mod watchers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::ceph::{self, ANSWER_TIME_MAX, CONNECTED_TIME_MAX, REMOVE_TIME_MAX, Shared};
use super::rados::{self, Objects};
use super::rbd_cache::{self, Cache};
use super::{Context, Effect, OpenLoop, Reach, Target, TargetError, ceph_option, medium};
use crate::definition::Layout;
use crate::generator::fio::{self, FioOptions};
use crate::generator::{Command, GeneratorError, Load, Patience, coquina};
use crate::leftovers::{self, Note};
use crate::report::TargetFacts;

/// How long somebody waits; shorter in tests.
struct Times {
    /// An image is watched by a client that was killed: 30 s (`osd_client_watch_timeout`), and until the OSDs look again.
    watch_max: Duration,
    /// The removal of an image is no further.
    still_max: Duration,
    /// OSDs say nothing of an image.
    answer_max: Duration,
}

const TIMES: Times =
    Times { watch_max: Duration::from_secs(45), still_max: REMOVE_TIME_MAX, answer_max: CONNECTED_TIME_MAX };
/// Between attempts to remove an image that is watched.
const BUSY_PAUSE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(100);

/// RBD images.
pub struct RbdTarget {
    spec: String,
    system: Shared,
    image: String,
    /// Size of the image of that name, if it was there before.
    found_bytes: Option<u64>,
    made: Vec<String>,
    left: Vec<Note>,
    images: Vec<String>,
    /// How librbd caches writes to each of them; `None` where that cannot be known.
    caches: Vec<Option<Cache>>,
    /// librbd's cache is what is tried, so that images must not have settings of their own.
    tries_cache: bool,
    layout: Option<Layout>,
    /// Whole objects besides.
    objects: Objects,
    program: PathBuf,
    times: Times,
}

impl RbdTarget {
    /// On a cluster that is made for the run.
    pub fn local(spec: &str, system: Shared) -> Self {
        Self::new(spec, system, "disk")
    }

    /// `rest` is `POOL/IMAGE`.
    pub fn running(spec: &str, rest: &str) -> Result<Self, TargetError> {
        let wrong =
            |message: &str| Err(TargetError::Wrong { spec: spec.to_owned(), message: message.to_owned() });
        match rest.split_once('/') {
            // `rbd ls POOL` lists neither: what such a name means would be taken for an image that is not there.
            Some((pool, image)) if image.contains(['/', '@']) || pool.contains('@') => wrong(
                "images in a namespace (POOL/NAMESPACE/IMAGE) and snapshots (IMAGE@SNAPSHOT) cannot be measured: the name of a pool or \
                 image has neither / nor @; write it as rbd:POOL/IMAGE",
            ),
            Some((pool, image)) if !pool.is_empty() && !image.is_empty() => {
                Ok(Self::new(spec, ceph::running(pool), image))
            }
            _ => wrong("write it as rbd:POOL/IMAGE"),
        }
    }

    fn new(spec: &str, system: Shared, image: &str) -> Self {
        RbdTarget {
            spec: spec.to_owned(),
            system,
            image: image.to_owned(),
            found_bytes: None,
            made: Vec::new(),
            left: Vec::new(),
            images: Vec::new(),
            caches: Vec::new(),
            tries_cache: false,
            layout: None,
            objects: Objects::default(),
            program: PathBuf::new(),
            times: TIMES,
        }
    }

    fn path(&self, image: &str) -> String {
        format!("{}/{image}", self.system.borrow().pool)
    }

    fn run(&self, arguments: &[&str], context: &Context<'_>) -> Result<String, TargetError> {
        self.system.borrow().run(&self.spec, "rbd", arguments, context)
    }

    fn size_of(&self, path: &str, patience: Patience<'_>) -> Result<u64, TargetError> {
        #[derive(Deserialize)]
        struct Info {
            size: u64,
        }
        let info = ["info", path, "--format", "json"];
        let printed = self.system.borrow().run_for(&self.spec, "rbd", &info, patience)?;
        let info: Info = serde_json::from_str(&printed).map_err(|error| TargetError::Unusable {
            spec: self.spec.clone(),
            message: format!("`rbd info` printed something unexpected: {error}"),
        })?;
        Ok(info.size)
    }

    fn create(&self, image: &str, layout: &Layout, context: &Context<'_>) -> Result<(), TargetError> {
        let (path, size) = (self.path(image), format!("{}B", layout.volume_bytes));
        let mut arguments = vec!["create", &path, "--size", &size];
        let stripe = layout.stripe.map(|stripe| (stripe.unit.to_string(), stripe.count.to_string()));
        if let Some((unit, count)) = &stripe {
            arguments.extend(["--stripe-unit", unit, "--stripe-count", count]);
        }
        if layout.is_shared {
            // Each job of fio opens the image for itself, and one that writes takes the image's lock from the one that has it.
            arguments.push("--image-shared");
        }
        self.run(&arguments, context).map(drop)
    }

    /// Images of the pool.
    fn list(&self, context: &Context<'_>) -> Result<Vec<String>, TargetError> {
        let pool = self.system.borrow().pool.clone();
        let printed = self.run(&["ls", &pool], context)?;
        Ok(printed.lines().map(|line| line.trim().to_owned()).collect())
    }

    /// What is left if an image is not removed, and how it is.
    fn left_text(&self, image: &str, which: &str) -> String {
        let (path, conf) = (self.path(image), self.system.borrow().shell_environment());
        format!("the image {path}{which}: {conf}rbd rm {}", leftovers::quoted(&path))
    }

    /// Tells of an image whose making failed, if it was not there before and is now, or may be. Somebody else may have made it in the
    /// same moment, so that it is not removed.
    fn tell_if_made(&self, image: &str, before: &[String], error: &TargetError) {
        // Of one that `rbd create` found there, this run has made nothing.
        let is_of_others = has_ended_with(error, EEXIST) || before.iter().any(|there| there == image);
        if self.system.borrow().local.is_some() || is_of_others {
            return;
        }
        // Who ends the run does not wait for the answer.
        let answers = !error.is_stop() && self.system.borrow().answers();
        let patience = Patience::of(CONNECTED_TIME_MAX);
        let which = match answers.then(|| self.size_of(&self.path(image), patience)) {
            Some(Err(error)) if is_not_found(&error) => return,
            Some(Ok(_)) => leftovers::MADE_ALL_THE_SAME,
            Some(Err(_)) | None => leftovers::MAY_BE_MADE,
        };
        leftovers::note(self.left_text(image, which)).keep();
    }

    /// Refuses an image that was there and that somebody has open, but for those who go within this time, as this run's own clients do
    /// that were killed. What is written to it would be changed under whoever uses it.
    fn check_unused(&self, time_max: Duration, context: &Context<'_>) -> Result<(), TargetError> {
        let path = self.path(&self.image);
        let unusable = |message: String| TargetError::Unusable { spec: self.spec.clone(), message };
        let begin = Instant::now();
        loop {
            let printed = self.run(&["status", &path, "--format", "json"], context)?;
            let by = watchers::addresses(&printed)
                .ok_or_else(|| unusable(format!("`rbd status` printed something unexpected: {printed}")))?;
            if by.is_empty() {
                return Ok(());
            }
            if begin.elapsed() >= time_max {
                return Err(unusable(format!(
                    "the image {path} is in use: somebody has it open at {}, and would find it overwritten; `rbd status {path}` tells when \
                     nobody has any more",
                    by.join(", ")
                )));
            }
            wait(BUSY_PAUSE, context.stopped);
            if (context.stopped)() {
                return Err(TargetError::Stopped);
            }
        }
    }

    /// Takes librbd's cache off for an image that the run made. In a cluster that was made for the run it is off for all.
    fn set_cache_off(&self, image: &str, context: &Context<'_>) -> Result<(), TargetError> {
        if self.tries_cache || self.system.borrow().local.is_some() {
            return Ok(());
        }
        let path = self.path(image);
        self.run(&["config", "image", "set", &path, rbd_cache::OPTION, "false"], context).map(drop)
    }

    /// An old Ceph, or one that does not permit it, does not say.
    fn cache_of(&self, image: &str, context: &Context<'_>) -> Option<Cache> {
        let path = self.path(image);
        Cache::read(&self.run(&["config", "image", "ls", &path, "--format", "json"], context).ok()?)
    }

    /// Refuses options of librbd that the image or the pool has a value of its own for.
    fn check_own_value(&self, option: &str, context: &Context<'_>) -> Result<(), TargetError> {
        if !option.starts_with("rbd_") || self.system.borrow().local.is_some() {
            return Ok(());
        }
        let pool = self.system.borrow().pool.clone();
        let (kind, path) = match self.found_bytes {
            Some(_) => ("image", self.path(&self.image)),
            None => ("pool", pool.clone()),
        };
        // Who cannot be asked may have none.
        let Ok(printed) = self.run(&["config", kind, "ls", &path, "--format", "json"], context) else {
            return Ok(());
        };
        let Some((value, source)) = rbd_cache::own_value(&printed, option) else { return Ok(()) };
        let owner = if source == "pool" { &pool } else { &path };
        Err(TargetError::Unusable {
            spec: self.spec.clone(),
            message: format!(
                "the {source} {owner} has {option} = {value} of its own, above the cluster's setting, which would have no effect; \
                 nothing was changed. Take it off with `rbd config {source} rm {owner} {option}`"
            ),
        })
    }

    fn facts_of(&self, caches: &[Option<Cache>]) -> TargetFacts {
        let system = self.system.borrow();
        let places = system.places();
        let mut facts = TargetFacts {
            label: system.title(),
            spec: self.spec.clone(),
            system: system.title(),
            copies: system.copies(),
            // librbd without its cache answers a write when all OSDs of the acting set have it in their logs.
            durable: medium::durable_at(&places, rbd_cache::durable(caches)),
            cache: format!("{}{}", rbd_cache::text(caches), medium::memory_note(&places)),
            generator: "fio rbd".to_owned(),
            settings: system.settings(),
            ..TargetFacts::default()
        };
        if let Some(stripe) = self.layout.as_ref().and_then(|layout| layout.stripe) {
            let text = format!("{} x {}", coquina_base::format_size_bytes(stripe.unit), stripe.count);
            facts.settings.insert("striping".to_owned(), text);
        }
        if self.layout.as_ref().is_some_and(|layout| layout.is_shared) {
            let text = match self.found_bytes {
                None => "none: several jobs or clients write to one image, and would hand it to and fro",
                Some(_) => {
                    "as the image has it: if it has one, the jobs or clients that write to it hand it to and fro"
                }
            };
            facts.settings.insert("exclusive lock".to_owned(), text.to_owned());
        }
        facts
    }

    /// What volumes may have where so much is free, with what those have that there are.
    fn with_own(&self, free: Option<u64>) -> Option<u64> {
        let own: u64 =
            self.layout.as_ref().map_or(0, |layout| layout.volume_bytes * u64::from(layout.volumes));
        // An image that is there is not made larger, and may be larger than what is free.
        match (self.found_bytes, free) {
            (Some(size), Some(free)) => Some(size.min(free + own)),
            (size, free) => size.or(free.map(|bytes| bytes + own)),
        }
    }

    /// Removes the images of the scenario before. What the run is stopped at is left for its end.
    fn remove_made(&mut self, stopped: &dyn Fn() -> bool) {
        self.layout = None;
        self.images.clear();
        self.caches.clear();
        let made = std::mem::take(&mut self.made);
        let mut answers = made.is_empty() || self.system.borrow().answers();
        let mut was_slow = false;
        // Of all together: who watched the first one for so long watches none of the others any longer.
        let busy_until = Instant::now() + self.times.watch_max;
        // A cluster that was made for the run takes its images along, and there are no notes of them.
        let mut notes = std::mem::take(&mut self.left).into_iter();
        let mut rest = made.into_iter();
        while let Some(image) = rest.next() {
            let (path, note) = (self.path(&image), notes.next());
            if std::mem::take(&mut was_slow) {
                answers = self.answers_for(&path);
            }
            let removed = match answers {
                true => self.remove(&path, busy_until, stopped),
                false => Err(TargetError::Stopped),
            };
            if answers && removed.as_ref().is_err_and(TargetError::is_stop) {
                self.made = std::iter::once(image).chain(rest).collect();
                self.left = note.into_iter().chain(notes).collect();
                return;
            }
            was_slow =
                matches!(removed, Err(TargetError::Program { source: GeneratorError::Slow { .. }, .. }));
            let is_gone = removed.as_ref().err().is_none_or(is_not_found);
            if let Some(note) = note.filter(|_| !is_gone) {
                note.keep();
            }
        }
    }

    /// Removes an image. A client that was killed has it open for some time more: it watches it until the OSDs miss its word.
    fn remove(&self, path: &str, busy_until: Instant, stopped: &dyn Fn() -> bool) -> Result<(), TargetError> {
        loop {
            if stopped() {
                return Err(TargetError::Stopped);
            }
            // It tells how far it is.
            let arguments = ["rm", path];
            let still_max = self.times.still_max;
            let removed = self.system.borrow().run_while_it_moves(&self.spec, "rbd", &arguments, still_max);
            match removed {
                Err(error) if has_ended_with(&error, EBUSY) && Instant::now() < busy_until => {
                    wait(BUSY_PAUSE, stopped);
                }
                removed => return removed.map(drop),
            }
        }
    }

    /// Whether OSDs answer for an image, after the removal of another one took too long: without them each would take as long.
    fn answers_for(&self, path: &str) -> bool {
        let patience = Patience::of(self.times.answer_max);
        let is_slow = |error: &TargetError| {
            matches!(error, TargetError::Program { source: GeneratorError::Slow { .. }, .. })
        };
        self.system.borrow().answers() && !self.size_of(path, patience).as_ref().is_err_and(is_slow)
    }
}

/// Waits so long, or until the run is stopped.
fn wait(time: Duration, stopped: &dyn Fn() -> bool) {
    let until = Instant::now() + time;
    while Instant::now() < until && !stopped() {
        std::thread::sleep(POLL);
    }
}

/// Exit statuses of `rbd`, which are the numbers of its errors: what it says may speak of something else.
const ENOENT: u32 = 2;
const EBUSY: u32 = 16;
const EEXIST: u32 = 17;

/// Whether an image is not there any more.
fn is_not_found(error: &TargetError) -> bool {
    has_ended_with(error, ENOENT)
}

/// Whether a program ended with this exit status.
fn has_ended_with(error: &TargetError, wanted: u32) -> bool {
    let TargetError::Program { source: GeneratorError::Failed { status, .. }, .. } = error else {
        return false;
    };
    *status == format!("exit status: {wanted}")
}

impl Target for RbdTarget {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn begin(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        self.program.clone_from(&context.program);
        self.system.borrow_mut().begin(&self.spec, context)?;
        let found = self.list(context)?.contains(&self.image);
        let name = self.path(&self.image);
        if found && !context.may_destroy(&self.spec, &name) {
            return Err(TargetError::HoldsData {
                spec: self.spec.clone(),
                name,
                what: "an image".to_owned(),
            });
        }
        if found {
            self.check_unused(Duration::ZERO, context)?;
            self.found_bytes = Some(self.size_of(&name, context.patience(ANSWER_TIME_MAX))?);
        }
        Ok(())
    }

    fn facts(&self) -> TargetFacts {
        self.facts_of(&self.caches)
    }

    fn facts_with(&self, key: &str, value: &str) -> TargetFacts {
        let (_, option) = ceph_option::split(key);
        if option != rbd_cache::OPTION {
            return self.facts();
        }
        let with = |cache: &Option<Cache>| cache.as_ref().map(|cache| cache.with(value));
        let mut facts = self.facts_of(&self.caches.iter().map(with).collect::<Vec<_>>());
        // As it is without the value that is tried.
        facts.settings.remove(option);
        facts
    }

    fn facts_of_objects(&self) -> TargetFacts {
        // librbd has no part in them.
        rados::facts_of_objects(&self.system.borrow(), &self.spec)
    }

    fn space_bytes(&self, copies: Option<u32>, context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        let system = self.system.borrow();
        let space = system.space_bytes(&self.spec, context)?;
        // The pool's figure is for its present copies.
        let scaled = space.map(|bytes| match (system.copies(), copies) {
            (Some(now), Some(wanted)) if system.local.is_some() => {
                bytes * u64::from(now) / u64::from(wanted.max(1))
            }
            _ => bytes,
        });
        Ok(self.with_own(scaled))
    }

    fn refuses(&self, layout: &Layout) -> Option<String> {
        let system = self.system.borrow();
        let copies = system.copies();
        if system.local.is_none() && layout.copies.is_some() && copies != layout.copies {
            return Some(system.copies_text());
        }
        // How full an image of any size makes the store cannot be said.
        let is_made_for_it = layout.stripe.is_some() || layout.aged.is_some();
        (self.found_bytes.is_some() && is_made_for_it)
            .then(|| "the image that was named is as it is; name one that does not exist".to_owned())
    }

    fn is_store_shared(&self) -> bool {
        !self.system.borrow().is_local
    }

    fn careful_bytes(&self, _copies: Option<u32>, context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        let system = self.system.borrow();
        let Some(space) = system.space_bytes(&self.spec, context)? else { return Ok(None) };
        Ok(self.with_own(Some(system.careful_bytes(&self.spec, space, context)?)))
    }

    fn lay_out(&mut self, layout: &Layout, context: &Context<'_>) -> Result<bool, TargetError> {
        self.remove_made(context.stopped);
        if (context.stopped)() {
            return Err(TargetError::Stopped);
        }
        self.objects.remove(&self.system.borrow(), &self.program);
        if self.found_bytes.is_some() {
            self.check_unused(self.times.watch_max, context)?;
        }
        self.system.borrow_mut().look_again(&self.spec, context);
        if let Some(copies) = layout.copies {
            self.system.borrow_mut().set_copies(&self.spec, copies, context)?;
        }
        let is_local = self.system.borrow().local.is_some();
        let there = if is_local { Vec::new() } else { self.list(context)? };
        for number in 0..layout.volumes {
            let image = if number == 0 { self.image.clone() } else { format!("{}-{number}", self.image) };
            if number > 0 || self.found_bytes.is_none() {
                if (context.stopped)() {
                    return Err(TargetError::Stopped);
                }
                // Before it is made: that may be interrupted, and the image be there all the same.
                if !is_local {
                    self.left.push(leftovers::note(self.left_text(&image, "")));
                }
                if let Err(error) = self.create(&image, layout, context) {
                    self.left.pop();
                    self.tell_if_made(&image, &there, &error);
                    return Err(error);
                }
                self.made.push(image.clone());
                self.set_cache_off(&image, context)?;
            }
            self.caches.push(self.cache_of(&image, context));
            self.images.push(image);
        }
        self.layout = Some(layout.clone());
        Ok(true)
    }

    fn commands(&self, load: &Load, volumes: &[u32]) -> Vec<Command> {
        let system = self.system.borrow();
        if load.operation.is_of_objects() {
            return self.objects.commands(&system, &self.program, load);
        }
        let images = volumes.iter().filter_map(|volume| self.images.get(*volume as usize));
        if load.rate_iops.is_some() {
            let target = |image| format!("rbd:{}@{}/{image}", system.user, system.pool);
            let targets: Vec<String> = images.map(target).collect();
            let mut commands = coquina::commands(&self.program, &targets, &[], load);
            commands.iter_mut().for_each(|command| command.environment = system.environment());
            return commands;
        }
        let options = FioOptions {
            engine: "rbd".to_owned(),
            options: vec![
                ("clientname".to_owned(), system.user.clone()),
                ("pool".to_owned(), system.pool.clone()),
            ],
            volumes: images.map(|image| vec![("rbdname".to_owned(), image.clone())]).collect(),
            environment: system.environment(),
            host: None,
        };
        vec![fio::command(&options, load)]
    }

    fn fio_engine(&self) -> Option<String> {
        Some("rbd".to_owned())
    }

    fn fio_engine_of_objects(&self) -> Option<String> {
        None
    }

    fn open_loop_of_objects(&self) -> OpenLoop {
        OpenLoop::Native
    }

    fn processes(&self) -> Vec<u32> {
        self.system.borrow().processes()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.system.borrow().places()
    }

    fn names(&self) -> Vec<String> {
        let system = self.system.borrow();
        [self.image.clone(), system.pool.clone()].into_iter().chain(system.conf_path()).collect()
    }

    fn is_on_this_host(&self) -> bool {
        self.reach() != Reach::Anywhere || !self.processes().is_empty()
    }

    fn reach(&self) -> Reach {
        self.system.borrow().reach()
    }

    fn reach_of_objects(&self) -> Reach {
        rados::reach_of_objects(&self.system.borrow())
    }

    fn effect(&self, key: &str, context: &Context<'_>) -> Result<Effect, TargetError> {
        self.check_own_value(ceph_option::split(key).1, context)?;
        self.system.borrow().effect(&self.spec, key, context)
    }

    fn restart(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        self.system.borrow_mut().restart(&self.spec, context)
    }

    fn setting(&self, key: &str, context: &Context<'_>) -> Result<Option<String>, TargetError> {
        self.system.borrow().setting(&self.spec, key, context)
    }

    fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), TargetError> {
        self.tries_cache |= ceph_option::split(key).1 == rbd_cache::OPTION;
        self.system.borrow().set(&self.spec, key, value)
    }

    fn ailment(&self, context: &Context<'_>) -> Option<String> {
        self.system.borrow().ailment(&self.spec, context)
    }

    fn end(&mut self) {
        if self.system.borrow().local.is_some() {
            // What was made goes with it, and if its OSDs did not start again, nobody would answer.
            self.made.clear();
            self.objects.forget();
        }
        self.remove_made(&|| false);
        self.objects.remove(&self.system.borrow(), &self.program);
        self.system.borrow_mut().local = None;
    }
}

impl Drop for RbdTarget {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
