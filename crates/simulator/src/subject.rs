//! What is tested, seen through a thin interface: the real engine, or a toy that checks the checker.

use coquina_base::{AlignedBuf, LayerId};
use coquina_engine::{
    Action, Appended, Device, FormatOptions, IoError, IoToken, ReadData, Request, RequestToken, ShardConfig,
    ShardStats,
};

use crate::plan::Plan;

/// What a shard knows of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupState {
    /// Highest number of an entry that is durable.
    pub last: u64,
    /// Highest number of an entry that is committed.
    pub committed: u64,
    /// Epoch of the last configuration.
    pub config_epoch: u64,
}

/// One shard of a drive. Errors of start-up are texts: a run only shows them.
pub trait Subject: Sized {
    /// Lays a drive out.
    fn format(device: &mut dyn Device, options: &FormatOptions) -> Result<(), String>;
    /// Starts a shard, replaying its log.
    fn open(device: &mut dyn Device, shard: u32, entropy: u64, config: &ShardConfig) -> Result<Self, String>;
    /// Checks a stopped drive end to end. Gives what is wrong.
    fn check_drive(device: &mut dyn Device) -> Result<(), String>;
    /// Where the head of the first shard lies on a drive of this plan.
    fn shard_offset_bytes(_plan: &Plan) -> u64 {
        1 << 20
    }
    /// Ranges of bytes of a stopped drive where damage cannot be told from a torn tail.
    fn unproven(_device: &mut dyn Device) -> Vec<std::ops::Range<u64>> {
        Vec::new()
    }
    /// Ranges of bytes of a stopped drive that hold what users have written and nothing else.
    fn user_data(_device: &mut dyn Device) -> Vec<std::ops::Range<u64>> {
        Vec::new()
    }
    /// Takes a request; its payload is copied.
    fn submit(&mut self, request: Request<'_>);
    /// Takes a write of whole blocks whose payload was received into the subject's own buffers, if it has any.
    fn submit_landed(&mut self, request: Request<'_>) {
        self.submit(request);
    }
    /// Makes the shard order the new changes of a placement group in this epoch.
    fn accept_changes(&mut self, _group: u32, _epoch: u64) {}
    /// What the shard knows of a group.
    fn group_state(&self, _group: u32) -> GroupState {
        GroupState::default()
    }
    /// Persists a configuration of a group in which the shard is the only copy. Says whether it could.
    fn submit_config(&mut self, _group: u32, _epoch: u64) -> bool {
        false
    }
    /// The data of an entry that was just put into the log.
    fn appended(&self, _entry: &Appended) -> Vec<u8> {
        Vec::new()
    }
    /// Reads the data of an uncommitted entry as it was logged.
    fn read_entry(&mut self, _token: RequestToken, _group: u32, _sequence: u64) {}
    /// Says that a group's entries up to a number are on all copies.
    fn commit(&mut self, _group: u32, _sequence: u64) {}
    /// Takes a finished I/O.
    fn io_done(&mut self, io: IoToken, buffer: AlignedBuf, result: Result<(), IoError>);
    /// Ends a turn of the driver's loop.
    fn turn(&mut self, now_ns: u64);
    /// The next thing to do.
    fn next_action(&mut self) -> Option<Action>;
    /// When `turn` must be called at the latest.
    fn next_wake_ns(&self) -> Option<u64>;
    /// Starts a checkpoint.
    fn start_checkpoint(&mut self);
    /// Starts a scrub.
    fn start_scrub(&mut self);
    /// Begins a clean stop.
    fn close(&mut self);
    /// Whether the clean stop is complete.
    fn is_closed(&self) -> bool;
    /// Whether the index has a layer that is not being deleted.
    fn holds_layer(&self, _layer: LayerId) -> bool {
        false
    }
    /// Counters.
    fn stats(&self) -> ShardStats;
    /// Takes a read's buffers back.
    fn recycle(&mut self, data: ReadData);
    /// Sets the size of the block cache.
    fn set_cache_bytes(&mut self, bytes: u64);
    /// Checks the shard's own invariants. Gives what is wrong.
    fn verify(&mut self) -> Result<(), String>;
    /// Its inner state in a line, for a person who looks into a hang.
    fn describe(&self) -> String {
        String::new()
    }
}
