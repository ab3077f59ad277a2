//! Placement groups in the log: entries and records in, what is durable out. See `groups.rs`.

use coquina_base::{AlignedBuf, BLOCK_BYTES, LayerId, crc32c_block};
use coquina_replication::{Config, CopyId, EntryKind as Kind, RangeSet, Start};

use crate::api::{Action, Failure, IoError, Origin, Outcome, Piece, Request, RequestToken};
use crate::frame::{
    Context, ENTRY_BYTES, Entries, Entry, EntryKind, FENCE_BYTES, FrameHeader, HEADS, Head, NewEntry,
};
use crate::groups::{GroupView, Record, TailEntry, WaitingRead, group_entry, range_of};
use crate::segment::SegmentState;
use crate::shard::{IoPurpose, OwnedRequest, Shard};

/// A read of an entry as it was logged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryRead {
    token: RequestToken,
    group: u32,
    sequence: u64,
    location: u64,
}

impl Shard {
    /// What this copy of a group knows of its entries; `None` if nothing of the group was ever here.
    pub fn group(&self, group: u32) -> Option<GroupView> {
        self.groups.get(group).map(crate::groups::Group::view)
    }

    /// What the protocol is told at its start: all that is durable. `None` if nothing of the group was ever here.
    pub fn group_start(&self, group: u32) -> Option<Start<RangeSet>> {
        self.groups.get(group).map(|one| one.start(self.copy()))
    }

    /// Whether something of a group was lost with a damaged log, or may have been, and it has not been in sync since.
    pub fn is_group_damaged(&self, group: u32) -> bool {
        self.groups.get(group).is_some_and(|one| one.is_damaged)
    }

    /// Whether a group may be opened under a configuration: one of which something was lost since it was last in sync only under
    /// a newer one, in which nobody counts on this copy. One that may have been lost whole is opened as one that is not intact.
    pub fn may_open_group(&mut self, group: u32, config: &Config) -> bool {
        self.groups.doubt(group, config);
        let copy = self.copy();
        let damaged = self.groups.get(group).filter(|one| one.is_damaged && one.config.is_in_sync(copy));
        damaged.is_none_or(|one| config.is_out(copy) && config.epoch > one.config.epoch)
    }

    /// Whether anything can still be put into the log: not once the shard is being closed, or its drive takes no changes any more.
    pub fn takes_changes(&self) -> bool {
        self.poisoned.is_none() && !self.closing
    }

    /// The groups of which something is here, in order.
    pub fn group_numbers(&self) -> Vec<u32> {
        self.groups.numbers()
    }

    /// Makes this copy the primary that orders a group's new changes, in this epoch, or ends that. Changes that wait
    /// and have no sequence number then fail with [`Failure::NotPrimary`].
    pub fn accept_changes(&mut self, group: u32, epoch: Option<u64>) {
        assert_ne!(group, 0, "group 0 stands for none");
        let one = self.groups.get_mut(group);
        assert!(epoch.is_none_or(|epoch| epoch >= one.appended.1), "the epochs of group {group} never fall");
        one.accepting = epoch;
        if epoch.is_none() {
            self.end_waiters(group);
        }
    }

    /// Whether new changes of a group are taken here.
    pub(crate) fn is_led_from_here(&self, group: u32) -> bool {
        self.groups.groups.get(&group).is_some_and(|one| one.accepting.is_some())
    }

    /// Ends what waits in a group that is not led from here any more, or will not be once the shard is closed: who leads it now answers, and
    /// here nobody may ever hear that anything is committed.
    pub(crate) fn end_waiters(&mut self, group: u32) {
        let one = self.groups.get_mut(group);
        let (reads, changes) = (std::mem::take(&mut one.waiting), std::mem::take(&mut one.behind));
        self.groups.waiting -= reads.len() + changes.len();
        let tokens = reads.iter().map(|read| read.token).chain(changes.iter().map(|change| change.token));
        let tokens: Vec<RequestToken> = tokens.collect();
        tokens.into_iter().for_each(|token| self.fail(token, Failure::NotPrimary));
    }

    /// Says that a group's entries up to this number are on all copies: reads may see them. A number that is higher than
    /// what is here counts for what comes.
    pub fn commit(&mut self, group: u32, sequence: u64) {
        let one = self.groups.get_mut(group);
        one.told = one.told.max(sequence);
        if self.note_committed(group) {
            self.wake_group(group);
        }
    }

