//! `rbd:POOL/IMAGE` on a Ceph cluster that runs, and `ceph-local`, by fio's engine for RBD, or at a rate by `coquina bench io`,
//! which makes whole objects in any case.

use std::path::PathBuf;

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
}

impl RbdTarget {
    /// On a cluster that is made for the run.
    pub fn local(spec: &str, system: Shared) -> Self {
        Self::new(spec, system, "disk")
    }

    /// `rest` is `POOL/IMAGE`.
    pub fn running(spec: &str, rest: &str) -> Result<Self, TargetError> {
        match rest.split_once('/') {
            Some((pool, image)) if !pool.is_empty() && !image.is_empty() => {
                Ok(Self::new(spec, ceph::running(pool), image))
            }
            _ => Err(TargetError::Wrong {
                spec: spec.to_owned(),
                message: "write it as rbd:POOL/IMAGE".to_owned(),
            }),
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
    fn tell_if_made(&self, image: &str, before: &[String], is_stopped: bool) {
        if self.system.borrow().local.is_some() || before.iter().any(|there| there == image) {
            return;
        }
        // Who ends the run does not wait for the answer.
        let answers = !is_stopped && self.system.borrow().answers();
        let patience = Patience::of(CONNECTED_TIME_MAX);
        let which = match answers.then(|| self.size_of(&self.path(image), patience)) {
            Some(Err(error)) if is_not_found(&error) => return,
            Some(Ok(_)) => leftovers::MADE_ALL_THE_SAME,
            Some(Err(_)) | None => leftovers::MAY_BE_MADE,
        };
        leftovers::note(self.left_text(image, which)).keep();
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

    fn remove_made(&mut self) {
        self.layout = None;
        self.images.clear();
        self.caches.clear();
        let made = std::mem::take(&mut self.made);
        let mut answers = made.is_empty() || self.system.borrow().answers();
        // A cluster that was made for the run takes its images along, and there are no notes of them.
        let mut notes = std::mem::take(&mut self.left).into_iter();
        for image in made {
            let (path, note) = (self.path(&image), notes.next());
            let remove = ["rm", "--no-progress", &path];
            let removed = match answers {
                true => self.system.borrow().run_within(&self.spec, "rbd", &remove, REMOVE_TIME_MAX),
                false => Err(TargetError::Stopped),
            };
            let is_gone = removed.as_ref().err().is_none_or(is_not_found);
            // There are no OSDs, and the next one would take as long.
            answers &=
                !matches!(removed, Err(TargetError::Program { source: GeneratorError::Slow { .. }, .. }));
            if let Some(note) = note.filter(|_| !is_gone) {
                note.keep();
            }
        }
    }
}

/// Whether an image is not there any more.
fn is_not_found(error: &TargetError) -> bool {
    // ENOENT; what it says may speak of other files.
    matches!(error, TargetError::Program { source: GeneratorError::Failed { status, .. }, .. } if status == "exit status: 2")
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
        let own: u64 =
            self.layout.as_ref().map_or(0, |layout| layout.volume_bytes * u64::from(layout.volumes));
        // The pool's figure is for its present copies.
        let scaled = space.map(|bytes| match (system.copies(), copies) {
            (Some(now), Some(wanted)) if system.local.is_some() => {
                bytes * u64::from(now) / u64::from(wanted.max(1))
            }
            _ => bytes,
        });
        // An image that is there is not made larger, and may be larger than what is free.
        Ok(match (self.found_bytes, scaled) {
            (Some(size), Some(free)) => Some(size.min(free + own)),
            (size, free) => size.or(free.map(|bytes| bytes + own)),
        })
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

    fn lay_out(&mut self, layout: &Layout, context: &Context<'_>) -> Result<bool, TargetError> {
        self.remove_made();
        self.objects.remove(&self.system.borrow(), &self.program);
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
                    self.tell_if_made(&image, &there, error.is_stop());
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

    fn end(&mut self) {
        if self.system.borrow().local.is_some() {
            // What was made goes with it, and if its OSDs did not start again, nobody would answer.
            self.made.clear();
            self.objects.forget();
        }
        self.remove_made();
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
mod tests {
    use super::*;
    use crate::generator::Amount;
    use crate::report::Operation;

    /// Programs that answer like `ceph` and `rbd` of a cluster with the images in the file `images`. `rbd create` always fails: of
    /// an image "done" after it has made it, and of "gone" after the cluster has gone.
    fn fake_ceph(folder: &std::path::Path) {
        let script = format!(
            r#"cd {folder} || exit 1
case "$(basename "$0") $*" in
rbd\ create\ pool/done*) echo done >>images; exit 110 ;;
rbd\ create\ pool/gone*) touch no-cluster; exit 110 ;;
rbd\ create*) exit 22 ;;
rbd\ ls*) cat images ;;
rbd\ info*) name=${{2#pool/}}; grep -qx "$name" images || exit 2; echo '{{"size":1}}' ;;
ceph*mon\ stat*) [ ! -e no-cluster ] ;;
*) exit 1 ;;
esac
"#,
            folder = folder.display()
        );
        std::fs::write(folder.join("images"), "others\nothers-1\n").unwrap();
        ceph::tests::install(folder, &script, &["ceph", "rbd"]);
    }

    #[test]
    fn an_image_whose_making_failed_is_told_if_it_may_be_there_and_was_not_before() {
        let folder = tempfile::tempdir().unwrap();
        fake_ceph(folder.path());
        let layout = crate::target::tests::layout(2);
        let context = Context {
            folder: folder.path().to_owned(),
            program: PathBuf::new(),
            server: Vec::new(),
            store_bytes: 1 << 30,
            writes: true,
            volumes_max: 2,
            destroy: Vec::new(),
            stopped: &|| false,
            say: &|_| {},
        };
        let told = |image: &str| {
            let mut target =
                RbdTarget::running(&format!("rbd:pool/{image}"), &format!("pool/{image}")).unwrap();
            target.system.borrow_mut().programs = folder.path().to_owned();
            target.system.borrow_mut().conf = None;
            // The image of that name was found, so that the next one is the first to be made.
            target.found_bytes = (image == "others").then_some(64 << 20);
            assert!(target.lay_out(&layout, &context).is_err(), "{image}");
            drop(target);
            leftovers::all()
                .into_iter()
                .filter(|note| note.contains(&format!("pool/{image}")))
                .collect::<Vec<_>>()
        };
        assert_eq!(told("refused"), [""; 0], "it was not made");
        assert_eq!(told("others"), [""; 0], "others-1 was there before");
        for (image, how) in [("done", "is there now"), ("gone", "may be there")] {
            let told = told(image);
            let wanted = format!("the image pool/{image}, whose making failed, but which {how}: ");
            assert!(told.len() == 1 && told[0].starts_with(&wanted), "{told:?}");
            assert!(told[0].ends_with(&format!("rbd rm pool/{image}")), "{told:?}");
        }
    }

    #[test]
    fn a_stop_does_not_wait_for_a_cluster_that_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        ceph::tests::install(folder.path(), "exec sleep 60\n", &["ceph"]);
        let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
        target.system.borrow_mut().programs = folder.path().to_owned();
        crate::target::tests::check_stop(&mut target, folder.path(), std::path::Path::new(""));
    }

