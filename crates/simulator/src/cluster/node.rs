//! Nodes: processes with drives and a clock; what their copies want done is collected and then done.

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::{Id128, LayerId, NodeId};
use coquina_copies::{Answer, Event as CopyEvent, Payload, ShardCopies, Sink};
use coquina_engine::{
    Action as IoAction, Failure, FormatOptions, Identity, Shard, ShardConfig, format_drive,
};
use coquina_replication::{Config, CopyId, Message, RecoveryToken, encode_message};

use super::plan::{ClusterPlan, LAYERS, group_of};
use crate::drive::VirtualDrive;
use crate::random::Random;
use crate::violation::Violation;

/// A process.
#[derive(Debug)]
pub struct Node {
    pub up: bool,
    /// Counts starts.
    pub life: u64,
    pub offset_ns: u64,
    pub drift_ppm: i64,
    /// Whether it reaches the coordinator.
    pub sees_coordinator: bool,
    /// Whether clients reach it.
    pub sees_clients: bool,
    /// The layers below have been deleted, but for those that stay.
    pub removed_below: u64,
}

impl Node {
    pub fn new(plan: &ClusterPlan, random: &mut Random) -> Node {
        let drift = random.below(2 * plan.drift_ppm + 1) as i64 - plan.drift_ppm as i64;
        Node {
            up: false,
            life: 0,
            offset_ns: random.below(1 << 40),
            // The bound is on a clock's rate; a little below it, for rounding.
            drift_ppm: drift * 9 / 10,
            sees_coordinator: true,
            sees_clients: true,
            removed_below: 0,
        }
    }

    /// What its clock shows.
    pub fn clock_ns(&self, true_ns: u64) -> u64 {
        let rate = 1_000_000 + self.drift_ppm as i128;
        self.offset_ns + (i128::from(true_ns) * rate / 1_000_000) as u64
    }

    /// When its clock shows this, or a moment later.
    pub fn true_ns(&self, clock_ns: u64) -> u64 {
        let rate = 1_000_000 + self.drift_ppm as i128;
        (i128::from(clock_ns.saturating_sub(self.offset_ns)) * 1_000_000 / rate) as u64 + 1
    }
}

/// A drive with the copies on it.
pub struct Host {
    pub node: usize,
    /// The drive was lost or taken out for good.
    pub is_gone: bool,
    /// What primaries here have asked the coordinator for last, by group.
    pub proposals: BTreeMap<u32, Config>,
    pub drive: VirtualDrive,
    pub copies: Option<ShardCopies>,
    /// Whether its writes have been ordered to fail.
    pub failing: bool,
    /// Whether a copy on it is made to stop itself.
    pub is_contradicted: bool,
    /// Whether anything of it has rotten once.
    pub has_rotten: bool,
    /// Whether blocks of data have.
    pub has_bad_blocks: bool,
    /// When it is to be woken.
    pub wake_ns: Option<u64>,
    /// By group: it has said that it serves under no epoch below this one.
    pub released_below: BTreeMap<u32, u64>,
    /// By group: the epoch when the turn under way began, and whether so many copies were in sync as changes need.
    pub turn_began_with: BTreeMap<u32, (u64, bool)>,
    /// Groups of which it has forgotten entries and which it has not opened since.
    pub has_forgotten: BTreeSet<u32>,
}

impl Host {
    pub fn new(
        number: usize,
        node: usize,
        plan: &ClusterPlan,
        random: &mut Random,
    ) -> Result<Host, Violation> {
        let mut drive = VirtualDrive::new(plan.drive_bytes_of(number), plan.latency, random.fork());
        let mut id = [0; 16];
        id[0] = number as u8 + 1;
        let identity = Identity { node: NodeId(Id128(id)), ..Identity::default() };
        let options = FormatOptions {
            identity,
            shards: 1,
            segment_bytes: plan.segment_bytes,
            prewrite: false,
            created_unix_ns: 1,
        };
        format_drive(&mut drive, &options).map_err(|error| Violation::Format(error.to_string()))?;
        Ok(Host {
            node,
            is_gone: false,
            proposals: BTreeMap::new(),
            drive,
            copies: None,
            failing: false,
            is_contradicted: false,
            has_rotten: false,
            has_bad_blocks: false,
            wake_ns: None,
            released_below: BTreeMap::new(),
            turn_began_with: BTreeMap::new(),
            has_forgotten: BTreeSet::new(),
        })
    }

