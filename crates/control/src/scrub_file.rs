//! When the drives of a node were scrubbed last, and with what result: `scrubs.json`.
//!
//! Kept with the node, not on the drives: a drive that goes to another node counts as one that was never scrubbed.

use std::collections::BTreeMap;
use std::path::Path;

use coquina_base::DriveId;
use serde::{Deserialize, Serialize};

use crate::backend::ScrubRecord;
use crate::folder::{FolderError, read_json, write_json};

const SCRUB_FILE_NAME: &str = "scrubs.json";

/// The last scrub of each shard of each drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFile {
    drives: BTreeMap<DriveId, BTreeMap<u32, ScrubRecord>>,
}

impl ScrubFile {
    /// Reads it. Without one nothing was scrubbed yet.
    pub fn read(folder: &Path) -> Result<ScrubFile, FolderError> {
        Ok(read_json(&folder.join(SCRUB_FILE_NAME))?.unwrap_or_default())
    }

    /// Writes it durably.
    pub fn save(&self, folder: &Path) -> Result<(), FolderError> {
        write_json(&folder.join(SCRUB_FILE_NAME), self)
    }

    /// The last scrub of a shard.
    pub fn last(&self, drive: DriveId, shard: u32) -> Option<ScrubRecord> {
        self.drives.get(&drive)?.get(&shard).copied()
    }

    /// Takes note of one. Whether that is new.
    pub fn note(&mut self, drive: DriveId, shard: u32, record: ScrubRecord) -> bool {
        self.drives.entry(drive).or_default().insert(shard, record) != Some(record)
    }
}

#[cfg(test)]
mod tests {
    use coquina_base::Id128;
    use coquina_engine::ScrubReport;

    use super::*;

    #[test]
    fn what_was_noted_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (drive, other) = (DriveId(Id128([1; 16])), DriveId(Id128([2; 16])));
        let mut file = ScrubFile::read(folder.path()).unwrap();
        assert_eq!(file.last(drive, 0), None);
        let report = ScrubReport { blocks: 10, bad_blocks: 3, repaired_blocks: 2, ..Default::default() };
        let record = ScrubRecord { ended_unix_ms: 1_764_000_000_000, report };
        assert!(file.note(drive, 1, record));
        assert!(!file.note(drive, 1, record), "it is the same");
        file.save(folder.path()).unwrap();
        let again = ScrubFile::read(folder.path()).unwrap();
        assert_eq!(
            (again.last(drive, 1), again.last(drive, 0), again.last(other, 1)),
            (Some(record), None, None)
        );
    }
}
