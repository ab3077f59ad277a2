//! Which copy of each group is the primary.
//!
//! A shard with `c` copies of `R` each is to be primary of `c / R` groups, rounded up or down: giving each copy `1 / R`
//! of its group does that exactly, so a choice in whole groups exists. Found by shifting: a group's primary moves from a
//! shard above its bound to another of its shards, over a chain if need be.

use std::collections::VecDeque;

use super::assign::{NONE, Table};

struct Choice<'a> {
    table: &'a Table<'a>,
    /// Per group: the leaf of its primary.
    first: Vec<u32>,
    /// Per leaf: how many groups it is primary of.
    load: Vec<u32>,
}

/// The leaf of each group's primary; [`NONE`] for a group without copies. Primaries stay where they were if they can.
pub(super) fn choose(table: &Table<'_>) -> Vec<u32> {
    let mut choice =
        Choice { table, first: vec![NONE; table.groups()], load: vec![0; table.layout.leaves.len()] };
    choice.begin();
    let copies = table.copies as u32;
    let counts = || table.on.iter().map(|slots| slots.len() as u32);
    let high: Vec<u32> = counts().map(|count| count.div_ceil(copies)).collect();
    let low: Vec<u32> = counts().map(|count| count / copies).collect();
    for bound in [high, low] {
        while choice.shift(&bound) {}
    }
    choice.first
}

impl Choice<'_> {
    fn begin(&mut self) {
        let mut open = Vec::new();
        for group in 0..self.table.groups() {
            let before = self.table.origin[group * self.table.copies];
            if before != NONE && self.table.group(group).contains(&before) {
                self.set(group, before);
            } else {
                open.push(group);
            }
        }
        for group in open {
            let load = |leaf: u32| {
                let count = self.table.on[leaf as usize].len() as i64;
                i64::from(self.load[leaf as usize]) * self.table.copies as i64 - count
            };
            let leaves = self.table.group(group).iter().copied().filter(|leaf| *leaf != NONE);
            if let Some(leaf) = leaves.min_by_key(|leaf| (load(*leaf), *leaf)) {
                self.set(group, leaf);
            }
        }
    }

    fn set(&mut self, group: usize, leaf: u32) {
        let before = std::mem::replace(&mut self.first[group], leaf);
        if before != NONE {
            self.load[before as usize] -= 1;
        }
        self.load[leaf as usize] += 1;
    }

    /// Shifts primaries from leaves above the bound to leaves below it, over as many chains as one search finds.
    /// Returns whether anything changed.
    fn shift(&mut self, bound: &[u32]) -> bool {
        // Per leaf: the group of which it would become the primary, and the leaf that has it.
        let mut came_by = vec![(NONE, NONE); self.load.len()];
        let mut visited: Vec<bool> = (0..self.load.len()).map(|leaf| self.load[leaf] > bound[leaf]).collect();
        let mut queue: VecDeque<usize> = (0..self.load.len()).filter(|leaf| visited[*leaf]).collect();
        let mut ends = Vec::new();
        while let Some(leaf) = queue.pop_front() {
            for slot in &self.table.on[leaf] {
                let group = self.table.group_of_slot(*slot as usize);
                if self.first[group] as usize != leaf {
                    continue;
                }
                for other in self.table.group(group).iter().copied().filter(|other| *other != NONE) {
                    let index = other as usize;
                    if std::mem::replace(&mut visited[index], true) {
                        continue;
                    }
                    came_by[index] = (group as u32, leaf as u32);
                    if self.load[index] < bound[index] { ends.push(other) } else { queue.push_back(index) }
                }
            }
        }
        let shifted = ends.into_iter().filter(|end| self.shift_to(*end, &came_by, bound)).count();
        shifted > 0
    }

    /// Shifts along one chain, if none before has changed it.
    fn shift_to(&mut self, end: u32, came_by: &[(u32, u32)], bound: &[u32]) -> bool {
        let mut chain = Vec::new();
        let mut leaf = end;
        loop {
            let (group, from) = came_by[leaf as usize];
            if group == NONE {
                break;
            }
            if self.first[group as usize] != from {
                return false;
            }
            chain.push((group, leaf));
            leaf = from;
        }
        if self.load[leaf as usize] <= bound[leaf as usize] {
            return false;
        }
        chain.into_iter().for_each(|(group, to)| self.set(group as usize, to));
        true
    }
}
