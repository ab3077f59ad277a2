//! The coordinator: configurations of all groups, changed one by one by compare-and-set; nodes that fall silent are taken
//! for dead. Each change is told to the members, but what is told may be late or lost.

use coquina_replication::{Config, CopyId};

use super::node::{copy_id, number_of};
use super::plan::ClusterPlan;
use super::report::Rare;
use super::world::{Event, World};
use crate::random::Random;

/// Time between looks at who is alive.
pub const CHECK_NS: u64 = 20_000_000;

/// What the coordinator keeps.
#[derive(Debug)]
pub struct Coordinator {
    /// By group, from 1.
    pub configs: Vec<Config>,
    /// When each node was last heard of.
    heard_ns: Vec<u64>,
    /// Nothing is changed before.
    pub away_until_ns: u64,
}

impl Coordinator {
    pub fn new(plan: &ClusterPlan, random: &mut Random) -> Coordinator {
        let configs = (0..plan.groups).map(|_| {
            if plan.is_real {
                // The real one makes them.
                return Config::default();
            }
            let first = random.below(plan.nodes as u64) as usize;
            let in_sync = (0..plan.copies.min(plan.nodes)).map(|place| {
                let node = (first + place) % plan.nodes;
                copy_id(node * plan.drives_per_node + random.below(plan.drives_per_node as u64) as usize)
            });
            let in_sync: Vec<CopyId> = in_sync.collect();
            Config { epoch: 1, in_sync, others: Vec::new(), min_copies: plan.min_copies }
        });
        Coordinator { configs: configs.collect(), heard_ns: vec![0; plan.nodes], away_until_ns: 0 }
    }

    /// The configuration of a group.
    pub fn config(&self, group: u32) -> &Config {
        &self.configs[group as usize - 1]
    }

    /// Whether a proposal of a group's primary is taken.
    fn takes(&self, group: u32, from: CopyId, config: &Config) -> bool {
        let known = self.config(group);
        let added = config.in_sync.iter().filter(|copy| !known.is_in_sync(**copy)).count();
        let members = |config: &Config| {
            let mut all: Vec<CopyId> = config.in_sync.iter().chain(&config.others).copied().collect();
            all.sort_unstable();
            all
        };
        known.primary() == Some(from)
            && config.epoch == known.epoch + 1
            && !config.in_sync.is_empty()
            && added <= 1
            && members(config) == members(known)
    }
}

impl World {
    /// A node says that it is alive.
    pub fn heartbeat(&mut self, node: usize) {
        if self.nodes[node].up && self.nodes[node].sees_coordinator {
            self.coordinator.heard_ns[node] = self.now_ns;
        }
    }

    /// A copy asks for a configuration.
    pub fn proposed(&mut self, from: usize, group: u32, config: Config) {
        if self.control.is_some() {
            // Told with each heartbeat.
            self.hosts[from].proposals.insert(group, config);
            return;
        }
        let is_reached = self.nodes[self.node_of(from)].sees_coordinator;
        if !is_reached || self.now_ns < self.coordinator.away_until_ns {
            return;
        }
        if self.coordinator.takes(group, copy_id(from), &config) {
            self.decide(group, config);
        } else {
            // The proposer learns what holds.
            let config = self.coordinator.config(group).clone();
            self.tell(from, group, config);
        }
    }

    /// A copy does not want a configuration any more, which it has asked for some time ago. The real coordinator is told
    /// with the next heartbeat; the other one has decided at once.
    pub fn withdrawn(&mut self, from: usize, group: u32, config: &Config) {
        self.say(|| format!("copy {from} takes back for {group}: {config:?}"));
        let proposals = &mut self.hosts[from].proposals;
        if proposals.get(&group) == Some(config) {
            proposals.remove(&group);
        }
    }

    /// Makes a group's next configuration.
    pub fn decide(&mut self, group: u32, config: Config) {
        let known = self.coordinator.config(group).clone();
        assert_eq!(config.epoch, known.epoch + 1, "configurations change one by one");
        if known.primary() != config.primary() {
            self.report.saw(Rare::Takeover);
        }
        if config.in_sync.len() > known.in_sync.len() {
            self.report.saw(Rare::CopyAdded);
        }
        if config.in_sync.len() < known.in_sync.len() {
            self.report.saw(Rare::CopyRemoved);
        }
        self.note(&[20, u64::from(group), config.epoch, config.in_sync.len() as u64]);
        self.say(|| format!("group {group}: {config:?}"));
        self.coordinator.configs[group as usize - 1] = config.clone();
        for copy in config.in_sync.iter().chain(&config.others) {
            self.tell(number_of(*copy), group, config.clone());
        }
    }

    fn tell(&mut self, to: usize, group: u32, config: Config) {
        if self.random.chance(1, 20) {
            return;
        }
        let most_ns = if self.random.chance(1, 5) { 50_000_000 } else { 2_000_000 };
        let delay_ns = self.random.between(100_000, most_ns);
        self.at(delay_ns, Event::Config { to, group, config });
    }

    /// Looks at who is alive, and repeats itself to those who may not have heard.
    pub fn check_nodes(&mut self) {
        if self.control.is_some() {
            return;
        }
        if self.now_ns < self.coordinator.away_until_ns {
            self.coordinator.heard_ns.fill(self.now_ns);
            return;
        }
        let limit = self.now_ns.saturating_sub(self.plan.dead_ns);
        let dead: Vec<bool> = self.coordinator.heard_ns.iter().map(|heard| *heard < limit).collect();
        for group in 1..=self.plan.groups {
            let config = self.coordinator.config(group).clone();
            let gone = |copy: &CopyId| dead[self.node_of(number_of(*copy))];
            let alive = config.in_sync.iter().filter(|copy| !gone(copy)).count();
            if alive > 0 && alive < config.in_sync.len() {
                let mut next = config.renewed();
                next.others.extend(config.in_sync.iter().filter(|copy| gone(copy)));
                next.in_sync.retain(|copy| !gone(copy));
                self.decide(group, next);
            } else if self.random.chance(1, 5) {
                for copy in config.in_sync.iter().chain(&config.others) {
                    self.tell(number_of(*copy), group, config.clone());
                }
            }
        }
    }

    /// Makes another copy in sync the primary, or removes one, for no reason.
    pub fn meddle(&mut self) {
        if self.control.is_some() {
            return;
        }
        let group = self.random.between(1, u64::from(self.plan.groups)) as u32;
        let config = self.coordinator.config(group).clone();
        if config.in_sync.len() < 2 || self.now_ns < self.coordinator.away_until_ns {
            return;
        }
        if self.random.chance(1, 2) {
            let mut next = config.renewed();
            next.in_sync.rotate_left(1);
            self.report.saw(Rare::PrimaryMoved);
            self.decide(group, next);
        } else {
            let copy = config.in_sync[self.random.below(config.in_sync.len() as u64) as usize];
            self.decide(group, config.without(copy));
        }
    }
}
