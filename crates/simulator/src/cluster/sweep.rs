//! Copies that are no members of a group any more forget it, and what they hold of it is trimmed, as nodes do it (`sweep.rs` of
//! `coquina_node`). Operators give drives other weights meanwhile, so that groups come back to drives that have forgotten them.

use coquina_base::LayerId;
use coquina_cluster::operation;

use super::control::{Control, drive_id};
use super::node::copy_id;
use super::world::{Event, World};
use crate::violation::Violation;

/// Time between sweeps of a node.
const SWEEP_NS: u64 = 60_000_000;
/// Chunks that are trimmed in each.
const TRIMMED_MAX: usize = 2;

impl World {
    /// Has all nodes sweep from now on.
    pub fn begin_to_sweep(&mut self) {
        (0..self.plan.nodes).for_each(|node| self.at(0, Event::Sweep(node)));
    }

    /// A node looks what lies on its drives for others.
    pub fn sweep(&mut self, node: usize) -> Result<(), Violation> {
        let wait_ns = self.random.between(SWEEP_NS / 3, 2 * SWEEP_NS);
        self.at(wait_ns, Event::Sweep(node));
        if !self.calm && self.random.chance(1, 4) {
            self.reweight()?;
        }
        if !self.nodes[node].up {
            return Ok(());
        }
        // What could not be opened while it was being forgotten.
        self.follow_map(node)?;
        for copy in self.copies_of(node) {
            self.forget_groups(node, copy)?;
            self.trim_chunks(node, copy)?;
        }
        Ok(())
    }

    /// Gives a drive more or less to hold, or nothing, so that groups leave drives and come back.
    fn reweight(&mut self) -> Result<(), Violation> {
        let copy = self.random.below(self.hosts.len() as u64) as usize;
        let weight = self.random.pick(&[0, 0, 100, 100, 300]);
        let Some(control) = &mut self.control else { return Ok(()) };
        if let Ok(write) = operation::reweight_drive(&control.truth, drive_id(copy), weight) {
            control.write_if(write)?;
            self.say(|| format!("the operator gives drive {copy} weight {weight}"));
        }
        self.store_changed()
    }

    /// Whether a node's map says that a copy is no member of a group.
    fn is_elsewhere(&self, node: usize, copy: usize, group: u32) -> bool {
        let map = self.control.as_ref().map(|control| &control.seats[node].map);
        let config = map.and_then(|map| Control::config_in(map, group));
        let copy = copy_id(copy);
        config.is_some_and(|config| !config.is_in_sync(copy) && !config.is_out(copy))
    }

    fn forget_groups(&mut self, node: usize, copy: usize) -> Result<(), Violation> {
        for group in 1..=self.plan.groups {
            let known = self.hosts[copy].copies.as_ref().and_then(|copies| copies.shard().group(group));
            if known.is_none() || !self.is_elsewhere(node, copy, group) {
                continue;
            }
            let mut is_forgotten = false;
            self.with_copy(copy, |copies, now_ns, out| {
                is_forgotten = copies.forget_group(now_ns, group, out);
            })?;
            if is_forgotten && known.is_some_and(|view| view.last > 0) {
                self.say(|| format!("copy {copy} forgets group {group}"));
                self.report.groups_forgotten += 1;
                self.hosts[copy].has_forgotten.insert(group);
            }
        }
        Ok(())
    }

    fn trim_chunks(&mut self, node: usize, copy: usize) -> Result<(), Violation> {
        let Some(copies) = self.hosts[copy].copies.as_ref() else { return Ok(()) };
        let mut chunks: Vec<(LayerId, u32)> = Vec::new();
        for layer in copies.shard().layers().into_iter().filter(|layer| !self.is_removed(node, layer.0)) {
            let mut from = copies.shard().next_chunk(layer, 0);
            while let Some(chunk) = from {
                let group = self.group_of(layer.0, chunk);
                if self.is_elsewhere(node, copy, group) && copies.group(group).is_none() {
                    chunks.push((layer, chunk));
                }
                from = copies.shard().next_chunk(layer, chunk + 1);
            }
        }
        for (layer, chunk) in chunks.into_iter().take(TRIMMED_MAX) {
            self.report.chunks_trimmed += 1;
            self.with_copy(copy, |copies, now_ns, out| copies.trim_chunk(now_ns, layer, chunk, out))?;
        }
        Ok(())
    }
}
