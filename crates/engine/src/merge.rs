//! Changes of less than a block: merged with what is there, where the order of the block's changes is decided.
//!
//! A merge waits until every frame that may hold an older change of its blocks is applied, then reads the blocks
//! at its edges, and puts whole blocks into the log. Later changes of the same blocks wait behind it.
//!
//! Invariant: a merge stays in the list, unanswered, until all reads of its edges have ended, though one has failed. Reads
//! find it by the token of its request, which belongs to another request as soon as it is answered. Only a shard that takes no
//! changes any more gives it up before.

use coquina_base::{BLOCK_BYTES, LayerId, crc32c_block};
use coquina_replication::BlockRange;

use crate::api::{Failure, Piece, ReadData, Request};
use crate::frame::EntryKind;
use crate::index_region::RegionKey;
use crate::shard::{OwnedOperation, OwnedRequest, Shard};
use crate::write::{Ready, regions_of};

/// A change that is being merged.
pub struct Merge {
    pub(crate) request: OwnedRequest,
    /// Requests on the same blocks that came later.
    pub(crate) waiting: Vec<OwnedRequest>,
    /// Users' frames that must have been sealed, of all that ever were: those that held changes when it came.
    sealed_least: u64,
    /// Frames up to here must be applied first; `None` while those are not all sealed.
    barrier: Option<u64>,
    state: MergeState,
    edges: [Edge; 2],
    /// Why the first of its reads failed that did.
    failure: Option<Failure>,
    /// All regions of the range stay in memory: on a full drive they must be known when the merge ends.
    is_pinned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeState {
    Waiting,
    Reading { left: u8 },
}

/// What keeps a merge from the log.
enum Hindrance {
    /// What it replaces may be on its way out, or, `for_room`, something else may that gives it the room which it lacks: again behind
    /// the trims.
    Trims { for_room: bool },
    /// The index page that says how much it replaces must be read first.
    Page,
    /// It is refused.
    Refused(Failure),
}

/// A block at an edge of the range.
struct Edge {
    block: Option<u32>,
    content: Vec<u8>,
}

impl Merge {
    fn first_block(&self) -> u32 {
        self.request.offset_bytes / BLOCK_BYTES as u32
    }

    fn end_block(&self) -> u32 {
        (self.request.offset_bytes + self.request.length_bytes).div_ceil(BLOCK_BYTES as u32)
    }

    fn overlaps(&self, request: &Request<'_>) -> bool {
        let first = request.offset_bytes / BLOCK_BYTES as u32;
        let end = (request.offset_bytes + request.length_bytes).div_ceil(BLOCK_BYTES as u32);
        let same_chunk = self.request.layer == request.layer.0 && self.request.chunk == request.chunk;
        same_chunk && first < self.end_block() && self.first_block() < end
    }
}

impl Shard {
    /// Puts a change behind a merge on the same blocks, if there is one.
    pub(crate) fn wait_for_merge(&mut self, request: &Request<'_>) -> bool {
        // The newest: whoever waits behind several merges waits behind the last of them.
        let Some(merge) = self.merges.iter_mut().rev().find(|merge| merge.overlaps(request)) else {
            return false;
        };
        match OwnedRequest::new(request) {
            Some(owned) => merge.waiting.push(owned),
            None => self.fail(request.token, Failure::Invalid),
        }
        true
    }

    pub(crate) fn start_merge(&mut self, request: &Request<'_>) {
        let Some(owned) = OwnedRequest::new(request) else {
            return self.fail(request.token, Failure::Invalid);
        };
        let block = BLOCK_BYTES as u32;
        let end = request.offset_bytes + request.length_bytes;
        let head = (request.offset_bytes % block != 0).then_some(request.offset_bytes / block);
        let tail = (end % block != 0).then_some(end / block).filter(|tail| head != Some(*tail));
        let edge = |block| Edge { block, content: Vec::new() };
        let sealed_least = self.sealed_with_older();
        self.merges.push(Merge {
            request: owned,
            waiting: Vec::new(),
            sealed_least,
            barrier: None,
            state: MergeState::Waiting,
            edges: [edge(head), edge(tail)],
            failure: None,
            is_pinned: false,
        });
    }

    /// Whether the index pages that a merge waits for are all in memory.
    fn is_merge_loaded(&mut self, index: usize) -> bool {
        let merge = &self.merges[index];
        if !merge.is_pinned {
            return true;
        }
        let (layer, chunk, first, end) =
            (merge.request.layer, merge.request.chunk, merge.first_block(), merge.end_block());
        regions_of(first, end - first).all(|(region, _, _)| {
            self.index
                .region_mut(RegionKey { layer, chunk, region })
                .is_none_or(|region| region.is_complete())
        })
    }

