//! The loop of the process that leads: feeds the coordinator and does what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coquina_base::NodeId;
use coquina_cluster::{
    Action, ClusterHealth, Coordinator, Event, Heartbeat, Key, MapError, MapView, NodeRequest, Placement,
    PlacementError, PoolId, Record, Settings, VolumeState, Write, WriteOutcome,
};
use coquina_store::{Compare, Leadership, Snapshot, Store, StoreError, Watch, Watched};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::Shared;
use crate::api::{HeartbeatReply, LeaderHealth};
use crate::client::Client;
use crate::clock::boottime_ns;
use crate::journal;
use crate::map_service::{Leader, LeaderSeen, decode_revision, decode_snapshot, read_prefix, transaction};

/// How often the coordinator looks at the clock: at least four times within the time after which a node is dead.
const TICK: Duration = Duration::from_millis(100);
/// Pause after an error of the store that passes.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How often removed volumes are looked at.
const VOLUMES_INTERVAL_NS: u64 = 1_000_000_000;
/// How long the leader before has to answer to count as alive.
const PROBE_TIME_MAX: Duration = Duration::from_millis(300);

/// What comes to the loop from other threads and tasks.
pub(super) enum Input {
    Heartbeat(Heartbeat, oneshot::Sender<HeartbeatReply>),
    Health(oneshot::Sender<LeaderHealth>),
    Written {
        key: Key,
        outcome: WriteOutcome,
    },
    Placed {
        pool: PoolId,
        result: Result<Placement, PlacementError>,
    },
    Read {
        token: u64,
        snapshot: Snapshot,
    },
    /// The leader before does not answer: its node, and since when at the latest.
    PredecessorSilent {
        node: NodeId,
        since_ns: u64,
    },
    /// A fence did not hold: somebody else leads.
    FencedOut,
}

/// How a leadership ended.
pub(super) enum Ended {
    Stopped,
    Replaced,
    Halted(MapError),
}

pub(super) struct Lead<'a> {
    shared: &'a Arc<Shared>,
    store: Arc<dyn Store>,
    leadership: Leadership,
    inputs: mpsc::UnboundedSender<Input>,
    before: Option<LeaderSeen>,
    /// What nodes are to be told with the answer to their next heartbeat.
    tell: BTreeMap<NodeId, Vec<NodeRequest>>,
    /// The map that nodes said they have.
    revisions: BTreeMap<NodeId, u64>,
    volumes_looked_at_ns: u64,
    /// Volumes whose record is being deleted.
    deleting: BTreeMap<Key, u64>,
    /// Nodes that count as dead, as the log was told.
    dead: BTreeSet<NodeId>,
}

