//! `coquina:VOLUME` by the native client, `coquina-nbd:VOLUME` by fio over NBD, and the same on a cluster that is made for
//! the run.

mod health;
mod pools;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;

use self::pools::OwnPool;
use super::local_coquina::LocalCoquina;
use super::{Context, Effect, OpenLoop, Reach, Target, TargetError, medium, reach};
use crate::definition::Layout;
use crate::generator::{ANSWER_TIME_MAX, Command, Load, Patience, coquina, output_of};
use crate::leftovers::{self, Note};
use crate::report::{Point, TargetFacts};

/// Copies of the first pool, if the first volume makes it: as many as there are nodes, or drives of the only one, up to this.
const DEFAULT_COPIES_MAX: u32 = 3;

/// How long the removal of a volume may take: its server may be gone.
const REMOVE_TIME_MAX: Duration = Duration::from_secs(60);

/// A server and its volumes, which several targets may use in turns.
pub type Shared = Rc<RefCell<System>>;

/// A Coquina cluster, as seen from the command line.
#[derive(Default)]
pub struct System {
    is_local: bool,
    local: Option<LocalCoquina>,
    program: PathBuf,
    server: Vec<String>,
    /// Name of the first volume; others have a number behind it.
    name: String,
    /// The volume of that name was there before.
    found: Option<VolumeFacts>,
    made: Vec<String>,
    left: Vec<Note>,
    own_pools: Vec<OwnPool>,
    /// The pool of the volumes that were made, if its name is known.
    pool: Option<String>,
    volumes: Vec<String>,
    /// Copies of the volumes in use, as the server says; `None` where they differ.
    copies: Option<u32>,
    layout: Option<Layout>,
    /// A scenario has begun since: others have loaded the volumes.
    is_stale: bool,
    status: Option<Status>,
}

/// A new local cluster, not yet started.
pub fn shared_local() -> Shared {
    Rc::new(RefCell::new(System { is_local: true, name: "bench".to_owned(), ..System::default() }))
}

/// A cluster that runs, with a volume of this name and those with a number behind it.
pub fn shared_running(volume: &str) -> Shared {
    Rc::new(RefCell::new(System { name: volume.to_owned(), ..System::default() }))
}

#[derive(Clone, Copy, Deserialize)]
struct VolumeFacts {
    size_bytes: u64,
    copies: u32,
}

#[derive(Deserialize)]
struct NamedVolume {
    name: String,
    /// `removing`: its name is free again, and another volume may have it.
    state: String,
    #[serde(flatten)]
    facts: VolumeFacts,
}

impl NamedVolume {
    fn is_going(&self) -> bool {
        self.state.eq_ignore_ascii_case("removing")
    }
}

#[derive(Deserialize)]
struct VolumeList {
    volumes: Vec<NamedVolume>,
}

impl VolumeList {
    /// Copies of these volumes, if all have as many.
    fn copies_of(&self, names: &[String]) -> Option<u32> {
        let copies = |name: &String| {
            self.volumes.iter().find(|volume| volume.name == *name).map(|volume| volume.facts.copies)
        };
        let first = copies(names.first()?)?;
        names.iter().all(|name| copies(name) == Some(first)).then_some(first)
    }
}

#[derive(Clone, Deserialize)]
struct Status {
    node: Node,
    services: Services,
    drives: Vec<Drive>,
    /// All nodes of the cluster.
    #[serde(default)]
    nodes: Vec<Member>,
}

#[derive(Clone, Deserialize)]
struct Node {
    version: String,
    process: u32,
    /// Empty for a process without a node.
    #[serde(default)]
    name: String,
}

#[derive(Clone, Deserialize)]
struct Services {
    http: String,
    nbd: Vec<String>,
}

/// A node of the cluster.
#[derive(Clone, Deserialize)]
struct Member {
    #[serde(default)]
    name: String,
    /// Where it listens: `HOST:PORT`.
    #[serde(default)]
    native: String,
}

