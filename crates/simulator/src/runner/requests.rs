//! Requests: from the workload into the model and the shards.

use coquina_base::{BLOCK_BYTES, CHUNK_BYTES, LayerId, crc32c_block};
use coquina_engine::{Operation, Origin, Request, RequestToken};

use super::groups::group_of;
use super::{Outstanding, Retry, Runner};
use crate::content::fill;
use crate::model::Span;
use crate::random::Random;
use crate::subject::Subject;
use crate::violation::Violation;
use crate::workload::{Kind, Phase};

const BLOCK: u32 = BLOCK_BYTES as u32;

/// A large write.
const LARGE_BYTES: u32 = 64 << 10;

/// Steps after an answer `NoSpace` in which the drive counts as full.
const FULL_STEPS: u64 = 200;

impl<S: Subject> Runner<S> {
    /// Submits the next request of a phase, unless its place is too busy.
    pub(super) fn submit_next(&mut self, phase: &mut Phase) {
        let (kind, span) = phase.next(&mut self.random, &self.layers);
        if kind == Kind::Delete {
            return self.submit_delete(span.layer, phase.delete_while_busy);
        }
        if kind == Kind::Shrink {
            return self.submit_shrink(span);
        }
        if !self.model.has_room(&span, kind.is_change()) {
            return;
        }
        self.submit_span(kind, span);
    }

    /// Compares everything that was ever written, and every deleted layer, with the model.
    pub fn compare_all(&mut self) -> Result<super::Ended, Violation> {
        let spans = self.model.touched_spans();
        for span in spans {
            let parts = parts_of(&mut self.random, span);
            for part in parts {
                while !self.model.has_room(&part, false) || self.outstanding.len() >= 6 {
                    match self.step(false)? {
                        super::Ended::Done => {}
                        other => return Ok(other),
                    }
                }
                self.submit_span(Kind::Read, part);
            }
        }
        let ended = self.drain_requests()?;
        if ended == super::Ended::Done {
            self.counters.full_comparisons += 1;
            self.check_dead_layers()?;
            // One whose deletion a cut left unanswered is not gone yet.
            while self.dead_layers.len() > 2 && self.dead_layers[0].1 {
                let (layer, _) = self.dead_layers.remove(0);
                self.model.forget_layer(layer);
            }
        }
        Ok(ended)
    }

    /// What was deleted stays so, whatever was on its way.
    fn check_dead_layers(&self) -> Result<(), Violation> {
        let gone = self.dead_layers.iter().filter(|(_, answered)| *answered);
        let is_back =
            gone.clone().any(|(layer, _)| self.shards[self.shard_of(*layer)].holds_layer(LayerId(*layer)));
        if is_back && !self.tolerance.stale {
            return Err(Violation::Fault("a layer that was deleted is in the index again"));
        }
        Ok(())
    }

    /// Sends every change again that a cut left without an answer, as clients do that reconnect, and waits for the
    /// answers.
    pub fn retry_unanswered(&mut self) -> Result<super::Ended, Violation> {
        let mut retries = std::mem::take(&mut self.unanswered);
        retries.sort_by_key(|retry| retry.number);
        for retry in retries {
            // All before the first answer: they were all under way at the same time, in whatever order.
            if self.is_dead(retry.span.layer) || !self.model.has_room(&retry.span, true) {
                continue;
            }
            self.counters.retries += 1;
            self.submit_numbered(retry.kind, retry.span, retry.version, Some(retry.number));
        }
        self.drain_requests()
    }

    /// Lets the clients of changes that a cut left without an answer be gone for good.
    pub fn forget_unanswered(&mut self) {
        self.unanswered.clear();
    }

    /// Submits one request that is no deletion.
    pub fn submit_span(&mut self, kind: Kind, span: Span) {
        let version = match kind {
            Kind::Write if self.random.chance(39, 40) => {
                self.next_version += 1;
                self.next_version
            }
            _ => 0,
        };
        self.submit_numbered(kind, span, version, None);
    }