    /// Starts the reads of merges whose older changes are all applied.
    pub(crate) fn merge_step(&mut self) {
        if self.merges.is_empty() {
            return;
        }
        let hot_sealed = self.log.stream(crate::frame::Head::Hot).sealed;
        let sealed = self.log.frame_next - 1;
        let mut index = 0;
        while index < self.merges.len() {
            let merge = &mut self.merges[index];
            if merge.barrier.is_none() && hot_sealed >= merge.sealed_least {
                merge.barrier = Some(sealed);
            }
            let is_due = merge.state == MergeState::Waiting
                && merge.barrier.is_some_and(|barrier| barrier <= self.log.applied);
            if !is_due || !self.is_merge_loaded(index) {
                index += 1;
                continue;
            }
            let merge = &mut self.merges[index];
            let blocks = [merge.edges[0].block, merge.edges[1].block];
            let (token, layer, chunk) = (merge.request.token, merge.request.layer, merge.request.chunk);
            merge.state = MergeState::Reading { left: blocks.iter().flatten().count() as u8 };
            for block in blocks.into_iter().flatten() {
                self.read_for_merge(token, layer, chunk, block);
            }
            // Reads from memory may have finished it: then the next one is in its place, and what goes on behind it is at the end.
            let is_it = |merge: &Merge| merge.request.token == token && merge.state != MergeState::Waiting;
            index += usize::from(self.merges.get(index).is_some_and(is_it));
        }
    }

    /// A block at an edge is here, or cannot be read.
    pub(crate) fn merge_read_done(
        &mut self,
        token: crate::api::RequestToken,
        block: u32,
        result: Result<ReadData, Failure>,
    ) {
        let is_it = |merge: &Merge| merge.request.token == token && merge.state != MergeState::Waiting;
        let Some(index) = self.merges.iter().position(is_it) else {
            assert!(self.poisoned.is_some(), "a block was read for the merge of {token:?}, which is over");
            return result.into_iter().for_each(|data| self.recycle(data));
        };
        let merge = &mut self.merges[index];
        let Some(edge) = merge.edges.iter_mut().find(|edge| edge.block == Some(block)) else {
            panic!("block {block} is at no edge of the merge of {token:?}")
        };
        match &result {
            Ok(data) => {
                edge.content = vec![0; BLOCK_BYTES];
                if let Some(bytes) = data.pieces.first().and_then(Piece::bytes) {
                    edge.content.copy_from_slice(bytes);
                }
            }
            Err(failure) => merge.failure = merge.failure.or(Some(*failure)),
        }
        let MergeState::Reading { left } = &mut merge.state else {
            unreachable!("it was found as one that reads")
        };
        *left -= 1;
        let is_over = *left == 0;
        result.into_iter().for_each(|data| self.recycle(data));
        if !is_over {
            return;
        }
        let merge = self.merges.remove(index);
        match merge.failure {
            None => self.finish_merge(merge),
            Some(failure) => {
                self.fail(token, failure);
                self.end_merge(merge);
            }
        }
    }

    pub(crate) fn resubmit(&mut self, waiting: Vec<OwnedRequest>) {
        for request in waiting {
            self.submit_change(&request.borrow());
        }
    }

    fn finish_merge(&mut self, mut merge: Merge) {
        let needed = match self.blocks_for_merge(&merge) {
            Ok(needed) => needed,
            Err(Hindrance::Trims { for_room }) => {
                // Those that are in the log now are applied by then. Others may always be under way: it does not wait for them.
                merge.request.origin.after_trims |= for_room;
                return self.merge_again(merge);
            }
            Err(Hindrance::Page) => {
                if !std::mem::replace(&mut merge.is_pinned, true) {
                    let (first, end) = (merge.first_block(), merge.end_block());
                    self.pin(merge.request.layer, merge.request.chunk, first, end - first);
                }
                return self.merge_again(merge);
            }
            Err(Hindrance::Refused(failure)) => {
                self.fail(merge.request.token, failure);
                return self.end_merge(merge);
            }
        };
        let (first, end) = (merge.first_block(), merge.end_block());
        let request = &merge.request;
        let change = self.new_change(request.token, needed, request.origin);
        match &request.operation {
            OwnedOperation::Write(payload, _) => {
                let whole = merge.overlay(payload);
                self.append_merged(request, (first, end - first), EntryKind::Write, &whole, change, true);
            }
            OwnedOperation::WriteZeroes { no_hole } => {
                let kind = if *no_hole { EntryKind::Zeroes } else { EntryKind::Trim };
                self.append_zeroes(&merge, kind, change);
            }
            OwnedOperation::Trim => {}
        }
        self.end_merge(merge);
    }

