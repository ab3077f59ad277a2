//! Peers' frames: round trips, cuts, damage, arbitrary bytes.

#![allow(clippy::unwrap_used)]

use coquina_base::{ClusterId, Id128, NodeId};
use coquina_protocol::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn frame(group: u32, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_peer_frame(&mut out, group, payload.len(), |out| out.extend_from_slice(head));
    out.extend_from_slice(payload);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn frames_come_back_whole_wherever_they_are_cut(
        group in any::<u32>(), head in vec(any::<u8>(), 0..100), payload in vec(any::<u8>(), 0..200),
        more in vec(any::<u8>(), 0..40)
    ) {
        let mut bytes = frame(group, &head, &payload);
        let whole = bytes.len();
        let payload_at = whole - payload.len();
        for end in 0..whole {
            prop_assert_eq!(decode_peer_frame(&bytes[..end]), Ok(None));
            let length = (end >= PEER_FRAME_HEADER_BYTES).then_some(whole);
            prop_assert_eq!(peer_frame_bytes(&bytes[..end]), Ok(length));
            let expected = PeerFrameHead { group, head: &head, payload_at, payload_bytes: payload.len() };
            prop_assert_eq!(peek_peer_frame(&bytes[..end]), Ok((end >= payload_at).then_some(expected)));
        }
        bytes.extend_from_slice(&more);
        let expected = PeerFrame { group, head: &head, payload: &payload };
        prop_assert_eq!(decode_peer_frame(&bytes), Ok(Some((expected, whole))));
    }

    #[test]
    fn frames_follow_each_other_in_one_buffer(heads in vec(vec(any::<u8>(), 0..50), 1..10)) {
        let mut out = b"what was there".to_vec();
        let start = out.len();
        for (group, head) in heads.iter().enumerate() {
            encode_peer_frame(&mut out, group as u32, 3, |out| out.extend_from_slice(head));
            out.extend_from_slice(b"abc");
        }
        prop_assert_eq!(&out[..start], b"what was there");
        let mut rest = &out[start..];
        for (group, head) in heads.iter().enumerate() {
            let (frame, length) = decode_peer_frame(rest).unwrap().unwrap();
            prop_assert_eq!(frame, PeerFrame { group: group as u32, head, payload: b"abc" });
            rest = &rest[length..];
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn a_flipped_bit_before_the_payload_is_never_taken(
        head in vec(any::<u8>(), 0..100), payload in vec(any::<u8>(), 0..200), at in any::<u32>(), bit in 0..8
    ) {
        let mut bytes = frame(7, &head, &payload);
        let at = at as usize % (PEER_FRAME_HEADER_BYTES + head.len());
        bytes[at] ^= 1u8 << bit;
        // A length that became larger only waits for more, and is found out when that has come.
        let taken = decode_peer_frame(&bytes);
        prop_assert!(!matches!(taken, Ok(Some(_))), "{:?}", taken);
        prop_assert!(!matches!(peek_peer_frame(&bytes), Ok(Some(_))));
        bytes.resize(PEER_FRAME_BYTES_MAX + 1, 0);
        prop_assert!(decode_peer_frame(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..200), length in 0u32..300, head in 0u32..300) {
        let _ = decode_peer_frame(&bytes);
        let mut bytes = bytes;
        if let Some(place) = bytes.first_chunk_mut::<4>() {
            *place = length.to_le_bytes();
        }
        if let Some(place) = bytes.get_mut(8..12) {
            place.copy_from_slice(&head.to_le_bytes());
        }
        let _ = decode_peer_frame(&bytes);
        let _ = peek_peer_frame(&bytes);
    }
}

#[test]
fn impossible_lengths_are_refused_before_anything_waits_for_them() {
    let header = |length_bytes: u32, head_bytes: u32| {
        let mut bytes = frame(1, b"", b"");
        bytes[..4].copy_from_slice(&length_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&head_bytes.to_le_bytes());
        peer_frame_bytes(&bytes)
    };
    let max = PEER_FRAME_BYTES_MAX as u32;
    assert_eq!(header(max, 0), Ok(Some(PEER_FRAME_BYTES_MAX)));
    assert_eq!(header(max, max - 16), Ok(Some(PEER_FRAME_BYTES_MAX)));
    for (length_bytes, head_bytes) in
        [(max + 1, 0), (u32::MAX, 0), (15, 0), (0, 0), (16, 1), (100, 85), (100, u32::MAX), (max, max - 15)]
    {
        assert_eq!(
            header(length_bytes, head_bytes),
            Err(ProtocolError::PeerFrame { length_bytes, head_bytes }),
            "{length_bytes} {head_bytes}"
        );
    }
}

#[test]
#[should_panic(expected = "too large")]
fn a_frame_that_no_peer_would_take_is_not_made() {
    let mut out = Vec::new();
    encode_peer_frame(&mut out, 1, PEER_FRAME_BYTES_MAX - 16, |out| out.push(0));
}

#[test]
fn the_bytes_are_the_documented_ones() {
    let bytes = frame(0x0102_0304, b"head", b"payload");
    assert_eq!(bytes[..12], [27, 0, 0, 0, 4, 3, 2, 1, 4, 0, 0, 0]);
    let crc = coquina_base::crc32c_bytes(&[&bytes[..12], b"head"].concat());
    assert_eq!(bytes[12..16], crc.to_le_bytes());
    assert_eq!(&bytes[16..], b"headpayload");

    let mut out = Vec::new();
    let hello = PeerHello {
        cluster: ClusterId(Id128([1; 16])),
        node: NodeId(Id128([2; 16])),
        from_copy: 3,
        to_copy: 4,
        version_min: 5,
        version_max: 6,
        features: 7,
    };
    encode_peer_hello(&mut out, &Header::new(Kind::PeerHello), &hello);
    let body = &out[HEADER_BYTES..];
    assert_eq!((&body[..16], &body[16..32]), (&[1; 16][..], &[2; 16][..]));
    for (at, value) in [(32, 3), (40, 4), (48, 7)] {
        assert_eq!(body[at..at + 8], u64::to_le_bytes(value), "at {at}");
    }
    assert_eq!(body[56..], [5, 0, 6, 0, 0, 0, 0, 0]);
}
