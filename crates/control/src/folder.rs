//! The folder of a server: its lock, and the file that says where it listens.
//!
//! Invariants:
//! - `lock` is held by the one server that runs on the folder, for as long as its process lives;
//! - `server.json` is only believed while `lock` is held: one left behind by a killed server is not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

const LOCK_FILE_NAME: &str = "lock";
const SERVER_FILE_NAME: &str = "server.json";
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// How often a folder is taken anew that others took away meanwhile.
const TAKE_ATTEMPTS: u32 = 10;

/// Why a folder could not be taken, or its server not be found.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A server runs on it.
    #[error("a server{} already runs on {}; stop it first, or give another folder with --dir", with_process(*process), folder.display())]
    Running {
        /// The folder.
        folder: PathBuf,
        /// The server's process, if known.
        process: Option<u32>,
    },
    /// No server runs on it.
    #[error("no server runs on {0}; start one with `coquina up --dir {0}`", folder.display())]
    NotRunning {
        /// The folder.
        folder: PathBuf,
    },
    /// The server on it has not said yet where it listens.
    #[error("the server{} on {} is still starting; try again in a moment", with_process(*process), folder.display())]
    Starting {
        /// The folder.
        folder: PathBuf,
        /// The server's process, if known.
        process: Option<u32>,
    },
    /// The path is not a folder.
    #[error("{} is not a folder; give a folder with --dir", folder.display())]
    NotAFolder {
        /// The path.
        folder: PathBuf,
    },
    /// Files could not be made, read or written.
    #[error("cannot {doing} {}: {source}{}", path.display(), advice(doing, source))]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

fn with_process(process: Option<u32>) -> String {
    process.map(|process| format!(" (process {process})")).unwrap_or_default()
}

fn advice(doing: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "; free some space, or give a folder on another file system with --dir",
        _ if matches!(doing, "read" | "understand" | "encode") => "",
        _ => "; give a folder that can be written with --dir",
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Io { doing, path, source }
}

/// Reads a file of a folder. `None` if there is none.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, FolderError> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| io_error("understand", path)(io::Error::other(error))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", path)(error)),
    }
}

/// Replaces a file of a folder, durably and as a whole. Makes the folder if it is missing.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), FolderError> {
    let encoded = serde_json::to_vec_pretty(value)
        .map_err(|error| io_error("encode", path)(io::Error::other(error)))?;
    let temporary = path.with_extension("new.json");
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(io_error("make", folder))?;
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(&encoded)?;
        file.sync_all()
    };
    write().map_err(io_error("write", &temporary))?;
    fs::rename(&temporary, path).map_err(io_error("replace", path))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error("sync", folder))
}

/// Holds a folder for one server. Released when dropped, or by the kernel when the process ends.
#[derive(Debug)]
pub struct FolderLock {
    folder: PathBuf,
    file: File,
    /// The folder was made for it.
    is_new: bool,
}

impl Drop for FolderLock {
    /// A folder that was made for it, and in which nothing came to be, as at a start that is refused, goes with it.
    fn drop(&mut self) {
        let is_empty = || fs::read_dir(&self.folder).is_ok_and(|entries| entries.count() == 1);
        if self.is_new && !is_removed(&self.file) && is_empty() {
            // What stays harms nobody.
            let _ =
                fs::remove_file(self.folder.join(LOCK_FILE_NAME)).and_then(|()| fs::remove_dir(&self.folder));
        }
    }
}

/// Makes a folder with those above it. Whether it was not there before.
fn make_folder(folder: &Path) -> Result<bool, FolderError> {
    if let Some(parent) = folder.parent()
        && let Err(error) = fs::create_dir_all(parent)
        // What is there and is no folder is told by what comes next.
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(io_error("make", folder)(error));
    }
    match fs::create_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::metadata(folder) {
            Ok(metadata) if !metadata.is_dir() => Err(FolderError::NotAFolder { folder: folder.to_owned() }),
            // Or gone again, which who opens a file in it finds.
            _ => Ok(false),
        },
        Err(error) => Err(io_error("make", folder)(error)),
    }
}

/// Whether an open file has no name any more. What cannot be told has one.
fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

impl FolderLock {
    /// Makes the folder if it is missing, and takes it.
    pub fn acquire(folder: &Path) -> Result<FolderLock, FolderError> {
        FolderLock::take(folder, TAKE_ATTEMPTS)
    }

    /// Begins anew as often as said if the folder is taken away meanwhile, as by a start that is refused.
    fn take(folder: &Path, attempts_left: u32) -> Result<FolderLock, FolderError> {
        let is_new = make_folder(folder)?;
        let path = folder.join(LOCK_FILE_NAME);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempts_left > 0 => {
                return FolderLock::take(folder, attempts_left - 1);
            }
            Err(error) => return Err(io_error("open", &path)(error)),
        };
        if !lock_exclusive(&file).map_err(io_error("lock", &path))? {
            let process = read_process(&mut file);
            return Err(FolderError::Running { folder: folder.to_owned(), process });
        }
        // Who held it has taken the folder away again: others would not meet this lock.
        if is_removed(&file) {
            return match attempts_left {
                0 => Err(FolderError::Running { folder: folder.to_owned(), process: None }),
                left => FolderLock::take(folder, left - 1),
            };
        }
        let write = |file: &mut File| -> io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(io_error("write", &path))?;
        let lock = FolderLock { folder: folder.to_owned(), file, is_new };
        lock.withdraw()?;
        Ok(lock)
    }

    /// Says where the server listens.
    pub fn announce(&self, server: &ServerFile) -> Result<(), FolderError> {
        let path = self.folder.join(SERVER_FILE_NAME);
        let temporary = self.folder.join("server.new.json");
        let encoded = serde_json::to_vec_pretty(server)
            .map_err(|error| io_error("encode", &path)(io::Error::other(error)))?;
        fs::write(&temporary, encoded).map_err(io_error("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(io_error("replace", &path))
    }

    /// Takes back what was said, before a clean stop.
    pub fn withdraw(&self) -> Result<(), FolderError> {
        let path = self.folder.join(SERVER_FILE_NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &path)(error)),
            _ => Ok(()),
        }
    }
}

