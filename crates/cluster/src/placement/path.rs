//! Chains of moves, where the domain rule leaves no direct one.
//!
//! A copy may move from domain X to Y if its group is not in Y. Copies too many in one domain and too few in another, and
//! no such direct move: then some chain X -> Y -> Z of copies of different groups exists (numbers that are at most one
//! copy per group and domain can always be reached). The search goes by cost, so it finds a cheapest one: a copy that
//! moves anyway costs nothing, another one 1, and 1 more if it leaves a leaf that has none too many, since another copy
//! has to take its place there.

use std::collections::VecDeque;

use super::assign::Table;

/// What has too much.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    /// A copy without a place.
    Slot(usize),
    /// A domain above its number.
    Domain(usize),
}

/// Which copies of a domain are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Those that move anyway.
    Fresh,
    /// For the first domain of a chain: those of leaves that have too many.
    Excess,
    /// The others.
    Rest,
}

struct Search {
    /// Per domain: the copy that would move into it.
    came_by: Vec<Option<usize>>,
    unvisited: Vec<u32>,
    /// In the order of their costs, which differ by at most 1.
    queue: VecDeque<(usize, Step)>,
    /// The domain where the chain begins, if it begins in one.
    first: Option<usize>,
}

impl Search {
    /// Enters all domains that the copy could move to. Returns one that misses copies, if there is one.
    fn enter(&mut self, table: &Table<'_>, slot: usize) -> Option<usize> {
        let group = table.group_of_slot(slot);
        let mut index = 0;
        while let Some(domain) = self.unvisited.get(index).copied() {
            if table.has_domain(group, domain) {
                index += 1;
                continue;
            }
            self.unvisited.swap_remove(index);
            self.came_by[domain as usize] = Some(slot);
            self.queue.push_front((domain as usize, Step::Fresh));
            if table.domain_needs.missing(domain as usize) > 0 {
                return Some(domain as usize);
            }
        }
        None
    }

    fn find(&mut self, table: &Table<'_>, start: Start) -> Option<usize> {
        match start {
            Start::Slot(slot) => {
                if let Some(end) = self.enter(table, slot) {
                    return Some(end);
                }
            }
            Start::Domain(domain) => {
                self.unvisited.retain(|other| *other as usize != domain);
                self.queue.push_back((domain, Step::Fresh));
                self.first = Some(domain);
            }
        }
        while let Some((domain, step)) = self.queue.pop_front() {
            match step {
                Step::Fresh if self.first == Some(domain) => self.queue.push_back((domain, Step::Excess)),
                Step::Fresh => self.queue.push_back((domain, Step::Rest)),
                Step::Excess => self.queue.push_back((domain, Step::Rest)),
                Step::Rest => {}
            }
            if let Some(end) = self.try_copies(table, domain, step) {
                return Some(end);
            }
        }
        None
    }

    fn try_copies(&mut self, table: &Table<'_>, domain: usize, step: Step) -> Option<usize> {
        for leaf in table.fullest_leaves(domain) {
            if step == Step::Excess && table.leaf_needs.excess(leaf) == 0 {
                break;
            }
            for slot in &table.on[leaf] {
                if self.unvisited.is_empty() {
                    return None;
                }
                if table.is_fresh(*slot as usize) != (step == Step::Fresh) {
                    continue;
                }
                if let Some(end) = self.enter(table, *slot as usize) {
                    return Some(end);
                }
            }
        }
        None
    }
}

impl Table<'_> {
    /// Moves copies along a shortest chain from `start` to a domain that misses some. False if there is none.
    pub(super) fn move_along_path(&mut self, start: Start) -> bool {
        let domains = self.layout.domains.len();
        let mut search = Search {
            came_by: vec![None; domains],
            unvisited: (0..domains as u32).collect(),
            queue: VecDeque::new(),
            first: None,
        };
        let Some(mut domain) = search.find(self, start) else { return false };
        // From the end, so that each move takes the place that the one before has left.
        while let Some(slot) = search.came_by[domain] {
            let from = self.leaf_of(slot).map(|leaf| self.domain_of_leaf(leaf));
            self.put_in_domain(slot, domain as u32);
            match from {
                Some(from) => domain = from,
                None => break,
            }
        }
        true
    }
}
