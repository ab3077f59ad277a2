//! What is to become of one group: a pure function of its record and of what is believed.
//!
//! Rules, in this order; the first that changes members makes the next epoch, and the rest waits for the one after:
//! 1. **Failure.** Members in sync that are dead leave `in_sync` for `others`. If the primary is one of them, the first
//!    member in sync that is alive becomes primary; nobody else may, since only members in sync have every committed
//!    change. If no living member in sync would be left, nothing changes: the group waits for them
//!    (*down*), and whichever comes first has everything. Members whose drives hang leave in the same way, but only while so many
//!    others in sync are alive that changes are taken: what they have is good, and they may answer in a moment. They neither
//!    become primary nor are added;
//! 2. **Proposals** of the living primary, if their epoch is the group's: a backup in sync is removed; so is the primary
//!    itself, which can do nothing any more, and it is followed as in rule 1; a member that is
//!    out is added if it is alive and its drive takes changes. If the drive is to be removed, it is added only as long as
//!    placement has found no substitute. A primary that has restarted gets the next epoch with the same members.
//! 3. **Moves**, if `wanted` is not what there is:
//!    a. while more copies are in sync and alive than are wanted, one that is not wanted is dropped: first one whose
//!    domain another one has too, last the primary. So the number of good copies never falls by a move. A primary that
//!    is to be dropped is first replaced by a wanted member that is in sync and alive;
//!    b. when all wanted are in sync, members that are out and not wanted are dropped; one that could not be added
//!    any more (its drive is read-only, given up, to be removed or not in the map) is dropped at once, and so is a dead one
//!    if there are more than twice as many members as wanted;
//!    c. a wanted shard that is no member becomes one that is out, if primary and shard are alive and both drives have
//!    room for a move: the primary brings it up and then proposes to add it. A group that takes no changes with the copies that
//!    it has needs room on the drive of the shard only;
//!    d. the first wanted member becomes primary again when it is in sync and alive, so many of them per second;
//!    e. when all is as wanted, `wanted` is emptied. That is no new epoch.
//!
//! The first failure of a group writes what it was into `wanted`, so that it returns to that.

use std::collections::BTreeMap;

use coquina_base::DriveId;

use super::Settings;
use super::liveness::{Liveness, ShardLife};
use super::message::{Proposal, ProposedChange};
use crate::group::{GroupRecord, MEMBERS_MAX, ShardRef};
use crate::map::MapView;
use crate::record::{COPIES_MAX, DriveState, Wanted};

/// What moves may still begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    /// Per drive: copies that move to it, or from the primary on it.
    pub(super) moving: BTreeMap<DriveId, u32>,
    pub(super) moves_per_drive_max: u32,
    /// Per drive: copies of groups that take no changes which begin now, by the primary on it.
    urgent: BTreeMap<DriveId, u32>,
    /// Primaries that may change to the preferred one.
    pub(super) switches: u32,
}

impl Budget {
    pub(super) fn new(settings: &Settings, switches: u32) -> Budget {
        let moves_per_drive_max = settings.moves_per_drive_max;
        Budget { moving: BTreeMap::new(), moves_per_drive_max, urgent: BTreeMap::new(), switches }
    }

    /// Counts a copy that is being brought up.
    pub(super) fn count(&mut self, from: ShardRef, to: ShardRef) {
        *self.moving.entry(from.drive).or_default() += 1;
        *self.moving.entry(to.drive).or_default() += 1;
    }

    fn has_room(&self, from: ShardRef, to: ShardRef) -> bool {
        self.has_room_in(&self.moving, from) && self.has_room_in(&self.moving, to)
    }

    /// The same for a copy that must not wait for those which the primary's drive is busy with. The drives that receive such
    /// copies bound how many are under way.
    fn has_urgent_room(&self, from: ShardRef, to: ShardRef) -> bool {
        self.has_room_in(&self.urgent, from) && self.has_room_in(&self.moving, to)
    }

    fn has_room_in(&self, begun: &BTreeMap<DriveId, u32>, shard: ShardRef) -> bool {
        begun.get(&shard.drive).copied().unwrap_or(0) < self.moves_per_drive_max
    }
}

/// What a decision depends on.
pub(super) struct Context<'a> {
    pub(super) map: &'a MapView,
    pub(super) liveness: &'a Liveness,
}

