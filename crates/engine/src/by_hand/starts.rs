//! What a start reads.

use super::*;
use crate::api::IoError;

/// Counts what is read, and fails reads of one place.
struct Counted {
    drive: Memory,
    reads: u32,
    unreadable: Option<u64>,
}

impl Device for Counted {
    fn size_bytes(&self) -> u64 {
        self.drive.size_bytes()
    }

    fn read(&mut self, offset_bytes: u64, buffer: &mut AlignedBuf) -> Result<(), IoError> {
        self.reads += 1;
        let range = offset_bytes..offset_bytes + buffer.len() as u64;
        if self.unreadable.is_some_and(|unreadable| range.contains(&unreadable)) {
            return Err(IoError(5));
        }
        self.drive.read(offset_bytes, buffer)
    }

    fn write(&mut self, offset_bytes: u64, buffer: &AlignedBuf) -> Result<(), IoError> {
        self.drive.write(offset_bytes, buffer)
    }

    fn sync(&mut self) -> Result<(), IoError> {
        self.drive.sync()
    }
}

/// Each header of an open segment was read by itself.
#[test]
fn a_start_reads_the_small_frames_of_an_open_segment_together() {
    const FRAMES: u32 = 300;
    let mut drive = formatted(160 << 20, 4 << 20, false);
    let shard = open(&mut drive);
    let mut world = World::of(drive, shard, 1);
    world.change(write_of(1, 1, 0, &[9; 80 * BLOCK_BYTES]));
    for frame in 0..FRAMES {
        world.change(write_of(1, 0, frame * BLOCK, &[frame as u8; BLOCK_BYTES]));
    }
    let hot = world.shard.log.streams[0].position;
    assert!(hot.offset > 2 * FRAMES, "all are in one segment");
    // Data, behind a header that can be read.
    let (location, _) = world.place_in_log(100);
    let at = world.shard.geometry.offset_bytes(location);
    let World { drive, shard, now_ns, .. } = world.stop_and_start();
    drop(shard);
    let mut reads = [0; 2];
    let mut drive = Counted { drive, reads: 0, unreadable: None };
    for (unreadable, reads) in [None, Some(at)].into_iter().zip(&mut reads) {
        (drive.reads, drive.unreadable) = (0, unreadable);
        let shard = Shard::open(&mut drive, 0, 1, config()).unwrap();
        *reads = drive.reads;
        let stream = &shard.log.streams[0];
        assert_eq!((stream.position, stream.applied), (hot, hot));
        assert!(stream.footer_frames > FRAMES && !stream.footer.is_empty());
    }
    assert!(reads[0] < 200, "{reads:?}");
    // One window is read header by header.
    assert!(reads[1] > reads[0] && reads[1] <= reads[0] + 70, "{reads:?}");
    // The footer that is made of it is a good one.
    let Counted { mut drive, .. } = drive;
    let shard = open(&mut drive);
    let mut world = World::of(drive, shard, now_ns);
    for chunk in 2..14 {
        world.change(write_of(1, chunk, 0, &[7; 80 * BLOCK_BYTES]));
    }
    assert_ne!(world.shard.log.streams[0].position.segment, hot.segment);
    let mut world = world.reopen();
    for frame in 0..FRAMES {
        assert_eq!(world.read(0, frame), [frame as u8; BLOCK_BYTES]);
    }
}