/// The host of `HOST:PORT`.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Whether this host alone means itself by it. Names are not looked up: this is asked for each run.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[derive(Clone, Deserialize)]
struct Drive {
    path: PathBuf,
}

impl Status {
    /// Whether all nodes are on the host of the process that answers, as far as their addresses tell.
    fn are_nodes_on_one_host(&self) -> bool {
        let is_own = |node: &&Member| !node.name.is_empty() && node.name == self.node.name;
        let own = self.nodes.iter().find(is_own).map_or("", |node| node.native.as_str());
        let hosts = [host_of(&self.services.http), host_of(own)];
        self.nodes
            .iter()
            .map(|node| host_of(&node.native))
            .all(|host| is_loopback(host) || hosts.contains(&host))
    }
}

#[derive(Deserialize)]
struct Df {
    free_bytes: u64,
    provisioned_bytes: u64,
    provisionable_bytes: u64,
    /// What drives can hold, and do hold.
    capacity_bytes: Option<u64>,
    used_bytes: Option<u64>,
    drives: Vec<DfDrive>,
}

#[derive(Deserialize)]
struct DfDrive {
    node: String,
}

impl Df {
    /// Copies of the first pool if nobody says how many.
    fn copies_by_default(&self) -> u32 {
        let nodes: BTreeSet<&str> = self.drives.iter().map(|drive| drive.node.as_str()).collect();
        // On one node copies are kept apart by drive.
        let members = if nodes.len() > 1 { nodes.len() } else { self.drives.len() };
        u32::try_from(members).unwrap_or(u32::MAX).clamp(1, DEFAULT_COPIES_MAX)
    }
}

