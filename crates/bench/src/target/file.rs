//! Files and block devices, by `O_DIRECT` and an io_uring of our own. This is the yardstick for everything else, so a
//! turn is one `io_uring_enter` that submits everything queued and waits for the first completion.
//!
//! Invariants:
//! - buffers stay owned and in place until the kernel has completed what uses them: a lane that is dropped with
//!   operations in flight waits for them, and gives its buffers up for good rather than free them too early;
//! - a file is never overwritten for a run that only reads, unless the run made it or `fill` was asked for.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use super::buffers::Buffers;
use super::{Completion, Lane, LaneOptions, Operation, Readiness, Target};
use crate::config::IoBenchConfig;
use crate::error::TargetError;

/// A file or block device opened with `O_DIRECT`.
pub(super) struct FileTarget {
    file: Arc<File>,
    path: PathBuf,
    size_bytes: u64,
    is_device: bool,
    may_overwrite: bool,
}

impl FileTarget {
    /// Opens a regular file; makes or extends it where the run needs that.
    pub fn open_file(path: &Path, config: &IoBenchConfig) -> Result<Self, TargetError> {
        let unsuitable = |reason| TargetError::Unsuitable { path: path.to_owned(), reason };
        let exists = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => true,
            Ok(metadata) if metadata.is_dir() => {
                return Err(unsuitable("this is a directory: name a file in it"));
            }
            Ok(_) => return Err(unsuitable("not a regular file: use device:PATH for a block device")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(TargetError::path("cannot look at", path, error)),
        };
        if !exists && config.size_bytes == 0 {
            return Err(unsuitable("the file does not exist: give --size to have it made"));
        }
        let may_overwrite = config.is_destructive() || !exists;
        let file = open_direct(path, may_overwrite, !exists, 0)?;
        let metadata = file.metadata().map_err(|error| TargetError::path("cannot look at", path, error))?;
        let mut size_bytes = metadata.len();
        let end_bytes = config.offset_bytes.saturating_add(config.size_bytes);
        if may_overwrite && config.size_bytes > 0 && size_bytes < end_bytes {
            file.set_len(end_bytes).map_err(|error| TargetError::path("cannot extend", path, error))?;
            size_bytes = end_bytes;
        }
        // Data that only lies in the page cache looks written, and would be written out during the run.
        file.sync_all().map_err(|error| TargetError::path("cannot sync", path, error))?;
        let path = path.to_owned();
        Ok(FileTarget { file: Arc::new(file), path, size_bytes, is_device: false, may_overwrite })
    }

    /// Opens a block device that nothing else uses.
    pub fn open_device(path: &Path, config: &IoBenchConfig) -> Result<Self, TargetError> {
        let unsuitable = |reason| TargetError::Unsuitable { path: path.to_owned(), reason };
        let metadata =
            std::fs::metadata(path).map_err(|error| TargetError::path("cannot look at", path, error))?;
        if !metadata.file_type().is_block_device() {
            return Err(unsuitable("not a block device: use file:PATH for a file"));
        }
        let may_overwrite = config.is_destructive();
        let exclusive = if may_overwrite { libc::O_EXCL } else { 0 };
        let file = open_direct(path, may_overwrite, false, exclusive)?;
        let size_bytes = std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0))
            .map_err(|error| TargetError::path("cannot find the size of", path, error))?;
        let path = path.to_owned();
        Ok(FileTarget { file: Arc::new(file), path, size_bytes, is_device: true, may_overwrite })
    }

    /// The first byte at or after `offset_bytes` that was never written.
    fn next_hole(&self, offset_bytes: u64) -> Result<u64, TargetError> {
        // SAFETY: the descriptor is open; lseek touches no memory, and nothing here uses the file's position.
        #[allow(unsafe_code)]
        let found = unsafe {
            libc::lseek(self.file.as_raw_fd(), offset_bytes.min(i64::MAX as u64) as i64, libc::SEEK_HOLE)
        };
        u64::try_from(found).map_err(|_| {
            TargetError::path("cannot look for holes in", &self.path, std::io::Error::last_os_error())
        })
    }
}

fn open_direct(path: &Path, write: bool, create: bool, flags: i32) -> Result<File, TargetError> {
    let opened = OpenOptions::new()
        .read(true)
        .write(write)
        .create_new(create)
        .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC | flags)
        .open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => TargetError::Unsuitable {
            path: path.to_owned(),
            reason: "this file system has no O_DIRECT: use a file on ext4, xfs or a block device",
        },
        Some(libc::ENOENT) if create => TargetError::Unsuitable {
            path: path.to_owned(),
            reason: "its folder does not exist: make that first, or name another one",
        },
        Some(libc::EBUSY) => TargetError::Unsuitable {
            path: path.to_owned(),
            reason: "the device is mounted or in use by something else: unmount or stop that first",
        },
        _ => TargetError::path("cannot open", path, error),
    })
}

impl Target for FileTarget {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn readiness(&self, offset_bytes: u64, length_bytes: u64) -> Result<Readiness, TargetError> {
        if self.is_device || self.next_hole(offset_bytes)? >= offset_bytes + length_bytes {
            return Ok(Readiness::Ready);
        }
        if self.may_overwrite {
            return Ok(Readiness::MustFill);
        }
        Err(TargetError::Unsuitable {
            path: self.path.clone(),
            reason: "has space that was never written, which reads as zeros without touching the drive: \
                     add --fill, which overwrites it, or use another file",
        })
    }