    /// Puts a record into the log. It is durable when [`Action::Durable`] counts it. Never refused, unless the shard takes
    /// no changes any more.
    pub fn submit_record(&mut self, group: u32, record: &Record) {
        assert_ne!(group, 0, "group 0 stands for none");
        if !self.takes_changes() {
            return;
        }
        let mut parts = record.parts();
        let last = parts.len() - 1;
        for (index, body) in parts.iter_mut().enumerate() {
            self.append_record_part(group, body, index < last);
        }
        let one = self.groups.get_mut(group);
        one.logged += 1;
        one.append_record(record);
    }

    fn append_record_part(&mut self, group: u32, body: &mut Vec<u8>, continues: bool) {
        let length = body.len();
        let blocks = length.div_ceil(BLOCK_BYTES);
        body.resize(blocks * BLOCK_BYTES, 0);
        assert!(
            blocks <= self.geometry.segment_blocks as usize / 2,
            "a record of {length} bytes does not fit a segment"
        );
        let context = Context::new(LayerId(0), 0);
        let of = self.groups.get_mut(group).entry_group(group, 0);
        let data_blocks_max = self.frame_room(Head::Hot);
        let builder = &self.log.stream(Head::Hot).building;
        let fits = builder.room_bytes(&context, Some(&of)) >= ENTRY_BYTES + 4 * blocks
            && builder.data_blocks + blocks as u32 <= data_blocks_max;
        if !fits && !builder.is_empty() {
            self.rotate(Head::Hot);
        }
        let sequence = self.groups.get_mut(group).appended.0 + 1;
        let builder = &mut self.log.stream(Head::Hot).building;
        let entry = NewEntry {
            context: builder.context(context),
            group: Some(builder.group_context(&of)),
            kind: EntryKind::Record,
            chunk: 0,
            start_block: 0,
            blocks: blocks as u16,
            data_offset: builder.data_blocks,
            sequence,
            request: length as u64,
            continues,
            recovered: false,
        };
        builder.add(&entry, body.chunks_exact(BLOCK_BYTES).map(crc32c_block));
        builder.buffer.extend_from_bytes(body);
        builder.data_blocks += blocks as u32;
        builder.record_bytes += length as u64;
        // What is kept for trims and deletes is not for tables, which make the next checkpoint larger besides.
        builder.only_metadata = false;
        builder.changes.push(crate::log::CHANGE_NONE);
        if builder.data_blocks >= data_blocks_max {
            self.rotate(Head::Hot);
        }
    }

    /// Puts a fence into the log of its group: an entry with a number of its own. `origin` as for other entries.
    pub fn submit_fence(&mut self, token: RequestToken, origin: Origin, volume: u128, generation: u64) {
        if self.poisoned.is_some() || self.closing {
            return self.fail(token, Failure::ReadOnly);
        }
        if let Some(failure) = self.refuses_change(&origin) {
            return self.fail(token, failure);
        }
        let epoch = if origin.sequence == 0 {
            self.groups.get_mut(origin.group).accepting
        } else {
            Some(origin.epoch)
        };
        let Some(epoch) = epoch else { return self.fail(token, Failure::NotPrimary) };
        let context = Context::new(LayerId(generation), origin.session);
        let of = self.groups.get_mut(origin.group).entry_group(origin.group, epoch);
        let room = self.log.stream(Head::Hot).building.room_bytes(&context, Some(&of));
        if room < ENTRY_BYTES + FENCE_BYTES {
            self.rotate(Head::Hot);
        }
        let change = self.new_change(token, 0, origin);
        let one = self.groups.get_mut(origin.group);
        one.logged += 1;
        let sequence = one.number(epoch);
        let builder = &mut self.log.stream(Head::Hot).building;
        let entry = NewEntry {
            context: builder.context(context),
            group: Some(builder.group_context(&of)),
            kind: EntryKind::Fence,
            chunk: 0,
            start_block: 0,
            blocks: 0,
            data_offset: builder.data_blocks,
            sequence,
            request: origin.request,
            continues: false,
            recovered: false,
        };
        let words = volume.to_le_bytes();
        let words =
            words.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        builder.add(&entry, words);
        builder.changes.push(change);
        self.changes[change as usize].parts_left += 1;
        if origin.sequence == 0 {
            let origin = Origin { epoch, sequence, ..origin };
            self.actions.push_back(Action::FenceAppended { token, origin, volume, generation });
        }
    }

