//! The state file: one line of JSON that says format, length and checksum, then the content in JSON.
//!
//! ```text
//! {"coquina_state":1,"bytes":1234,"crc32c":"89abcdef"}\n
//! { ... content ... }\n
//! ```
//!
//! Invariants:
//! - the file under its name is always complete: it is replaced by a rename of a synced file;
//! - the content before the last change is kept beside it;
//! - a file that was changed by a single bit is refused, not read differently.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use coquina_base::crc32c_bytes;
use serde::{Deserialize, Serialize};

use crate::coordinator::CoordinatorError;

/// The newest format that this build writes and reads.
pub(crate) const STATE_FORMAT: u64 = 1;
/// Larger files are refused before they are read into memory.
const STATE_BYTES_MAX: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Header {
    coquina_state: u64,
    bytes: u64,
    crc32c: String,
}

/// Only the format: a newer one may have other fields.
#[derive(Deserialize)]
struct AnyHeader {
    coquina_state: u64,
}

/// Where a state file and its earlier copy lie.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
}

impl StateFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        StateFile { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn previous(&self) -> PathBuf {
        self.path.with_extension("previous.json")
    }

    fn temporary(&self) -> PathBuf {
        self.path.with_extension("new.json")
    }

    fn io_error(&self, doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CoordinatorError {
        let path = path.to_owned();
        move |source| CoordinatorError::Io { doing, path, source }
    }

    pub(crate) fn damaged(&self, reason: impl Into<String>) -> CoordinatorError {
        let previous = Some(self.previous()).filter(|path| path.exists());
        CoordinatorError::Damaged { path: self.path.clone(), reason: reason.into(), previous }
    }

    /// The content, or `None` if there is no file and none was ever there.
    pub(crate) fn load<T: for<'de> Deserialize<'de>>(&self) -> Result<Option<T>, CoordinatorError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return if self.previous().exists() { Err(self.damaged("it is missing")) } else { Ok(None) };
            }
            Err(error) => return Err(self.io_error("open", &self.path)(error)),
        };
        let mut bytes = Vec::new();
        file.take(STATE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(self.io_error("read", &self.path))?;
        if bytes.len() as u64 > STATE_BYTES_MAX {
            return Err(self.damaged("it is longer than any state"));
        }
        self.decode(&bytes).map(Some)
    }

    fn decode<T: for<'de> Deserialize<'de>>(&self, bytes: &[u8]) -> Result<T, CoordinatorError> {
        let line_end = bytes.iter().position(|byte| *byte == b'\n');
        let line_end = line_end.ok_or_else(|| self.damaged("its first line has no end"))?;
        let (line, content) = (&bytes[..line_end], &bytes[line_end + 1..]);
        let any: AnyHeader = serde_json::from_slice(line)
            .map_err(|error| self.damaged(format!("its first line cannot be read: {error}")))?;
        if any.coquina_state > STATE_FORMAT {
            return Err(CoordinatorError::NewerFormat {
                path: self.path.clone(),
                found: any.coquina_state,
                newest: STATE_FORMAT,
            });
        }
        let header: Header = serde_json::from_slice(line)
            .map_err(|error| self.damaged(format!("its first line cannot be read: {error}")))?;
        if encode_header(&header).as_bytes() != line || header.coquina_state == 0 {
            return Err(self.damaged("its first line is not as it was written"));
        }
        if header.bytes != content.len() as u64 {
            return Err(self.damaged(format!(
                "it holds {} bytes instead of {}",
                content.len(),
                header.bytes
            )));
        }
        if header.crc32c != checksum_text(content) {
            return Err(self.damaged("its checksum does not match"));
        }
        serde_json::from_slice(content).map_err(|error| self.damaged(format!("its content: {error}")))
    }

    /// Writes new content beside the present one, which stays in force until [`publish`](Self::publish).
    pub(crate) fn prepare<T: Serialize>(&self, content: &T) -> Result<(), CoordinatorError> {
        let mut content = serde_json::to_vec(content)
            .map_err(|error| self.io_error("encode", &self.path)(io::Error::other(error)))?;
        content.push(b'\n');
        let header = Header {
            coquina_state: STATE_FORMAT,
            bytes: content.len() as u64,
            crc32c: checksum_text(&content),
        };
        let line = encode_header(&header);
        self.write_synced(&self.temporary(), &[line.as_bytes(), b"\n", &content])?;
        self.keep_previous()
    }

    /// Puts the content that was prepared in force; durable when it returns.
    ///
    /// After an error, which content survives a power cut is not known: the caller must not go on changing it.
    pub(crate) fn publish(&self) -> Result<(), CoordinatorError> {
        fs::rename(self.temporary(), &self.path).map_err(self.io_error("replace", &self.path))?;
        self.sync_folder()
    }

    fn write_synced(&self, path: &Path, parts: &[&[u8]]) -> Result<(), CoordinatorError> {
        let mut file = File::create(path).map_err(self.io_error("write", path))?;
        for part in parts {
            file.write_all(part).map_err(self.io_error("write", path))?;
        }
        file.sync_all().map_err(self.io_error("sync", path))
    }

    /// Gives the present content its second name, with no moment at which the first one is missing.
    fn keep_previous(&self) -> Result<(), CoordinatorError> {
        let staging = self.path.with_extension("old.json");
        match fs::remove_file(&staging) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.io_error("remove", &staging)(error));
            }
            _ => {}
        }
        match fs::hard_link(&self.path, &staging) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => {
                // Some file systems have no hard links.
                let bytes = fs::read(&self.path).map_err(self.io_error("read", &self.path))?;
                self.write_synced(&staging, &[&bytes])?;
            }
        }
        let previous = self.previous();
        fs::rename(&staging, &previous).map_err(self.io_error("replace", &previous))
    }

    fn sync_folder(&self) -> Result<(), CoordinatorError> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(self.io_error("sync", folder))
    }
}

fn encode_header(header: &Header) -> String {
    format!(
        "{{\"coquina_state\":{},\"bytes\":{},\"crc32c\":\"{}\"}}",
        header.coquina_state, header.bytes, header.crc32c
    )
}

fn checksum_text(content: &[u8]) -> String {
    format!("{:08x}", crc32c_bytes(content))
}
