//! What a seed decides before a run begins: the drive, its layout and the shard's settings.

use coquina_base::{CHUNK_BYTES, ClusterId, DriveId, Id128, NodeId};
use coquina_engine::{FormatOptions, Identity, ShardConfig};

use crate::drive::Latency;
use crate::random::Random;

const MIB: u64 = 1 << 20;

/// Segments of a drive of 1 GiB as it is formatted by default.
pub const SMALL_DRIVE_SEGMENT_BYTES: u64 = 512 << 10;

/// Everything that stays the same during a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Size of the drive.
    pub drive_bytes: u64,
    /// How it is formatted.
    pub format: FormatOptions,
    /// How the shards are opened.
    pub config: ShardConfig,
    /// Chunks of each layer.
    pub layer_chunks: Vec<u32>,
    /// How long I/O takes.
    pub latency: Latency,
}

impl Plan {
    /// A plan for a small drive on which everything happens often.
    #[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
    pub fn random(random: &mut Random) -> Plan {
        let segment_bytes =
            random.pick(&[64 << 10, 64 << 10, 128 << 10, 256 << 10, SMALL_DRIVE_SEGMENT_BYTES]);
        let drive_bytes = random.pick(&[6, 8, 8, 12, 12, 16, 24, 32]) * MIB + random.below(3) * MIB;
        let drive_bytes = drive_bytes.max(segment_bytes * 40);
        let two_fit = drive_bytes >= (16 * MIB).max(segment_bytes * 60);
        let shards = if two_fit { random.pick(&[1, 1, 2]) } else { 1 };
        // From a volume that fits easily to one that the drive cannot hold.
        let space_bytes = drive_bytes * random.pick(&[40, 70, 90, 130, 160]) / 100;
        let chunks = space_bytes.div_ceil(CHUNK_BYTES).max(u64::from(shards));
        let layers = random.between(u64::from(shards), chunks.min(3).max(u64::from(shards)));
        let layer_chunks = (0..layers).map(|layer| ((chunks + layer) / layers).max(1) as u32).collect();
        let plan_identity =
            Identity { cluster: ClusterId(id(random)), node: NodeId(id(random)), drive: DriveId(id(random)) };
        Plan {
            drive_bytes,
            format: FormatOptions {
                identity: plan_identity,
                shards,
                segment_bytes,
                prewrite: random.chance(1, 2),
                created_unix_ns: 1,
            },
            config: ShardConfig {
                index_memory_bytes: random.pick(&[32 << 10, 128 << 10, 1 << 30]),
                cache_bytes: random.pick(&[0, 64 << 10, MIB, 64 * MIB]),
                frame_bytes_max: random.pick(&[16 << 10, 32 << 10, 64 << 10, 256 << 10]),
                frames_in_flight_max: random.pick(&[1, 2, 2, 3, 4, 8, 16]),
                full_frames_in_flight_max: random.pick(&[1, 2, 4, 8, 16, 32]),
                batch_blocks_loaded_min: 0,
                checkpoint_log_bytes: random.pick(&[0, 128 << 10, 512 << 10, 2 * MIB]),
                scrub_bytes_per_s: random.pick(&[32 * MIB, 4096 * MIB]),
                ..ShardConfig::default()
            },
            layer_chunks,
            latency: Latency {
                least_ns: 10_000,
                most_ns: random.pick(&[20_000, 200_000, 5_000_000]),
                slow_one_in: random.pick(&[10, 100]),
            },
        }
    }
}

fn id(random: &mut Random) -> Id128 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&random.next_u64().to_le_bytes());
    Id128(bytes)
}
