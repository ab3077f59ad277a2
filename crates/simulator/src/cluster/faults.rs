//! Faults: what they do, and how they end.

use super::report::Rare;
use super::world::{Event, World};
use crate::random::Random;
use crate::violation::Violation;

/// A fault that ends by itself.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// A node is started.
    Start(usize),
    /// Messages from one node to another go on.
    Unblock(usize, usize),
    /// A node reaches the coordinator again.
    Coordinator(usize),
    /// Clients reach a node again.
    Clients(usize),
    /// A drive's stalled writes go on.
    Release(usize),
    /// Somebody restarts a node whose drive has failed.
    Repair(usize),
    /// Somebody sees to a drive that rots.
    Rot(usize),
    /// A drive is scrubbed.
    Scrub(usize),
}

impl World {
    /// One fault at random.
    pub fn fault(&mut self) -> Result<(), Violation> {
        self.report.faults += 1;
        let node = self.random.below(self.plan.nodes as u64) as usize;
        let other = (node + self.random.between(1, self.plan.nodes as u64 - 1) as usize) % self.plan.nodes;
        let [operates, replaces, disturbs] = if self.control.is_some() { [2, 1, 1] } else { [0; 3] };
        let weights = [4, 4, 1, 6, 3, 3, 2, 2, 3, 3, 1, 2, 1, 2, operates, replaces, disturbs];
        let choice = self.random.weighted(&weights);
        self.note(&[30, choice as u64, node as u64, other as u64]);
        self.say(|| format!("fault {choice} at node {node}, {other}"));
        match choice {
            0 => self.crash(node, false),
            1 => self.crash(node, true),
            2 => {
                let power = self.random.chance(3, 4);
                self.report.saw(Rare::AllDown);
                (0..self.plan.nodes).for_each(|node| self.crash(node, power));
            }
            3 => {
                let link = self.random.below(self.links.len() as u64) as usize;
                self.report.saw(Rare::LinkBroken);
                self.break_link(link);
            }
            4 => {
                self.report.saw(Rare::Partition);
                self.cut_off(node);
            }
            5 => {
                self.report.saw(Rare::OneWay);
                self.block(node, other);
            }
            6 => self.hide_from_coordinator(node),
            7 => {
                self.nodes[node].sees_clients = false;
                self.end_later(Ending::Clients(node));
            }
            8 => {
                let copy = self.random.below(self.hosts.len() as u64) as usize;
                if self.hosts[copy].copies.is_some() {
                    self.report.saw(Rare::DriveStall);
                    let after = self.random.between(1, 5);
                    self.hosts[copy].drive.faults_mut().stall_writes(after, 3);
                    self.end_later(Ending::Release(copy));
                }
            }
            9 => self.meddle(),
            14 => self.operate()?,
            15 => self.replace_drive()?,
            16 => self.disturb_store(),
            11 => {
                let copy = self.random.below(self.hosts.len() as u64) as usize;
                if self.hosts[copy].copies.is_some() {
                    let after = self.random.between(1, 10);
                    self.hosts[copy].failing = true;
                    let landing = self.besides.as_mut().map(Random::fork);
                    self.hosts[copy].drive.faults_mut().fail_write(after, true, landing);
                    let node = self.node_of(copy);
                    self.end_later(Ending::Repair(node));
                }
            }
            13 => self.remove_layer()?,
            12 => {
                let client = self.random.below(self.plan.clients as u64) as usize;
                self.crash_client(client);
            }
            _ => {
                self.report.saw(Rare::CoordinatorAway);
                let length_ns = self.fault_length_ns();
                self.coordinator.away_until_ns = self.now_ns + length_ns;
            }
        }
        Ok(())
    }

    fn fault_length_ns(&mut self) -> u64 {
        self.random.between(100_000, self.plan.fault_length_ns)
    }

    fn end_later(&mut self, ending: Ending) {
        let length_ns = self.fault_length_ns();
        self.at(length_ns, Event::EndFault(ending));
    }

    fn hide_from_coordinator(&mut self, node: usize) {
        self.nodes[node].sees_coordinator = false;
        self.end_later(Ending::Coordinator(node));
    }