impl<'a> Lead<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        leadership: Leadership,
        inputs: mpsc::UnboundedSender<Input>,
        before: Option<LeaderSeen>,
    ) -> Lead<'a> {
        Lead {
            shared,
            store: shared.map.store().clone(),
            leadership,
            inputs,
            before,
            tell: BTreeMap::new(),
            revisions: BTreeMap::new(),
            volumes_looked_at_ns: 0,
            deleting: BTreeMap::new(),
            dead: BTreeSet::new(),
        }
    }

    /// Leads until that ends. The lease is watched by the caller.
    pub(super) async fn run(
        mut self,
        mut inputs: mpsc::UnboundedReceiver<Input>,
    ) -> Result<Ended, StoreError> {
        self.probe_leader_before();
        let snapshot = read_all(&*self.store).await?;
        let map = match load(&snapshot) {
            Ok(map) => map,
            Err(error) => return Ok(Ended::Halted(error)),
        };
        let mut coordinator = Coordinator::new(Settings::default(), map, boottime_ns());
        let mut watch = self.store.watch(read_prefix(), snapshot.revision + 1)?;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut actions = Vec::new();
        loop {
            let event = tokio::select! {
                Some(input) = inputs.recv() => self.take(input, &mut coordinator),
                watched = watch.next() => match self.watched(watched, &mut watch).await? {
                    Ok(event) => Next::Apply(event),
                    Err(error) => Next::End(Ended::Halted(error)),
                },
                _ = ticks.tick() => Next::Apply(Event::Tick),
            };
            let is_tick = matches!(event, Next::Apply(Event::Tick));
            let reply = match event {
                Next::Apply(event) => {
                    coordinator.apply(boottime_ns(), event, &mut actions);
                    None
                }
                Next::Heartbeat(heartbeat, reply) => {
                    let node = heartbeat.node;
                    self.revisions.insert(node, heartbeat.map_revision);
                    coordinator.apply(boottime_ns(), Event::Heartbeat(heartbeat), &mut actions);
                    Some((node, reply))
                }
                Next::Nothing => None,
                Next::End(ended) => return Ok(ended),
            };
            for action in actions.drain(..) {
                if let Action::Halt(error) = action {
                    return Ok(Ended::Halted(error));
                }
                self.perform(action, coordinator.map());
            }
            if is_tick {
                self.tell_dead(&coordinator);
            }
            if let Some((node, reply)) = reply {
                let requests = self.tell.remove(&node).unwrap_or_default();
                // Who asked may have given up.
                let _ = reply.send(HeartbeatReply { requests });
            }
            self.forget_removed_volumes(&coordinator);
        }
    }

    /// A killed leader's node need not be watched anew: the node of this process has watched it. Whether it lives all the
    /// same is asked at its own address.
    fn probe_leader_before(&self) {
        let Some(LeaderSeen { leader, heard }) = self.before.clone() else { return };
        let Leader { http, node: Some(node), .. } = leader else { return };
        // Without a node nothing was asked of it.
        if self.shared.config.node.is_none_or(|own| own == node) {
            return;
        }
        let silence_ns = u64::try_from(heard.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let since_ns = boottime_ns().saturating_sub(silence_ns);
        let inputs = self.inputs.clone();
        tokio::task::spawn_blocking(move || {
            let client = Client::with_patience(&http, PROBE_TIME_MAX, PROBE_TIME_MAX);
            if client.and_then(|client| client.local()).is_err() {
                tracing::warn!(%node, "the node that led does not answer");
                let _ = inputs.send(Input::PredecessorSilent { node, since_ns });
            }
        });
    }

    fn take(&mut self, input: Input, coordinator: &mut Coordinator) -> Next {
        match input {
            Input::Heartbeat(heartbeat, reply) => Next::Heartbeat(heartbeat, reply),
            Input::Health(reply) => {
                let (liveness, now_ns) = (coordinator.liveness(), boottime_ns());
                let nodes = || coordinator.map().nodes().map(|node| node.value.id);
                let dead = nodes().filter(|node| liveness.is_node_dead(*node)).collect();
                let heard = Some(nodes().filter(|node| liveness.is_node_heard(*node, now_ns)).collect());
                let silent =
                    |node| liveness.silent_ns(node, now_ns).map(|time_ns| (node, time_ns / 1_000_000));
                let silent_ms = nodes().filter_map(silent).collect();
                let health = ClusterHealth::of(coordinator);
                let _ = reply.send(LeaderHealth { health, dead, heard, silent_ms });
                Next::Nothing
            }
            Input::Written { key, outcome } => {
                // What this loop writes itself is none of the coordinator's.
                match self.deleting.remove(&key) {
                    Some(_) => Next::Nothing,
                    None => Next::Apply(Event::Written { key, outcome }),
                }
            }
            Input::Placed { pool, result } => Next::Apply(Event::Placed { pool, result }),
            Input::Read { token, snapshot } => match decode_snapshot(&snapshot) {
                Ok(records) => Next::Apply(Event::Read { token, records, revision: snapshot.revision }),
                Err(error) => Next::End(Ended::Halted(error)),
            },
            Input::PredecessorSilent { node, since_ns } => {
                coordinator.predecessor_silent(node, since_ns);
                Next::Apply(Event::Tick)
            }
            Input::FencedOut => Next::End(Ended::Replaced),
        }
    }

    /// What the watch told; a lost watch is begun anew after everything was read again.
    async fn watched(
        &self,
        watched: Option<Result<Watched, StoreError>>,
        watch: &mut Watch,
    ) -> Result<Result<Event, MapError>, StoreError> {
        match watched {
            Some(Ok(Watched::Revision(revision))) => Ok(decode_revision(&revision)
                .map(|changes| Event::Changed { revision: revision.revision, changes })),
            Some(Err(error)) if !error.is_passing() => Err(error),
            _ => {
                let snapshot = read_all(&*self.store).await?;
                *watch = self.store.watch(read_prefix(), snapshot.revision + 1)?;
                Ok(decode_snapshot(&snapshot).map(|records| Event::Read {
                    token: 0,
                    records,
                    revision: snapshot.revision,
                }))
            }
        }
    }

    /// Tells the log which nodes count as dead from now on, and which do not any more.
    fn tell_dead(&mut self, coordinator: &Coordinator) {
        let (map, liveness) = (coordinator.map(), coordinator.liveness());
        for node in map.nodes().map(|node| &node.value) {
            match (liveness.is_node_dead(node.id), self.dead.contains(&node.id)) {
                (true, false) => {
                    tracing::warn!(node = node.name, id = %node.id, "a node is silent or stops, and is left out");
                    self.dead.insert(node.id);
                }
                (false, true) => {
                    tracing::info!(node = node.name, id = %node.id, "a node that was left out is there again");
                    self.dead.remove(&node.id);
                }
                _ => {}
            }
        }
    }

    fn perform(&mut self, action: Action, map: &MapView) {
        match action {
            Action::Write(write) => self.write(write, map),
            Action::Tell { node, request } => {
                let requests = self.tell.entry(node).or_default();
                if !requests.contains(&request) {
                    requests.push(request);
                }
            }
            Action::Place(job) => {
                let inputs = self.inputs.clone();
                tokio::task::spawn_blocking(move || {
                    let _ = inputs.send(Input::Placed { pool: job.pool, result: job.place() });
                });
            }
            Action::ReadAll { token } => {
                let (store, inputs) = (self.store.clone(), self.inputs.clone());
                tokio::spawn(async move {
                    // Without an answer the coordinator asks again.
                    if let Ok(snapshot) = store.read(read_prefix()).await {
                        let _ = inputs.send(Input::Read { token, snapshot });
                    }
                });
            }
            // Taken by the caller.
            Action::Halt(_) => {}
        }
    }

    /// Makes a fenced write in the background.
    fn write(&self, write: Write, before: &MapView) {
        let lines = journal::lines(before, &write);
        let (store, inputs, fence) = (self.store.clone(), self.inputs.clone(), self.leadership.fence());
        let (key, map) = (write.key, self.shared.map.clone());
        tokio::spawn(async move {
            let result = store.transaction(transaction(write, Some(fence.clone()))).await;
            let outcome = match result {
                Ok(_) => {
                    map.changes_taken();
                    lines.iter().for_each(journal::Line::tell);
                    WriteOutcome::Done
                }
                Err(StoreError::Conflict { current, .. }) => {
                    let holds = |fence: &Compare| match fence {
                        Compare::CreateRevision { key, revision } => {
                            current.iter().any(|item| item.key == *key && item.create_revision == *revision)
                        }
                        Compare::ModRevision { .. } | Compare::NoneAfter { .. } => true,
                    };
                    if !holds(&fence) {
                        let _ = inputs.send(Input::FencedOut);
                        return;
                    }
                    WriteOutcome::Conflict
                }
                Err(error) => {
                    // Told once, by who notes it or finds that the store does not answer.
                    tracing::debug!(%key, %error, "a change of the map is tried again");
                    tokio::time::sleep(map.refused_with(&error).unwrap_or(RETRY_PAUSE)).await;
                    WriteOutcome::Failed
                }
            };
            let _ = inputs.send(Input::Written { key, outcome });
        });
    }

    /// Deletes the records of removed volumes that every living node refuses by now. What they hold is deleted by each node
    /// by itself; nodes that are down do it when they return.
    fn forget_removed_volumes(&mut self, coordinator: &Coordinator) {
        let now_ns = boottime_ns();
        if now_ns.saturating_sub(self.volumes_looked_at_ns) < VOLUMES_INTERVAL_NS {
            return;
        }
        self.volumes_looked_at_ns = now_ns;
        let map = coordinator.map();
        let removing: Vec<(Key, u64)> = map
            .volumes()
            .filter(|volume| volume.value.state == VolumeState::Removing)
            .map(|volume| (Key::Volume(volume.value.id), volume.revision))
            .collect();
        for (key, revision) in removing {
            let refuses = |node: NodeId| {
                coordinator.liveness().is_node_dead(node)
                    || self.revisions.get(&node).is_some_and(|known| *known >= revision)
            };
            if map.nodes().all(|node| refuses(node.value.id)) && self.deleting.insert(key, revision).is_none()
            {
                self.write(Write::new(key, revision, None), map);
            }
        }
    }
}

/// What the loop does next.
enum Next {
    Apply(Event),
    Heartbeat(Heartbeat, oneshot::Sender<HeartbeatReply>),
    Nothing,
    End(Ended),
}

/// Reads everything, waiting through errors that pass; the lease ends it.
async fn read_all(store: &dyn Store) -> Result<Snapshot, StoreError> {
    loop {
        match store.read(read_prefix()).await {
            Err(error) if error.is_passing() => tokio::time::sleep(RETRY_PAUSE).await,
            result => return result,
        }
    }
}

fn load(snapshot: &Snapshot) -> Result<MapView, MapError> {
    let records: Vec<(Key, u64, Record)> = decode_snapshot(snapshot)?;
    MapView::load(records, snapshot.revision)
}
