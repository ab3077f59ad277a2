//! Volumes by the native protocol, one client per job. Writes are always durable.
//!
//! The client reconnects by itself and makes the outcome of writes certain, so a run goes on through a restart of the
//! server.

use std::time::Duration;

use coquina_base::{AlignedBuf, BLOCK_BYTES};
use coquina_client::{ClientCompletion, ClientError, ClientRequest, RequestKind, VolumeConnection};
use coquina_protocol::Status;
use coquina_reactor::{Wait, monotonic_ns};

use super::{Completion, Lane, LaneOptions, Operation, Readiness, Target};
use crate::error::TargetError;

/// How long a server that cannot be reached is tried at the start; during a run the client's own patience counts.
const FIRST_CONTACT_NS: u64 = 3_000_000_000;

/// A volume on a server.
pub(super) struct VolumeTarget {
    server: String,
    name: String,
    size_bytes: u64,
}

impl VolumeTarget {
    /// Opens the volume once, to learn its size.
    pub fn open(server: &str, name: &str) -> Result<Self, TargetError> {
        let mut target = VolumeTarget { server: server.to_owned(), name: name.to_owned(), size_bytes: 0 };
        let first = target.connect(false, Some(FIRST_CONTACT_NS), 0)?;
        target.size_bytes = first.size_bytes();
        Ok(target)
    }

    fn connect(
        &self,
        writes: bool,
        give_up_ns: Option<u64>,
        busy_poll_ns: u64,
    ) -> Result<VolumeConnection, TargetError> {
        let mut config = VolumeConnection::config(&self.server, &self.name);
        config.read_only = !writes;
        config.busy_poll_ns = busy_poll_ns;
        config.give_up_ns = give_up_ns.unwrap_or(config.give_up_ns);
        VolumeConnection::open(config).map_err(|error| match error {
            ClientError::GivenUp { address, last, .. } => {
                TargetError::Connect { peer: address, source: std::io::Error::other(last) }
            }
            error => TargetError::Refused {
                peer: format!("volume {} at {}", self.name, self.server),
                reason: error.to_string(),
            },
        })
    }
}

impl Target for VolumeTarget {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn readiness(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<Readiness, TargetError> {
        Ok(Readiness::Ready)
    }

    fn open_lane(&self, options: &LaneOptions) -> Result<Box<dyn Lane>, TargetError> {
        let connection = self.connect(options.writes, None, options.busy_poll_ns)?;
        Ok(Box::new(VolumeLane::new(connection, self.server.clone(), options)))
    }
}

struct VolumeLane {
    connection: VolumeConnection,
    server: String,
    io_bytes_max: usize,
    /// Empty while the slot's operation has them.
    write_buffers: Vec<AlignedBuf>,
    read_buffers: Vec<AlignedBuf>,
    operations: Vec<Operation>,
    finished: Vec<ClientCompletion>,
}

impl VolumeLane {
    fn new(connection: VolumeConnection, server: String, options: &LaneOptions) -> Self {
        let depth = options.depth as usize;
        let blocks = (options.io_bytes_max as usize).div_ceil(BLOCK_BYTES);
        let buffers = |wanted: bool| vec![AlignedBuf::zeroed(if wanted { blocks } else { 0 }); depth];
        VolumeLane {
            connection,
            server,
            io_bytes_max: options.io_bytes_max as usize,
            write_buffers: buffers(options.writes),
            read_buffers: buffers(options.reads),
            operations: vec![Operation::Flush; depth],
            finished: Vec::with_capacity(depth),
        }
    }
}

impl Lane for VolumeLane {
    fn write_buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.write_buffers[slot as usize][..self.io_bytes_max]
    }

    fn read_buffer(&self, slot: u32) -> &[u8] {
        &self.read_buffers[slot as usize][..self.io_bytes_max]
    }

    fn submit(&mut self, slot: u32, operation: Operation, offset_bytes: u64, length_bytes: u32) {
        assert!(length_bytes as usize <= self.io_bytes_max, "an operation fits its buffer");
        let index = slot as usize;
        let (kind, buffer) = match operation {
            Operation::Read => (RequestKind::Read, std::mem::take(&mut self.read_buffers[index])),
            Operation::Write => (RequestKind::Write, std::mem::take(&mut self.write_buffers[index])),
            Operation::Flush => (RequestKind::Flush, AlignedBuf::new()),
        };
        self.operations[index] = operation;
        let length_bytes = u64::from(length_bytes);
        self.connection.submit(ClientRequest {
            token: u64::from(slot),
            kind,
            offset_bytes,
            length_bytes,
            buffer,
        });
    }

    fn turn(&mut self, timeout: Duration, completions: &mut Vec<Completion>) -> Result<(), TargetError> {
        let wait = if timeout.is_zero() {
            Wait::Poll
        } else {
            Wait::Until(monotonic_ns().saturating_add(timeout.as_nanos() as u64))
        };
        let turned = self.connection.poll(wait, &mut self.finished);
        for done in self.finished.drain(..) {
            let slot = done.token as u32;
            match self.operations[slot as usize] {
                Operation::Read => self.read_buffers[slot as usize] = done.buffer,
                Operation::Write => self.write_buffers[slot as usize] = done.buffer,
                Operation::Flush => {}
            }
            completions
                .push(Completion { slot, errno: done.result.map_or_else(|error| errno(&error), |()| 0) });
        }
        let failed = turned.err().or_else(|| self.connection.client().failure().cloned());
        match failed {
            Some(error) if completions.is_empty() => {
                Err(TargetError::Broken { peer: self.server.clone(), reason: error.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// The error number nearest to what happened.
fn errno(error: &ClientError) -> i32 {
    match error {
        ClientError::ReadOnly => libc::EROFS,
        ClientError::Range { .. } | ClientError::Buffer { .. } => libc::EINVAL,
        ClientError::GivenUp { .. } | ClientError::Closed => libc::ENOTCONN,
        _ => match error.status() {
            Some(Status::NoSpace) => libc::ENOSPC,
            Some(Status::BadBlock) => libc::EBADMSG,
            Some(Status::ReadOnly) => libc::EROFS,
            Some(Status::Invalid) => libc::EINVAL,
            Some(Status::UnknownVolume) => libc::ENOENT,
            _ => libc::EIO,
        },
    }
}