impl System {
    fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        spec: &str,
        arguments: &[&str],
        context: &Context<'_>,
    ) -> Result<T, TargetError> {
        let mut all: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        all.push("--json".to_owned());
        all.extend_from_slice(&self.server);
        let patience = context.patience(ANSWER_TIME_MAX);
        let printed = output_of(&self.program.to_string_lossy(), &all, &[], patience)
            .map_err(|source| TargetError::Program { spec: spec.to_owned(), source })?;
        serde_json::from_str(&printed).map_err(|error| TargetError::Unusable {
            spec: spec.to_owned(),
            message: format!("{} printed something unexpected: {error}", all.join(" ")),
        })
    }

    fn begin(&mut self, spec: &str, context: &Context<'_>) -> Result<(), TargetError> {
        if self.status.is_some() {
            return Ok(());
        }
        self.program = context.program.clone();
        if self.is_local {
            let local = LocalCoquina::start(spec, context)?;
            self.server = vec!["--dir".to_owned(), local.data().to_string_lossy().into_owned()];
            self.local = Some(local);
        } else {
            self.server = context.server.clone();
        }
        let status: Status = self.ask(spec, &["status", "--interval", "0"], context)?;
        let list = self.list(spec, context)?;
        self.found =
            list.volumes.into_iter().find(|volume| volume.name == self.name).map(|volume| volume.facts);
        if let Some(found) = self.found
            && !context.may_destroy(spec, &self.name)
        {
            return Err(TargetError::HoldsData {
                spec: spec.to_owned(),
                name: self.name.clone(),
                what: format!("a volume of {}", coquina_base::format_size_bytes(found.size_bytes)),
            });
        }
        self.status = Some(status);
        Ok(())
    }

    /// The volumes that have a name.
    fn list(&self, spec: &str, context: &Context<'_>) -> Result<VolumeList, TargetError> {
        let mut list: VolumeList = self.ask(spec, &["volume", "list", "--interval", "0"], context)?;
        list.volumes.retain(|volume| !volume.is_going());
        Ok(list)
    }

    fn volume_name(&self, number: u32) -> String {
        if number == 0 { self.name.clone() } else { format!("{}-{number}", self.name) }
    }

    fn lay_out(&mut self, spec: &str, layout: &Layout, context: &Context<'_>) -> Result<bool, TargetError> {
        if !std::mem::take(&mut self.is_stale) && self.layout.as_ref() == Some(layout) {
            return Ok(false);
        }
        self.clear();
        let there = self.list(spec, context)?;
        if layout.volumes > u32::from(self.found.is_some()) {
            self.pool = self.pool_for(spec, layout.copies, context)?;
        }
        for number in 0..layout.volumes {
            let name = self.volume_name(number);
            if number > 0 || self.found.is_none() {
                let size = layout.volume_bytes.to_string();
                let mut arguments: Vec<String> =
                    ["volume", "create", &name, "--size", &size].map(str::to_owned).into();
                // The pool has as many copies as are asked for.
                match (&self.pool, layout.copies) {
                    (Some(pool), _) => arguments.extend(["--pool".to_owned(), pool.clone()]),
                    (None, Some(copies)) => {
                        arguments.extend(["--copies".to_owned(), copies.to_string()]);
                    }
                    (None, None) => {}
                }
                if let Some(stripe) = layout.stripe {
                    let (unit, count) = (stripe.unit.to_string(), stripe.count.to_string());
                    arguments.extend(["--stripe-unit".to_owned(), unit, "--stripe-count".to_owned(), count]);
                }
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                if (context.stopped)() {
                    return Err(TargetError::Stopped);
                }
                // Before it is made: that may be interrupted, and the volume be there all the same.
                if !self.is_local {
                    self.left.push(leftovers::note(self.left_text(&name, "")));
                }
                if let Err(error) = self.ask::<serde_json::Value>(spec, &arguments, context) {
                    self.left.pop();
                    self.tell_if_made(&name, &there, error.is_stop());
                    return Err(error);
                }
                self.made.push(name.clone());
            }
            self.volumes.push(name);
        }
        // What the server made of it, whatever was asked for.
        self.copies = self.list(spec, context)?.copies_of(&self.volumes);
        self.layout = Some(layout.clone());
        Ok(true)
    }

    /// Removes the volumes that were made. Says whether the server answered when it was last asked.
    fn clear(&mut self) -> bool {
        self.layout = None;
        self.copies = None;
        self.pool = None;
        self.volumes.clear();
        // A cluster that was made for the run takes its volumes along, and there are no notes of them.
        let mut notes = std::mem::take(&mut self.left).into_iter();
        let mut answers = true;
        for name in std::mem::take(&mut self.made) {
            let mut arguments: Vec<String> =
                ["volume", "remove", &name, "--yes", "--force"].map(str::to_owned).into();
            arguments.extend_from_slice(&self.server);
            let program = self.program.to_string_lossy();
            let note = notes.next();
            let run = || output_of(&program, &arguments, &[], Patience::of(REMOVE_TIME_MAX));
            let removed = answers && run().is_ok();
            // Somebody else may have removed it.
            let is_there = if removed || !answers { Some(!removed) } else { self.is_known(&name) };
            answers &= is_there.is_some();
            let is_gone = is_there == Some(false);
            if let Some(note) = note.filter(|_| !is_gone) {
                note.keep();
            }
        }
        answers
    }

    /// What is left if a volume is not removed, and how it is.
    fn left_text(&self, name: &str, which: &str) -> String {
        let server: Vec<String> = self.server.iter().map(leftovers::quoted).collect();
        format!("the volume {name}{which}: coquina volume remove {name} --yes {}", server.join(" "))
    }

    /// Tells of a volume whose making failed, if it was not there before and is now, or may be. Somebody else may have made it in the
    /// same moment, so that it is not removed.
    fn tell_if_made(&self, name: &str, before: &VolumeList, is_stopped: bool) {
        if self.is_local || before.volumes.iter().any(|volume| volume.name == name) {
            return;
        }
        // Who ends the run does not wait for the answer.
        match if is_stopped { None } else { self.is_known(name) } {
            Some(false) => {}
            Some(true) => leftovers::note(self.left_text(name, leftovers::MADE_ALL_THE_SAME)).keep(),
            None => leftovers::note(self.left_text(name, leftovers::MAY_BE_MADE)).keep(),
        }
    }

    /// Whether the server has a volume of this name, if it answers.
    fn is_known(&self, name: &str) -> Option<bool> {
        let list = ["volume", "list", "--interval", "0", "--json"].map(str::to_owned);
        let arguments = [&list[..], &self.server[..]].concat();
        let printed =
            output_of(&self.program.to_string_lossy(), &arguments, &[], Patience::of(REMOVE_TIME_MAX));
        let list: VolumeList = serde_json::from_str(&printed.ok()?).ok()?;
        Some(list.volumes.iter().any(|volume| !volume.is_going() && volume.name == name))
    }

    /// Whether the server runs on this machine.
    fn is_here(&self) -> bool {
        let http = self.status.as_ref().map_or("", |status| status.services.http.as_str());
        self.is_local
            || self.server.first().is_some_and(|option| option == "--dir")
            || http
                .to_socket_addrs()
                .is_ok_and(|mut addresses| addresses.any(|address| address.ip().is_loopback()))
    }

    /// Processes that serve it, if all of them are known: a part of them would be taken for all.
    fn processes(&self) -> Vec<u32> {
        let Some(status) = self.status.as_ref().filter(|_| self.is_here()) else { return Vec::new() };
        let supervised = match self.server.as_slice() {
            [option, folder] if option == "--dir" => nodes_of(Path::new(folder)),
            _ => Vec::new(),
        };
        let known = supervised.len().max(usize::from(!status.node.name.is_empty()));
        // Others are served by processes of other folders, here or on other hosts.
        if status.nodes.len() > known {
            return Vec::new();
        }
        let mut processes = supervised;
        processes.push(status.node.process);
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    /// Drives on this machine, if all are: those of other hosts have paths that mean something else here.
    fn places(&self) -> Vec<PathBuf> {
        let is_all_here = |status: &&Status| {
            self.is_here() && (status.are_nodes_on_one_host() || !self.processes().is_empty())
        };
        match self.status.as_ref().filter(is_all_here) {
            Some(status) => status.drives.iter().map(|drive| drive.path.clone()).collect(),
            None => Vec::new(),
        }
    }

    fn uri(&self, volume: &str) -> Option<String> {
        let address = self.status.as_ref()?.services.nbd.first()?;
        Some(match address.strip_prefix("unix:") {
            Some(path) => format!("nbd+unix:///{volume}?socket={path}"),
            None => format!("nbd://{address}/{volume}"),
        })
    }
}

