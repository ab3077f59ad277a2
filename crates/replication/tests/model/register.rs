//! Linearizability of one block, followed event by event.
//!
//! Writes have unique values. Kept is the set of all orders that could explain what was seen so far, each as (value
//! now, writes that have taken effect); a read or an answer takes out those that do not explain it. None left: no
//! order explains it.

use std::collections::BTreeSet;

/// A block and the writes that clients have begun on it, by their value (below 16; 0 is the value at the start).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Register {
    begun: u16,
    states: BTreeSet<(u8, u16)>,
}

impl Register {
    pub fn new() -> Register {
        Register { begun: 0, states: BTreeSet::from([(0, 0)]) }
    }

    /// A write begins: it may take effect from now on.
    pub fn begin(&mut self, value: u8) {
        self.begun |= 1 << value;
        let mut queue: Vec<(u8, u16)> = self.states.iter().copied().collect();
        while let Some((_, effective)) = queue.pop() {
            for next in (1..16).filter(|next| self.begun & !effective & (1 << next) != 0) {
                let state = (next as u8, effective | 1 << next);
                if self.states.insert(state) {
                    queue.push(state);
                }
            }
        }
    }

    /// A write was answered: it has taken effect.
    pub fn answer(&mut self, value: u8) -> bool {
        self.states.retain(|(_, effective)| effective & (1 << value) != 0);
        !self.states.is_empty()
    }

    /// What a read of the value leaves; none if it can be explained and teaches nothing.
    pub fn read(&self, value: u8) -> Option<Register> {
        let mut left = self.clone();
        left.states.retain(|(now, _)| *now == value);
        // Writes that are under way may take effect right after the read.
        let begun = left.begun;
        let mut queue: Vec<(u8, u16)> = left.states.iter().copied().collect();
        while let Some((_, effective)) = queue.pop() {
            for next in (1..16).filter(|next| begun & !effective & (1 << next) != 0) {
                let state = (next as u8, effective | 1 << next);
                if left.states.insert(state) {
                    queue.push(state);
                }
            }
        }
        (left != *self).then_some(left)
    }

    /// Whether some order explains everything.
    pub fn is_explained(&self) -> bool {
        !self.states.is_empty()
    }
}

#[test]
fn a_read_of_an_older_value_is_caught() {
    let mut register = Register::new();
    register.begin(1);
    assert!(register.read(0).is_none(), "not yet in effect: teaches nothing");
    let mut seen = register.read(1).unwrap();
    assert!(seen.is_explained());
    assert!(!seen.read(0).unwrap().is_explained(), "seen, so it cannot be unseen");
    assert!(seen.answer(1));
    seen.begin(2);
    assert!(seen.answer(2));
    assert!(!seen.read(1).unwrap().is_explained(), "an answered write is lost");
}