impl Context<'_> {
    pub(super) fn life(&self, shard: ShardRef) -> ShardLife {
        self.liveness.shard(self.map, shard)
    }

    pub(super) fn is_alive(&self, shard: ShardRef) -> bool {
        self.life(shard) == ShardLife::Alive
    }

    fn is_dead(&self, shard: ShardRef) -> bool {
        self.life(shard) == ShardLife::Dead
    }

    /// Whether the drive takes changes, as far as its record says, and is to stay or has no substitute yet.
    fn may_be_added(&self, group: &GroupRecord, shard: ShardRef) -> bool {
        let Some(drive) = self.map.drive(shard.drive) else { return false };
        let node_stays = self.map.node(drive.node).is_some_and(|node| node.wanted == Wanted::In);
        // A missing one may come back, and its record says so before it is added.
        let state_good = matches!(drive.state, DriveState::Healthy | DriveState::Missing);
        state_good && (group.wanted.contains(&shard) || (node_stays && drive.wanted == Wanted::In))
    }

    /// Whether a group has fewer copies in sync than changes need.
    pub(super) fn refuses_changes(&self, group: &GroupRecord) -> bool {
        let pool = self.map.pool(group.pool);
        pool.is_some_and(|pool| group.in_sync.len() < pool.min_copies as usize)
    }

    /// How many other members in sync are in the same domain.
    fn partners(&self, group: &GroupRecord, shard: ShardRef) -> usize {
        let Some(pool) = self.map.pool(group.pool) else { return 0 };
        let domain = |shard: ShardRef| {
            self.map.drive(shard.drive).and_then(|drive| self.map.domain_of(drive, &pool.domain))
        };
        let own = domain(shard);
        group.in_sync.iter().filter(|other| **other != shard && domain(**other) == own).count()
    }

    /// The next record of a group, at most one epoch on. `None`: as it is. Without a budget nothing that can wait begins.
    pub(super) fn decide(
        &self,
        group: &GroupRecord,
        proposals: &[Proposal],
        budget: Option<&mut Budget>,
    ) -> Option<GroupRecord> {
        self.failure(group)
            .or_else(|| proposals.iter().find_map(|proposal| self.proposal(group, proposal)))
            .or_else(|| self.moves(group, budget))
    }

    /// Rule 1.
    fn failure(&self, group: &GroupRecord) -> Option<GroupRecord> {
        self.without_dead(group).or_else(|| self.without_hung(group))
    }

    fn without_hung(&self, group: &GroupRecord) -> Option<GroupRecord> {
        let of =
            |life: ShardLife| group.in_sync.iter().copied().filter(move |shard| self.life(*shard) == life);
        let hung: Vec<ShardRef> = of(ShardLife::Hung).collect();
        let min_copies = self.map.pool(group.pool)?.min_copies.max(1) as usize;
        if hung.is_empty() || of(ShardLife::Alive).count() < min_copies {
            return None;
        }
        self.take_out(group, &hung)
    }

    fn without_dead(&self, group: &GroupRecord) -> Option<GroupRecord> {
        let dead: Vec<ShardRef> =
            group.in_sync.iter().copied().filter(|shard| self.is_dead(*shard)).collect();
        if dead.is_empty() || dead.len() == group.in_sync.len() {
            return None;
        }
        let next = self.take_out(group, &dead)?;
        next.in_sync.iter().any(|shard| self.is_alive(*shard)).then_some(next)
    }

    /// The next epoch without some members in sync. If the primary is one of them, the first of the others that is alive
    /// follows it; if none is, nothing changes.
    fn take_out(&self, group: &GroupRecord, removed: &[ShardRef]) -> Option<GroupRecord> {
        let mut next = without(group, removed);
        if removed.contains(&group.primary()?) {
            let first = next.in_sync.iter().position(|shard| self.is_alive(*shard))?;
            next.in_sync[..=first].rotate_right(1);
        }
        assert!(!next.in_sync.is_empty(), "a member in sync stays");
        Some(next)
    }

    /// Rule 2.
    fn proposal(&self, group: &GroupRecord, proposal: &Proposal) -> Option<GroupRecord> {
        let life = self.life(group.primary()?);
        // One whose drive hangs may be the only good copy: another that has caught up is welcome, and without a new epoch it would
        // wait for one that joins and answers nothing. Whom it blames may be right.
        let is_heard = match proposal.change {
            ProposedChange::Add(_) | ProposedChange::Renew => {
                matches!(life, ShardLife::Alive | ShardLife::Hung)
            }
            ProposedChange::Remove(_) => life == ShardLife::Alive,
        };
        if proposal.group != group.id || proposal.epoch != group.epoch || !is_heard {
            return None;
        }
        match proposal.change {
            ProposedChange::Renew => Some(next_epoch(group)),
            // Also the primary itself: it is alive, does nothing, and says so. With the last one in sync everything would go.
            ProposedChange::Remove(shard) => {
                if !group.in_sync.contains(&shard) {
                    return None;
                }
                self.take_out(group, &[shard])
            }
            ProposedChange::Add(shard) => {
                if !group.others.contains(&shard) || !self.may_be_added(group, shard) || !self.is_alive(shard)
                {
                    return None;
                }
                let mut next = next_epoch(group);
                next.others.retain(|other| *other != shard);
                next.in_sync.push(shard);
                Some(next)
            }
        }
    }

    /// Rule 3.
    fn moves(&self, group: &GroupRecord, budget: Option<&mut Budget>) -> Option<GroupRecord> {
        if group.wanted.is_empty() {
            return None;
        }
        let wanted = &group.wanted;
        let is_wanted = |shard: &ShardRef| wanted.contains(shard);
        if let Some(next) = self.drop_surplus(group) {
            return Some(next);
        }
        let all_in_sync = wanted.iter().all(|shard| group.in_sync.contains(shard));
        let crowded = group.in_sync.len() + group.others.len() > 2 * wanted.len();
        let goes = |shard: &ShardRef| {
            let useless = !self.may_be_added(group, *shard) || (crowded && self.is_dead(*shard));
            !is_wanted(shard) && (all_in_sync || useless)
        };
        if group.others.iter().any(goes) {
            let mut next = next_epoch(group);
            next.others.retain(|shard| !goes(shard));
            return Some(next);
        }
        if let Some(budget) = budget
            && let Some(next) =
                self.begin_moves(group, budget).or_else(|| self.preferred_primary(group, budget))
        {
            return Some(next);
        }
        let settled = all_in_sync
            && group.in_sync.len() == wanted.len()
            && group.others.is_empty()
            && group.in_sync.first() == wanted.first();
        settled.then(|| GroupRecord { wanted: Vec::new(), ..group.clone() })
    }

    /// Rule 3a.
    fn drop_surplus(&self, group: &GroupRecord) -> Option<GroupRecord> {
        let alive = group.in_sync.iter().filter(|shard| self.is_alive(**shard)).count();
        let primary = group.primary()?;
        let unwanted = group.in_sync.iter().copied().filter(|shard| !group.wanted.contains(shard));
        // One that is alive counts; dropping one that is not lowers nothing.
        let droppable = unwanted.filter(|shard| alive > group.wanted.len() || !self.is_alive(*shard));
        if alive < group.wanted.len() {
            return None;
        }
        let dropped = droppable.min_by_key(|shard| {
            (*shard == primary, std::cmp::Reverse(self.partners(group, *shard)), *shard)
        })?;
        if dropped != primary {
            let mut next = next_epoch(group);
            next.in_sync.retain(|shard| *shard != dropped);
            return Some(next);
        }
        let heir =
            group.wanted.iter().find(|shard| group.in_sync.contains(shard) && self.is_alive(**shard))?;
        Some(with_primary(group, *heir))
    }

    /// Rule 3c.
    fn begin_moves(&self, group: &GroupRecord, budget: &mut Budget) -> Option<GroupRecord> {
        let primary = group.primary().filter(|primary| self.is_alive(*primary))?;
        let is_urgent = self.refuses_changes(group);
        let mut next = next_epoch(group);
        for shard in group.wanted.iter().filter(|shard| !group.is_member(**shard)) {
            let members = next.in_sync.len() + next.others.len();
            let has_room = || match is_urgent {
                true => budget.has_urgent_room(primary, *shard),
                false => budget.has_room(primary, *shard),
            };
            if members < MEMBERS_MAX && self.is_alive(*shard) && has_room() {
                budget.count(primary, *shard);
                *budget.urgent.entry(primary.drive).or_default() += u32::from(is_urgent);
                next.others.push(*shard);
            }
        }
        (next.others.len() > group.others.len()).then_some(next)
    }

    /// Rule 3d.
    fn preferred_primary(&self, group: &GroupRecord, budget: &mut Budget) -> Option<GroupRecord> {
        let preferred = group.wanted.first().copied()?;
        let due = group.primary() != Some(preferred)
            && group.in_sync.contains(&preferred)
            && self.is_alive(preferred)
            && budget.switches > 0;
        due.then(|| {
            budget.switches -= 1;
            with_primary(group, preferred)
        })
    }
}

fn next_epoch(group: &GroupRecord) -> GroupRecord {
    GroupRecord { epoch: group.epoch + 1, ..group.clone() }
}

/// The next epoch without some members in sync, which become members that are out.
fn without(group: &GroupRecord, removed: &[ShardRef]) -> GroupRecord {
    let mut next = next_epoch(group);
    if next.wanted.is_empty() {
        next.wanted = group.in_sync.iter().copied().take(COPIES_MAX as usize).collect();
    }
    next.in_sync.retain(|shard| !removed.contains(shard));
    next.others.extend(removed);
    next
}

/// The next epoch with another member in sync as primary.
fn with_primary(group: &GroupRecord, primary: ShardRef) -> GroupRecord {
    let mut next = next_epoch(group);
    if let Some(index) = next.in_sync.iter().position(|shard| *shard == primary) {
        next.in_sync[..=index].rotate_right(1);
    }
    next
}
