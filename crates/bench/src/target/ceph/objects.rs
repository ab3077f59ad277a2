//! Whole objects of a pool, by librados: each operation writes or reads one of them, from its first byte to its last.
//!
//! The range is a row of objects of the size of one operation, with the names `PREFIX0`, `PREFIX1` and so on.
//!
//! Invariants:
//! - a read of an object that is not there, or is not as large as it should be, has failed;
//! - none but these names are written to or removed, and the pool is never listed.

use std::ffi::{CString, c_int, c_void};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::super::{Lane, LaneOptions, Operation, Readiness, Target};
use super::connection::Connection;
use super::lane::{CephLane, Memory, Subject, errno_of};
use super::library::{Callback, Handle, rados};
use crate::config::{IoBenchConfig, TargetSpec};
use crate::error::{BenchError, TargetError};
use crate::worker::HUNG;

/// Longest name, with the zero byte behind it. Ceph takes 2048 bytes unless it is set to less.
const NAME_BYTES_MAX: usize = 512;
/// Digits of the largest number, and a zero byte.
const NUMBER_BYTES_MAX: usize = 21;
/// Objects that are removed at the same time.
const REMOVED_AT_ONCE: u32 = 64;

/// A row of objects of one size.
struct Objects {
    connection: Connection,
    prefix: CString,
    object_bytes: u64,
    /// A write removes the object instead.
    removes: bool,
}

impl Objects {
    fn open(config: &IoBenchConfig, removes: bool) -> Result<Self, TargetError> {
        let TargetSpec::Rados { user, pool, prefix } = &config.target else {
            return Err(TargetError::Unsupported("only whole objects are removed: name rados:POOL/PREFIX"));
        };
        if prefix.len() + NUMBER_BYTES_MAX > NAME_BYTES_MAX {
            return Err(TargetError::Unsupported("the names of objects would be too long"));
        }
        let connection = Connection::open(rados()?, user, pool, config.target.to_string())?;
        let prefix = connection.text(prefix)?;
        Ok(Objects { connection, prefix, object_bytes: config.block_bytes.into(), removes })
    }

    /// The name of the object that holds this offset of the range.
    fn name(&self, offset_bytes: u64) -> [u8; NAME_BYTES_MAX] {
        let mut name = [0; NAME_BYTES_MAX];
        let prefix = self.prefix.as_bytes();
        name[..prefix.len()].copy_from_slice(prefix);
        let mut rest = &mut name[prefix.len()..];
        // There is room for any number, and a zero byte behind it.
        let _ = write!(rest, "{}", offset_bytes / self.object_bytes);
        name
    }
}

impl Subject for Objects {
    fn start(&self, offset_bytes: u64, memory: Memory<'_>, called: Callback, token: *mut c_void) -> c_int {
        let (rados, pool) = (self.connection.rados, self.connection.pool);
        let name = self.name(offset_bytes);
        let name = name.as_ptr().cast();
        let mut completion = std::ptr::null_mut();
        // SAFETY: the pool is open; the name ends in a zero byte and is copied; the caller keeps token and memory in place until the
        // library has called back.
        #[allow(unsafe_code)]
        unsafe {
            let made = (rados.aio_create_completion)(token, Some(called), None, &raw mut completion);
            if made < 0 {
                return made;
            }
            let started = match memory {
                Memory::Read(into) => {
                    (rados.aio_read)(pool, name, completion, into.as_mut_ptr().cast(), into.len(), 0)
                }
                Memory::Write(_) if self.removes => (rados.aio_remove)(pool, name, completion),
                Memory::Write(from) => {
                    (rados.aio_write_full)(pool, name, completion, from.as_ptr().cast(), from.len())
                }
                // A write is answered when it is durable.
                Memory::Flush => -libc::EOPNOTSUPP,
            };
            if started < 0 {
                (rados.aio_release)(completion);
            }
            started
        }
    }

    fn take_result(completion: Handle) -> isize {
        let Ok(rados) = rados() else { return -(libc::EIO as isize) };
        // SAFETY: the completion is done, and is released here only.
        #[allow(unsafe_code)]
        unsafe {
            let result = (rados.aio_get_return_value)(completion);
            (rados.aio_release)(completion);
            result as isize
        }
    }

