//! Direct I/O on a temporary file, through the ring and blocking.

#![allow(clippy::unwrap_used)]

use coquina_base::{AlignedBuf, BLOCK_BYTES, KEPT_BLOCKS};
use coquina_engine::{Device, DeviceRead, IoError};
use coquina_reactor::{
    Completion, DriveFile, DriveOptions, DriveProblem, Errno, FileId, Payload, Reactor, ReactorConfig,
    ReactorError, SyncDevice, Wait,
};

/// Length of a kept buffer.
const KEPT_BYTES: u64 = (KEPT_BLOCKS * BLOCK_BYTES) as u64;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn reactor(entries: u32) -> Reactor {
    Reactor::new(ReactorConfig { entries, ..ReactorConfig::default() }).unwrap()
}

/// Turns until `count` completions are there.
fn collect(reactor: &mut Reactor, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        reactor.turn(Wait::Forever, &mut completions).unwrap();
    }
    assert_eq!(completions.len(), count);
    completions
}

fn create(folder: &tempfile::TempDir, size_bytes: u64) -> DriveFile {
    let options = DriveOptions { create_bytes: Some(size_bytes), create_new: true, read_only: false };
    DriveFile::open(&folder.path().join("drive"), options).unwrap()
}

fn attach(reactor: &mut Reactor, drive: &DriveFile) -> FileId {
    reactor.attach(drive.try_clone_descriptor().unwrap())
}

fn filled(blocks: usize, byte: u8) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(blocks);
    buffer.fill(byte);
    buffer
}

#[test]
fn what_is_written_is_read_back() {
    let folder = folder();
    let drive = create(&folder, 8 << 20);
    let mut reactor = reactor(64);
    let file = attach(&mut reactor, &drive);
    reactor.write_at(file, 4096, filled(16, 7), true, 1);
    reactor.write_at(file, 1 << 20, filled(1, 9), false, 2);
    collect(&mut reactor, 2);
    reactor.sync(file, 3);
    let synced = collect(&mut reactor, 1);
    assert!(matches!((synced[0].token, synced[0].result), (3, Ok(0))));
    reactor.read_at(file, 4096, AlignedBuf::zeroed(17), 4);
    let read = collect(&mut reactor, 1).remove(0);
    assert_eq!(read.result, Ok(17 * 4096));
    let Payload::Buffer(buffer) = read.payload else { panic!("a read hands its buffer back") };
    assert!(buffer[..16 * BLOCK_BYTES].iter().all(|byte| *byte == 7));
    assert!(buffer[16 * BLOCK_BYTES..].iter().all(|byte| *byte == 0));
    let mut device = SyncDevice::new(&drive);
    let mut block = AlignedBuf::zeroed(1);
    device.read(1 << 20, &mut block).unwrap();
    assert!(block.iter().all(|byte| *byte == 9));
}

/// More buffers than a slab has, written from where the kernel knows the memory, given back and written from again.
#[test]
fn kept_buffers_are_written_from_where_they_lie() {
    let folder = folder();
    let mut reactor = reactor(8);
    let drive = create(&folder, 20 << 20);
    let file = attach(&mut reactor, &drive);
    for round in 0..3_u8 {
        for index in 0..40_u8 {
            let mut buffer = AlignedBuf::kept();
            let blocks = 1 + usize::from(index) * 2 % KEPT_BLOCKS;
            buffer.resize_blocks(blocks);
            buffer.fill(round * 40 + index);
            reactor.write_at(file, u64::from(index) * KEPT_BYTES, buffer, true, u64::from(index));
        }
        for completion in collect(&mut reactor, 40) {
            let blocks = 1 + completion.token as usize * 2 % KEPT_BLOCKS;
            assert_eq!(completion.result, Ok((blocks * BLOCK_BYTES) as u32));
        }
        for index in 0..40_u8 {
            let blocks = 1 + usize::from(index) * 2 % KEPT_BLOCKS;
            reactor.read_at(
                file,
                u64::from(index) * KEPT_BYTES,
                AlignedBuf::zeroed(blocks),
                u64::from(index),
            );
        }
        for completion in collect(&mut reactor, 40) {
            let Payload::Buffer(buffer) = completion.payload else { panic!("a buffer") };
            assert!(buffer.iter().all(|byte| *byte == round * 40 + completion.token as u8), "round {round}");
        }
    }
}

#[test]
fn zeroes_cover_more_than_one_piece() {
    let folder = folder();
    let drive = create(&folder, 8 << 20);
    let mut device = SyncDevice::new(&drive);
    device.write(0, &filled(1024, 5)).unwrap();
    device.sync().unwrap();
    let mut reactor = reactor(64);
    let file = attach(&mut reactor, &drive);
    reactor.write_zeroes(file, 4096, (3 << 20) + 4096, 1);
    assert_eq!(collect(&mut reactor, 1)[0].result, Ok((3 << 20) + 4096));
    let mut back = AlignedBuf::zeroed(1024);
    device.read(0, &mut back).unwrap();
    let zero_end = 4096 + (3 << 20) + 4096;
    assert!(back[..4096].iter().chain(&back[zero_end..]).all(|byte| *byte == 5));
    assert!(back[4096..zero_end].iter().all(|byte| *byte == 0));
}

