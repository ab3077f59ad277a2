//! How requests of NBD clients are answered.

use coquina_base::AlignedBuf;
use coquina_client::ClientError;
use coquina_engine::{Piece, ReadData};
use coquina_nbd::{BlockState, BlockStatusReply, ErrorCode, ReplyEncoder};
use coquina_protocol::{ExtentKind, Status};

use crate::connection::{Connection, State};
use crate::native::push_pieces;
use crate::request::{Answer, NbdRequest};

/// Data below this size is copied into the reply rather than sent from where it lies.
const COPY_BYTES_MAX: usize = 16 << 10;

/// Appends the answer to what is sent to its client; gives the buffer back if it is not sent from.
pub(crate) fn encode_answer(
    connection: &mut Connection,
    request: &mut NbdRequest,
    result: Result<(), ClientError>,
    buffer: AlignedBuf,
    extents: &[coquina_protocol::Extent],
) -> AlignedBuf {
    let replies = encoder(&connection.state);
    let output = &mut connection.output;
    if let Err(error) = result {
        let (code, text) = error_of(&error);
        replies.error(request.cookie, code, &text, output.bytes());
        return buffer;
    }
    match request.answer {
        Answer::Success | Answer::Cached => replies.success(request.cookie, output.bytes()),
        Answer::Data => {
            let length = request.length_bytes as usize;
            let header = replies.read(request.cookie, request.offset_bytes, request.length_bytes);
            output.bytes().extend_from_slice(header.as_bytes());
            if let Some(data) = &mut request.cached {
                let pieces_bytes: usize = data.pieces.iter().map(Piece::length_bytes).sum();
                assert_eq!(pieces_bytes, length, "a read gives as much as was asked for");
                push_pieces(output, data);
                return buffer;
            }
            if length >= COPY_BYTES_MAX {
                output.push_buffer(buffer, 0, length);
                return AlignedBuf::new();
            }
            output.bytes().extend_from_slice(&buffer[..length]);
        }
        Answer::BlockStatus { one_extent } => {
            let mut reply =
                BlockStatusReply::new(request.cookie, request.length_bytes, one_extent, output.bytes());
            for extent in extents {
                let state = match extent.kind {
                    ExtentKind::Data => BlockState::DATA,
                    ExtentKind::Zeroes => BlockState { hole: false, zero: true },
                    ExtentKind::Hole => BlockState::HOLE,
                };
                if !reply.push(u64::from(extent.length_bytes), state) {
                    break;
                }
            }
            reply.finish();
        }
    }
    buffer
}

/// Whether all that was read is shared with a cache, or zeros: then no buffer has to go back to its shard.
pub(crate) fn is_cached(data: &ReadData) -> bool {
    !data.pieces.iter().any(|piece| matches!(piece, Piece::Data { .. }))
}

/// Copies what was read to the front of a buffer.
pub(crate) fn copy_pieces(data: &ReadData, buffer: &mut [u8]) {
    let mut at = 0;
    for piece in &data.pieces {
        let place = &mut buffer[at..at + piece.length_bytes()];
        match piece.bytes() {
            None => place.fill(0),
            Some(bytes) => place.copy_from_slice(bytes),
        }
        at += piece.length_bytes();
    }
}

/// The encoder of an NBD connection.
pub(crate) fn encoder(state: &State) -> ReplyEncoder {
    match state {
        State::Nbd(session) => session.replies(),
        State::Native(_) | State::Peer(_) => unreachable!("a gateway's request of another connection"),
    }
}

fn error_of(error: &ClientError) -> (ErrorCode, String) {
    let code = match error {
        ClientError::Server { status: Status::NoSpace, .. } => ErrorCode::NoSpace,
        ClientError::Server { status: Status::Invalid, .. } | ClientError::Range { .. } => {
            ErrorCode::InvalidArgument
        }
        _ => ErrorCode::Io,
    };
    (code, error.to_string())
}