    fn errno(&self, result: isize, operation: Operation, length_bytes: usize) -> i32 {
        object_errno(result, operation, length_bytes, self.removes)
    }
}

/// A read gives as many bytes as there were.
fn object_errno(result: isize, operation: Operation, length_bytes: usize, removes: bool) -> i32 {
    match errno_of(result) {
        libc::ENOENT if removes => 0,
        0 if operation == Operation::Read && usize::try_from(result) != Ok(length_bytes) => libc::ENODATA,
        errno => errno,
    }
}

/// Whole objects.
pub(crate) struct ObjectsTarget {
    objects: Arc<Objects>,
    size_bytes: u64,
}

impl ObjectsTarget {
    /// Connects to the cluster.
    pub(crate) fn open(config: &IoBenchConfig) -> Result<Self, TargetError> {
        let size_bytes = config.offset_bytes.saturating_add(config.size_bytes);
        Ok(ObjectsTarget { objects: Arc::new(Objects::open(config, false)?), size_bytes })
    }
}

impl Target for ObjectsTarget {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn readiness(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<Readiness, TargetError> {
        Ok(Readiness::Ready)
    }

    fn open_lane(&self, options: &LaneOptions) -> Result<Box<dyn Lane>, TargetError> {
        Ok(Box::new(CephLane::new(Arc::clone(&self.objects), options)))
    }
}

/// Removes the objects that load of these sizes has left, by their names; those that are not there are no error. Blocks until it is done.
pub fn remove_objects(config: &IoBenchConfig, stop: &AtomicBool) -> Result<(), BenchError> {
    config.check()?;
    let objects = Arc::new(Objects::open(config, true)?);
    let range = config.range(config.offset_bytes.saturating_add(config.size_bytes))?;
    let options = LaneOptions {
        depth: REMOVED_AT_ONCE,
        io_bytes_max: 0,
        reads: false,
        writes: true,
        durable: true,
        busy_poll_ns: 0,
    };
    let mut lane = CephLane::new(Arc::clone(&objects), &options);
    let mut free: Vec<u32> = (0..REMOVED_AT_ONCE).collect();
    let (mut next, mut completions, mut progress) = (range.offset_bytes, Vec::new(), Instant::now());
    while next < range.end_bytes() || free.len() < REMOVED_AT_ONCE as usize {
        if stop.load(Relaxed) {
            return Err(BenchError::Stopped);
        }
        while next < range.end_bytes()
            && let Some(slot) = free.pop()
        {
            lane.submit(slot, Operation::Write, next, 0);
            next += objects.object_bytes;
        }
        lane.turn(Duration::from_millis(200), &mut completions)?;
        if !completions.is_empty() {
            progress = Instant::now();
        } else if progress.elapsed() > HUNG {
            let outstanding = REMOVED_AT_ONCE as usize - free.len();
            return Err(TargetError::Hung { outstanding, seconds: HUNG.as_secs() }.into());
        }
        for completion in completions.drain(..) {
            objects.connection.check(-completion.errno, "an object cannot be removed")?;
            free.push(completion.slot);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_less_than_an_object_has_failed() {
        let of_read = |result| object_errno(result, Operation::Read, 65536, false);
        assert_eq!(of_read(65536), 0);
        assert_eq!([0, 4096, 65535].map(of_read), [libc::ENODATA; 3]);
        assert_eq!(of_read(-(libc::ENOENT as isize)), libc::ENOENT);
        assert_eq!(of_read(-(libc::EIO as isize)), libc::EIO);
    }

    #[test]
    fn a_write_has_failed_if_ceph_says_so_and_a_removal_unless_nothing_is_there() {
        let of = |result, removes| object_errno(result, Operation::Write, 65536, removes);
        assert_eq!((of(0, false), of(0, true)), (0, 0));
        assert_eq!(of(-(libc::ENOSPC as isize), false), libc::ENOSPC);
        assert_eq!(of(-(libc::ENOENT as isize), false), libc::ENOENT);
        assert_eq!(of(-(libc::ENOENT as isize), true), 0);
        assert_eq!(of(-(libc::EPERM as isize), true), libc::EPERM);
    }
}