    /// Blocks to set aside for a merge, or what keeps it from the log.
    fn blocks_for_merge(&mut self, merge: &Merge) -> Result<u32, Hindrance> {
        let (first, end) = (merge.first_block(), merge.end_block());
        let request = &merge.request;
        if self.is_deleting(request.layer) || self.layers_deleted.contains_key(&request.layer) {
            return Err(Hindrance::Refused(Failure::Invalid));
        }
        // Before it could wait for anything: its group may be waiting for it, to begin anew.
        if let Some(failure) = self.refuses_change(&request.origin) {
            return Err(Hindrance::Refused(failure));
        }
        let used = self.live_blocks + self.zero_blocks + self.reserved_blocks;
        let capacity = self.client_capacity(&request.origin);
        // Edges may replace holes; what is mapped already is set aside twice until the change is applied.
        let mut needed = match request.operation {
            OwnedOperation::WriteZeroes { no_hole: false } => {
                merge.edges.iter().flat_map(|edge| edge.block).count() as u32
            }
            _ => end - first,
        };
        let (layer, chunk, count) = (LayerId(request.layer), request.chunk, end - first);
        let range = BlockRange { layer, chunk, first, count };
        if used + u64::from(needed) <= capacity {
            if needed == count {
                needed = self.blocks_to_reserve(&range, capacity - used);
            }
        } else {
            if self.is_being_trimmed(&range) {
                return Err(Hindrance::Trims { for_room: false });
            }
            needed = match request.operation {
                OwnedOperation::WriteZeroes { no_hole: false } => {
                    let edges = merge.edges.iter().flat_map(|edge| edge.block);
                    let mut unmapped = 0;
                    for block in edges {
                        unmapped +=
                            self.count_unmapped(layer.0, chunk, block, 1).map_err(|_| Hindrance::Page)?;
                    }
                    unmapped
                }
                _ => self.count_unmapped(layer.0, chunk, first, count).map_err(|_| Hindrance::Page)?,
            };
        }
        if needed > 0 && used + u64::from(needed) > capacity {
            if self.trims_may_make_room(&request.origin) {
                return Err(Hindrance::Trims { for_room: true });
            }
            return Err(Hindrance::Refused(Failure::NoSpace));
        }
        Ok(needed)
    }

    fn merge_again(&mut self, merge: Merge) {
        let sealed_least = self.sealed_with_older();
        self.merges.push(Merge { sealed_least, barrier: None, state: MergeState::Waiting, ..merge });
    }

    /// How many frames of users will have been sealed when those are that hold changes now. They go in the order in which they are filled; so
    /// a merge does not wait for what comes later, which under load never ends.
    fn sealed_with_older(&mut self) -> u64 {
        let hot = self.log.stream(crate::frame::Head::Hot);
        hot.sealed + hot.queue.len() as u64 + u64::from(!hot.building.is_empty())
    }

    /// Lets those go on that wait behind a merge.
    fn end_merge(&mut self, merge: Merge) {
        if merge.is_pinned {
            let (first, end) = (merge.first_block(), merge.end_block());
            self.unpin(merge.request.layer, merge.request.chunk, first, end - first);
        }
        self.resubmit(merge.waiting);
    }

    /// In the order of the blocks: of a request that comes again, with only its first parts in the log, as many blocks from
    /// the start of its range are left out as those parts have.
    fn append_zeroes(&mut self, merge: &Merge, kind: EntryKind, change: u32) {
        let request = &merge.request;
        let (first, end) = (merge.first_block(), merge.end_block());
        let start_bytes = request.offset_bytes as usize;
        let end_bytes = start_bytes + request.length_bytes as usize;
        let mut at = first;
        let mut edges =
            merge.edges.iter().filter_map(|edge| edge.block.map(|block| (block, edge))).peekable();
        while at < end {
            let Some((_, edge)) = edges.next_if(|(block, _)| *block == at) else {
                let next = edges.peek().map_or(end, |(block, _)| *block);
                self.append_merged(request, (at, next - at), kind, &[], change, next == end);
                at = next;
                continue;
            };
            let start = at as usize * BLOCK_BYTES;
            let mut content = edge.content.clone();
            let from = start_bytes.max(start) - start;
            let to = end_bytes.min(start + BLOCK_BYTES) - start;
            content[from..to].fill(0);
            at += 1;
            self.append_merged(request, (at - 1, 1), EntryKind::Write, &content, change, at == end);
        }
    }

    fn append_merged(
        &mut self,
        request: &OwnedRequest,
        (start_block, blocks): (u32, u32),
        kind: EntryKind,
        payload: &[u8],
        change: u32,
        is_last: bool,
    ) {
        self.scratch_checksums.clear();
        self.scratch_checksums.extend(payload.chunks_exact(BLOCK_BYTES).map(crc32c_block));
        let ready = Ready {
            layer: request.layer,
            chunk: request.chunk,
            start_block,
            blocks,
            kind,
            origin: request.origin,
            is_last,
            payload,
        };
        self.append(&ready, change);
    }
}

impl Merge {
    /// The payload, filled up to whole blocks with what is there.
    fn overlay(&self, payload: &[u8]) -> Vec<u8> {
        let (first, end) = (self.first_block(), self.end_block());
        let mut whole = vec![0; (end - first) as usize * BLOCK_BYTES];
        for edge in &self.edges {
            if let Some(block) = edge.block {
                let at = (block - first) as usize * BLOCK_BYTES;
                whole[at..at + BLOCK_BYTES].copy_from_slice(&edge.content);
            }
        }
        let at = self.request.offset_bytes as usize % BLOCK_BYTES;
        whole[at..at + payload.len()].copy_from_slice(payload);
        whole
    }
}
