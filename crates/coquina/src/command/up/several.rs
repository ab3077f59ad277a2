//! Several nodes, each a process of its own under this one.
//!
//! The order of the start: lock, HTTP port, store and map, coordinator, nodes, first pool, NBD gateway; the server says
//! where it listens last. The stop: gateway and coordinator first, so that nobody is taken for dead, then all nodes, then
//! the store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use coquina_base::ClusterId;
use coquina_control::{ControlListener, FolderLock, MapService};
use coquina_node::{HostMemory, Node, default_bound_bytes, default_index_bytes};
use coquina_store::EmbeddedStore;

use super::child::{ChildSpec, Event, FORCE};
use super::supervisor::{Started, Supervisor, note_removal};
use super::{Checked, STORE_FOLDER_NAME, plan};
use crate::arguments::{Global, Tuning, Up};
use crate::command::drive_argument::parse;
use crate::command::serving::control::{Control, ControlSpec};
use crate::command::serving::first_start::FirstStart;
use crate::command::serving::made::Before;
use crate::command::serving::{address, membership};
use crate::command::store::Served;
use crate::command::{processors, serving};
use crate::error::CliError;

/// Where a node listens unless the user says something else: the system chooses the port.
const ANY_PORT: &str = "127.0.0.1:0";

pub fn run(global: &Global, up: &Up, checked: Checked) -> Result<(), CliError> {
    let (sender, events) = mpsc::channel();
    let asks = sender.clone();
    let ask = move || {
        // A receiver that is gone means that the process is ending anyway.
        let _ = asks.send(Event::Stop);
    };
    let stop = serving::Stop::watch(&up.running, ask)?;
    let lock = FolderLock::acquire(&global.dir)?;
    let listener = address::bind_http(&up.http, &up.running)?;
    let first = FirstStart::look(&global.dir, &checked.nodes.names())?;
    let (before, cluster) = (Before::default(), ClusterId::default());
    let mut started = StartedWith { before, cluster, is_used: false };
    let result = with_store((global, up, checked), (&lock, listener, &stop), (sender, events), &mut started);
    let result = result.and(lock.withdraw().map_err(CliError::from));
    if let (Err(_), Some(first), false) = (&result, first, started.is_used) {
        first.take_back(&started.before, |drive| drive.cluster == started.cluster);
    }
    result?;
    serving::tell_stopped();
    Ok(())
}

/// What a start that is refused needs to take back what it has made.
struct StartedWith {
    /// The drives as they were.
    before: Before,
    /// The cluster, once it is known.
    cluster: ClusterId,
    /// Whether it has said that it serves, or somebody has made a volume.
    is_used: bool,
}

fn with_store(
    (global, up, checked): (&Global, &Up, Checked),
    (lock, listener, stop): (&FolderLock, ControlListener, &serving::Stop),
    events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    started: &mut StartedWith,
) -> Result<(), CliError> {
    let folder = global.dir.join(STORE_FOLDER_NAME);
    let is_made = !EmbeddedStore::is_in(&folder);
    let store = EmbeddedStore::open(&folder, None).map_err(|error| CliError::failed(error.to_string()))?;
    let served = Served::start(store.clone(), &folder)?;
    let maps = MapService::start(Arc::new(store), &global.dir, true, &mut serving::tell_waiting())
        .map_err(serving::map_failed)?;
    started.cluster = maps.cluster();
    let is_new = maps.map().nodes().next().is_none();
    let result = prepare(global, up, checked, &maps).and_then(|(checked, specs)| {
        started.before = specs.before;
        let (sender, asks) = (events.0.clone(), events.0);
        let ask = move || {
            // A receiver that is gone means that the process is ending anyway.
            let _ = asks.send(Event::Stop);
        };
        let mut supervisor = Supervisor::new(specs.children, sender, events.1);
        stop.serving();
        let result = Scene {
            global,
            up,
            checked: &checked,
            lock,
            stop,
            maps: &maps,
            is_new,
            is_made,
            before: &started.before,
            has_served: &mut started.is_used,
        }
        .play(listener, &mut supervisor, ask);
        supervisor.stop();
        result
    });
    maps.stop();
    started.is_used |= maps.map().volumes().next().is_some();
    drop(maps);
    served.stop();
    result
}