    /// Submits a request that is no deletion; `number` is that of an earlier try, if it was sent before.
    fn submit_numbered(&mut self, kind: Kind, span: Span, version: u32, number: Option<u64>) {
        let quiet = span.blocks().all(|block| self.model.is_quiet(span.layer, span.chunk, block));
        self.counters.overlaps += u64::from(!quiet);
        let promised = kind == Kind::Write && quiet && self.model.is_reserved(&span);
        // Of a trim only whole blocks count: it is a hint.
        let seen = if kind == Kind::Trim { span.whole_blocks() } else { Some(span) };
        let tickets =
            seen.into_iter().map(|span| self.model.begin(span, kind.is_change().then_some(version)));
        let tickets = tickets.collect();
        let blocks = match kind {
            Kind::Write | Kind::Reserve => span.blocks().len() as u64,
            Kind::Zero if !span.is_aligned() => span.blocks().len().min(2) as u64,
            _ => 0,
        };
        let shard = self.shard_of(span.layer);
        let used_blocks = self.used_blocks(shard) + blocks;
        if kind.is_change() && !kind.stores() {
            self.break_promises(&span);
        }
        let layer_gone = self.dead_layers.contains(&(span.layer, true));
        let peak_used_blocks = used_blocks;
        let layer = span.layer;
        let is_again = number.is_some();
        let number = number.unwrap_or(self.next_token);
        let token = self.enter(Outstanding {
            retry: Some(Retry { number, is_again, kind, span, version }),
            shard,
            layer,
            kind,
            tickets,
            blocks,
            peak_used_blocks,
            promised,
            layer_gone,
        });
        self.count_request(kind, &span);
        self.checksums.clear();
        if kind == Kind::Write {
            self.make_payload(&span, version);
        }
        let operation = match kind {
            Kind::Read if number.is_multiple_of(2) => Operation::ReadUnchecked,
            Kind::Read => Operation::Read,
            Kind::Write => Operation::Write { payload: &self.payload, checksums_le: &self.checksums },
            Kind::Trim => Operation::Trim,
            Kind::Zero => Operation::WriteZeroes { no_hole: false },
            Kind::Reserve => Operation::WriteZeroes { no_hole: true },
            Kind::Map => Operation::Map,
            Kind::Delete | Kind::Shrink => unreachable!("{} is no request of one span", kind.name()),
        };
        let lands = kind == Kind::Write && span.is_aligned() && self.random.chance(1, 2);
        self.counters.landed_writes += u64::from(lands);
        if lands {
            return self.shards[shard].submit_landed(request(token, number, &span, operation));
        }
        self.shards[shard].submit(request(token, number, &span, operation));
    }

    /// What frees a place takes back the promise that was made to a write to it that is still under way.
    fn break_promises(&mut self, freed: &Span) {
        let (first, end) = (freed.blocks().start, freed.blocks().end);
        let overlaps = |span: &Span| {
            let same_chunk = (span.layer, span.chunk) == (freed.layer, freed.chunk);
            same_chunk && span.blocks().start < end && first < span.blocks().end
        };
        for request in self.outstanding.values_mut().filter(|request| request.promised) {
            request.promised = !request.tickets.iter().any(|ticket| overlaps(ticket.span()));
        }
    }

    /// Deletes a layer, `while_busy` also with requests on it under way: those may be answered either way, and none
    /// may bring data back.
    fn submit_delete(&mut self, layer: u64, while_busy: bool) {
        let mut on_it = self.outstanding.values().filter(|request| request.layer == layer);
        if !while_busy && on_it.next().is_some() {
            return;
        }
        let busy = on_it.any(|request| request.kind.is_change());
        if !self.delete(layer) {
            return;
        }
        self.counters.deletes_while_busy += u64::from(busy);
        let full = self.last.no_space.is_some_and(|step| step + FULL_STEPS > self.steps);
        self.counters.deletes_when_full += u64::from(full);
        self.dead_layers.push((layer, false));
        // The next layer takes its place, on the same shard.
        let shards = u64::from(self.plan.format.shards);
        let next = (self.next_layer..).find(|id| id % shards == layer % shards);
        let next = next.unwrap_or(self.next_layer);
        self.next_layer = next + 1;
        for entry in self.layers.iter_mut().filter(|(id, _)| *id == layer) {
            entry.0 = next;
        }
    }

    /// Deletes again what was being deleted when the shards stopped, as a control plane does.
    pub(super) fn delete_unanswered(&mut self) {
        for index in 0..self.dead_layers.len() {
            let (layer, answered) = self.dead_layers[index];
            let mut waiting = self.outstanding.values();
            let waits = waiting.any(|request| (request.kind, request.layer) == (Kind::Delete, layer));
            if !answered && !waits {
                self.delete(layer);
            }
        }
    }

    /// Submits the deletion of a layer unless it is too busy. Says whether it did.
    fn delete(&mut self, layer: u64) -> bool {
        let spans = self.model.layer_spans(layer);
        if !spans.iter().all(|span| self.model.has_room(span, true)) {
            return false;
        }
        self.counters.deletes += 1;
        self.last.delete = Some(self.steps);
        self.deleted_step = Some(self.steps);
        let tickets = spans.into_iter().map(|span| self.model.begin(span, Some(0))).collect();
        let shard = self.shard_of(layer);
        let token = self.enter(Outstanding {
            shard,
            layer,
            kind: Kind::Delete,
            tickets,
            blocks: 0,
            peak_used_blocks: 0,
            promised: false,
            layer_gone: false,
            retry: None,
        });
        let span = Span { layer, chunk: 0, offset_bytes: 0, length_bytes: BLOCK };
        self.shards[shard].submit(request(token, token, &span, Operation::DeleteLayer));
        true
    }

