//! Where the embedded store's bytes lie: a folder, or memory only.
//!
//! Invariants:
//! - the file under its name is always complete up to a torn last record: it is replaced by a rename of a synced
//!   file, with each start, too, and otherwise only grows;
//! - the file from before the last replacement is kept beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use coquina_base::format_size_bytes;

use crate::error::StoreError;

/// Name of the file in its folder.
const FILE_NAME: &str = "store.log";
const PREVIOUS_NAME: &str = "store.previous.log";
const LOCK_NAME: &str = "store.lock";
/// Larger files are refused before they are read into memory, and never written.
const FILE_BYTES_MAX: u64 = 1 << 30;

const LOCK_ATTEMPTS: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The seam for faults: all that the embedded store does to its file.
pub(super) trait Medium: Send {
    /// The content, or `None` if nothing was ever there. It need not be durable: it has to be put in place anew before anything
    /// is added.
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError>;
    /// Refuses a length with which the content could not be loaded again.
    fn check_length(&self, bytes: usize) -> Result<(), StoreError>;
    /// Adds bytes; durable when it returns.
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    /// Writes new content beside the present one; nothing has changed if it fails.
    fn prepare(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    /// Puts the content that was prepared in place; durable when it returns.
    fn publish(&mut self) -> Result<(), StoreError>;
    /// Its name, for messages.
    fn name(&self) -> String;
    /// The name of the copy from before the last replacement, if there is one.
    fn previous(&self) -> Option<String>;
}

/// A folder of this process alone.
pub(super) struct FolderMedium {
    folder: PathBuf,
    file: Option<File>,
    prepared: Option<File>,
    _lock: File,
}

/// Takes the lock, or says that another process has it. Tried for a moment: a process that is being started by the
/// one that had it holds it too, until it runs its own program.
fn lock_exclusive(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Whether a folder has a file.
pub(super) fn is_in(folder: &Path) -> bool {
    folder.join(FILE_NAME).exists()
}

/// Makes a folder with those above it, so that it is there after a power cut.
fn make_folder(folder: &Path) -> Result<(), StoreError> {
    let absolute = std::path::absolute(folder).map_err(StoreError::io("make", folder))?;
    let made: Vec<&Path> = absolute.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(&absolute).map_err(StoreError::io("make", folder))?;
    made.iter().filter_map(|folder| folder.parent()).try_for_each(sync_folder)
}

fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(StoreError::io("sync", folder))
}

impl FolderMedium {
    pub(super) fn open(folder: &Path) -> Result<Self, StoreError> {
        make_folder(folder)?;
        let path = folder.join(LOCK_NAME);
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        if !lock_exclusive(&lock).map_err(StoreError::io("lock", &path))? {
            return Err(StoreError::InUse { path: folder.display().to_string() });
        }
        Ok(FolderMedium { folder: folder.to_owned(), file: None, prepared: None, _lock: lock })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    fn previous_path(&self) -> PathBuf {
        self.folder.join(PREVIOUS_NAME)
    }

    fn new_path(&self) -> PathBuf {
        self.folder.join("store.new.log")
    }

    fn staging_path(&self) -> PathBuf {
        self.folder.join("store.old.log")
    }

    fn opened(&mut self) -> Result<(&mut File, PathBuf), StoreError> {
        let path = self.path();
        match &mut self.file {
            Some(file) => Ok((file, path)),
            None => Err(StoreError::io("write", &path)(io::Error::other("it is not open"))),
        }
    }

    /// Writes new content beside the present one.
    fn write_new(&self, bytes: &[u8]) -> Result<File, StoreError> {
        let path = self.new_path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", &path)(error));
            }
            _ => {}
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(&path)
            .map_err(StoreError::io("write", &path))?;
        file.write_all(bytes).map_err(StoreError::io("write", &path))?;
        file.sync_all().map_err(StoreError::io("sync", &path))?;
        Ok(file)
    }

    /// Gives the present content its second name, with no moment at which the first one is missing.
    fn keep_previous(&self) -> Result<(), StoreError> {
        let (path, staging) = (self.path(), self.staging_path());
        match fs::remove_file(&staging) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", &staging)(error));
            }
            _ => {}
        }
        match fs::hard_link(&path, &staging) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => {
                // Some file systems have no hard links.
                fs::copy(&path, &staging).map_err(StoreError::io("copy", &path))?;
            }
        }
        let previous = self.previous_path();
        fs::rename(&staging, &previous).map_err(StoreError::io("replace", &previous))
    }
}

impl Medium for FolderMedium {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match self.previous() {
                    None => Ok(None),
                    previous => Err(StoreError::Damaged {
                        path: self.name(),
                        reason: "it is missing".to_owned(),
                        previous,
                    }),
                };
            }
            Err(error) => return Err(StoreError::io("open", &path)(error)),
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(StoreError::io("read", &path))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let reason = "it is longer than any store".to_owned();
            return Err(StoreError::Damaged { path: self.name(), reason, previous: self.previous() });
        }
        Ok(Some(bytes))
    }

    fn check_length(&self, bytes: usize) -> Result<(), StoreError> {
        if bytes as u64 <= FILE_BYTES_MAX {
            return Ok(());
        }
        let reason = format!(
            "it would have {}, and {} are possible",
            format_size_bytes(bytes as u64),
            format_size_bytes(FILE_BYTES_MAX)
        );
        Err(StoreError::io("write", &self.path())(io::Error::other(reason)))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let (file, path) = self.opened()?;
        file.write_all(bytes).map_err(StoreError::io("write", &path))?;
        file.sync_data().map_err(StoreError::io("sync", &path))
    }

    fn prepare(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.check_length(bytes.len())?;
        let prepared = self.write_new(bytes).and_then(|file| self.keep_previous().map(|()| file));
        if prepared.is_err() {
            // What was written of it may have taken the last room on its file system, which the present file needs to grow.
            let _ = fs::remove_file(self.new_path());
            let _ = fs::remove_file(self.staging_path());
        }
        self.prepared = Some(prepared?);
        Ok(())
    }

    fn publish(&mut self) -> Result<(), StoreError> {
        let path = self.path();
        fs::rename(self.new_path(), &path).map_err(StoreError::io("replace", &path))?;
        sync_folder(&self.folder)?;
        self.file = self.prepared.take();
        Ok(())
    }

    fn name(&self) -> String {
        self.path().display().to_string()
    }

    fn previous(&self) -> Option<String> {
        let path = self.previous_path();
        path.exists().then(|| path.display().to_string())
    }
}

/// Nothing is kept: for tests and trials.
#[derive(Default)]
pub(super) struct NoMedium;

impl Medium for NoMedium {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    fn check_length(&self, _: usize) -> Result<(), StoreError> {
        Ok(())
    }

    fn append(&mut self, _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn prepare(&mut self, _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn publish(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn previous(&self) -> Option<String> {
        None
    }
}
