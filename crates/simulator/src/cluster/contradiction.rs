//! A copy that stops itself, since what it is sent contradicts what it has. Nothing of the protocol leads there, so a message
//! is made up.

use coquina_copies::Event as CopyEvent;
use coquina_replication::{
    BlockRange, Entry, EntryKind, Group, Message, PayloadRef, Violation as Contradiction,
};

use super::node::{copy_id, number_of};
use super::world::World;
use crate::violation::Violation;

pub(super) const GROUP: u32 = 1;
/// Longer than anybody waits for anybody.
const PATIENCE_NS: u64 = 5_000_000_000;

impl World {
    /// The first backup gets an entry behind a gap, and is made the primary before it can be taken out. Its process lives, so
    /// the coordinator sees nothing wrong with it. At the end it is restarted.
    pub fn contradict_next_primary(&mut self) -> Result<(), Violation> {
        let config = self.coordinator.config(GROUP).clone();
        let [from, stopped, _] = config.in_sync[..] else {
            return Err(Violation::Group(format!("three copies are in sync at first, not {config:?}")));
        };
        let copy = number_of(stopped);
        let entry = Entry {
            epoch: config.epoch,
            sequence: u64::MAX,
            session: 1,
            request: 1,
            kind: EntryKind::Trim,
            range: BlockRange::default(),
            is_last: true,
            payload: PayloadRef::default(),
        };
        let previous_epoch = config.epoch;
        let message = Message::Append { config_epoch: config.epoch, previous_epoch, commit: 0, entry };
        self.hosts[copy].is_contradicted = true;
        let mut result = Ok(());
        self.with_copy(copy, |copies, now_ns, out| {
            result = copies.receive(now_ns, from, GROUP, message, &[], out);
        })?;
        result.map_err(|error| Violation::Group(error.to_string()))?;
        let has_stopped = self.hosts[copy].copies.as_ref().is_some_and(|copies| copies.is_halted(GROUP));
        if !has_stopped {
            return Err(Violation::Group(format!("copy {copy} has taken an entry behind a gap")));
        }
        let mut next = config.renewed();
        next.in_sync.rotate_left(1);
        self.decide(GROUP, next);
        let answered = self.report.answered;
        self.pass(PATIENCE_NS)?;
        self.goes_on_without(copy, answered)?;
        self.hosts[copy].is_contradicted = false;
        self.crash(self.node_of(copy), false);
        Ok(())
    }

    /// The group must serve without a copy, and have answered more than so many requests.
    pub(super) fn goes_on_without(&self, copy: usize, answered: u64) -> Result<(), Violation> {
        let config = self.coordinator.config(GROUP);
        let primary = config.primary().and_then(|primary| self.hosts[number_of(primary)].copies.as_ref());
        let serves = primary.and_then(|copies| copies.group(GROUP)).is_some_and(Group::is_serving);
        if !config.is_out(copy_id(copy)) || !serves || self.report.answered == answered {
            return Err(Violation::Hang(self.describe_hang()));
        }
        Ok(())
    }

    /// Whether a copy was made to say so.
    pub fn comes_of_contradiction(&self, copy: usize, event: &CopyEvent) -> bool {
        let is_expected = matches!(event, CopyEvent::Violation(GROUP, Contradiction::Gap { .. }));
        self.hosts[copy].is_contradicted && is_expected
    }
}