/// Processes of the nodes of a supervisor on this folder: each holds a lock file with its number.
pub fn nodes_of(folder: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let locks = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("lock")).ok());
    locks.filter_map(|text| text.lines().next()?.trim().parse().ok()).collect()
}

/// The option of `coquina up` that a setting names.
fn option_of<'a>(spec: &str, key: &'a str) -> Result<&'a str, TargetError> {
    key.strip_prefix("coquina:").ok_or_else(|| TargetError::Wrong {
        spec: spec.to_owned(),
        message: format!(
            "{key} is no setting of it; write coquina:OPTION=VALUE, fio:KEY=VALUE or os:KEY=VALUE"
        ),
    })
}

fn not_started_again(spec: &str) -> TargetError {
    TargetError::Wrong {
        spec: spec.to_owned(),
        message: "options of a server that runs cannot be changed; use coquina-local".to_owned(),
    }
}

/// Volumes of a Coquina cluster, one way to them.
pub struct CoquinaTarget {
    spec: String,
    system: Shared,
    by_nbd: bool,
}

impl CoquinaTarget {
    /// On a cluster that is made for the run.
    pub fn local(spec: &str, system: Shared, by_nbd: bool) -> Self {
        CoquinaTarget { spec: spec.to_owned(), system, by_nbd }
    }

    /// On a cluster that runs.
    pub fn running(spec: &str, system: Shared, by_nbd: bool) -> Self {
        CoquinaTarget { spec: spec.to_owned(), system, by_nbd }
    }
}

