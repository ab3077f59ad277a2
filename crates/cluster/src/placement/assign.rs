//! The table while it is changed: which copy of which group lies on which shard.
//!
//! A *slot* is a copy of a group: slot `g * copies + i`. A *leaf* is a shard by number. Invariants:
//! - leaves of a group's slots are of different domains, always;
//! - domains are brought to their numbers first, then leaves within each domain, so that no step undoes another.

use std::collections::BTreeSet;

use super::Layout;
use super::needs::Needs;
use super::path::Start;
use super::targets::Targets;
use crate::stripe::mix;

/// No leaf.
pub(super) const NONE: u32 = u32::MAX;

pub(super) struct Table<'a> {
    pub(super) layout: &'a Layout,
    pub(super) copies: usize,
    /// Per slot: its leaf.
    members: Vec<u32>,
    /// The same at the beginning.
    pub(super) origin: Vec<u32>,
    /// Per slot: its place in `on`.
    place: Vec<u32>,
    /// Per leaf: its slots.
    pub(super) on: Vec<Vec<u32>>,
    pub(super) leaf_needs: Needs,
    pub(super) domain_needs: Needs,
    salt: u64,
}

impl<'a> Table<'a> {
    pub(super) fn new(
        layout: &'a Layout,
        copies: usize,
        present: Vec<u32>,
        targets: Targets,
        salt: u64,
    ) -> Self {
        let bucket = layout.leaves.iter().map(|leaf| leaf.domain).collect();
        let domain_count = layout.domains.len();
        let leaf_needs = Needs::new(targets.leaves, bucket, domain_count, mix(salt ^ 1));
        let domain_needs = Needs::new(targets.domains, vec![0; domain_count], 1, mix(salt ^ 2));
        let mut table = Table {
            layout,
            copies,
            members: present.clone(),
            place: vec![0; present.len()],
            on: vec![Vec::new(); layout.leaves.len()],
            leaf_needs,
            domain_needs,
            origin: present,
            salt,
        };
        let mut domain_have = vec![0; domain_count];
        for slot in 0..table.members.len() {
            if let Some(leaf) = table.leaf_of(slot) {
                table.place[slot] = table.on[leaf].len() as u32;
                table.on[leaf].push(slot as u32);
                domain_have[table.domain_of_leaf(leaf)] += 1;
            }
        }
        let leaf_have = table.on.iter().map(|slots| slots.len() as u32).collect();
        table.leaf_needs.set_have(leaf_have);
        table.domain_needs.set_have(domain_have);
        table
    }

    pub(super) fn domain_of_leaf(&self, leaf: usize) -> usize {
        self.layout.leaves[leaf].domain as usize
    }

    pub(super) fn groups(&self) -> usize {
        self.members.len() / self.copies
    }

    /// Leaves of a group, [`NONE`] for a copy that has no place.
    pub(super) fn group(&self, group: usize) -> &[u32] {
        &self.members[group * self.copies..(group + 1) * self.copies]
    }

    pub(super) fn leaf_of(&self, slot: usize) -> Option<usize> {
        Some(self.members[slot]).filter(|leaf| *leaf != NONE).map(|leaf| leaf as usize)
    }

    pub(super) fn group_of_slot(&self, slot: usize) -> usize {
        slot / self.copies
    }

    pub(super) fn has_domain(&self, group: usize, domain: u32) -> bool {
        let is_there = |leaf: &u32| *leaf != NONE && self.layout.leaves[*leaf as usize].domain == domain;
        self.group(group).iter().any(is_there)
    }

    /// Whether the copy has to be moved anyway, so that moving it elsewhere costs nothing.
    pub(super) fn is_fresh(&self, slot: usize) -> bool {
        let first = self.group_of_slot(slot) * self.copies;
        !self.origin[first..first + self.copies].contains(&self.members[slot])
    }

    /// Moves a copy to a leaf, from wherever it is.
    fn put(&mut self, slot: usize, leaf: usize) {
        self.take(slot);
        self.members[slot] = leaf as u32;
        self.place[slot] = self.on[leaf].len() as u32;
        self.on[leaf].push(slot as u32);
        self.leaf_needs.add(leaf);
        self.domain_needs.add(self.domain_of_leaf(leaf));
    }

    fn take(&mut self, slot: usize) {
        let Some(leaf) = self.leaf_of(slot) else { return };
        let place = self.place[slot] as usize;
        self.on[leaf].swap_remove(place);
        if let Some(moved) = self.on[leaf].get(place) {
            self.place[*moved as usize] = place as u32;
        }
        self.members[slot] = NONE;
        self.leaf_needs.remove(leaf);
        self.domain_needs.remove(self.domain_of_leaf(leaf));
    }

