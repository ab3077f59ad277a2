//! What an operator does to a cluster, and what befalls its store: drives are emptied and taken out, lost and replaced,
//! given other weights; the store's members restart.

use coquina_base::DriveId;
use coquina_cluster::{Wanted, operation};

use super::control::{Control, drive_id, map_group};
use super::network::Link;
use super::node::Host;
use super::report::Rare;
use super::world::{Event, World};
use crate::violation::Violation;

impl World {
    /// Whether nothing is wanted of a group that is not so.
    pub fn is_settled(&self, group: u32) -> bool {
        let Some(control) = &self.control else { return true };
        control.truth.group(map_group(group)).is_some_and(|group| group.wanted.is_empty())
    }

    /// Has a drive emptied, or gives one another weight, where the rules allow it.
    pub fn operate(&mut self) -> Result<(), Violation> {
        let copy = self.random.below(self.hosts.len() as u64) as usize;
        let (removes, weight) = (self.random.chance(1, 2), 50 * self.random.between(1, 4));
        let Some(control) = &mut self.control else { return Ok(()) };
        let id = drive_id(copy);
        let change = match removes {
            true => operation::want_drive(&control.truth, id, Wanted::Removing),
            false => operation::reweight_drive(&control.truth, id, weight),
        };
        if let Ok(write) = change {
            control.write_if(write)?;
            self.say(|| format!("the operator changes drive {copy}, removal: {removes}"));
        }
        self.store_changed()
    }

    /// A drive is lost with all that is on it, and a new one put in its place, if others have all that it had.
    pub fn replace_drive(&mut self) -> Result<(), Violation> {
        let copy = self.random.below(self.hosts.len() as u64) as usize;
        if self.hosts[copy].is_gone || !self.is_spare(copy) {
            return Ok(());
        }
        self.lose_drive(copy).map(drop)
    }

    /// The same for a certain drive; gives whether the map takes it.
    pub fn lose_drive(&mut self, copy: usize) -> Result<bool, Violation> {
        let Some(control) = &mut self.control else { return Ok(false) };
        let Ok(write) = operation::give_up_drive(&control.truth, drive_id(copy)) else { return Ok(false) };
        control.write_if(write)?;
        self.say(|| format!("drive {copy} is lost"));
        self.report.saw(Rare::DriveReplaced);
        self.take_out(copy);
        self.put_in(copy)?;
        self.store_changed().map(|()| true)
    }

    /// A drive is not there any more.
    fn take_out(&mut self, copy: usize) {
        let host = &mut self.hosts[copy];
        host.is_gone = true;
        host.copies = None;
        host.failing = false;
        host.proposals.clear();
        host.drive.faults_mut().clear();
        host.drive.process_crash();
        for link in 0..self.links.len() {
            if let Some(end) = (0..2).find(|end| self.links[link].ends[*end] == copy) {
                self.links[link].up[end] = false;
                self.break_link(link);
            }
        }
    }

    /// A new drive in the place of an old one.
    fn put_in(&mut self, old: usize) -> Result<(), Violation> {
        let node = self.node_of(old);
        let new = self.hosts.len();
        let Some(control) = &mut self.control else { return Ok(()) };
        control.add_drive(node)?;
        let host = Host::new(new, node, &self.plan, &mut self.random)?;
        self.hosts.push(host);
        self.cleaned.push((0, 0));
        let others: Vec<usize> = (0..new).filter(|other| !self.hosts[*other].is_gone).collect();
        for other in others {
            self.links.push(Link::new([other, new]));
            self.at(0, Event::Link(self.links.len() - 1));
        }
        if self.nodes[node].up {
            self.open_copy(new)?;
            self.follow_map(node)?;
        }
        Ok(())
    }

    /// Drives that the map does not know any more are taken out, and others put in.
    pub fn follow_drives(&mut self) -> Result<(), Violation> {
        for copy in 0..self.hosts.len() {
            let is_known = |control: &Control, id: DriveId| control.truth.drive(id).is_some();
            let known = self.control.as_ref().is_none_or(|control| is_known(control, drive_id(copy)));
            if !known && !self.hosts[copy].is_gone {
                self.say(|| format!("drive {copy} is empty and taken out"));
                self.report.saw(Rare::DriveRemoved);
                self.take_out(copy);
                self.put_in(copy)?;
            }
        }
        Ok(())
    }

    /// A member of the store restarts, or another one leads: watches break, or leases get their time anew.
    pub fn disturb_store(&mut self) {
        let (now_ns, breaks) = (self.now_ns, self.random.chance(1, 2));
        let Some(control) = &mut self.control else { return };
        if breaks {
            control.lose_watches();
        } else {
            control.renew_leases(now_ns);
        }
    }
}

impl Control {
    /// All watches break; that of the truth is ours and is made anew.
    fn lose_watches(&mut self) {
        self.store.lose_all_watches();
        self.watch_truth();
    }

    fn renew_leases(&mut self, now_ns: u64) {
        self.store.renew_leases(now_ns * super::control::STORE_TIME);
    }
}
