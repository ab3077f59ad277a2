//! A drive that takes writes and does not end them, while its process lives: the coordinator sees nothing wrong with it.

use super::contradiction::GROUP;
use super::faults::Ending;
use super::node::number_of;
use super::world::World;
use crate::violation::Violation;

/// Longer than a drive has for an answer, a lease lasts, and clients wait before they ask again.
const PATIENCE_NS: u64 = 6_000_000_000;

impl World {
    /// The drive of this copy in sync, the primary's first, ends no write from now on. Soon the others must go on without it; then
    /// the drive goes on, too.
    pub fn hang_drive(&mut self, place: usize) -> Result<(), Violation> {
        let copy = self.coordinator.config(GROUP).in_sync.get(place).copied();
        let too_few = || Violation::Group(String::from("three copies are in sync at first"));
        let hung = copy.map(number_of).ok_or_else(too_few)?;
        self.hosts[hung].drive.faults_mut().stall_writes(1, u64::MAX);
        // All that clients have under way waits for it then.
        self.pass(PATIENCE_NS / 6)?;
        let answered = self.report.answered;
        self.pass(PATIENCE_NS)?;
        self.goes_on_without(hung, answered)?;
        self.hosts[hung].drive.faults_mut().clear();
        self.end_fault(Ending::Release(hung))
    }
}
