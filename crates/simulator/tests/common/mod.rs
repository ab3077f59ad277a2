//! What tests of a single shard share.

use coquina_engine::{FormatOptions, Identity, format_drive};
use coquina_simulator::drive::{Latency, VirtualDrive};
use coquina_simulator::random::Random;

/// Small, so that segments are used again soon.
pub const SEGMENT_BYTES: u64 = 64 << 10;

/// An empty drive of 8 MiB with one shard.
pub fn formatted_drive() -> VirtualDrive {
    let mut drive = VirtualDrive::new(8 << 20, Latency::default(), Random::new(1));
    let options = FormatOptions {
        identity: Identity::default(),
        shards: 1,
        segment_bytes: SEGMENT_BYTES,
        prewrite: false,
        created_unix_ns: 1,
    };
    format_drive(&mut drive, &options).unwrap();
    drive
}