    /// Reads the data of an uncommitted entry as it was logged, whatever has replaced it since. Answered with
    /// [`Outcome::Read`]; the checksums of its blocks come with it.
    pub fn read_entry(&mut self, token: RequestToken, group: u32, sequence: u64) {
        let tail = self.groups.get(group).map(|one| &one.tail);
        let found = tail.and_then(|tail| tail.iter().find(|tail| tail.entry.sequence == sequence).copied());
        let Some(tail) = found.filter(|tail| tail.pinned) else {
            return self.fail(token, Failure::Invalid);
        };
        if tail.entry.kind != Kind::Write {
            let data = self.pool.take_data();
            return self.finish(token, Outcome::Read(data));
        }
        let segment = self.geometry.segment_of(tail.location);
        self.segments.get_mut(segment).readers += 1;
        let read = EntryRead { token, group, sequence, location: tail.location };
        self.issue_read(IoPurpose::Entry(read), tail.location, tail.frame_blocks as usize);
    }

    pub(crate) fn entry_read_done(
        &mut self,
        read: EntryRead,
        buffer: AlignedBuf,
        result: Result<(), IoError>,
    ) {
        let segment = self.geometry.segment_of(read.location);
        // Of a segment in which nothing else is needed nobody knows at a start whether it was used again, once this entry
        // was committed, by frames that a power cut took.
        let may_be_used_again = self.segments.get(segment).live == 0;
        self.segments.remove_reader(segment);
        let mut data = self.pool.take_data();
        let found = match result {
            Ok(()) => find_entry(&buffer, &read, self.drive, self.number, &mut data.checksums),
            Err(_) => None,
        };
        let Some((start_block, blocks)) = found else {
            self.pool.give(buffer);
            self.recycle(data);
            if may_be_used_again {
                return self.fail(read.token, Failure::Invalid);
            }
            self.stats.bad_blocks += 1;
            return self.fail(read.token, Failure::BadBlock);
        };
        let (start_bytes, length_bytes) = (start_block * BLOCK_BYTES, blocks * BLOCK_BYTES);
        data.pieces.push(Piece::Data { buffer, start_bytes, length_bytes });
        self.finish(read.token, Outcome::Read(data));
    }

    /// Says whether somebody may have waited for it.
    fn note_committed(&mut self, group: u32) -> bool {
        let one = self.groups.get_mut(group);
        let committed = one.told.min(one.last);
        if committed <= one.committed {
            return false;
        }
        one.committed = committed;
        let mut ended = 0;
        while one.tail.front().is_some_and(|tail| tail.entry.sequence <= committed) {
            let Some(tail) = one.tail.pop_front() else { break };
            ended += 1;
            if tail.pinned {
                self.segments.remove_reader(self.geometry.segment_of(tail.location));
            }
        }
        self.groups.tail_entries -= ended;
        self.groups.waiting > 0
    }

    /// Takes up what waited for entries that a frame has brought, and says what became durable: behind the frame, so that
    /// nothing sees half of it.
    pub(crate) fn frame_of_groups_applied(&mut self) {
        for index in 0..self.groups.touched.len() {
            let group = self.groups.touched[index];
            let records = self.groups.get_mut(group).records;
            self.actions.push_back(Action::Durable { group, records });
        }
        self.groups.touched.clear();
        while let Some(group) = self.groups.to_wake.pop() {
            self.wake_group(group);
        }
    }

    /// Takes up the reads whose blocks are committed now, and then the changes that waited for them and for no other.
    fn wake_group(&mut self, group: u32) {
        let one = self.groups.get_mut(group);
        let mut index = 0;
        let mut ready = Vec::new();
        while index < one.waiting.len() {
            if one.is_uncommitted(&one.waiting[index].range) {
                one.waiting[index].rounds += 1;
                index += 1;
            } else {
                ready.push(one.waiting.swap_remove(index));
            }
        }
        // Where no read goes on none goes out of a change's way.
        let is_any = !ready.is_empty() || one.waiting.is_empty();
        let behind = if is_any { one.take_behind() } else { Vec::new() };
        self.groups.waiting -= ready.len() + behind.len();
        for read in ready {
            self.start_waiting_read(&read);
        }
        self.resubmit(behind);
    }