    #[test]
    fn an_image_whose_making_a_stop_ended_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "case \"$*\" in\nls*) ;;\ncreate*) touch {0}/begun; exec sleep 60 ;;\n*stat*) exec sleep 60 ;;\n*) exit 1 ;;\nesac\n",
            folder.path().display()
        );
        ceph::tests::install(folder.path(), &script, &["ceph", "rbd"]);
        let begun = folder.path().join("begun");
        let stopped = || begun.exists();
        let context = Context { stopped: &stopped, ..crate::target::tests::context(folder.path()) };
        let mut target = RbdTarget::running("rbd:pool/halfway", "pool/halfway").unwrap();
        target.system.borrow_mut().programs = folder.path().to_owned();
        let begin = std::time::Instant::now();
        let error = target.lay_out(&crate::target::tests::layout(1), &context).unwrap_err();
        assert!(error.is_stop(), "{error}");
        assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{:?}", begin.elapsed());
        // Nothing more is begun, and of that nothing is told.
        assert!(target.lay_out(&crate::target::tests::layout(1), &context).unwrap_err().is_stop());
        let told: Vec<String> =
            leftovers::all().into_iter().filter(|note| note.contains("pool/halfway")).collect();
        assert!(told.len() == 1 && told[0].contains("may be there"), "{told:?}");
    }

    #[test]
    fn an_image_to_which_several_write_has_no_lock_that_they_hand_to_and_fro() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("case $1 in create) echo \"$*\" >>{}/made ;; esac\n", folder.path().display());
        ceph::tests::install(folder.path(), &script, &["ceph", "rbd"]);
        let context = crate::target::tests::context(folder.path());
        for is_shared in [false, true] {
            let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
            target.system.borrow_mut().programs = folder.path().to_owned();
            let layout = Layout { is_shared, ..crate::target::tests::layout(1) };
            target.lay_out(&layout, &context).unwrap();
            let made = std::fs::read_to_string(folder.path().join("made")).unwrap();
            assert_eq!(made.ends_with(" --image-shared\n"), is_shared, "{made}");
            let lock = target.facts().settings.get("exclusive lock").cloned();
            assert_eq!(lock.is_some_and(|text| text.starts_with("none: several")), is_shared);
        }
    }

    #[test]
    fn an_image_that_was_there_is_neither_striped_nor_a_share_of_the_store() {
        let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
        let plain = crate::target::tests::layout(1);
        let aged = crate::definition::Aged { full_percent: 75, overwrites: 3, block: 1 << 16 };
        let aged = Layout { aged: Some(aged), ..plain.clone() };
        assert_eq!((target.refuses(&plain), target.refuses(&aged)), (None, None));
        target.found_bytes = Some(1 << 30);
        assert_eq!(target.refuses(&plain), None);
        assert!(target.refuses(&aged).unwrap().contains("name one that does not exist"));
    }

    #[test]
    fn at_a_rate_images_get_load_by_librbd() {
        let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
        target.images = vec!["disk".to_owned(), "disk-1".to_owned()];
        target.system.borrow_mut().conf = Some("/c/ceph.conf".to_owned());
        let load = Load {
            operation: Operation::RandomWrite,
            block_bytes: 4096,
            depth: 8,
            jobs: 1,
            amount: Amount::Time { warmup_s: 0.0, runtime_s: 1.0 },
            size_bytes: 64 << 20,
            rate_iops: Some(101),
            seed: 1,
            processors: None,
        };
        let commands = target.commands(&load, &[0, 1]);
        let line = commands[1].arguments.join(" ");
        assert!(line.contains("--target rbd:admin@pool/disk-1 ") && line.ends_with("--rate 50"), "{line}");
        assert_eq!(commands[1].environment, [("CEPH_CONF".to_owned(), "/c/ceph.conf".to_owned())]);
        let closed = target.commands(&Load { rate_iops: None, ..load.clone() }, &[0, 1]);
        assert_eq!((closed.len(), closed[0].program.clone()), (1, PathBuf::from("fio")));
        for rate_iops in [Some(101), None] {
            let objects = Load { operation: Operation::ObjectWrite, rate_iops, ..load.clone() };
            let commands = target.commands(&objects, &[0]);
            let line = commands[0].arguments.join(" ");
            assert!(line.contains("--target rados:admin@pool/coquina-bench-"), "{line}");
            assert_eq!(
                (commands[0].program.clone(), line.contains("--rate")),
                (PathBuf::new(), rate_iops.is_some())
            );
            assert_eq!(commands[0].environment, [("CEPH_CONF".to_owned(), "/c/ceph.conf".to_owned())]);
        }
    }
}
