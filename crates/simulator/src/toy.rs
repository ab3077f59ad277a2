//! A toy engine that checks the checker: right in its plain form, caught in each broken form.
//!
//! A log of records of one block each, replayed whole at every start and never cleaned: slow, wasteful, and simple
//! enough to be right.

use std::collections::{BTreeMap, VecDeque};

use coquina_base::{AlignedBuf, BLOCK_BYTES, crc32c_block, crc32c_bytes};
use coquina_engine::{
    Action, Device, Failure, FormatOptions, IoError, IoToken, MapExtent, MapKind, Operation, Outcome, Piece,
    ReadData, Request, RequestToken, ShardConfig, ShardStats,
};

use crate::model::Span;
use crate::subject::Subject;

/// How the toy is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    None,
    AckBeforeSync,
    NoSyncAtStart,
    ForgetsTrims,
    LosesAnAnswer,
    WrongChecksums,
    FullTooEarly,
    ReadsWhatIsNotStable,
}

pub const FLAWS: [Flaw; 8] = [
    Flaw::None,
    Flaw::AckBeforeSync,
    Flaw::NoSyncAtStart,
    Flaw::ForgetsTrims,
    Flaw::LosesAnAnswer,
    Flaw::WrongChecksums,
    Flaw::FullTooEarly,
    Flaw::ReadsWhatIsNotStable,
];
const BLOCK: usize = BLOCK_BYTES;
/// A record is one header block and one data block.
const RECORD: u64 = 2 * BLOCK as u64;
const MAGIC: u64 = 0x0074_6f79_7265_6331;

/// The toy, with the flaw of this number.
pub struct Toy<const FLAW: usize> {
    blocks: BTreeMap<(u64, u32, u32), AlignedBuf>,
    start_bytes: u64,
    end_bytes: u64,
    next_bytes: u64,
    sequence: u64,
    actions: VecDeque<Action>,
    /// Writes of the log: I/O, finished or not, and the request that it ends.
    log: VecDeque<(u64, bool, Option<Ending>)>,
    next_io: u64,
    closing: bool,
    replayed: u64,
}

/// A request and what becomes visible with its answer.
type Ending = (RequestToken, Vec<Change>);
type Change = ((u64, u32, u32), AlignedBuf);

impl<const FLAW: usize> Toy<FLAW> {
    fn merge(&self, request: &Request<'_>) -> Vec<Change> {
        let end = request.offset_bytes + request.length_bytes;
        let blocks = request.offset_bytes / BLOCK as u32..end.div_ceil(BLOCK as u32);
        let payload = match request.operation {
            Operation::Write { payload, .. } => payload.to_vec(),
            _ => vec![0; request.length_bytes as usize],
        };
        blocks
            .map(|block| {
                let key = (request.layer.0, request.chunk, block);
                // The newest data, what is still on its way included.
                let waiting = self.log.iter().rev().filter_map(|(_, _, last)| last.as_ref());
                let newest = waiting.flat_map(|(_, changes)| changes.iter().rev()).find(|(at, _)| *at == key);
                let old = newest.map(|(_, data)| data).or_else(|| self.blocks.get(&key));
                let mut data = old.cloned().unwrap_or_else(|| AlignedBuf::zeroed(1));
                let from = (block * BLOCK as u32).max(request.offset_bytes);
                let to = ((block + 1) * BLOCK as u32).min(end);
                let source =
                    &payload[(from - request.offset_bytes) as usize..(to - request.offset_bytes) as usize];
                let at = (from - block * BLOCK as u32) as usize;
                data[at..at + source.len()].copy_from_slice(source);
                (key, data)
            })
            .collect()
    }