    /// Cuts a node off from everybody but clients, sometimes for as long as it takes others to go on without it.
    fn cut_off(&mut self, node: usize) {
        let long_ns = 2 * self.plan.dead_ns + 2 * self.plan.settings.grant_ns;
        let length_ns = if self.random.chance(1, 3) {
            self.random.between(long_ns, 3 * long_ns)
        } else {
            self.fault_length_ns()
        };
        for other in (0..self.plan.nodes).filter(|other| *other != node) {
            for (from, to) in [(node, other), (other, node)] {
                self.blocked[from][to] += 1;
                self.at(length_ns, Event::EndFault(Ending::Unblock(from, to)));
            }
        }
        self.nodes[node].sees_coordinator = false;
        self.at(length_ns, Event::EndFault(Ending::Coordinator(node)));
    }

    fn block(&mut self, from: usize, to: usize) {
        self.blocked[from][to] += 1;
        self.end_later(Ending::Unblock(from, to));
    }

    /// A process ends, or its machine loses power.
    pub fn crash(&mut self, node: usize, power: bool) {
        if !self.nodes[node].up {
            return;
        }
        self.report.saw(if power { Rare::PowerCut } else { Rare::NodeCrash });
        self.nodes[node].up = false;
        self.nodes[node].life += 1;
        for copy in self.copies_of(node) {
            self.hosts[copy].copies = None;
            self.hosts[copy].proposals.clear();
            self.hosts[copy].failing = false;
            self.hosts[copy].wake_ns = None;
            self.hosts[copy].drive.faults_mut().clear();
            if std::mem::take(&mut self.hosts[copy].drive.faults_mut().writes_landed) > 0 {
                self.report.saw(Rare::FailedWriteLanded);
            }
            if power {
                self.hosts[copy].drive.power_cut();
            } else {
                self.hosts[copy].drive.process_crash();
            }
        }
        for link in 0..self.links.len() {
            let ends = self.links[link].ends;
            let own = [0, 1].map(|end| self.node_of(ends[end]) == node);
            for end in (0..2).filter(|end| own[*end]) {
                self.links[link].up[end] = false;
            }
            if own.contains(&true) {
                self.break_link(link);
            }
        }
        self.end_later(Ending::Start(node));
    }

    /// A fault ends.
    pub fn end_fault(&mut self, ending: Ending) -> Result<(), Violation> {
        match ending {
            Ending::Start(node) => self.start_node(node)?,
            Ending::Unblock(from, to) => {
                self.blocked[from][to] = self.blocked[from][to].saturating_sub(1);
                self.release_held();
            }
            Ending::Repair(node) => {
                let fails = |copy: usize| self.hosts[copy].failing || self.has_halted(copy);
                if self.copies_of(node).into_iter().any(fails) {
                    self.crash(node, false);
                }
            }
            Ending::Rot(copy) => self.mend_rot(copy)?,
            Ending::Scrub(copy) => self.scrub(copy)?,
            Ending::Coordinator(node) => self.nodes[node].sees_coordinator = true,
            Ending::Clients(node) => self.nodes[node].sees_clients = true,
            Ending::Release(copy) => {
                let now_ns = self.now_ns;
                self.hosts[copy].drive.release_stalled(now_ns);
            }
        }
        Ok(())
    }

    /// Ends all faults.
    pub fn calm(&mut self) -> Result<(), Violation> {
        self.calm = true;
        self.calm_since_ns.get_or_insert(self.now_ns);
        self.coordinator.away_until_ns = 0;
        for row in &mut self.blocked {
            row.fill(0);
        }
        self.release_held();
        self.mend_all_rot()?;
        for node in 0..self.plan.nodes {
            if self.copies_of(node).into_iter().any(|copy| self.hosts[copy].failing) {
                self.crash(node, false);
            }
            self.nodes[node].sees_coordinator = true;
            self.nodes[node].sees_clients = true;
            self.start_node(node)?;
        }
        let now_ns = self.now_ns;
        for host in &mut self.hosts {
            host.drive.faults_mut().clear();
            host.drive.release_stalled(now_ns);
        }
        Ok(())
    }
}