    /// Trims a layer from a place to its end, a request for each chunk, as for a volume that is made smaller.
    fn submit_shrink(&mut self, from: Span) {
        let Some((_, chunks)) = self.layers.iter().copied().find(|(layer, _)| *layer == from.layer) else {
            return;
        };
        let behind = |span: &Span| {
            span.layer == from.layer && (span.chunk, span.offset_bytes) >= (from.chunk, from.offset_bytes)
        };
        let writes = self.outstanding.values().filter(|request| request.kind == Kind::Write);
        let busy = writes.flat_map(|request| &request.tickets).any(|ticket| behind(ticket.span()));
        let mut submitted = false;
        for chunk in from.chunk..chunks {
            let offset_bytes = if chunk == from.chunk { from.offset_bytes } else { 0 };
            let part = Span {
                chunk,
                offset_bytes,
                length_bytes: CHUNK_BYTES as u32 - offset_bytes,
                layer: from.layer,
            };
            if self.model.has_room(&part, true) {
                self.submit_span(Kind::Trim, part);
                submitted = true;
            }
        }
        self.counters.shrinks += u64::from(submitted);
        self.counters.shrinks_while_busy += u64::from(submitted && busy);
    }

    /// Now and then does what an operator or the host might do.
    pub(super) fn disturb(&mut self) {
        if !self.random.chance(1, 100) {
            return;
        }
        let shard = self.random.below(self.shards.len() as u64) as usize;
        match self.random.below(9) {
            8 => self.config_due = Some(shard),
            0 => {
                self.shards[shard].start_scrub();
                self.last.scrub_ordered = true;
            }
            1 => {
                let bytes = self.random.pick(&[0, 256 << 10, 16 << 20]);
                self.shards[shard].set_cache_bytes(bytes);
            }
            2 | 3 => {
                self.shards[shard].start_checkpoint();
                self.last.checkpoint_ordered = true;
            }
            _ => {}
        }
    }

    pub(super) fn shard_of(&self, layer: u64) -> usize {
        (layer % u64::from(self.plan.format.shards)) as usize
    }

    /// Blocks of a shard that may take space, those of outstanding requests included.
    pub(super) fn used_blocks(&self, shard: usize) -> u64 {
        let live = self.layers.iter().map(|(layer, _)| *layer);
        let live = live.chain(self.dead_layers.iter().map(|(layer, _)| *layer));
        let stored: u64 = live
            .filter(|layer| self.shard_of(*layer) == shard)
            .map(|layer| self.model.stored_blocks(layer))
            .sum();
        // Twice: parts of a change that are applied stay set aside until the whole is.
        let mine = self.outstanding.values().filter(|request| request.shard == shard);
        stored + 2 * mine.map(|request| request.blocks).sum::<u64>()
    }

    pub(super) fn is_dead(&self, layer: u64) -> bool {
        self.dead_layers.iter().any(|(dead, _)| *dead == layer)
    }

    fn enter(&mut self, request: Outstanding) -> u64 {
        if self.outstanding.is_empty() {
            self.answered_step = self.steps;
        }
        let token = self.next_token;
        self.next_token += 1;
        self.outstanding.insert(token, request);
        token
    }

    fn count_request(&mut self, kind: Kind, span: &Span) {
        let counters = &mut self.counters;
        match kind {
            Kind::Read => counters.reads += 1,
            Kind::Write => counters.writes += 1,
            Kind::Trim => counters.trims += 1,
            Kind::Zero => counters.zeroings += 1,
            Kind::Reserve => counters.reservations += 1,
            Kind::Map => counters.maps += 1,
            Kind::Delete | Kind::Shrink => {}
        }
        let large = kind == Kind::Write && span.length_bytes >= LARGE_BYTES;
        counters.large_writes += u64::from(large);
        counters.part_writes += u64::from(kind == Kind::Write && !span.is_aligned());
    }

    fn make_payload(&mut self, span: &Span, version: u32) {
        self.payload.resize(span.length_bytes as usize, 0);
        fill(&mut self.payload, version, span.place());
        if span.is_aligned() && self.random.chance(1, 2) {
            for block in self.payload.chunks_exact(BLOCK_BYTES) {
                self.checksums.extend_from_slice(&crc32c_block(block).to_le_bytes());
            }
        }
    }
}

fn request<'a>(token: u64, number: u64, span: &Span, operation: Operation<'a>) -> Request<'a> {
    Request {
        token: RequestToken(token),
        layer: LayerId(span.layer),
        chunk: span.chunk,
        offset_bytes: span.offset_bytes,
        length_bytes: span.length_bytes,
        origin: Origin { group: group_of(span.layer), session: 1, request: number, ..Origin::default() },
        operation,
    }
}

/// Cuts a chunk into parts of random size to read.
fn parts_of(random: &mut Random, span: Span) -> Vec<Span> {
    let part_bytes = random.pick(&[64 << 10, 256 << 10, 1 << 20, 4 << 20]);
    let starts = (0..span.length_bytes).step_by(part_bytes as usize);
    starts
        .map(|start| Span {
            offset_bytes: span.offset_bytes + start,
            length_bytes: part_bytes.min(span.length_bytes - start),
            ..span
        })
        .collect()
}
