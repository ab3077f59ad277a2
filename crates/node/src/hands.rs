//! What a shard has done for it: messages, answers, I/O, and what an operator should know.

use coquina_base::LayerId;
use coquina_control::{ScrubRecord, unix_ms};
use coquina_copies::{Answer, Event, Payload, Sink};
use coquina_engine::{Action, Event as EngineEvent, Failure, IoToken};
use coquina_reactor::FileId;
use coquina_replication::{Config, CopyId, Message, RecoveryToken};

use crate::core::{Comparison, Core, tag};
use crate::follow::Owner;
use crate::housekeeper::Notice;

/// Most lines about damage that are kept.
const DAMAGE_MAX: usize = 16;

/// The reactor, as one of its shards uses it while it works.
pub(crate) struct Hands<'a> {
    pub core: &'a mut Core,
    pub slot: usize,
}

impl Sink for Hands<'_> {
    fn send(&mut self, to: CopyId, group: u32, message: &Message, payload: Payload<'_>) {
        self.core.send_to_copy(self.slot, to, group, message, payload);
    }

    fn disconnect(&mut self, from: CopyId) {
        self.core.break_peer(self.slot, from, "a group asked for a new connection");
    }

    fn answer(&mut self, client: u64, answer: Answer) {
        self.core.request_done(client, answer);
    }

    fn io(&mut self, action: Action) {
        match action {
            Action::Write { io, offset_bytes, buffer } => {
                let file = self.start(io, true);
                let token = io_token(self.slot, io);
                self.core.reactor.write_at(file, offset_bytes, buffer, true, token);
            }
            Action::Read { io, offset_bytes, buffer } => {
                let file = self.start(io, false);
                self.core.reactor.read_at(file, offset_bytes, buffer, io_token(self.slot, io));
            }
            Action::Prewrite { io, offset_bytes, length_bytes } => {
                let file = self.start(io, false);
                self.core.reactor.write_zeroes(file, offset_bytes, length_bytes, io_token(self.slot, io));
            }
            other => panic!("{other:?} is not for the drive"),
        }
    }

    fn propose(&mut self, group: u32, config: Config) {
        tracing::debug!(group, ?config, "a configuration is proposed");
        let revision = self.core.map.revision();
        self.core.proposals.set(group, config, revision);
    }

    fn withdraw(&mut self, group: u32, config: &Config) {
        tracing::debug!(group, ?config, "a proposal is taken back");
        self.core.proposals.withdraw(group, config);
    }

    fn compare(&mut self, group: u32, copy: CopyId, token: RecoveryToken) {
        self.core.comparisons.push(Comparison { slot: self.slot, group, copy, token });
    }

    fn group_of(&mut self, layer: LayerId, chunk: u32) -> Option<u32> {
        let (record, pool) = self.core.volumes.of_layer(layer)?;
        Some(coquina_cluster::group_of(&pool, record.family, chunk).0)
    }

    fn layer_deleted(&mut self, layer: LayerId, result: Result<(), Failure>) {
        let deletions = &mut self.core.shards[self.slot].deletions;
        let result = result.map_err(|failure| format!("{failure:?}"));
        for (_, done) in deletions.extract_if(.., |(deleted, _)| *deleted == layer) {
            // Nobody listens any more if the control plane has stopped.
            let _ = done.send(result.clone());
        }
    }

    fn event(&mut self, event: Event) {
        self.core.report(self.slot, &event);
    }
}

impl Hands<'_> {
    /// Notes an I/O as under way; gives its file.
    fn start(&mut self, io: IoToken, is_write: bool) -> FileId {
        let now_ns = self.core.now_ns;
        let slot = &mut self.core.shards[self.slot];
        let index = io.0 as usize;
        if slot.issued_ns.len() <= index {
            slot.issued_ns.resize(index + 1, 0);
            slot.is_write.resize(index + 1, false);
        }
        slot.issued_ns[index] = now_ns;
        slot.is_write[index] = is_write;
        if slot.under_way == 0 {
            slot.quiet_since_ns = now_ns;
        }
        slot.under_way += 1;
        slot.file
    }
}

