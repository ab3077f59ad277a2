//! Layers that are deleted while the cluster runs: the map says so, each node hears of it when it does, refuses the layer's
//! requests from then on, and deletes what its copies hold, whatever others still send.

use super::clients::Kind;
use super::plan::LAYERS;
use super::report::Rare;
use super::world::{Event, World};
use crate::model::Answer;
use crate::violation::Violation;

/// Time between looks at what a node still holds.
const COLLECT_NS: u64 = 60_000_000;
/// How long copies may take to free what was deleted.
const FREE_NS: u64 = 20_000_000_000;

impl World {
    /// The layers that clients use; the last one's days are numbered.
    pub fn layers_in_use(&self) -> impl Iterator<Item = u64> + use<> {
        (1..=LAYERS).chain([self.doomed])
    }

    /// Whether a layer was deleted, as far as a node knows.
    pub fn is_removed(&self, node: usize, layer: u64) -> bool {
        layer > LAYERS && layer < self.nodes[node].removed_below
    }

    /// The map says that a layer is deleted; another takes its place. Clients forget their requests of it, and some go on
    /// sending them.
    pub fn remove_layer(&mut self) -> Result<(), Violation> {
        // Where the drives are full, a copy that has not heard of it may have no room for what others took since.
        if self.plan.is_full {
            return Ok(());
        }
        let layer = self.doomed;
        self.report.saw(Rare::LayerRemoved);
        self.doomed += 1;
        for operation in self.operations.values_mut().filter(|operation| operation.span.layer == layer) {
            if !std::mem::replace(&mut operation.is_lost, true) {
                self.clients[operation.client].outstanding -= 1;
            }
            let Some(ticket) = operation.ticket.take() else { continue };
            if !operation.kind.is_change() {
                self.model.abandon_read(ticket);
            } else {
                self.model.finish(ticket, Answer::Either, operation.kind == Kind::Write)?;
            }
        }
        for node in 0..self.plan.nodes {
            self.tell_node(node);
        }
        Ok(())
    }

    fn tell_node(&mut self, node: usize) {
        let delay_ns = self.random.between(100_000, 50_000_000);
        self.at(delay_ns, Event::MapNews(node));
    }

    /// A node hears which layers there are, if it can.
    pub fn hear_map(&mut self, node: usize) {
        if self.nodes[node].up && self.nodes[node].sees_coordinator {
            self.nodes[node].removed_below = self.doomed;
        } else {
            self.tell_node(node);
        }
    }

    /// A node deletes what it holds of layers that are not there any more.
    pub fn collect_layers(&mut self, node: usize) -> Result<(), Violation> {
        let wait_ns = self.random.between(COLLECT_NS / 3, 2 * COLLECT_NS);
        self.at(wait_ns, Event::Collect(node));
        for copy in self.copies_of(node) {
            let held = self.hosts[copy].copies.as_ref().map(|copies| copies.shard().layers());
            let mut removed = held.unwrap_or_default();
            removed.retain(|layer| self.is_removed(node, layer.0));
            for layer in removed {
                self.note(&[50, copy as u64, layer.0]);
                self.say(|| format!("copy {copy} deletes {layer:?}"));
                self.with_copy(copy, |copies, now_ns, out| copies.delete_layer(now_ns, layer, out))?;
            }
        }
        Ok(())
    }

    /// Waits until nothing is left of any layer that was deleted.
    pub fn free_layers(&mut self) -> Result<(), Violation> {
        let start_ns = self.now_ns;
        while let Some(copy) = (0..self.hosts.len()).find(|copy| self.holds_removed(*copy)) {
            if self.now_ns > start_ns + FREE_NS {
                let held = self.hosts[copy].copies.as_ref().map(|copies| copies.shard());
                return Err(Violation::Hang(format!("copy {copy} holds layers that were deleted: {held:?}")));
            }
            self.step()?;
        }
        Ok(())
    }

    fn holds_removed(&self, copy: usize) -> bool {
        let copies = self.hosts[copy].copies.as_ref();
        copies.is_some_and(|copies| {
            copies.shard().layers().iter().any(|layer| layer.0 > LAYERS && layer.0 < self.doomed)
        })
    }
}