/// Most memory for the block cache of each node, as their command lines have it; `coquina up` gives it to nodes also where its user did not
/// say it. `None` where none of them does.
fn cache_memory(processes: &[u32]) -> Option<String> {
    let lines = processes.iter().filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
    let mut found: Vec<u64> = lines.filter_map(|line| cache_memory_of(&line)).collect();
    found.sort_unstable();
    found.dedup();
    let sizes: Vec<String> = found.into_iter().map(coquina_base::format_size_bytes).collect();
    (!sizes.is_empty()).then(|| format!("up to {} in each node", sizes.join(" or ")))
}

/// Of a command line as the kernel gives it: words that end in zeros.
fn cache_memory_of(line: &[u8]) -> Option<u64> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split('\0');
    let value = words.find_map(|word| match word.strip_prefix("--cache-memory")? {
        "" => Some(None),
        rest => rest.strip_prefix('=').map(Some),
    })?;
    coquina_base::parse_size_bytes(value.or_else(|| words.next())?).ok()
}

impl Target for CoquinaTarget {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn begin(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        let mut system = self.system.borrow_mut();
        system.begin(&self.spec, context)?;
        if self.by_nbd && system.uri("x").is_none() {
            return Err(TargetError::Unusable {
                spec: self.spec.clone(),
                message: "the server has no NBD address; start it with --nbd, or use coquina:VOLUME"
                    .to_owned(),
            });
        }
        Ok(())
    }

    fn facts(&self) -> TargetFacts {
        let system = self.system.borrow();
        let version = system.status.as_ref().map_or("", |status| status.node.version.as_str());
        let places = system.places();
        let mut facts = TargetFacts {
            label: if self.by_nbd { "Coquina, NBD" } else { "Coquina" }.to_owned(),
            spec: self.spec.clone(),
            system: format!("Coquina {version}"),
            copies: system.copies,
            // Every write is on stable storage on all copies in sync before it is answered, whatever the client asks.
            durable: medium::durable_at(&places, Some(true)),
            cache: format!("none in the client; a read cache in the servers{}", medium::memory_note(&places)),
            generator: if self.by_nbd { "fio nbd" } else { "coquina native" }.to_owned(),
            ..TargetFacts::default()
        };
        if let Some(stripe) = system.layout.as_ref().and_then(|layout| layout.stripe) {
            let text = format!("{} x {}", coquina_base::format_size_bytes(stripe.unit), stripe.count);
            facts.settings.insert("striping".to_owned(), text);
        }
        if let Some(local) = &system.local {
            facts.settings.extend(local.settings());
        }
        if let Some(text) = system.pool_text() {
            facts.settings.insert("pool".to_owned(), text);
        }
        if let Some(text) = cache_memory(&system.processes()) {
            facts.settings.insert("cache memory".to_owned(), text);
        }
        facts
    }

    fn space_bytes(&self, copies: Option<u32>, context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        let system = self.system.borrow();
        let df: Df = system.ask(&self.spec, &["df"], context)?;
        let mine = system.own_bytes();
        let free = df.provisionable_bytes.saturating_sub(df.provisioned_bytes).min(df.free_bytes) + mine;
        let copies = system.copies_of_volumes(&self.spec, copies, &df, context)?;
        // A volume that is there has been counted already, but perhaps not been written: what is free may be less than its size.
        let of_found = |found: VolumeFacts| found.size_bytes.min((df.free_bytes + mine) / copies);
        Ok(Some(system.found.map_or(free / copies, of_found)))
    }

    fn careful_bytes(&self, copies: Option<u32>, context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        let system = self.system.borrow();
        let df: Df = system.ask(&self.spec, &["df"], context)?;
        let copies = system.copies_of_volumes(&self.spec, copies, &df, context)?;
        let careful = df.careful_bytes(system.own_bytes()) / copies;
        Ok(Some(system.found.map_or(careful, |found| found.size_bytes.min(careful))))
    }