/// The nodes that are started, and their drives as they are before.
struct Specs {
    children: Vec<ChildSpec>,
    before: Before,
}

/// Says who is started with which drives.
fn prepare(
    global: &Global,
    up: &Up,
    mut checked: Checked,
    maps: &MapService,
) -> Result<(Checked, Specs), CliError> {
    checked.nodes.check_enough(&global.dir, &maps.map())?;
    // Before drives are dealt out: a node that went while it was down takes none.
    for name in removed_while_down(&global.dir, &checked.nodes, maps)? {
        note_removal(&name, &mut |name| {
            checked.nodes.remove(name);
            checked.nodes.write(&global.dir)
        });
    }
    if checked.nodes.names().is_empty() {
        return Err(plan::no_nodes(&global.dir));
    }
    let dealt = plan::deal(&global.dir, &checked.nodes.names(), checked.drives.clone(), &maps.map())?;
    let paths = dealt.iter().flatten().map(|drive| parse(drive).map(|drive| drive.path));
    let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
    let before = Before::look(paths.iter().map(PathBuf::as_path));
    let children = child_specs(global, up, &checked, dealt);
    Ok((checked, Specs { children, before }))
}

/// What the nodes run in.
struct Scene<'a> {
    global: &'a Global,
    up: &'a Up,
    checked: &'a Checked,
    lock: &'a FolderLock,
    stop: &'a serving::Stop,
    maps: &'a Arc<MapService>,
    /// Whether no node has joined yet.
    is_new: bool,
    /// Whether the cluster was made just now.
    is_made: bool,
    before: &'a Before,
    /// Whether it has said that it serves.
    has_served: &'a mut bool,
}

impl Scene<'_> {
    fn play(
        &mut self,
        listener: ControlListener,
        supervisor: &mut Supervisor,
        ask: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), CliError> {
        let config =
            serving::gateway_config(self.checked.nbd.clone(), &self.up.running, &self.up.tuning.threads);
        let gateway = Node::start(config, self.maps.clone())?;
        let spec = ControlSpec {
            maps: self.maps.clone(),
            backend: gateway.clone(),
            node: None,
            may_lead: true,
            nbd: gateway.nbd_addresses(),
            native: String::new(),
        };
        let served = Control::start(spec, listener, &self.up.running, ask).and_then(|control| {
            let result = self.serve(&control, supervisor);
            gateway.stop();
            control.stop(&|| false);
            result
        });
        gateway.stop();
        served
    }

    fn serve(&mut self, control: &Control, supervisor: &mut Supervisor) -> Result<(), CliError> {
        // As late as can be: a start that fails before leaves the folder with as many nodes as it had.
        self.checked.nodes.write(&self.global.dir)?;
        let Some(started) = supervisor.start()? else {
            return if self.stop.was_signalled() { Err(CliError::Interrupted) } else { Ok(()) };
        };
        let mut note = |removed: &str| {
            let mut nodes = plan::NodesFile::choose(&self.global.dir, None)?;
            nodes.remove(removed);
            nodes.write(&self.global.dir)
        };
        started.removed.iter().for_each(|name| note_removal(name, &mut note));
        self.check_started(&started)?;
        super::prepare_pool(&control.file.http, self.up.overcommit, self.checked.copies, self.up.copies)?;
        let what = format!("{} with {} nodes", self.global.dir.display(), self.checked.nodes.names().len());
        let hint = serving::volume_hint(&self.global.dir);
        let made = self.before.made().with_cluster(&self.global.dir, self.is_made);
        *self.has_served = true;
        serving::announce(self.global, self.lock, &control.file, &what, &hint, Some(&made))?;
        supervisor.run(&mut note)?;
        serving::tell_stopping();
        Ok(())
    }

    /// A node that fails at the very first start is a mistake in the options; later the others serve without it.
    fn check_started(&self, started: &Started) -> Result<(), CliError> {
        let Some((name, how)) = started.failed.first() else {
            return if started.ready.is_empty() { Err(plan::no_nodes(&self.global.dir)) } else { Ok(()) };
        };
        if self.is_new || started.ready.is_empty() {
            return Err(CliError::failed(format!("{name} did not start ({how}); what it said is above")));
        }
        for (name, how) in &started.failed {
            tracing::error!(
                node = name,
                "did not start ({how}); going on without it, and trying again after growing pauses of 3 to 60 s"
            );
        }
        Ok(())
    }
}