#[test]
fn reading_past_the_end_is_an_error_and_a_stale_file_too() {
    let folder = folder();
    let drive = create(&folder, 1 << 20);
    let mut reactor = reactor(8);
    let file = attach(&mut reactor, &drive);
    reactor.read_at(file, (1 << 20) - 4096, AlignedBuf::zeroed(2), 1);
    assert_eq!(collect(&mut reactor, 1)[0].result, Err(Errno(libc::EIO)));
    reactor.close(file, 2);
    assert_eq!(collect(&mut reactor, 1)[0].token, 2);
    assert!(!reactor.is_open(file));
    reactor.read_at(file, 0, AlignedBuf::zeroed(1), 3);
    let refused = collect(&mut reactor, 1).remove(0);
    assert_eq!(refused.result, Err(Errno(libc::EBADF)));
    assert!(matches!(refused.payload, Payload::Buffer(buffer) if buffer.blocks() == 1));
}

#[test]
fn ten_thousand_operations_through_a_small_ring_leave_nothing_behind() {
    let folder = folder();
    let drive = create(&folder, 4 << 20);
    SyncDevice::new(&drive).write(0, &filled(1024, 3)).unwrap();
    let mut reactor = reactor(16);
    let file = attach(&mut reactor, &drive);
    let mut completions = Vec::new();
    let mut seen = vec![0u8; 10_000];
    for round in 0..100u64 {
        for index in 0..100u64 {
            let token = round * 100 + index;
            reactor.read_at(file, token % 1024 * 4096, AlignedBuf::zeroed(1), token);
        }
        while reactor.in_flight() > 0 {
            reactor.turn(Wait::Forever, &mut completions).unwrap();
        }
        for completion in completions.drain(..) {
            assert_eq!(completion.result, Ok(4096));
            seen[completion.token as usize] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count == 1));
    assert_eq!(reactor.in_flight(), 0);
}

#[test]
fn dropping_a_reactor_with_operations_in_flight_waits_for_them() {
    let folder = folder();
    let drive = create(&folder, 4 << 20);
    for entries in [8, 256] {
        let mut reactor = reactor(entries);
        let file = attach(&mut reactor, &drive);
        for index in 0..200 {
            reactor.write_at(file, index * 4096, filled(1, 1), true, index);
        }
        let mut completions = Vec::new();
        reactor.turn(Wait::Poll, &mut completions).unwrap();
    }
}

#[test]
fn a_drive_in_use_is_refused() {
    let folder = folder();
    let drive = create(&folder, 1 << 20);
    let path = folder.path().join("drive");
    let problem = |options| match DriveFile::open(&path, options) {
        Err(ReactorError::Drive { problem, .. }) => problem,
        other => panic!("refused, not {other:?}"),
    };
    assert!(matches!(problem(DriveOptions::default()), DriveProblem::Locked));
    assert!(matches!(problem(DriveOptions { read_only: true, ..Default::default() }), DriveProblem::Locked));
    let again = DriveOptions { create_new: true, ..Default::default() };
    assert!(matches!(problem(again), DriveProblem::Exists));
    drop(drive);
    let reopened = DriveFile::open(&path, DriveOptions::default()).unwrap();
    assert_eq!(reopened.size_bytes(), 1 << 20);
    assert!(!reopened.is_block_device());
}

/// It stayed, empty, and the next attempt took it for somebody's.
#[test]
fn a_file_that_cannot_be_made_as_large_is_not_left_behind() {
    let folder = folder();
    let path = folder.path().join("drive");
    let options = DriveOptions { create_bytes: Some(1 << 62), create_new: true, read_only: false };
    assert!(DriveFile::open(&path, options).is_err());
    assert!(!path.exists());
    std::fs::write(&path, "somebody's").unwrap();
    assert!(DriveFile::open(&path, options).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
    let grown = DriveOptions { create_new: false, ..options };
    assert!(DriveFile::open(&path, grown).is_err() && path.exists(), "nor is one removed that was there");
}

#[test]
fn what_is_no_drive_is_refused() {
    let folder = folder();
    let open = |path: &std::path::Path| match DriveFile::open(path, DriveOptions::default()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{path:?} is no drive"),
    };
    assert!(open(folder.path()).contains("is a directory"));
    assert!(open(&folder.path().join("missing")).contains("does not exist"));
    assert!(open(std::path::Path::new("/dev/null")).contains("neither a regular file nor a block device"));
}

#[test]
fn a_timeout_ends_a_turn() {
    let mut reactor = reactor(8);
    reactor.timeout_at(coquina_reactor::boottime_ns() + 1_000_000, 5);
    let done = collect(&mut reactor, 1);
    assert_eq!((done[0].token, done[0].result), (5, Ok(0)));
    let mut completions = Vec::new();
    reactor.turn(Wait::Until(coquina_reactor::monotonic_ns() + 1_000_000), &mut completions).unwrap();
    reactor.turn(Wait::Poll, &mut completions).unwrap();
    assert!(completions.is_empty());
}

#[test]
fn reads_of_a_device_are_done_together_and_each_says_how_it_ended() {
    let folder = folder();
    let drive = create(&folder, 8 << 20);
    let mut device = SyncDevice::new(&drive);
    let place = |index: u64| index * 3 * BLOCK_BYTES as u64;
    for count in [1, 2, 33, 200] {
        for index in 0..count {
            device.write(place(index), &filled(2, index as u8 + 1)).unwrap();
        }
        let read = |index| DeviceRead { offset_bytes: place(index), buffer: filled(2, 0), result: Ok(()) };
        let mut reads: Vec<DeviceRead> = (0..count).map(read).collect();
        let last = reads.last_mut().unwrap();
        last.offset_bytes = device.size_bytes() - BLOCK_BYTES as u64;
        device.read_many(&mut reads);
        for (index, read) in reads.iter().enumerate() {
            if index as u64 == count - 1 {
                assert_eq!(read.result, Err(IoError(libc::EIO)), "behind the end");
            } else {
                assert_eq!(read.result, Ok(()));
                assert!(read.buffer.iter().all(|byte| *byte == index as u8 + 1), "{index} of {count}");
            }
        }
    }
}