    fn open_lane(&self, options: &LaneOptions) -> Result<Box<dyn Lane>, TargetError> {
        Ok(Box::new(FileLane::new(Arc::clone(&self.file), options)?))
    }

    fn local_path(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }
}

/// What a slot is doing.
#[derive(Clone, Copy)]
struct Slot {
    operation: Operation,
    offset_bytes: u64,
    length_bytes: u32,
    done_bytes: u32,
}

/// One job's ring on a file.
pub(crate) struct FileLane {
    ring: IoUring,
    file: Arc<File>,
    buffers: Buffers,
    slots: Vec<Slot>,
    in_flight: u32,
    write_flags: i32,
}

impl FileLane {
    pub fn new(file: Arc<File>, options: &LaneOptions) -> Result<Self, TargetError> {
        let idle = Slot { operation: Operation::Flush, offset_bytes: 0, length_bytes: 0, done_bytes: 0 };
        Ok(FileLane {
            ring: make_ring(options.depth)?,
            file,
            buffers: Buffers::new(options),
            slots: vec![idle; options.depth as usize],
            in_flight: 0,
            write_flags: if options.durable { libc::RWF_DSYNC } else { 0 },
        })
    }

    fn push(&mut self, slot: u32) {
        let state = self.slots[slot as usize];
        let fd = types::Fd(self.file.as_raw_fd());
        let done = state.done_bytes as usize;
        let rest = (state.length_bytes - state.done_bytes) as usize;
        let offset_bytes = state.offset_bytes + done as u64;
        let entry = match state.operation {
            Operation::Read => {
                let bytes = self.buffers.read_part(slot, done, rest);
                opcode::Read::new(fd, bytes.as_mut_ptr(), rest as u32).offset(offset_bytes).build()
            }
            Operation::Write => {
                let bytes = self.buffers.write_part(slot, done, rest);
                opcode::Write::new(fd, bytes.as_ptr(), rest as u32)
                    .offset(offset_bytes)
                    .rw_flags(self.write_flags)
                    .build()
            }
            Operation::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        let entry = entry.user_data(u64::from(slot));
        // SAFETY: the buffers live in `self`, are neither resized nor freed while the operation is in flight (see
        // `drop`), the range was checked by the slices above, and the slot is not touched until it completes.
        #[allow(unsafe_code)]
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "a ring has room for one entry of each slot");
        self.in_flight += 1;
    }

    fn enter(&mut self, timeout: Duration) -> Result<(), TargetError> {
        let limit = types::Timespec::from(timeout);
        let arguments = types::SubmitArgs::new().timespec(&limit);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(TargetError::RingFailed(error)),
            },
        }
    }

    /// Takes one completion; gives it on unless the rest of a short transfer went out again.
    fn reap(&mut self, completions: &mut Vec<Completion>) -> bool {
        let Some(entry) = self.ring.completion().next() else { return false };
        self.in_flight -= 1;
        let slot = entry.user_data() as u32;
        let state = &mut self.slots[slot as usize];
        let errno = match entry.result() {
            result if result < 0 => -result,
            result if state.operation == Operation::Flush => result,
            0 => libc::EIO,
            result => {
                state.done_bytes += result as u32;
                if state.done_bytes < state.length_bytes {
                    self.push(slot);
                    return true;
                }
                0
            }
        };
        completions.push(Completion { slot, errno });
        true
    }
}

fn make_ring(depth: u32) -> Result<IoUring, TargetError> {
    let entries = depth.max(8).next_power_of_two();
    // The first set of flags saves interrupts of this thread by the kernel; it needs Linux 6.1.
    let fast = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    let ring = fast.or_else(|_| IoUring::new(entries)).map_err(TargetError::Ring)?;
    if !ring.params().is_feature_ext_arg() {
        return Err(TargetError::Ring(std::io::Error::from_raw_os_error(libc::ENOSYS)));
    }
    Ok(ring)
}

impl Lane for FileLane {
    fn write_buffer(&mut self, slot: u32) -> &mut [u8] {
        self.buffers.write_buffer(slot)
    }

    fn read_buffer(&self, slot: u32) -> &[u8] {
        self.buffers.read_buffer(slot)
    }

    fn submit(&mut self, slot: u32, operation: Operation, offset_bytes: u64, length_bytes: u32) {
        assert!(length_bytes as usize <= self.buffers.io_bytes_max(), "an operation fits its buffer");
        self.slots[slot as usize] = Slot { operation, offset_bytes, length_bytes, done_bytes: 0 };
        self.push(slot);
    }

    fn turn(&mut self, timeout: Duration, completions: &mut Vec<Completion>) -> Result<(), TargetError> {
        self.enter(timeout)?;
        while self.reap(completions) {}
        Ok(())
    }
}

impl Drop for FileLane {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        for _ in 0..50 {
            if self.in_flight == 0 || self.turn(Duration::from_millis(100), &mut completions).is_err() {
                break;
            }
        }
        if self.in_flight > 0 {
            // The kernel may still write into or read from them.
            self.buffers.leak();
        }
    }
}