/// Names of nodes that were in the map and are not any more.
fn removed_while_down(
    folder: &Path,
    nodes: &plan::NodesFile,
    maps: &MapService,
) -> Result<Vec<String>, CliError> {
    let (map, cluster) = (maps.map(), maps.cluster());
    let mut removed = Vec::new();
    for name in nodes.names() {
        if membership::was_removed(&folder.join(&name), cluster, &map)? {
            removed.push(name);
        }
    }
    Ok(removed)
}

fn child_specs(global: &Global, up: &Up, checked: &Checked, dealt: Vec<Vec<String>>) -> Vec<ChildSpec> {
    let names = checked.nodes.names();
    let tuning = share(&up.tuning, names.len() as u64);
    let reactors = up.tuning.threads.reactors.map(usize::from);
    let reactors: Vec<usize> = dealt.iter().map(|drives| reactors.unwrap_or(drives.len()).max(1)).collect();
    let bound = processors::deal(&up.tuning.bind_cpu, &reactors);
    let spec = |(index, (name, drives)): (usize, (String, Vec<String>))| {
        let folder = global.dir.join(&name);
        let listen = if index == 0 { up.listen.as_str() } else { ANY_PORT };
        let arguments =
            child_arguments(&name, &folder, &global.dir.join(STORE_FOLDER_NAME), listen, up, &drives);
        let bound = vec![OsString::from(&bound[index])];
        ChildSpec { name, folder, arguments: [arguments, tuning.clone(), bound].concat() }
    };
    names.into_iter().zip(dealt).enumerate().map(spec).collect()
}

fn child_arguments(
    name: &str,
    folder: &Path,
    store: &Path,
    listen: &str,
    up: &Up,
    drives: &[String],
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["node".into(), "--dir".into(), PathBuf::from(folder).into()];
    arguments.extend(["--name", name, "--listen", listen, "--http", ANY_PORT].map(OsString::from));
    arguments.extend(["--store-folder".into(), PathBuf::from(store).into()]);
    arguments.extend(["--no-coordinator", "--stop-with-input"].map(OsString::from));
    for drive in drives {
        arguments.extend(["--drive", drive].map(OsString::from));
    }
    let flags = [
        (up.force, FORCE),
        (up.running.insecure, "--insecure"),
        (up.running.no_volume_metrics, "--no-volume-metrics"),
    ];
    arguments.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| OsString::from(flag)));
    arguments
}

/// What each of so many nodes may take of the host: what the user says, or its share of what a single node would take.
fn share(tuning: &Tuning, nodes: u64) -> Vec<OsString> {
    let memory = HostMemory::read();
    let index = tuning.index_memory.unwrap_or_else(|| default_index_bytes(memory) / nodes);
    let cache = tuning.cache_memory.unwrap_or_else(|| default_bound_bytes(memory) / nodes);
    let mut arguments = vec!["--index-memory".to_owned(), index.to_string()];
    arguments.extend(["--cache-memory".to_owned(), cache.to_string()]);
    arguments.extend(["--zero-ahead".to_owned(), tuning.zero_ahead.to_string()]);
    arguments.extend(tuning.tcp_only.then(|| "--tcp-only".to_owned()));
    arguments.extend(["--busy-poll-us".to_owned(), tuning.threads.busy_poll.busy_poll_us.to_string()]);
    if let Some(reactors) = tuning.threads.reactors {
        arguments.extend(["--reactors".to_owned(), reactors.to_string()]);
    }
    arguments.into_iter().map(OsString::from).collect()
}
