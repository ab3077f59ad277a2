//! Deleting what a volume holds beyond its end.

use std::collections::VecDeque;

use coquina_client::{ClientRequest, RequestKind, VolumeConnection};
use coquina_reactor::{Wait, monotonic_ns};

/// Bytes of one request.
const REQUEST_BYTES: u64 = 64 << 20;
/// Requests at a time.
const REQUESTS_MAX: usize = 8;
/// How often it is looked whether to go on while nothing is answered.
const LOOK_INTERVAL_NS: u64 = 100_000_000;
/// How long a request is tried.
const GIVE_UP_NS: u64 = 5_000_000_000;

/// Deletes ranges of volumes beyond their end.
pub trait Trimmer: Send + Sync {
    /// Returns when what lies in the range cannot come back, or says why not. Nothing is sent any more as soon as `goes_on`
    /// says no, and what was sent fails within 10 s.
    fn trim(
        &self,
        addresses: &[String],
        volume: &str,
        from_bytes: u64,
        to_bytes: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), String>;
}

/// Does it as a client of the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeTrimmer;

impl Trimmer for NativeTrimmer {
    fn trim(
        &self,
        addresses: &[String],
        volume: &str,
        from_bytes: u64,
        to_bytes: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let mut config = VolumeConnection::config(&addresses.join(","), volume);
        config.discards_beyond_end = true;
        config.give_up_ns = GIVE_UP_NS;
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
            if !goes_on() {
                return Err("the volume was changed, or this process leads no more".to_owned());
            }
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
            connection
                .poll(Wait::Until(monotonic_ns() + LOOK_INTERVAL_NS), &mut completions)
                .map_err(failed)?;
            for completion in completions.drain(..) {
                completion.result.map_err(failed)?;
                outstanding -= 1;
            }
        }
        Ok(())
    }
}
