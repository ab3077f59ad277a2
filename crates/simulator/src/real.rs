//! The real engine behind the interface that is tested.

use coquina_base::{AlignedBuf, BLOCK_BYTES, LayerId};
use coquina_engine::{
    Action, Appended, Device, FormatOptions, IoError, IoToken, Operation, ReadData, Record, Request,
    RequestToken, Shard, ShardConfig, ShardStats,
};
use coquina_replication::{Config, CopyId};

use crate::subject::{GroupState, Subject};

impl Subject for Shard {
    fn format(device: &mut dyn Device, options: &FormatOptions) -> Result<(), String> {
        coquina_engine::format_drive(device, options).map(|_| ()).map_err(|error| error.to_string())
    }

    fn open(device: &mut dyn Device, shard: u32, entropy: u64, config: &ShardConfig) -> Result<Self, String> {
        Shard::open(device, shard, entropy, config.clone()).map_err(|error| error.to_string())
    }

    fn check_drive(device: &mut dyn Device) -> Result<(), String> {
        let report = coquina_engine::check_drive(device, &mut |_, _| {});
        if report.is_clean() { Ok(()) } else { Err(format!("{report:?}")) }
    }

    fn unproven(device: &mut dyn Device) -> Vec<std::ops::Range<u64>> {
        crate::proof::unproven(device)
    }

    fn user_data(device: &mut dyn Device) -> Vec<std::ops::Range<u64>> {
        crate::proof::user_data(device)
    }

    fn submit(&mut self, request: Request<'_>) {
        Shard::submit(self, request);
    }

    fn submit_landed(&mut self, request: Request<'_>) {
        let Operation::Write { payload, checksums_le } = request.operation else {
            panic!("only writes have a payload to land");
        };
        let mut landing = self.landing(request.length_bytes / BLOCK_BYTES as u32);
        landing.push(payload);
        let operation = Operation::Write { payload: &[], checksums_le };
        Shard::submit_landed(self, Request { operation, ..request }, landing);
    }

    fn accept_changes(&mut self, group: u32, epoch: u64) {
        Shard::accept_changes(self, group, Some(epoch));
    }

    fn group_state(&self, group: u32) -> GroupState {
        let Some(known) = self.group(group) else { return GroupState::default() };
        GroupState { last: known.last, committed: known.committed, config_epoch: known.config_epoch }
    }

    fn submit_config(&mut self, group: u32, epoch: u64) -> bool {
        let config = Config { epoch, in_sync: vec![self.copy()], others: vec![CopyId(77)], min_copies: 1 };
        let committed = self.group(group).map_or(0, |known| known.committed);
        self.submit_record(group, &Record::Config { config, committed });
        !self.stats().poisoned
    }

    fn appended(&self, entry: &Appended) -> Vec<u8> {
        Shard::appended(self, entry).1.to_vec()
    }

    fn read_entry(&mut self, token: RequestToken, group: u32, sequence: u64) {
        Shard::read_entry(self, token, group, sequence);
    }

    fn commit(&mut self, group: u32, sequence: u64) {
        Shard::commit(self, group, sequence);
    }

    fn io_done(&mut self, io: IoToken, buffer: AlignedBuf, result: Result<(), IoError>) {
        Shard::io_done(self, io, buffer, result);
    }

    fn turn(&mut self, now_ns: u64) {
        Shard::turn(self, now_ns);
    }

    fn next_action(&mut self) -> Option<Action> {
        Shard::next_action(self)
    }

    fn next_wake_ns(&self) -> Option<u64> {
        Shard::next_wake_ns(self)
    }

    fn start_checkpoint(&mut self) {
        Shard::start_checkpoint(self);
    }

    fn start_scrub(&mut self) {
        Shard::start_scrub(self);
    }

    fn close(&mut self) {
        Shard::close(self);
    }

    fn is_closed(&self) -> bool {
        Shard::is_closed(self)
    }

    fn holds_layer(&self, layer: LayerId) -> bool {
        self.layers().contains(&layer)
    }

    fn stats(&self) -> ShardStats {
        Shard::stats(self)
    }

    fn recycle(&mut self, data: ReadData) {
        Shard::recycle(self, data);
    }

    fn set_cache_bytes(&mut self, bytes: u64) {
        Shard::set_cache_bytes(self, bytes);
    }

    fn describe(&self) -> String {
        format!("{self:?}")
    }

    fn verify(&mut self) -> Result<(), String> {
        Shard::verify(self).map_err(|error| error.to_string())
    }
}
