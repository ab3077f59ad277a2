//! The gateways of a reactor: which of them something has happened to, and when the first one wants to be looked after.
//!
//! Invariants:
//! - a gateway that something happens to is listed until it has been looked after;
//! - none that is not listed wants to be looked after before `due_ns`;
//! - a gateway that has ended keeps its number until nothing that was asked for on its behalf can come back.

use coquina_reactor::monotonic_ns;
use slab::Slab;

use crate::gateway::Gateway;

/// The gateways of a reactor.
pub struct Gateways {
    all: Slab<Gateway>,
    /// Numbers of those that something has happened to; each once.
    listed: Vec<usize>,
    /// Memory for the next list.
    spare: Vec<usize>,
    due_ns: u64,
}

impl Default for Gateways {
    fn default() -> Gateways {
        Gateways { all: Slab::new(), listed: Vec::new(), spare: Vec::new(), due_ns: u64::MAX }
    }
}

impl Gateways {
    /// The number that the next one gets.
    pub fn next_number(&self) -> usize {
        self.all.vacant_key()
    }

    /// Takes a new one; gives its number.
    pub fn insert(&mut self, gateway: Gateway) -> usize {
        self.all.insert(gateway)
    }

    /// A gateway to which something happens: it is looked after in this turn.
    pub fn touch(&mut self, number: usize) -> Option<&mut Gateway> {
        let gateway = self.all.get_mut(number)?;
        if !gateway.listed {
            gateway.listed = true;
            self.listed.push(number);
        }
        Some(gateway)
    }

    /// A gateway that is looked after anyway.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Gateway> {
        self.all.get_mut(number)
    }

    /// Numbers and volumes of those that have not ended.
    pub fn volumes(&self) -> Vec<(usize, usize)> {
        let lasting = self.all.iter().filter(|(_, gateway)| !gateway.has_ended);
        lasting.map(|(number, gateway)| (number, gateway.volume)).collect()
    }

    /// When the first one wants to be looked after, if nothing happens before; by the monotonic clock. It may be too
    /// early, never too late.
    pub fn due_ns(&self) -> u64 {
        if self.listed.is_empty() { self.due_ns } else { 0 }
    }

    /// Lists those whose time has come.
    pub fn list_due(&mut self) {
        if self.due_ns < u64::MAX {
            self.list_due_at(monotonic_ns());
        }
    }

    fn list_due_at(&mut self, now_ns: u64) {
        if now_ns < self.due_ns {
            return;
        }
        self.due_ns = u64::MAX;
        for (number, gateway) in &mut self.all {
            match gateway.deadline_ns() {
                Some(deadline_ns) if deadline_ns > now_ns => self.due_ns = self.due_ns.min(deadline_ns),
                Some(_) if !gateway.listed => {
                    gateway.listed = true;
                    self.listed.push(number);
                }
                _ => {}
            }
        }
    }

    /// Takes the list, to look after everybody in it.
    pub fn take_listed(&mut self) -> Vec<usize> {
        let listed = std::mem::replace(&mut self.listed, std::mem::take(&mut self.spare));
        for number in &listed {
            if let Some(gateway) = self.all.get_mut(*number) {
                gateway.listed = false;
            }
        }
        listed
    }

    /// Takes the memory of the list back; says whether another one has begun meanwhile.
    pub fn give_back(&mut self, mut listed: Vec<usize>) -> bool {
        listed.clear();
        self.spare = listed;
        !self.listed.is_empty()
    }

    /// Notes when one that was looked after wants it again, or forgets it if that is never.
    pub fn looked_after(&mut self, number: usize) {
        let Some(gateway) = self.all.get(number) else { return };
        if gateway.has_ended && gateway.is_quiet() {
            self.all.remove(number);
            return;
        }
        self.due_ns = self.due_ns.min(gateway.deadline_ns().unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use coquina_client::{ClientConfig, VolumeClient};

    use super::*;

    fn gateway(volume: usize) -> Gateway {
        let client = VolumeClient::directed(ClientConfig::new("", "disk", 1), 0);
        Gateway::new(client, volume, 1)
    }

    #[test]
    fn what_is_touched_is_listed_once_until_it_is_looked_after() {
        let mut gateways = Gateways::default();
        let (one, two) = (gateways.insert(gateway(5)), gateways.insert(gateway(6)));
        assert!(gateways.take_listed().is_empty());
        for number in [two, one, two] {
            assert!(gateways.touch(number).is_some());
        }
        let listed = gateways.take_listed();
        assert_eq!(listed, [two, one]);
        assert!(gateways.touch(one).is_some());
        assert!(gateways.give_back(listed));
        let listed = gateways.take_listed();
        assert_eq!(listed, [one]);
        assert!(!gateways.give_back(listed));
        assert!(gateways.touch(7).is_none());
    }

    #[test]
    fn one_that_has_ended_keeps_its_number_while_a_part_of_it_is_under_way() {
        let mut gateways = Gateways::default();
        let number = gateways.insert(gateway(5));
        let ended = gateways.touch(number).unwrap();
        (ended.has_ended, ended.handed_out) = (true, 1);
        assert!(gateways.volumes().is_empty());
        gateways.looked_after(number);
        assert_ne!(gateways.next_number(), number);
        gateways.touch(number).unwrap().handed_out = 0;
        gateways.looked_after(number);
        assert_eq!(gateways.next_number(), number);
        // It was still listed, and its number is another one's now.
        assert_eq!(gateways.insert(gateway(6)), number);
        assert_eq!(gateways.take_listed(), [number]);
        assert!(!gateways.touch(number).unwrap().has_ended);
    }
}
