//! A drive with blocking I/O, for start-up and checks, when no reactor runs.

use std::fs::File;
use std::os::fd::AsRawFd;

use coquina_base::AlignedBuf;
use coquina_engine::{Device, DeviceRead, IoError};

use crate::drive::DriveFile;
use crate::error::Errno;

/// Reads at the same time, at most.
const READ_THREADS: usize = 32;

/// A drive seen through `pread` and `pwrite`.
#[derive(Debug)]
pub struct SyncDevice<'a> {
    drive: &'a DriveFile,
}

impl<'a> SyncDevice<'a> {
    /// A view of an open drive.
    pub fn new(drive: &'a DriveFile) -> Self {
        SyncDevice { drive }
    }
}

impl Device for SyncDevice<'_> {
    fn size_bytes(&self) -> u64 {
        self.drive.size_bytes()
    }

    fn read(&mut self, offset_bytes: u64, buffer: &mut AlignedBuf) -> Result<(), IoError> {
        transfer(buffer.len(), |done_bytes| {
            read_once(self.drive.file(), offset_bytes + done_bytes as u64, &mut buffer[done_bytes..])
        })
    }

    fn write(&mut self, offset_bytes: u64, buffer: &AlignedBuf) -> Result<(), IoError> {
        transfer(buffer.len(), |done_bytes| {
            write_once(self.drive.file(), offset_bytes + done_bytes as u64, &buffer[done_bytes..])
        })
    }

    fn sync(&mut self) -> Result<(), IoError> {
        self.drive.file().sync_data().map_err(|error| IoError(Errno::from_io(&error).0))
    }

    fn read_many(&mut self, reads: &mut [DeviceRead]) {
        let drive = self.drive;
        let read_all = move |reads: &mut [DeviceRead]| {
            for read in reads {
                read.result = SyncDevice { drive }.read(read.offset_bytes, &mut read.buffer);
            }
        };
        if reads.len() == 1 {
            return read_all(reads);
        }
        for read in reads.iter_mut() {
            read.result = Err(IoError(libc::EAGAIN));
        }
        let each = reads.len().div_ceil(READ_THREADS).max(1);
        std::thread::scope(|scope| {
            for part in reads.chunks_mut(each) {
                // Without a thread they are left as they are: read later, or not at all.
                let _ = std::thread::Builder::new()
                    .name("reader".into())
                    .spawn_scoped(scope, move || read_all(part));
            }
        });
    }
}

/// Repeats `part` until `length_bytes` are moved; nothing moved is an error.
fn transfer(length_bytes: usize, mut part: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), IoError> {
    let mut done_bytes = 0;
    while done_bytes < length_bytes {
        match part(done_bytes) {
            // Direct I/O goes on at a sector; what is behind the last whole one is moved again.
            Ok(moved_bytes) if moved_bytes == length_bytes - done_bytes => return Ok(()),
            Ok(moved_bytes) if moved_bytes >= coquina_base::SECTOR_BYTES => {
                done_bytes += moved_bytes / coquina_base::SECTOR_BYTES * coquina_base::SECTOR_BYTES;
            }
            Ok(_) => return Err(IoError(libc::EIO)),
            Err(Errno(libc::EINTR)) => {}
            Err(Errno(errno)) => return Err(IoError(errno)),
        }
    }
    Ok(())
}

pub(crate) fn read_once(file: &File, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let offset = libc::off_t::try_from(offset_bytes).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: `buffer` is writable for its length during the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::pread(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), offset) };
    usize::try_from(result).map_err(|_| Errno::last())
}

fn write_once(file: &File, offset_bytes: u64, bytes: &[u8]) -> Result<usize, Errno> {
    let offset = libc::off_t::try_from(offset_bytes).map_err(|_| Errno(libc::EINVAL))?;
    let vector = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    // SAFETY: `vector` names readable bytes for the whole call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::pwritev2(file.as_raw_fd(), &vector, 1, offset, libc::RWF_DSYNC) };
    usize::try_from(result).map_err(|_| Errno::last())
}
