//! The demo's temporary folder: on a disk, with enough room, and always removed.

use std::path::{Path, PathBuf};

use coquina_base::format_size_bytes;
use tempfile::TempDir;

use crate::error::CliError;

/// `f_type` of file systems in memory, which say nothing about a disk.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
/// Left free beside what the demo needs.
const SPARE_BYTES: u64 = 256 << 20;

/// Removed when dropped; [`remove`](Self::remove) also reports that this failed.
pub struct DemoFolder {
    folder: TempDir,
}

impl DemoFolder {
    /// Makes it in `parent`, or in the system's temporary folder, or in the current one.
    pub fn make(parent: Option<&Path>, needed_bytes: u64) -> Result<DemoFolder, CliError> {
        if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
            return Err(CliError::failed(format!(
                "the folder {} does not exist; make it, or give another one with --folder",
                parent.display()
            )));
        }
        let needed_bytes = needed_bytes + SPARE_BYTES;
        let candidates = match parent {
            Some(parent) => vec![parent.to_owned()],
            None => vec![std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from(".")],
        };
        let suits = |folder: &PathBuf| {
            (parent.is_some() || is_on_disk(folder))
                && free_bytes(folder).is_some_and(|free| free >= needed_bytes)
        };
        let chosen = candidates.iter().find(|folder| suits(folder)).ok_or_else(|| {
            let tried: Vec<_> = candidates.iter().map(|folder| folder.display().to_string()).collect();
            CliError::failed(format!(
                "the demo needs a folder on a disk with {} free, and found none ({}); give one with --folder",
                format_size_bytes(needed_bytes),
                tried.join(", ")
            ))
        })?;
        let folder = tempfile::Builder::new()
            .prefix("coquina-demo-")
            .tempdir_in(chosen)
            .map_err(|error| CliError::io("make a temporary folder in", chosen, &error))?;
        Ok(DemoFolder { folder })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes it.
    pub fn remove(self) -> Result<(), CliError> {
        let path = self.path().to_owned();
        self.folder.close().map_err(|error| CliError::io("remove", &path, &error))
    }
}

fn is_on_disk(folder: &Path) -> bool {
    let kind = rustix::fs::statfs(folder).map(|stat| stat.f_type as u64 & 0xffff_ffff);
    kind.is_ok_and(|kind| kind != TMPFS_MAGIC && kind != RAMFS_MAGIC)
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