fn io_token(slot: usize, io: IoToken) -> u64 {
    assert!(io.0 < 1 << 40 && slot < 1 << 16, "an I/O token does not fit");
    tag::SHARD | (slot as u64) << 40 | io.0
}

impl Core {
    fn report(&mut self, index: usize, event: &Event) {
        let slot = &mut self.shards[index];
        let (drive, shard) = (slot.reference.drive, slot.reference.shard);
        let mut note = |text: String| {
            if slot.damage.len() < DAMAGE_MAX {
                slot.damage.push(format!("drive {drive}, shard {shard}: {text}"));
            }
        };
        match event {
            Event::Engine(event) => self.report_engine(index, event),
            Event::Violation(group, violation) => {
                tracing::error!(%drive, shard, group, %violation, "a copy of a group has stopped");
                note(format!("group {group}: {violation}"));
            }
            Event::Damaged(group, violation) => {
                tracing::error!(%drive, shard, group, %violation, "another copy of a group is damaged");
                note(format!("group {group}: {violation}"));
            }
            Event::CopiesDiffer { group, copy, range, blocks } => {
                let (layer, chunk, block) = (range.layer.0, range.chunk, range.first);
                tracing::error!(
                    %drive, shard, group, other = copy.0, layer, chunk, block, blocks,
                    "copies of a group differ, and both have good checksums"
                );
            }
            Event::TakenBad(group, range) => {
                let (layer, chunk, block) = (range.layer.0, range.chunk, range.first);
                tracing::error!(
                    %drive, shard, group, layer, chunk, block,
                    "no copy in sync has a block that this copy missed: it is bad here, too, until it is written"
                );
            }
            Event::Scrubbed(report) => {
                let ended_unix_ms = unix_ms();
                slot.last_scrub = Some(ScrubRecord { ended_unix_ms, report: *report });
                tracing::info!(
                    %drive, shard, bad = report.bad_blocks, repaired = report.repaired_blocks,
                    "scrubbed, and compared with other copies"
                );
                // Nobody listens any more if the node is stopping.
                let _ = self.notices.send(Notice::Scrubbed);
            }
            // They are another node's.
            Event::Halted(..) if slot.owner == Owner::Left => {}
            Event::Halted(group, failure) => {
                tracing::error!(%drive, shard, group, ?failure, "a copy of a group takes no changes any more");
                note(format!("group {group} takes no changes here: {failure:?}"));
            }
        }
    }

    fn report_engine(&mut self, index: usize, event: &EngineEvent) {
        let slot = &mut self.shards[index];
        let (drive, shard) = (slot.reference.drive, slot.reference.shard);
        match event {
            EngineEvent::BadBlock { layer, chunk, block, offset_bytes } => {
                tracing::error!(%drive, shard, layer = layer.0, chunk, block, offset_bytes, "bad block");
            }
            EngineEvent::Repaired { layer, chunk, block } => {
                tracing::warn!(%drive, shard, layer = layer.0, chunk, block, "bad block repaired from another copy");
            }
            EngineEvent::Damage { offset_bytes, reason } => {
                tracing::error!(%drive, shard, offset_bytes, reason, "damage");
                if slot.damage.len() < DAMAGE_MAX {
                    slot.damage
                        .push(format!("drive {drive}, shard {shard}: {reason} (near byte {offset_bytes})"));
                }
            }
            EngineEvent::Poisoned { errno } => {
                if slot.owner != Owner::Left {
                    tracing::error!(%drive, shard, errno, "a write failed: the drive takes no changes any more");
                }
                // Nobody listens any more if the node is stopping.
                let _ = self.notices.send(Notice::Poisoned(drive));
            }
            EngineEvent::Checkpoint { number } => tracing::debug!(%drive, shard, number, "checkpoint"),
            EngineEvent::ScrubDone { blocks, bad } => {
                tracing::info!(%drive, shard, blocks, bad, "scrub done");
            }
        }
    }
}