    fn refuses(&self, layout: &Layout) -> Option<String> {
        let system = self.system.borrow();
        let found = system.found?;
        if layout.copies.is_some_and(|copies| copies != found.copies) {
            return Some(format!("the volume that was named has {} copies", found.copies));
        }
        // How full a volume of any size makes the store cannot be said.
        let is_made_for_it = layout.stripe.is_some() || layout.aged.is_some();
        is_made_for_it
            .then(|| "the volume that was named is as it is; name one that does not exist".to_owned())
    }

    fn is_store_shared(&self) -> bool {
        !self.system.borrow().is_local
    }

    fn refuses_point(&self, point: &Point) -> Option<String> {
        // At a rate all targets have the same generator, pinned in the same way.
        let pinned = point.placement.is_some() && point.rate_iops.is_none() && !self.by_nbd;
        pinned.then(|| "jobs are pinned to processors with fio only".to_owned())
    }

    fn lay_out(&mut self, layout: &Layout, context: &Context<'_>) -> Result<bool, TargetError> {
        self.system.borrow_mut().lay_out(&self.spec, layout, context)
    }

    fn forget_layout(&mut self) {
        self.system.borrow_mut().is_stale = true;
    }

    fn commands(&self, load: &Load, volumes: &[u32]) -> Vec<Command> {
        let system = self.system.borrow();
        let names = volumes.iter().filter_map(|volume| system.volumes.get(*volume as usize));
        if self.by_nbd {
            let uris: Vec<String> = names.filter_map(|name| system.uri(name)).collect();
            return super::nbd::nbd_commands(&system.program, &uris, load);
        }
        let targets: Vec<String> = names.map(|name| format!("volume:{name}")).collect();
        coquina::commands(&system.program, &targets, &system.server, load)
    }

    fn open_loop(&self) -> OpenLoop {
        if self.by_nbd { OpenLoop::InPlaceOfFio } else { OpenLoop::Native }
    }

    fn fio_engine(&self) -> Option<String> {
        self.by_nbd.then(|| "nbd".to_owned())
    }

    fn processes(&self) -> Vec<u32> {
        self.system.borrow().processes()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.system.borrow().places()
    }

    fn reach(&self) -> Reach {
        let system = self.system.borrow();
        match self.by_nbd {
            false => reach::of_native_client(),
            true if system.is_local => reach::of_local_cluster(),
            // Its address is known when the server was found.
            true => reach::of_uris(system.uri(&system.name).as_deref()),
        }
    }

    fn effect(&self, key: &str, _context: &Context<'_>) -> Result<Effect, TargetError> {
        LocalCoquina::check_option(&self.spec, option_of(&self.spec, key)?)?;
        if self.system.borrow().is_local { Ok(Effect::AtStart) } else { Err(not_started_again(&self.spec)) }
    }

    fn restart(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        let mut system = self.system.borrow_mut();
        system.local.as_mut().ok_or_else(|| not_started_again(&self.spec))?.restart(context)?;
        // It listens on other ports now.
        system.status = Some(system.ask(&self.spec, &["status", "--interval", "0"], context)?);
        Ok(())
    }

    fn setting(&self, key: &str, _context: &Context<'_>) -> Result<Option<String>, TargetError> {
        let option = option_of(&self.spec, key)?;
        let system = self.system.borrow();
        Ok(system.local.as_ref().ok_or_else(|| not_started_again(&self.spec))?.option(option))
    }

    fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), TargetError> {
        let option = option_of(&self.spec, key)?;
        let mut system = self.system.borrow_mut();
        system.local.as_mut().ok_or_else(|| not_started_again(&self.spec))?.set(option, value);
        Ok(())
    }

    fn ailment(&self, context: &Context<'_>) -> Option<String> {
        self.system.borrow().ailment(context.stopped)
    }

    fn end(&mut self) {
        let mut system = self.system.borrow_mut();
        if system.is_local {
            // They go with the cluster.
            system.made.clear();
        }
        let answers = system.clear();
        system.remove_pools(answers);
        system.local = None;
        system.status = None;
    }
}

impl Drop for CoquinaTarget {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
