//! A copy's drive: its log of one group, which loses what is not synced at a crash, and its blocks.

use std::collections::BTreeMap;

use coquina_base::LayerId;
use coquina_replication::{
    BlockRange, ChangedSet, Config, CopyId, Entry, EntryKind, History, MissingSets, PayloadRef, RangeSet,
    Recovery, Sessions, Start,
};

/// Blocks in the model.
pub const BLOCKS: usize = 2;

/// The range of one block.
pub fn block(number: usize) -> BlockRange {
    BlockRange { layer: LayerId(1), chunk: 0, first: number as u32, count: 1 }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    Change(Entry),
    Config(Config, u64),
    Cut(u64, Recovery),
    Join(History, u64),
    Recovered(BlockRange, PayloadRef),
    Sessions(Sessions),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Disk {
    pub log: Vec<Record>,
    /// Records that a crash leaves.
    pub synced: usize,
    /// Records there were at the last start.
    pub base: usize,
    /// Data of the synced records.
    pub blocks: [u8; BLOCKS],
    /// Commit number as of the last sync.
    pub committed: u64,
    /// Last synced entry.
    pub last: u64,
    /// Records that were left when the log was found damaged.
    damaged: Option<usize>,
}

impl Disk {
    pub fn new(config: Config) -> Disk {
        let log = vec![Record::Config(config, 0)];
        Disk { log, synced: 1, base: 1, blocks: [0; BLOCKS], committed: 0, last: 0, damaged: None }
    }

    /// The log is cut from the last block on that was recovered: what is left is an earlier state, and that is known.
    pub fn damage(&mut self) {
        let recovered = |record: &Record| matches!(record, Record::Recovered(..));
        self.log.truncate(self.log.iter().rposition(recovered).expect("a block was recovered"));
        (self.synced, self.last, self.blocks) = (0, 0, [0; BLOCKS]);
        self.sync(self.committed);
        self.damaged = Some(self.log.len());
    }

    /// Whether nothing was lost since the copy was last added.
    pub fn is_intact(&self, copy: CopyId) -> bool {
        let adds = |record: &Record| matches!(record, Record::Config(config, _) if config.is_in_sync(copy));
        self.damaged.is_none_or(|left| self.log[left..].iter().any(adds))
    }

    pub fn is_synced(&self) -> bool {
        self.unsynced() == 0
    }

    /// Records that a crash takes.
    pub fn unsynced(&self) -> usize {
        self.log.len() - self.synced
    }

    /// Makes everything durable; gives the number of records since the start.
    pub fn sync(&mut self, committed: u64) -> u64 {
        self.sync_to(self.log.len(), committed)
    }

    /// Makes so many records of the log durable; gives how many these are since the start.
    pub fn sync_to(&mut self, end: usize, committed: u64) -> u64 {
        for record in &self.log[self.synced..end] {
            match record {
                Record::Change(entry) => {
                    self.last = entry.sequence;
                    for number in (0..BLOCKS).filter(|number| entry.range.intersects(&block(*number))) {
                        self.blocks[number] = entry.payload.0 as u8;
                    }
                }
                Record::Recovered(range, payload) => {
                    for number in (0..BLOCKS).filter(|number| range.intersects(&block(*number))) {
                        self.blocks[number] = payload.0 as u8;
                    }
                }
                Record::Cut(at, _) => self.last = *at,
                Record::Join(_, last) => self.last = *last,
                Record::Config(..) | Record::Sessions(_) => {}
            }
        }
        self.synced = end;
        self.committed = committed;
        (self.synced - self.base) as u64
    }

    pub fn crash(&mut self) {
        self.log.truncate(self.synced);
    }

    /// The entries that the log holds, by sequence number.
    pub fn entries(&self) -> BTreeMap<u64, Entry> {
        let mut entries = BTreeMap::new();
        for record in &self.log {
            match record {
                Record::Change(entry) => {
                    entries.insert(entry.sequence, *entry);
                }
                Record::Cut(at, _) => {
                    entries.split_off(&(at + 1));
                }
                _ => {}
            }
        }
        entries
    }

    /// Replays the log, as the engine does at its start.
    pub fn start(&mut self, copy: CopyId, marks: impl Fn(&Entry) -> bool) -> Start<RangeSet> {
        self.base = self.log.len();
        let intact = self.is_intact(copy);
        let mut start = Start::<RangeSet> { intact, committed: self.committed, ..Start::default() };
        let mut missing = MissingSets::default();
        let mut entries = BTreeMap::<u64, Entry>::new();
        for (number, record) in self.log.iter().enumerate() {
            if self.damaged == Some(number) {
                start.complete = false;
            }
            match record {
                Record::Change(entry) => {
                    start.last = entry.sequence;
                    assert!(start.history.push(entry.epoch, entry.sequence));
                    entries.insert(entry.sequence, *entry);
                    start.sessions.note(entry);
                    if marks(entry) {
                        missing.mark(entry.range);
                    }
                }
                Record::Config(config, committed) => {
                    start.config = config.clone();
                    start.complete = false;
                    if config.is_in_sync(copy) {
                        start.recovery = None;
                    }
                    let above = entries.range(committed + 1..).map(|(_, entry)| entry);
                    let ranges = above.filter(|entry| marks(entry)).map(|entry| entry.range);
                    missing.adopt(config, copy, *committed, ranges);
                }
                Record::Cut(at, recovery) => {
                    start.complete = false;
                    start.history.truncate(*at);
                    entries.split_off(&(at + 1));
                    start.last = *at;
                    start.recovery = Some(recovery.clone());
                }
                Record::Join(history, last) => {
                    start.history = history.clone();
                    start.last = *last;
                    start.committed = start.committed.max(*last);
                }
                Record::Sessions(sessions) => {
                    start.sessions = sessions.clone();
                    start.complete = true;
                }
                Record::Recovered(..) => {}
            }
        }
        start.complete &= self.damaged != Some(self.log.len());
        start.uncommitted = entries.range(start.committed + 1..).map(|(_, entry)| *entry).collect();
        start.missing = missing;
        start
    }
}

#[test]
fn a_crash_leaves_what_was_synced() {
    let mut disk = Disk::new(Config { epoch: 1, in_sync: vec![CopyId(0)], others: vec![], min_copies: 1 });
    let entry = |sequence, value| Entry {
        epoch: 1,
        sequence,
        session: 1,
        request: sequence,
        kind: EntryKind::Write,
        range: block(1),
        is_last: true,
        payload: PayloadRef(value),
    };
    disk.log.push(Record::Change(entry(1, 7)));
    assert_eq!(disk.sync(0), 1);
    disk.log.push(Record::Change(entry(2, 8)));
    disk.crash();
    assert_eq!((disk.blocks[1], disk.last), (7, 1));
    let start = disk.start(CopyId(0), |_| true);
    assert_eq!((start.last, start.uncommitted.len()), (1, 1));
    assert!(RangeSet::default().is_empty());
}