    /// Whether a read must wait for changes that are not committed; notes it then.
    pub(crate) fn wait_for_commit(&mut self, group: u32, read: &WaitingRead) -> bool {
        if group == 0 || self.groups.tail_entries == 0 {
            return false;
        }
        let Some(one) = self.groups.groups.get_mut(&group) else { return false };
        if !one.is_uncommitted(&read.range) {
            return false;
        }
        one.waiting.push(*read);
        self.groups.waiting += 1;
        self.stats.reads_behind_commits += 1;
        true
    }

    /// Whether a new change must wait for a read that has waited long; notes it then.
    pub(crate) fn wait_for_reads(&mut self, group: u32, request: &Request<'_>) -> bool {
        if self.groups.has_no_waiters() {
            return false;
        }
        let range = range_of(request);
        let Some(one) = self.groups.groups.get_mut(&group).filter(|one| one.must_wait(&range)) else {
            return false;
        };
        let Some(owned) = OwnedRequest::new(request) else { return false };
        one.behind.push(owned);
        self.groups.waiting += 1;
        true
    }

    /// Counts an entry of a group that is applied. `body` is the data of a record. Says what is wrong if it does not follow
    /// the group's last one.
    pub(crate) fn note_group(
        &mut self,
        entry: &Entry<'_>,
        header: &FrameHeader,
        body: &[u8],
    ) -> Result<(), &'static str> {
        let Some(of) = entry.group else { return Ok(()) };
        let one = self.groups.get_mut(of.group);
        // A record of several parts counts once.
        one.records += u64::from(entry.kind != EntryKind::Record || !entry.continues);
        if self.groups.touched.last() != Some(&of.group) && !self.groups.touched.contains(&of.group) {
            self.groups.touched.push(of.group);
        }
        if entry.recovered {
            return Ok(());
        }
        if entry.kind == EntryKind::Record {
            return self.apply_record(of.group, entry, body);
        }
        let one = self.groups.get_mut(of.group);
        if entry.sequence != one.last + 1 {
            return Err("an entry of a placement group is missing");
        }
        if !one.history.push(of.epoch, entry.sequence) {
            return Err("the epochs of a placement group fall");
        }
        one.last = entry.sequence;
        // On replay nothing was appended before it is applied.
        if self.replaying {
            one.appended = (entry.sequence, of.epoch);
        }
        one.told = one.told.max(of.committed);
        let logged = group_entry(entry, &of);
        let added_bytes = one.note_entry(&logged);
        if entry.sequence > one.told {
            let segment = self.geometry.segment_of(header.location);
            let data_end =
                if entry.kind == EntryKind::Write { entry.data_offset + u32::from(entry.blocks) } else { 0 };
            one.tail.push_back(TailEntry {
                entry: logged,
                location: header.location,
                frame_blocks: u32::from(header.header_blocks) + data_end,
                generation: header.segment_generation,
                pinned: !self.replaying,
            });
            self.groups.tail_entries += 1;
            if !self.replaying {
                self.segments.get_mut(segment).readers += 1;
            }
        }
        self.groups.encoded_bytes += added_bytes;
        if self.note_committed(of.group) {
            self.groups.to_wake.push(of.group);
        }
        Ok(())
    }

    fn apply_record(&mut self, group: u32, entry: &Entry<'_>, body: &[u8]) -> Result<(), &'static str> {
        let length = usize::try_from(entry.request).unwrap_or(usize::MAX);
        let record = body.get(..length).and_then(Record::decode);
        let Some((record, is_more)) = record else {
            return Err("a record of a placement group cannot be read");
        };
        let copy = self.copy();
        if !self.replaying {
            self.log.record_bytes_in_flight -= entry.request;
        }
        if let Record::Config { config, .. } = &record {
            self.groups.doubt(group, config);
        }
        let one = self.groups.get_mut(group);
        if self.replaying {
            one.append_record(&record);
        }
        if matches!(record, Record::Sessions(_)) {
            // With its last part.
            one.is_complete = !entry.continues;
        }
        for tail in self.groups.apply_record(group, (record, is_more), entry.request, copy) {
            self.groups.tail_entries -= 1;
            if tail.pinned {
                self.segments.remove_reader(self.geometry.segment_of(tail.location));
            }
        }
        // What waited for an entry that was cut goes on, though nothing was committed.
        if self.note_committed(group) || self.groups.waiting > 0 {
            self.groups.to_wake.push(group);
        }
        Ok(())
    }

    /// After replay: keeps the segments of the entries that are not committed, also of those that nothing else needs any
    /// more. One that was used again since, or is the next of a stream, held only what was committed then, though that was
    /// not written down.
    pub(crate) fn pin_tails(&mut self) {
        let promised = HEADS.map(|head| self.log.stream(head).applied.next);
        let (geometry, segments) = (self.geometry, &mut self.segments);
        for group in self.groups.groups.values_mut() {
            (group.logged, group.records) = (0, 0);
            for tail in &mut group.tail {
                let segment = geometry.segment_of(tail.location);
                let known = segments.get_mut(segment);
                let is_next = promised.contains(&Some(segment));
                if known.generation != tail.generation || is_next {
                    continue;
                }
                if known.state == SegmentState::Free {
                    // Replay freed it: there nothing was kept.
                    known.state = SegmentState::Closed;
                }
                if matches!(known.state, SegmentState::Open | SegmentState::Closed) {
                    known.readers += 1;
                    tail.pinned = true;
                }
            }
        }
        self.groups.touched.clear();
        self.groups.to_wake.clear();
    }

    /// Ends everything that waits in the groups.
    pub(crate) fn fail_group_waiters(&mut self, changes: &mut Vec<RequestToken>) {
        let before = changes.len();
        for group in self.groups.groups.values_mut() {
            self.groups.waiting -= group.behind.len();
            changes.extend(group.behind.drain(..).map(|request| request.token));
        }
        // The order of the groups in their table differs between processors.
        changes[before..].sort_unstable();
    }

    /// Ends the reads that wait until changes are committed.
    pub(crate) fn fail_waiting_reads(&mut self, failure: Failure) {
        let mut tokens = Vec::new();
        for group in self.groups.groups.values_mut() {
            self.groups.waiting -= group.waiting.len();
            tokens.extend(group.waiting.drain(..).map(|read| read.token));
        }
        let mut changes = Vec::new();
        self.fail_group_waiters(&mut changes);
        for token in changes {
            self.fail(token, Failure::ReadOnly);
        }
        tokens.sort_unstable();
        for token in tokens {
            self.fail(token, failure);
        }
    }

    /// Why a change may not be put into the log of its group now, if it may not.
    pub(crate) fn refuses_change(&self, origin: &Origin) -> Option<Failure> {
        if origin.group == 0 || origin.recovered {
            return None;
        }
        let group = self.groups.get(origin.group);
        if origin.sequence == 0 {
            return group.is_none_or(|group| group.accepting.is_none()).then_some(Failure::NotPrimary);
        }
        let (last, epoch) = group.map_or((0, 0), |group| group.appended);
        let follows = origin.sequence == last + 1 && origin.epoch >= epoch;
        (!follows).then_some(Failure::OutOfOrder)
    }

    /// Whether a client's request is in the log already.
    pub(crate) fn is_in_group(&self, origin: &Origin) -> bool {
        let group = self.groups.get(origin.group);
        group.is_some_and(|group| group.sessions.contains(origin.session, origin.request))
    }

    /// The number by which the cluster knows this shard.
    pub fn copy(&self) -> CopyId {
        CopyId(self.config.copy)
    }
}

