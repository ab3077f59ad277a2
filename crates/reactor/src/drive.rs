//! Opening a drive, which is a regular file or a block device: direct I/O, locked against other processes.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use coquina_base::{AlignedBuf, BLOCK_BYTES};

use crate::error::{DriveProblem, Errno, ReactorError};

/// How a drive is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriveOptions {
    /// Make a file of this size if there is none; an existing file that is smaller grows to it.
    pub create_bytes: Option<u64>,
    /// Fail if the file exists already.
    pub create_new: bool,
    /// Only read, and lock against writers only.
    pub read_only: bool,
}

/// An open, locked drive.
#[derive(Debug)]
pub struct DriveFile {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    is_block_device: bool,
}

impl DriveFile {
    /// Opens and locks the drive. The lock goes with the last handle of the file.
    pub fn open(path: &Path, options: DriveOptions) -> Result<DriveFile, ReactorError> {
        Self::try_open(path, options)
            .map_err(|problem| ReactorError::Drive { path: path.to_owned(), problem })
    }

    fn try_open(path: &Path, options: DriveOptions) -> Result<DriveFile, DriveProblem> {
        let kind = std::fs::metadata(path).ok().map(|metadata| metadata.file_type());
        let is_block_device = kind.is_some_and(|kind| kind.is_block_device());
        match kind {
            Some(kind) if kind.is_dir() => return Err(DriveProblem::Directory),
            Some(kind) if !kind.is_file() && !is_block_device => return Err(DriveProblem::Kind),
            Some(_) if options.create_new => return Err(DriveProblem::Exists),
            _ => {}
        }
        let mut flags = libc::O_DIRECT | libc::O_CLOEXEC;
        if is_block_device && !options.read_only {
            // Refused by the kernel with EBUSY if the device is mounted or held.
            flags |= libc::O_EXCL;
        }
        let opened = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(options.create_bytes.is_some() && !is_block_device)
            .create_new(options.create_new)
            .custom_flags(flags)
            .open(path);
        let file = opened.map_err(|error| {
            let problem = explain(&error, path);
            // A file system without direct I/O refuses a file that it has made; one that others have made is refused as that.
            if options.create_new && matches!(problem, DriveProblem::NoDirectIo) {
                remove_made(path);
            }
            problem
        })?;
        lock(&file, options.read_only)?;
        let drive = DriveFile { file, path: path.to_owned(), size_bytes: 0, is_block_device };
        let checked = drive.find_size(options).and_then(|size_bytes| {
            let drive = DriveFile { size_bytes, ..drive };
            drive.check_direct()?;
            Ok(drive)
        });
        if checked.is_err() && options.create_new {
            remove_made(path);
        }
        checked
    }

    fn find_size(&self, options: DriveOptions) -> Result<u64, DriveProblem> {
        if self.is_block_device {
            return block_device_bytes(&self.file);
        }
        let metadata = self.file.metadata().map_err(|error| other("reading its size", &error))?;
        let wanted_bytes = options.create_bytes.unwrap_or(0);
        if options.read_only || metadata.len() >= wanted_bytes {
            return Ok(metadata.len());
        }
        self.file.set_len(wanted_bytes).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EFBIG) => DriveProblem::NoSpace { bytes: wanted_bytes },
            _ => other("setting its size", &error),
        })?;
        self.file.sync_all().map_err(|error| other("syncing it", &error))?;
        sync_folder(&self.path)?;
        Ok(wanted_bytes)
    }

    /// Some file systems accept the flag and fail the first I/O.
    fn check_direct(&self) -> Result<(), DriveProblem> {
        if self.size_bytes < BLOCK_BYTES as u64 {
            return Ok(());
        }
        let mut buffer = AlignedBuf::zeroed(1);
        match crate::device::read_once(&self.file, 0, &mut buffer) {
            Ok(_) => Ok(()),
            Err(Errno(libc::EINVAL)) => Err(DriveProblem::NoDirectIo),
            // A bad first block is for the superblock's reader to report.
            Err(_) => Ok(()),
        }
    }

    /// Size in bytes when it was opened.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether it is a block device, which needs no writing ahead.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Its path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A second handle of the open, locked file, for a reactor.
    pub fn try_clone_descriptor(&self) -> Result<OwnedFd, ReactorError> {
        self.file.try_clone().map(OwnedFd::from).map_err(|error| ReactorError::Drive {
            path: self.path.clone(),
            problem: other("duplicating its handle", &error),
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

fn other(doing: &'static str, error: &std::io::Error) -> DriveProblem {
    DriveProblem::Other { doing, errno: Errno::from_io(error) }
}

fn explain(error: &std::io::Error, path: &Path) -> DriveProblem {
    match error.raw_os_error() {
        Some(libc::ENOENT) => DriveProblem::NotFound,
        Some(libc::EEXIST) => DriveProblem::Exists,
        Some(libc::EACCES | libc::EPERM) => DriveProblem::Permission,
        Some(libc::EROFS) => DriveProblem::ReadOnly,
        Some(libc::EISDIR) => DriveProblem::Directory,
        Some(libc::EBUSY) => DriveProblem::Busy,
        Some(libc::EINVAL) if path.exists() => DriveProblem::NoDirectIo,
        _ => other("opening it", error),
    }
}

fn lock(file: &File, shared: bool) -> Result<(), DriveProblem> {
    let kind = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    // SAFETY: plain system call on an open file.
    #[allow(unsafe_code)]
    let result = unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) };
    if result == 0 {
        return Ok(());
    }
    match Errno::last() {
        Errno(libc::EWOULDBLOCK) => Err(DriveProblem::Locked),
        errno => Err(DriveProblem::Other { doing: "locking it", errno }),
    }
}

fn block_device_bytes(file: &File) -> Result<u64, DriveProblem> {
    /// `BLKGETSIZE64`: `_IOR(0x12, 114, size_t)`.
    const BLKGETSIZE64: libc::Ioctl = 0x8008_1272u32 as libc::Ioctl;
    let mut bytes = 0u64;
    // SAFETY: the request writes 8 bytes to `bytes`.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &mut bytes) };
    if result < 0 {
        return Err(DriveProblem::Other { doing: "reading the device's size", errno: Errno::last() });
    }
    Ok(bytes)
}

/// Removes a file that was made here and cannot be used: it would be in the way of the next attempt.
fn remove_made(path: &Path) {
    // Nothing was in it; if it stays, whoever tries again is told of it.
    let _ = std::fs::remove_file(path);
}

/// Makes a new file's name durable.
fn sync_folder(path: &Path) -> Result<(), DriveProblem> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| other("syncing its folder", &error))
}
