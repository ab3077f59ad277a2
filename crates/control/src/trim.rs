//! Deleting what a volume holds beyond its end.

use std::collections::VecDeque;

use coquina_client::{ClientRequest, RequestKind, VolumeConnection};
use coquina_reactor::Wait;

/// Bytes of one request.
const REQUEST_BYTES: u64 = 64 << 20;
/// Requests at a time.
const REQUESTS_MAX: usize = 8;

/// Deletes ranges of volumes beyond their end.
pub trait Trimmer: Send + Sync {
    /// Returns when what lies in the range cannot come back, or says why not.
    fn trim(&self, addresses: &[String], volume: &str, from_bytes: u64, to_bytes: u64) -> Result<(), String>;
}

/// Does it as a client of the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeTrimmer;

impl Trimmer for NativeTrimmer {
    fn trim(&self, addresses: &[String], volume: &str, from_bytes: u64, to_bytes: u64) -> Result<(), String> {
        let mut config = VolumeConnection::config(&addresses.join(","), volume);
        config.discards_beyond_end = true;
        config.client = "coquina-shrink".to_owned();
        let failed = |error: coquina_client::ClientError| error.to_string();
        let mut connection = VolumeConnection::open(config).map_err(failed)?;
        let mut ranges: VecDeque<(u64, u64)> = VecDeque::new();
        let mut next = from_bytes;
        while next < to_bytes {
            let length = (to_bytes - next).min(REQUEST_BYTES - next % REQUEST_BYTES);
            ranges.push_back((next, length));
            next += length;
        }
        let (mut outstanding, mut completions) = (0, Vec::new());
        while outstanding > 0 || !ranges.is_empty() {
            while outstanding < REQUESTS_MAX
                && let Some((offset_bytes, length_bytes)) = ranges.pop_front()
            {
                connection.submit(ClientRequest {
                    token: offset_bytes,
                    kind: RequestKind::Discard,
                    offset_bytes,
                    length_bytes,
                    buffer: VolumeConnection::buffer(0),
                });
                outstanding += 1;
            }
            connection.poll(Wait::Forever, &mut completions).map_err(failed)?;
            for completion in completions.drain(..) {
                completion.result.map_err(failed)?;
                outstanding -= 1;
            }
        }
        Ok(())
    }
}