/// Where the data of an entry lies in a frame that was read back, if all of it is as it was written; puts its checksums into an empty list.
fn find_entry(
    buffer: &[u8],
    read: &EntryRead,
    drive: coquina_base::DriveId,
    shard: u32,
    checksums: &mut Vec<u32>,
) -> Option<(usize, usize)> {
    let header = FrameHeader::peek(buffer, drive, shard)?;
    let split = usize::from(header.header_blocks) * BLOCK_BYTES;
    if header.location != read.location || !header.is_intact(buffer.get(..split)?) {
        return None;
    }
    let mut entries = Entries::of_frame(&header, buffer.get(..split)?)?;
    while let Some(entry) = entries.next_entry() {
        let entry = entry?;
        let is_wanted = entry.kind == EntryKind::Write
            && !entry.recovered
            && entry.sequence == read.sequence
            && entry.group.is_some_and(|group| group.group == read.group);
        if !is_wanted {
            continue;
        }
        let start = usize::from(header.header_blocks) + entry.data_offset as usize;
        let blocks = usize::from(entry.blocks);
        let data = buffer.get(start * BLOCK_BYTES..(start + blocks) * BLOCK_BYTES)?;
        checksums.extend((0..blocks).map(|block| entry.checksum(block)));
        let is_good = data.chunks_exact(BLOCK_BYTES).map(crc32c_block).eq(checksums.iter().copied());
        return is_good.then_some((start, blocks));
    }
    None
}
