//! One node: everything in this process.
//!
//! The order of the start: lock, HTTP port, store and map, drives and reactors, control plane, first pool; the server says
//! where it listens last. The stop goes backwards.

use std::sync::{Arc, mpsc};

use coquina_base::ClusterId;
use coquina_control::{ControlListener, FolderLock, MapService, NodeFile};
use coquina_node::{Node, NodeConfig, NodeIdentity};
use coquina_store::EmbeddedStore;

use super::{Checked, STORE_FOLDER_NAME};
use crate::arguments::{Domains, Global, Up};
use crate::command::processors;
use crate::command::serving::control::{Control, ControlSpec};
use crate::command::serving::first_start::FirstStart;
use crate::command::serving::made::Before;
use crate::command::serving::{self, address, drives};
use crate::error::CliError;
use crate::output;

pub fn run(global: &Global, up: &Up, checked: Checked) -> Result<(), CliError> {
    let (ask, stopped) = serving::stop_channel();
    let stop = serving::Stop::watch(&up.running, ask.clone())?;
    let lock = FolderLock::acquire(&global.dir)?;
    let listener = address::bind_http(&up.http, &up.running)?;
    let first = FirstStart::look(&global.dir, &[])?;
    let is_new = !EmbeddedStore::is_in(&global.dir.join(STORE_FOLDER_NAME));
    let store = EmbeddedStore::open(&global.dir.join(STORE_FOLDER_NAME), None)
        .map_err(|error| CliError::failed(error.to_string()));
    let maps = store.and_then(|store| {
        MapService::start(Arc::new(store), &global.dir, true, &mut serving::tell_waiting())
            .map_err(serving::map_failed)
    });
    let before = Before::default();
    let mut scene = Scene { global, up, lock: &lock, stop: &stop, is_new, before, has_served: false };
    let served = match &maps {
        Ok(maps) => scene.play(checked, listener, maps, ask, &stopped),
        Err(_) => Ok(()),
    };
    let cluster = maps.as_ref().map_or_else(|_| ClusterId::default(), |maps| maps.cluster());
    let is_empty = maps.as_ref().map_or(true, |maps| {
        maps.stop();
        maps.map().volumes().next().is_none()
    });
    let served = maps.and(served).and(lock.withdraw().map_err(CliError::from));
    if let (Err(_), Some(first)) = (&served, first)
        && is_empty
        && !scene.has_served
    {
        first.take_back(&scene.before, |drive| drive.cluster == cluster);
    }
    served?;
    serving::tell_stopped();
    Ok(())
}

/// What the node runs in.
struct Scene<'a> {
    global: &'a Global,
    up: &'a Up,
    lock: &'a FolderLock,
    stop: &'a serving::Stop,
    /// Whether the cluster was made just now.
    is_new: bool,
    /// The drives as they were.
    before: Before,
    /// Whether it has said that it serves.
    has_served: bool,
}

impl Scene<'_> {
    fn play(
        &mut self,
        checked: Checked,
        listener: ControlListener,
        maps: &Arc<MapService>,
        ask: impl Fn() + Send + Sync + 'static,
        stopped: &mpsc::Receiver<()>,
    ) -> Result<(), CliError> {
        let (global, up) = (self.global, self.up);
        let identity = NodeFile::open(&global.dir)?;
        let chosen = drives::choose(Some(&global.dir), checked.drives, &maps.map(), identity.node, up.force)?;
        chosen.notes.iter().for_each(output::tell);
        self.before = Before::look(chosen.drives.iter().map(|drive| drive.path.as_path()));
        let config = NodeConfig {
            identity: Some(NodeIdentity {
                id: identity.node,
                name: identity.name.clone().unwrap_or_else(serving::host_name),
                http: listener.address().to_owned(),
                domains: Domains::from([(serving::HOST_LABEL.to_owned(), serving::host_name())]),
            }),
            drives: chosen.drives,
            native: Some(up.listen.clone()),
            nbd: checked.nbd,
            insecure: up.running.insecure,
            index_memory_bytes: up.tuning.index_memory,
            cache_memory_bytes: up.tuning.cache_memory,
            zero_ahead_bytes: up.tuning.zero_ahead,
            tcp_only: up.tuning.tcp_only,
            busy_poll_ns: up.tuning.threads.busy_poll.limit_ns(),
            bind_cpu: processors::of_node(&up.tuning.bind_cpu),
            reactors: up.tuning.threads.reactors.map(usize::from),
            folder: Some(self.global.dir.clone()),
        };
        let node = Node::start(config, maps.clone())?;
        let spec = ControlSpec {
            maps: maps.clone(),
            backend: node.clone(),
            node: Some(identity.node),
            may_lead: true,
            nbd: node.nbd_addresses(),
            native: node.native_address(),
        };
        let served = Control::start(spec, listener, &up.running, ask).and_then(|control| {
            let what = global.dir.display().to_string();
            let announced = super::prepare_pool(&control.file.http, up.overcommit, checked.copies, up.copies)
                .and_then(|()| {
                    let hint = serving::volume_hint(&global.dir);
                    let made = self.before.made().with_cluster(&global.dir, self.is_new);
                    self.has_served = true;
                    serving::announce(global, self.lock, &control.file, &what, &hint, Some(&made))
                });
            if announced.is_ok() {
                self.stop.serving();
                // An error would mean that nobody can ask for a stop any more.
                let _ = stopped.recv();
                serving::tell_stopping();
            }
            control.stop(&|| false);
            announced
        });
        node.stop();
        served
    }
}