    /// Moves a copy to the leaf of a domain that needs it most; if none does, to that which is least above its number.
    pub(super) fn put_in_domain(&mut self, slot: usize, domain: u32) {
        let needy = self.leaf_needs.neediest(domain as usize, |_| true).map(|leaf| leaf as usize);
        let leaves = self.layout.leaves_of(domain as usize);
        let leaf = needy.or_else(|| leaves.min_by_key(|leaf| self.leaf_needs.excess(*leaf)));
        if let Some(leaf) = leaf {
            self.put(slot, leaf);
        }
    }

    /// Brings all domains, then all leaves to their numbers.
    pub(super) fn fill_and_balance(&mut self) {
        let mut stuck = self.fill();
        for domain in 0..self.layout.domains.len() {
            self.empty_domain(domain, &mut stuck);
        }
        // Each chain ends where something is missing, so there are as many as copies are missing.
        while let Some(start) = stuck.pop() {
            let moved = self.move_along_path(start);
            debug_assert!(moved, "numbers that the domain rule allows can be reached");
        }
        (0..self.layout.domains.len()).for_each(|domain| self.balance_domain(domain));
    }

    /// Gives every copy without a place one, where that can be done directly.
    ///
    /// A domain that needs as many copies as groups are left must be in each of them, so it comes first; otherwise the
    /// one that has the largest part of its copies missing. For an empty table this always works out.
    fn fill(&mut self) -> Vec<Start> {
        let mut stuck = Vec::new();
        let incomplete: Vec<usize> =
            (0..self.groups()).filter(|group| self.group(*group).contains(&NONE)).collect();
        let needs = |table: &Self, domain: u32| (table.domain_needs.missing(domain as usize), domain);
        let mut by_need: BTreeSet<(u32, u32)> =
            (0..self.layout.domains.len() as u32).map(|domain| needs(self, domain)).collect();
        for (number, group) in incomplete.iter().enumerate() {
            let groups_left = incomplete.len() - number;
            for slot in group * self.copies..(group + 1) * self.copies {
                if self.leaf_of(slot).is_some() {
                    continue;
                }
                let urgent = by_need
                    .iter()
                    .rev()
                    .take_while(|(need, _)| *need as usize >= groups_left)
                    .map(|(_, domain)| *domain)
                    .find(|domain| !self.has_domain(*group, *domain));
                let Some(domain) = urgent.or_else(|| self.needy_domain_for(*group)) else {
                    stuck.push(Start::Slot(slot));
                    continue;
                };
                by_need.remove(&needs(self, domain));
                self.put_in_domain(slot, domain);
                by_need.insert(needs(self, domain));
            }
        }
        stuck
    }

    /// The domain that needs copies most of those that the group is not in.
    fn needy_domain_for(&mut self, group: usize) -> Option<u32> {
        let first = group * self.copies;
        let (members, leaves) = (&self.members[first..first + self.copies], &self.layout.leaves);
        let is_in =
            |domain: u32| members.iter().any(|leaf| *leaf != NONE && leaves[*leaf as usize].domain == domain);
        self.domain_needs.neediest(0, |domain| !is_in(domain))
    }

    /// Copies of a leaf in the order in which they are to go: those that move anyway first, then in random order.
    fn leaving_order(&self, leaf: usize) -> Vec<u32> {
        let mut slots = self.on[leaf].clone();
        slots.sort_by_key(|slot| (!self.is_fresh(*slot as usize), mix(self.salt ^ u64::from(*slot))));
        slots
    }

    /// Leaves of a domain, those that are most above their numbers first.
    pub(super) fn fullest_leaves(&self, domain: usize) -> Vec<usize> {
        let mut leaves: Vec<usize> = self.layout.leaves_of(domain).collect();
        leaves.sort_by_key(|leaf| (std::cmp::Reverse(self.leaf_needs.excess(*leaf)), *leaf));
        leaves
    }

    /// Moves what a domain has above its number from its fullest leaves to domains below theirs. What cannot be moved
    /// directly is added to `stuck`.
    fn empty_domain(&mut self, domain: usize, stuck: &mut Vec<Start>) {
        for leaf in self.fullest_leaves(domain) {
            for slot in self.leaving_order(leaf) {
                if self.leaf_needs.excess(leaf) == 0 || self.domain_needs.excess(domain) == 0 {
                    break;
                }
                if let Some(to) = self.needy_domain_for(self.group_of_slot(slot as usize)) {
                    self.put_in_domain(slot as usize, to);
                }
            }
        }
        // Any copy of the domain will do; which one is decided when its turn comes.
        stuck.extend((0..self.domain_needs.excess(domain)).map(|_| Start::Domain(domain)));
    }

    /// Moves copies between leaves of a domain until each has its number.
    fn balance_domain(&mut self, domain: usize) {
        for leaf in self.layout.leaves_of(domain) {
            if self.leaf_needs.excess(leaf) == 0 {
                continue;
            }
            for slot in self.leaving_order(leaf) {
                if self.leaf_needs.excess(leaf) == 0 {
                    break;
                }
                let Some(to) = self.leaf_needs.neediest(domain, |_| true) else { return };
                self.put(slot as usize, to as usize);
            }
        }
    }
}
