//! A shard that tests drive by hand, on a drive in memory whose reads end when a test says so.

use coquina_base::{AlignedBuf, BLOCK_BYTES, LayerId};

use crate::api::{
    Action, Device, Event, FormatOptions, Identity, IoToken, Operation, Origin, Outcome, RepairToken,
    Request, RequestToken, ShardConfig,
};
use crate::check::{check_drive, format_drive};
use crate::geometry::SEGMENT_BYTES_MIN;
use crate::memory_drive::Memory;
use crate::shard::Shard;

mod behind_reads;
mod damaged_logs;
mod damaged_segments;
mod ends_of_checkpoints;
mod exact_checkpoints;
mod group_states;
mod hung_drives;
mod last_chunk;
mod little_memory;
mod lost_pages;
mod merges;
mod proofs;
mod records;
mod repairs;
mod starts;
mod unchecked_reads;

const LAYER: LayerId = LayerId(1);
const BLOCK: u32 = BLOCK_BYTES as u32;
/// Of reads that a test waits for.
const READ: u64 = 1 << 40;
/// From one turn to the next: long enough for whatever is done at a bounded rate.
const TURN_NS: u64 = 100_000_000;
/// Turns without I/O after which nothing more is expected: merges take some.
const IDLE_TURNS: u32 = 4;
/// More than any stop takes.
const TURNS_OF_STOP_MAX: u32 = 1000;

/// A read or write that is under way until the test ends it.
struct Held {
    io: IoToken,
    offset_bytes: u64,
    buffer: AlignedBuf,
}

struct World {
    drive: Memory,
    shard: Shard,
    now_ns: u64,
    holds_reads: bool,
    held: Vec<Held>,
    /// Superblocks wait, too, until the test ends their writes.
    holds_superblocks: bool,
    held_superblocks: Vec<Held>,
    done: Vec<(u64, Outcome)>,
    events: Vec<Event>,
    /// Bad blocks of the first chunk that have been asked for.
    asked: Vec<(RepairToken, u32)>,
}

fn config() -> ShardConfig {
    ShardConfig { copy: 1, cache_bytes: 0, ..ShardConfig::default() }
}

/// An empty drive with one shard.
fn formatted(drive_bytes: usize, segment_bytes: u64, prewrite: bool) -> Memory {
    let mut drive = Memory(vec![0; drive_bytes]);
    let options = FormatOptions {
        identity: Identity::default(),
        shards: 1,
        segment_bytes,
        prewrite,
        created_unix_ns: 1,
    };
    format_drive(&mut drive, &options).unwrap();
    drive
}

fn open(drive: &mut Memory) -> Shard {
    Shard::open(drive, 0, 1, config()).unwrap()
}

fn request(token: u64, chunk: u32, offset_bytes: u32, operation: Operation<'_>) -> Request<'_> {
    let length_bytes = match operation {
        Operation::Write { payload, .. } => payload.len() as u32,
        _ => BLOCK,
    };
    Request {
        token: RequestToken(token),
        layer: LAYER,
        chunk,
        offset_bytes,
        length_bytes,
        origin: Origin::default(),
        operation,
    }
}

fn write_of(token: u64, chunk: u32, offset_bytes: u32, payload: &[u8]) -> Request<'_> {
    request(token, chunk, offset_bytes, Operation::Write { payload, checksums_le: &[] })
}

impl World {
    /// One shard of the smallest segments.
    fn new() -> World {
        let mut drive = formatted(8 << 20, SEGMENT_BYTES_MIN, false);
        let shard = open(&mut drive);
        World::of(drive, shard, 1)
    }

