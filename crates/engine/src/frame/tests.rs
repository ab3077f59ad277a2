//! Frames and footers: what is encoded comes back, and nothing makes the decoder panic.

use super::*;
use crate::footer;
use coquina_base::AlignedBuf;

const DRIVE: DriveId = DriveId(coquina_base::Id128([5; 16]));

/// What is committed differs in its upper half from the sequence number of the entry.
const GROUP: EntryGroup = EntryGroup { group: 7, epoch: 4, committed: (6 << 32) - 3 };

fn frame_block() -> (FrameHeader, Vec<u8>) {
    let context = Context::new(LayerId(9), 77);
    let mut bytes = context.as_bytes().to_vec();
    bytes.extend_from_slice(GROUP.encode().as_bytes());
    let write = NewEntry {
        context: 0,
        group: Some(1),
        kind: EntryKind::Write,
        chunk: 5,
        start_block: 3,
        blocks: 1,
        data_offset: 0,
        sequence: 6 << 32,
        request: 2,
        continues: true,
        recovered: true,
    };
    write.encode(&mut bytes);
    bytes.extend_from_slice(&[9, 0, 0, 0]);
    let moved = NewEntry {
        group: None,
        kind: EntryKind::Move,
        chunk: 6,
        start_block: 1022,
        blocks: 2,
        data_offset: 1,
        sequence: 0,
        request: 0,
        continues: false,
        recovered: false,
        ..write
    };
    moved.encode(&mut bytes);
    bytes.extend_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
    encode_location(1000, &mut bytes);
    encode_location(2000, &mut bytes);
    let mut header = FrameHeader {
        header_crc: 0,
        frame_number: 12,
        incarnation: 3,
        segment_generation: 8,
        location: 4096,
        acknowledged: 11,
        previous_crc: 0xdead,
        head: Head::Cold,
        header_blocks: 1,
        contexts: 2,
        entries: 2,
        data_blocks: 3,
        entry_bytes: bytes.len() as u32,
        next_segment: 17,
        data_crc: 0,
    };
    let mut block = vec![0; BLOCK_BYTES];
    block[HEADER_BYTES..HEADER_BYTES + bytes.len()].copy_from_slice(&bytes);
    header.encode(&mut block, DRIVE, 2);
    (header, block)
}

#[test]
fn a_frame_comes_back_as_it_was_encoded() {
    let (header, block) = frame_block();
    let found = FrameHeader::peek(&block, DRIVE, 2).unwrap();
    assert_eq!(found, header);
    assert!(found.is_intact(&block));
    let mut entries = Entries::of_frame(&found, &block).unwrap();
    let entry = entries.next_entry().unwrap().unwrap();
    assert_eq!((entry.context.layer(), entry.context.session()), (LayerId(9), 77));
    assert_eq!((entry.kind, entry.chunk, entry.start_block, entry.blocks), (EntryKind::Write, 5, 3, 1));
    assert_eq!((entry.sequence, entry.request, entry.continues, entry.checksum(0)), (6 << 32, 2, true, 9));
    assert_eq!(entry.group, Some(GROUP));
    let entry = entries.next_entry().unwrap().unwrap();
    assert_eq!((entry.data_offset, entry.sequence, entry.request), (1, 0, 0));
    assert_eq!((entry.kind, entry.chunk, entry.start_block, entry.blocks), (EntryKind::Move, 6, 1022, 2));
    assert_eq!((entry.checksum(0), entry.checksum(1)), (1, 2));
    assert_eq!((entry.source(0), entry.source(1)), (1000, 2000));
    assert!(entries.next_entry().is_none());
    assert!(FrameHeader::peek(&block, DRIVE, 3).is_none(), "of another shard");
    assert!(
        FrameHeader::peek(&block, DriveId(coquina_base::Id128([6; 16])), 2).is_none(),
        "of another drive"
    );
}

#[test]
fn no_bytes_make_the_decoder_panic_and_every_flipped_bit_shows() {
    let (header, block) = frame_block();
    let end = HEADER_BYTES + header.entry_bytes as usize;
    for bit in 0..end * 8 {
        let mut spoilt = block.clone();
        spoilt[bit / 8] ^= 1 << (bit % 8);
        let Some(found) = FrameHeader::peek(&spoilt, DRIVE, 2) else { continue };
        assert!(!found.is_intact(&spoilt), "bit {bit}");
        if let Some(mut entries) = Entries::of_frame(&found, &spoilt) {
            while let Some(entry) = entries.next_entry() {
                if entry.is_none() {
                    break;
                }
            }
        }
    }
    for length in 0..256 {
        assert!(FrameHeader::peek(&block[..length.min(HEADER_BYTES - 1)], DRIVE, 2).is_none());
    }
}

#[test]
fn a_footer_lists_its_frames_and_its_trailer_is_found() {
    let (header, block) = frame_block();
    let entry_bytes = &block[HEADER_BYTES..HEADER_BYTES + header.entry_bytes as usize];
    let mut records = Vec::new();
    footer::push_record(&mut records, &header, entry_bytes);
    footer::push_record(&mut records, &header, entry_bytes);
    let trailer = footer::Trailer {
        segment_generation: 8,
        incarnation: 3,
        frame_number: 20,
        location: 5000,
        blocks: footer::footer_blocks(records.len()),
        frames: 2,
    };
    let buffer = footer::build(&records, 2, &trailer, AlignedBuf::new());
    assert_eq!(buffer.blocks(), trailer.blocks as usize);
    let last = &buffer[buffer.len() - BLOCK_BYTES..];
    assert_eq!(footer::Trailer::decode(last), Some(trailer));
    let listed = footer::list(&buffer, &header, 2).unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1].header.frame_number, 12);
    assert_eq!(listed[1].entry_bytes(), entry_bytes);
    assert!(footer::list(&buffer, &header, u32::MAX).is_none());
    for at in BLOCK_BYTES - footer::TRAILER_BYTES..BLOCK_BYTES {
        let mut spoilt = last.to_vec();
        spoilt[at] ^= 4;
        assert_eq!(footer::Trailer::decode(&spoilt), None, "byte {at}");
    }
}
