//! What tests of a single shard share.

#![allow(dead_code, reason = "not every test needs all of it")]

pub mod copy;

use coquina_engine::{Action, FormatOptions, Identity, Outcome, RequestToken, Shard, format_drive};
use coquina_replication::{Config, CopyId};
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
    formatted_with(drive_bytes, segment_bytes, Latency::default())
}

/// The same, of another speed.
pub fn formatted_with(drive_bytes: u64, segment_bytes: u64, latency: Latency) -> VirtualDrive {
    let mut drive = VirtualDrive::new(drive_bytes, latency, Random::new(1));
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

/// A configuration of a group that serves with one copy.
pub fn config(epoch: u64, in_sync: &[u64], others: &[u64]) -> Config {
    let copies = |numbers: &[u64]| numbers.iter().copied().map(CopyId).collect();
    Config { epoch, in_sync: copies(in_sync), others: copies(others), min_copies: 1 }
}

/// Lets everything that is under way come to its end; gives what has been answered.
pub fn settle(shard: &mut Shard, drive: &mut VirtualDrive, now_ns: &mut u64) -> Vec<(RequestToken, Outcome)> {
    let mut outcomes = Vec::new();
    loop {
        shard.turn(*now_ns);
        while let Some(action) = shard.next_action() {
            if let Some(Action::Done { token, outcome }) = drive.submit(*now_ns, 0, action) {
                outcomes.push((token, outcome));
            }
        }
        let Some(next_ns) = drive.next_completion_ns() else { return outcomes };
        *now_ns = next_ns.max(*now_ns);
        while let Some(done) = drive.complete_next(*now_ns) {
            shard.io_done(done.io, done.buffer, done.result);
        }
    }
}