    fn of(drive: Memory, shard: Shard, now_ns: u64) -> World {
        World {
            drive,
            shard,
            now_ns,
            holds_reads: false,
            held: Vec::new(),
            holds_superblocks: false,
            held_superblocks: Vec::new(),
            done: Vec::new(),
            events: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// A start after the process ended, and a look at all that is on the drive.
    fn reopen(self) -> World {
        let World { mut drive, shard, now_ns, .. } = self;
        drop(shard);
        let report = check_drive(&mut drive, &mut |_, _| {});
        assert!(report.is_clean(), "{report:?}");
        let shard = open(&mut drive);
        World::of(drive, shard, now_ns)
    }

    /// A turn of the driver's loop; says whether I/O has ended in it.
    fn turn(&mut self) -> bool {
        self.now_ns += TURN_NS;
        self.shard.turn(self.now_ns);
        let mut ended = Vec::new();
        while let Some(action) = self.shard.next_action() {
            match action {
                Action::Write { io, offset_bytes, buffer }
                    if self.holds_superblocks && offset_bytes < self.shard.geometry.offset_bytes(0) =>
                {
                    self.held_superblocks.push(Held { io, offset_bytes, buffer });
                }
                Action::Write { io, offset_bytes, buffer } => {
                    self.drive.write(offset_bytes, &buffer).unwrap();
                    ended.push((io, buffer));
                }
                Action::Read { io, offset_bytes, buffer } if self.holds_reads => {
                    self.held.push(Held { io, offset_bytes, buffer });
                }
                Action::Read { io, offset_bytes, mut buffer } => {
                    self.drive.read(offset_bytes, &mut buffer).unwrap();
                    ended.push((io, buffer));
                }
                Action::Prewrite { io, .. } => ended.push((io, AlignedBuf::new())),
                Action::Done { token, outcome } => self.done.push((token.0, outcome)),
                Action::Event(event) => self.events.push(event),
                Action::Repair { repair, block, .. } => self.asked.push((repair, block)),
                _ => {}
            }
        }
        let has_ended = !ended.is_empty();
        for (io, buffer) in ended {
            self.shard.io_done(io, buffer, Ok(()));
        }
        has_ended
    }

    /// Lets everything come to its end but the reads that are held.
    fn settle(&mut self) {
        let mut idle = 0;
        while idle < IDLE_TURNS {
            idle = if self.turn() { 0 } else { idle + 1 };
        }
    }

    /// Ends the read that has been held for longest.
    fn end_held(&mut self, is_damaged: bool) {
        let Held { io, offset_bytes, mut buffer } = self.held.remove(0);
        self.drive.read(offset_bytes, &mut buffer).unwrap();
        buffer[0] ^= u8::from(is_damaged);
        self.shard.io_done(io, buffer, Ok(()));
    }

    /// Ends the writes of superblocks that have been held, and holds no more.
    fn end_superblocks(&mut self) {
        self.holds_superblocks = false;
        for Held { io, offset_bytes, buffer } in std::mem::take(&mut self.held_superblocks) {
            self.drive.write(offset_bytes, &buffer).unwrap();
            self.shard.io_done(io, buffer, Ok(()));
        }
    }

    /// A clean stop, and a start that must have nothing to replay.
    fn stop_and_start(mut self) -> World {
        self.shard.close();
        for _ in 0..TURNS_OF_STOP_MAX {
            if self.shard.is_closed() {
                break;
            }
            self.turn();
        }
        assert!(self.shard.is_closed(), "{:?}", self.shard);
        let world = self.reopen();
        assert_eq!(world.shard.log.applied_data, 0, "it is behind the last checkpoint");
        world
    }

    /// Takes the outcome of a request, if it has been answered.
    fn outcome(&mut self, token: u64) -> Option<Outcome> {
        let index = self.done.iter().position(|(done, _)| *done == token)?;
        Some(self.done.remove(index).1)
    }

    /// Does a change and lets everything come to its end.
    fn change(&mut self, request: Request<'_>) {
        let token = request.token.0;
        self.shard.submit(request);
        self.settle();
        let outcome = self.outcome(token);
        assert!(matches!(outcome, Some(Outcome::Changed)), "{outcome:?}");
    }

    /// A block as it is now.
    fn read(&mut self, chunk: u32, block: u32) -> Vec<u8> {
        self.shard.submit(request(READ, chunk, block * BLOCK, Operation::Read));
        self.settle();
        match self.outcome(READ) {
            Some(Outcome::Read(data)) => data.to_bytes(),
            other => panic!("block {block} of chunk {chunk}: {other:?}"),
        }
    }
}