/// Takes the lock, or says that a server has it. Tried for a moment, since somebody who only looks whether a
/// server runs holds the lock for an instant too.
fn lock_exclusive(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_ATTEMPTS {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn read_process(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Where the server of a folder listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFile {
    /// Version of the server.
    pub version: String,
    /// The server's process.
    pub process: u32,
    /// Address of the REST interface and the metrics, such as `127.0.0.1:10810`.
    pub http: String,
    /// Addresses of the NBD server: `HOST:PORT` or `unix:PATH`.
    pub nbd: Vec<String>,
    /// Address of the native protocol.
    pub native: String,
}

/// Finds the server that runs on a folder.
pub fn running_server(folder: &Path) -> Result<ServerFile, FolderError> {
    let not_running = || FolderError::NotRunning { folder: folder.to_owned() };
    let lock_path = folder.join(LOCK_FILE_NAME);
    let mut lock = match File::open(&lock_path) {
        Ok(lock) => lock,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(not_running());
        }
        Err(error) => return Err(io_error("open", &lock_path)(error)),
    };
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return Err(not_running());
    }
    let path = folder.join(SERVER_FILE_NAME);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| io_error("understand", &path)(io::Error::other(error))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(FolderError::Starting { folder: folder.to_owned(), process: read_process(&mut lock) })
        }
        Err(error) => Err(io_error("read", &path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_refused_and_a_dead_one_not_believed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("data");
        assert!(matches!(running_server(&folder), Err(FolderError::NotRunning { .. })));
        let lock = FolderLock::acquire(&folder).unwrap();
        assert!(matches!(running_server(&folder), Err(FolderError::Starting { process: Some(_), .. })));
        let error = FolderLock::acquire(&folder).unwrap_err();
        assert!(
            matches!(error, FolderError::Running { process: Some(process), .. } if process == std::process::id())
        );
        assert!(error.to_string().contains("already runs"));

        let server = ServerFile {
            version: "1".to_owned(),
            process: std::process::id(),
            http: "127.0.0.1:1".to_owned(),
            nbd: vec!["127.0.0.1:2".to_owned(), "unix:/x".to_owned()],
            native: "127.0.0.1:3".to_owned(),
        };
        lock.announce(&server).unwrap();
        assert_eq!(running_server(&folder).unwrap(), server);
        drop(lock);
        let error = running_server(&folder).unwrap_err();
        assert!(error.to_string().contains("start one with `coquina up --dir"));

        let lock = FolderLock::acquire(&folder).unwrap();
        assert!(!folder.join(SERVER_FILE_NAME).exists());
        lock.withdraw().unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told_with_what_to_do() {
        let error = FolderLock::acquire(Path::new("/proc/nope")).unwrap_err().to_string();
        assert!(error.contains("/proc/nope") && error.contains("can be written with --dir"), "{error}");
    }

    #[test]
    fn a_folder_that_was_made_for_nothing_goes_again_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("data");
        drop(FolderLock::acquire(&folder).unwrap());
        assert!(!folder.exists());
        let lock = FolderLock::acquire(&folder).unwrap();
        fs::write(folder.join("drive0"), "x").unwrap();
        drop(lock);
        assert!(folder.join("drive0").exists());
        fs::remove_file(folder.join("drive0")).unwrap();
        drop(FolderLock::acquire(&folder).unwrap());
        assert!(folder.exists(), "it was there before");
        // A lock that was taken away with its folder is none.
        fs::remove_dir_all(&folder).unwrap();
        let lock = FolderLock::acquire(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let next = FolderLock::acquire(&folder).unwrap();
        drop(lock);
        assert!(matches!(FolderLock::acquire(&folder), Err(FolderError::Running { .. })));
        drop(next);
        assert!(!folder.exists());
    }

    #[test]
    fn who_waits_for_a_lock_that_goes_with_its_folder_gets_one_that_others_meet() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("data");
        let lock = FolderLock::acquire(&folder).unwrap();
        let next = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                loop {
                    match FolderLock::acquire(&folder) {
                        // This thread may have been faster than a busy machine lets the other one be.
                        Err(FolderError::Running { .. }) => {}
                        taken => return taken,
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(50));
            drop(lock);
            waiter.join().unwrap().unwrap()
        });
        assert!(matches!(FolderLock::acquire(&folder), Err(FolderError::Running { .. })));
        drop(next);
        assert!(!folder.exists());
    }

    #[test]
    fn a_folder_that_is_never_there_is_not_tried_for_ever() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("data");
        std::os::unix::fs::symlink(parent.path().join("gone"), &folder).unwrap();
        let error = FolderLock::acquire(&folder).unwrap_err();
        assert!(matches!(error, FolderError::Io { doing: "open", .. }), "{error}");
    }

    #[test]
    fn a_file_is_not_a_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(FolderLock::acquire(file.path()), Err(FolderError::NotAFolder { .. })));
        assert!(matches!(running_server(file.path()), Err(FolderError::NotRunning { .. })));
    }
}
