//! What tests of a single shard share.

#![allow(dead_code, reason = "not every test needs all of it")]

use coquina_engine::{FormatOptions, Identity, format_drive};
use coquina_simulator::drive::{Latency, VirtualDrive};
use coquina_simulator::random::Random;

/// Small, so that segments are used again soon.
pub const SEGMENT_BYTES: u64 = 64 << 10;

/// An empty drive of 8 MiB with one shard.
pub fn formatted_drive() -> VirtualDrive {
    formatted(8 << 20, SEGMENT_BYTES)
}

/// An empty drive with one shard.
pub fn formatted(drive_bytes: u64, segment_bytes: u64) -> VirtualDrive {
    let mut drive = VirtualDrive::new(drive_bytes, Latency::default(), Random::new(1));
    let options = FormatOptions {
        identity: Identity::default(),
        shards: 1,
        segment_bytes,
        prewrite: false,
        created_unix_ns: 1,
    };
    format_drive(&mut drive, &options).unwrap();
    drive
}
