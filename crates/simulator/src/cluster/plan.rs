//! What a seed decides before a cluster starts.

use coquina_engine::ShardConfig;
use coquina_replication::{CopyId, GroupId, Settings};

use crate::drive::Latency;
use crate::random::Random;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Layers of the one volume per client.
pub const LAYERS: u64 = 2;
/// Chunks per layer.
pub const CHUNKS: u32 = 2;

/// The group of a chunk.
pub fn group_of(layer: u64, chunk: u32, groups: u32) -> u32 {
    (layer as u32 * CHUNKS + chunk) % groups + 1
}

/// Everything that stays the same during a run.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    pub nodes: usize,
    pub drives_per_node: usize,
    pub groups: u32,
    pub copies: usize,
    pub min_copies: u32,
    pub clients: usize,
    /// Requests of each client.
    pub requests: u64,
    /// Requests outstanding per client.
    pub depth: usize,
    /// Blocks of each chunk that clients use: few, so that they meet.
    pub blocks: u32,
    pub drive_bytes: u64,
    /// Clients use more blocks than the drives have room for. One group is on all nodes then, so that a copy that was away
    /// has room for what the others took meanwhile.
    pub is_full: bool,
    /// Runs long enough on small drives for the cleaner to have work.
    pub is_long: bool,
    /// The real coordinator decides, with a model of etcd, and drives come and go.
    pub is_real: bool,
    pub segment_bytes: u64,
    pub config: ShardConfig,
    pub latency: Latency,
    pub settings: Settings,
    pub tick_ns: u64,
    /// Actual drift of clocks, at most the bound of the settings.
    pub drift_ppm: u64,
    /// Network delay.
    pub delay_ns: (u64, u64),
    /// Mean time between faults; 0 for none.
    pub fault_ns: u64,
    /// How long faults last at most.
    pub fault_length_ns: u64,
    /// Time after which a silent node is taken for dead.
    pub dead_ns: u64,
    /// Time after which a node says that a drive hangs which does not answer, if it ever does.
    pub hung_ns: Option<u64>,
    /// Whether drives rot, and how.
    pub rot_seed: Option<u64>,
    /// Whether clients ask for maps, trim parts of blocks and send requests that arrive late, and failed writes may leave something,
    /// and when.
    pub besides_seed: Option<u64>,
    /// Whether bits of blocks flip on their way from copy to copy, and which.
    pub flip_seed: Option<u64>,
}

impl ClusterPlan {
    /// Size of a drive. Of full ones the first is smaller, but by less than what is kept for entries of others.
    pub fn drive_bytes_of(&self, copy: usize) -> u64 {
        let is_small = self.is_full && copy == 0;
        self.drive_bytes - if is_small { MIB } else { 0 }
    }

    /// Three nodes and three copies, no clients, no faults, and times of a real cluster.
    pub fn idle(groups: u32, random: &mut Random) -> ClusterPlan {
        let plan = ClusterPlan::random(random);
        let settings =
            Settings { grant_ns: 1000 * MS, drift_ppm: 1_000, suspect_ns: 1000 * MS, ..plan.settings };
        ClusterPlan {
            nodes: 3,
            drives_per_node: 1,
            is_full: false,
            is_long: false,
            is_real: false,
            groups,
            copies: 3,
            min_copies: 2,
            clients: 0,
            settings,
            tick_ns: 50 * MS,
            drift_ppm: 1_000,
            fault_ns: 1 << 60,
            dead_ns: 2000 * MS,
            hung_ns: Some(2000 * MS),
            ..plan
        }
    }

    /// A small cluster with short times.
    #[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
    pub fn random(random: &mut Random) -> ClusterPlan {
        let is_long = random.chance(1, 8);
        let is_full = !is_long && random.chance(1, 10);
        let nodes = if is_full { random.pick(&[2, 3]) } else { random.pick(&[3, 3, 3, 4, 5]) };
        let copies = if is_full { nodes } else { random.pick(&[1, 2, 2, 3, 3, 3, 3]) };
        let drift_ppm = 20_000;
        ClusterPlan {
            nodes,
            drives_per_node: if is_full { 1 } else { random.pick(&[1, 1, 2]) },
            is_full,
            is_long,
            is_real: !is_full && random.chance(1, 2),
            groups: if is_full { 1 } else { random.pick(&[1, 1, 2, 4]) },
            copies,
            min_copies: if copies > 1 && random.chance(1, 4) { 2 } else { 1 },
            clients: random.between(1, if is_full { 2 } else { 4 }) as usize,
            requests: match (is_long, is_full) {
                (true, _) => 2000,
                (_, true) => 1500,
                _ => random.between(60, 500),
            },
            depth: match (is_long, is_full) {
                (true, _) => 4,
                (_, true) => random.pick(&[1, 2]),
                _ => random.pick(&[1, 2, 4, 8]),
            },
            blocks: match (is_long, is_full) {
                (true, _) => 200,
                (_, true) => 700,
                _ => random.pick(&[2, 8, 32, 200]),
            },
            drive_bytes: if is_long || is_full { 16 } else { random.pick(&[24, 32]) } * MIB,
            segment_bytes: if is_long || is_full { 256 << 10 } else { random.pick(&[256 << 10, 512 << 10]) },
            config: ShardConfig {
                index_memory_bytes: random.pick(&[64 << 10, 1 << 30]),
                cache_bytes: random.pick(&[0, MIB]),
                frame_bytes_max: random.pick(&[64 << 10, 256 << 10]),
                frames_in_flight_max: random.pick(&[1, 2, 4]),
                batch_blocks_loaded_min: 0,
                checkpoint_log_bytes: random.pick(&[0, 128 << 10, 512 << 10, 2 * MIB]),
                ..ShardConfig::default()
            },
            latency: Latency {
                least_ns: 10_000,
                most_ns: random.pick(&[50_000, 300_000, 1_000_000]),
                slow_one_in: random.pick(&[20, 200]),
            },
            settings: Settings {
                group: GroupId(0),
                copy: CopyId(0),
                grant_ns: 40 * MS,
                drift_ppm,
                suspect_ns: random.pick(&[60, 120]) * MS,
                recover_blocks_max: random.pick(&[1, 4, 16]),
                recover_window: if is_long { 2 } else { random.pick(&[1, 2, 8]) },
                stream_lag_blocks_max: 256,
                ..Settings::for_tests(CopyId(0))
            },
            tick_ns: 5 * MS,
            drift_ppm: random.pick(&[0, 1_000, drift_ppm]),
            delay_ns: random.pick(&[(20_000, 100_000), (20_000, 3 * MS), (200_000, 500_000)]),
            fault_ns: random.pick(&[20 * MS, 60 * MS, 200 * MS]),
            fault_length_ns: random.pick(&[20 * MS, 200 * MS, 600 * MS]),
            dead_ns: random.pick(&[100, 250]) * MS,
            hung_ns: None,
            rot_seed: None,
            besides_seed: None,
            flip_seed: None,
        }
    }
}