    /// Logs a change. Writes fill a quarter of the log at most; as each block is trimmed once, or once more when a client sends
    /// its request again, trims always fit.
    fn change(&mut self, request: &Request<'_>, mut changes: Vec<Change>) {
        if !matches!(request.operation, Operation::Write { .. }) {
            changes.retain(|(key, data)| data.iter().any(|byte| *byte != 0) || self.holds_data(*key));
        }
        if changes.is_empty() {
            self.actions.push_back(Action::Done { token: request.token, outcome: Outcome::Changed });
            return;
        }
        let needed = changes.len() as u64 * RECORD;
        let trims = !matches!(request.operation, Operation::Write { .. });
        if self.next_bytes + needed > (self.start_bytes * 3 + self.end_bytes) / 4 && !trims {
            let outcome = Outcome::Failed(Failure::NoSpace);
            self.actions.push_back(Action::Done { token: request.token, outcome });
            return;
        }
        assert!(self.next_bytes + needed <= self.end_bytes, "the toy's drive is too small for its test");
        if FLAWS[FLAW] == Flaw::ForgetsTrims && trims {
            self.blocks.extend(changes);
            self.actions.push_back(Action::Done { token: request.token, outcome: Outcome::Changed });
            return;
        }
        let mut buffer = AlignedBuf::new();
        for (key, data) in &changes {
            let mut header = [0; BLOCK];
            let words = [MAGIC, self.sequence, key.0, u64::from(key.1), u64::from(key.2)];
            for (index, word) in words.iter().enumerate() {
                header[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
            }
            header[40..44].copy_from_slice(&crc32c_block(data).to_le_bytes());
            let crc = crc32c_bytes(&header[..44]);
            header[44..48].copy_from_slice(&crc.to_le_bytes());
            buffer.extend_from_bytes(&header);
            buffer.extend_from_bytes(data);
            self.sequence += 1;
        }
        let io = self.next_io;
        self.next_io += 1;
        self.actions.push_back(Action::Write { io: IoToken(io), offset_bytes: self.next_bytes, buffer });
        self.next_bytes += needed;
        self.log.push_back((io, FLAWS[FLAW] == Flaw::AckBeforeSync, Some((request.token, changes))));
        self.acknowledge();
    }

    /// Whether a block holds data or something is on its way to it, for which a trim must wait, too.
    fn holds_data(&self, key: (u64, u32, u32)) -> bool {
        let waiting = self.log.iter().filter_map(|(_, _, last)| last.as_ref());
        let mut waiting = waiting.flat_map(|(_, changes)| changes.iter().filter(|(at, _)| *at == key));
        waiting.next().is_some()
            || self.blocks.get(&key).is_some_and(|data| data.iter().any(|byte| *byte != 0))
    }

    fn acknowledge(&mut self) {
        for (_, done, last) in &mut self.log {
            if !*done {
                break;
            }
            if let Some((token, changes)) = last.take() {
                self.blocks.extend(changes);
                if FLAWS[FLAW] == Flaw::LosesAnAnswer && token.0 % 50 == 0 {
                    continue;
                }
                self.actions.push_back(Action::Done { token, outcome: Outcome::Changed });
            }
        }
        while self.log.front().is_some_and(|(_, done, _)| *done) {
            self.log.pop_front();
        }
    }

    fn read(&self, request: &Request<'_>) -> ReadData {
        let (start, length) = (request.offset_bytes as usize, request.length_bytes as usize);
        let first = start / BLOCK;
        let mut buffer = AlignedBuf::zeroed((start + length).div_ceil(BLOCK) - first);
        for (index, target) in buffer.chunks_exact_mut(BLOCK).enumerate() {
            let key = (request.layer.0, request.chunk, (first + index) as u32);
            let waiting = self.log.iter().rev().filter_map(|(_, _, last)| last.as_ref());
            let mut waiting = waiting.flat_map(|(_, changes)| changes.iter().rev());
            let early = FLAWS[FLAW] == Flaw::ReadsWhatIsNotStable;
            let newest = waiting.find(|(at, _)| early && *at == key).map(|(_, data)| data);
            if let Some(data) = newest.or_else(|| self.blocks.get(&key)) {
                target.copy_from_slice(data);
            }
        }
        let whole = start.is_multiple_of(BLOCK)
            && length.is_multiple_of(BLOCK)
            && FLAWS[FLAW] != Flaw::WrongChecksums;
        let checksums =
            if whole { buffer.chunks_exact(BLOCK).map(crc32c_block).collect() } else { Vec::new() };
        let piece = Piece::Data { buffer, start_bytes: start - first * BLOCK, length_bytes: length };
        ReadData { pieces: vec![piece], checksums, ..ReadData::default() }
    }
}

impl<const FLAW: usize> Subject for Toy<FLAW> {
    fn format(device: &mut dyn Device, _options: &FormatOptions) -> Result<(), String> {
        // A new drive holds zeros, which are no records.
        device.sync().map_err(|error| format!("{error:?}"))?;
        Ok(())
    }