    /// Opens the shard.
    pub fn open(&mut self, number: usize, plan: &ClusterPlan, entropy: u64) -> Result<Shard, Violation> {
        let config = ShardConfig { copy: copy_id(number).0, ..plan.config.clone() };
        Shard::open(&mut self.drive, 0, entropy, config).map_err(|error| Violation::Open(error.to_string()))
    }

    /// Opens the shard as it was before its log was damaged, if that is what is damaged.
    pub fn open_cut(&mut self, number: usize, plan: &ClusterPlan) -> Option<Shard> {
        let config = ShardConfig { copy: copy_id(number).0, ..plan.config.clone() };
        Shard::open_cut(&mut self.drive, 0, config).ok().map(|(shard, _)| shard)
    }
}

/// The number by which the cluster knows a drive.
pub fn copy_id(number: usize) -> CopyId {
    CopyId(number as u64 + 1)
}

/// The drive of a copy.
pub fn number_of(copy: CopyId) -> usize {
    copy.0 as usize - 1
}

/// What a copy wants done.
pub enum Out {
    Send { to: usize, group: u32, bytes: Vec<u8> },
    Released { group: u32, epoch: u64 },
    Disconnect(usize),
    Answer { client: u64, answer: Answer },
    Io(IoAction),
    Propose { group: u32, config: Config },
    Withdraw { group: u32, config: Config },
    Compare { group: u32, copy: CopyId, token: RecoveryToken },
    LayerDeleted(LayerId, Result<(), Failure>),
    Event(CopyEvent),
}

/// Collects it.
pub struct Outbox {
    pub out: Vec<Out>,
    groups: u32,
    /// The layers that the node knows of.
    removed_below: u64,
}

impl Outbox {
    pub fn new(groups: u32, removed_below: u64) -> Outbox {
        Outbox { out: Vec::new(), groups, removed_below }
    }
}

impl Sink for Outbox {
    fn send(&mut self, to: CopyId, group: u32, message: &Message, payload: Payload<'_>) {
        if let Message::Released { config_epoch } = message {
            self.out.push(Out::Released { group, epoch: *config_epoch });
        }
        let mut bytes = Vec::new();
        encode_message(message, payload.length_bytes() as u32, &mut bytes);
        payload.append_to(&mut bytes);
        self.out.push(Out::Send { to: number_of(to), group, bytes });
    }

    fn disconnect(&mut self, from: CopyId) {
        self.out.push(Out::Disconnect(number_of(from)));
    }

    fn answer(&mut self, client: u64, answer: Answer) {
        self.out.push(Out::Answer { client, answer });
    }

    fn io(&mut self, action: IoAction) {
        self.out.push(Out::Io(action));
    }

    fn propose(&mut self, group: u32, config: Config) {
        self.out.push(Out::Propose { group, config });
    }

    fn withdraw(&mut self, group: u32, config: &Config) {
        self.out.push(Out::Withdraw { group, config: config.clone() });
    }

    fn compare(&mut self, group: u32, copy: CopyId, token: RecoveryToken) {
        self.out.push(Out::Compare { group, copy, token });
    }

    fn group_of(&mut self, layer: LayerId, chunk: u32) -> Option<u32> {
        let is_removed = layer.0 > LAYERS && layer.0 < self.removed_below;
        (!is_removed).then(|| group_of(layer.0, chunk, self.groups))
    }

    fn layer_deleted(&mut self, layer: LayerId, result: Result<(), Failure>) {
        self.out.push(Out::LayerDeleted(layer, result));
    }

    fn event(&mut self, event: CopyEvent) {
        self.out.push(Out::Event(event));
    }
}