    fn open(device: &mut dyn Device, shard: u32, _: u64, _: &ShardConfig) -> Result<Self, String> {
        if FLAWS[FLAW] != Flaw::NoSyncAtStart {
            device.sync().map_err(|error| format!("{error:?}"))?;
        }
        let size_bytes = device.size_bytes() / 2 / RECORD * RECORD;
        let start_bytes = u64::from(shard) * size_bytes;
        let mut toy = Toy {
            blocks: BTreeMap::new(),
            start_bytes,
            end_bytes: start_bytes + size_bytes,
            next_bytes: start_bytes,
            sequence: 0,
            actions: VecDeque::new(),
            log: VecDeque::new(),
            next_io: 0,
            closing: false,
            replayed: 0,
        };
        let mut record = AlignedBuf::zeroed(2);
        while toy.next_bytes < toy.end_bytes {
            device.read(toy.next_bytes, &mut record).map_err(|error| format!("{error:?}"))?;
            let word =
                |index: usize| u64::from_le_bytes(record[index * 8..index * 8 + 8].try_into().unwrap());
            let crc = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
            let sound = word(0) == MAGIC && word(1) == toy.sequence && crc(44) == crc32c_bytes(&record[..44]);
            if !sound || crc(40) != crc32c_block(&record[BLOCK..]) {
                break;
            }
            let mut data = AlignedBuf::zeroed(1);
            data.copy_from_slice(&record[BLOCK..]);
            toy.blocks.insert((word(2), word(3) as u32, word(4) as u32), data);
            toy.sequence += 1;
            toy.next_bytes += RECORD;
        }
        // Whatever a cut left behind the end must never be taken for a continuation.
        let zeros = AlignedBuf::zeroed(1);
        for offset_bytes in
            (toy.next_bytes..toy.end_bytes.min(toy.next_bytes + (20 << 20))).step_by(RECORD as usize)
        {
            device.read(offset_bytes, &mut record).map_err(|error| format!("{error:?}"))?;
            if record[..BLOCK].iter().any(|byte| *byte != 0) {
                device.write(offset_bytes, &zeros).map_err(|error| format!("{error:?}"))?;
            }
        }
        toy.replayed = toy.sequence;
        Ok(toy)
    }

    fn check_drive(device: &mut dyn Device) -> Result<(), String> {
        device.read(0, &mut AlignedBuf::zeroed(1)).map_err(|error| format!("{error:?}"))
    }

    fn submit(&mut self, request: Request<'_>) {
        let token = request.token;
        match request.operation {
            Operation::Read | Operation::ReadUnchecked => {
                let outcome = Outcome::Read(self.read(&request));
                self.actions.push_back(Action::Done { token, outcome });
            }
            Operation::Map => {
                let extent = MapExtent { length_bytes: request.length_bytes, kind: MapKind::Data };
                self.actions.push_back(Action::Done { token, outcome: Outcome::Map(vec![extent]) });
            }
            Operation::DeleteLayer => {
                let waiting = self.log.iter().filter_map(|(_, _, last)| last.as_ref());
                let waiting = waiting.flat_map(|(_, changes)| changes.iter().map(|(key, _)| key));
                let mut keys: Vec<_> = self.blocks.keys().chain(waiting).copied().collect();
                keys.retain(|key| key.0 == request.layer.0);
                keys.sort_unstable();
                keys.dedup();
                let changes = keys.into_iter().map(|key| (key, AlignedBuf::zeroed(1))).collect();
                self.change(&request, changes);
            }
            _ => {
                let mut changes = self.merge(&request);
                if matches!(request.operation, Operation::Trim) {
                    // Parts of blocks stay: a trim is a hint.
                    let span = Span {
                        layer: request.layer.0,
                        chunk: request.chunk,
                        offset_bytes: request.offset_bytes,
                        length_bytes: request.length_bytes,
                    };
                    changes.retain(|(key, _)| span.mask(key.2) == 0xff);
                }
                self.change(&request, changes);
            }
        }
    }

    fn io_done(&mut self, io: IoToken, _buffer: AlignedBuf, result: Result<(), IoError>) {
        assert!(result.is_ok(), "the toy knows no failing drives");
        if let Some(entry) = self.log.iter_mut().find(|(number, ..)| *number == io.0) {
            entry.1 = true;
        }
        self.acknowledge();
    }

    fn turn(&mut self, _now_ns: u64) {}

    fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn next_wake_ns(&self) -> Option<u64> {
        None
    }

    fn start_checkpoint(&mut self) {}

    fn start_scrub(&mut self) {}

    fn close(&mut self) {
        self.closing = true;
    }

    fn is_closed(&self) -> bool {
        self.closing && self.log.is_empty()
    }

    fn stats(&self) -> ShardStats {
        ShardStats {
            replayed_entries: self.replayed,
            capacity_bytes: if FLAWS[FLAW] == Flaw::FullTooEarly { 1 << 40 } else { 0 },
            ..ShardStats::default()
        }
    }

    fn recycle(&mut self, _data: ReadData) {}

    fn set_cache_bytes(&mut self, _bytes: u64) {}

    fn verify(&mut self) -> Result<(), String> {
        if self.next_bytes < self.start_bytes {
            Err("the log ends before it begins".to_owned())
        } else {
            Ok(())
        }
    }
}
