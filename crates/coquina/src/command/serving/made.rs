//! What a start makes that was not there before, which is said, so that a start with the wrong folder is noticed.

use std::path::{Path, PathBuf};

use coquina_base::{DriveId, format_size_bytes};
use serde::Serialize;

/// What was there before a start.
#[derive(Default)]
pub struct Before {
    drives: Vec<(PathBuf, bool, Option<DriveId>)>,
}

/// What a start has made.
#[derive(Default, Serialize)]
pub struct Made {
    /// The folder of a new cluster; for JSON whether there is one.
    #[serde(rename = "made_cluster", serialize_with = "is_some", skip_serializing_if = "Option::is_none")]
    cluster: Option<Option<PathBuf>>,
    #[serde(rename = "made_drives")]
    drives: Vec<MadeDrive>,
}

#[derive(Serialize)]
struct MadeDrive {
    path: PathBuf,
    size_bytes: u64,
    /// Whether the file is new, too.
    #[serde(skip)]
    is_new: bool,
}

fn is_some<S: serde::Serializer>(value: &Option<Option<PathBuf>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(value.as_ref().is_some_and(Option::is_some))
}

impl Before {
    /// Looks at drives that are to be served.
    pub fn look<'a>(drives: impl IntoIterator<Item = &'a Path>) -> Before {
        let look = |path: &Path| (path.to_owned(), path.exists(), drive_of(path));
        Before { drives: drives.into_iter().map(look).collect() }
    }

    /// What was made since.
    pub fn made(&self) -> Made {
        let made = |(path, existed, drive): &(PathBuf, bool, Option<DriveId>)| {
            let now = coquina_node::drive::info(path).ok()?;
            let is_made = Some(now.drive) != *drive;
            is_made.then(|| MadeDrive { path: path.clone(), size_bytes: now.size_bytes, is_new: !existed })
        };
        Made { cluster: None, drives: self.drives.iter().filter_map(made).collect() }
    }

    /// Drives that were not there.
    pub fn new_files(&self) -> impl Iterator<Item = &Path> {
        self.drives.iter().filter(|(_, existed, _)| !existed).map(|(path, ..)| path.as_path())
    }

    /// Whether one that was there is another drive now than it was.
    pub fn has_formatted_others(&self) -> bool {
        let is_other = |path: &Path, drive| drive_of(path).is_some_and(|now| Some(now) != drive);
        self.drives.iter().any(|(path, existed, drive)| *existed && is_other(path, *drive))
    }
}

fn drive_of(path: &Path) -> Option<DriveId> {
    coquina_node::drive::info(path).ok().map(|info| info.drive)
}

impl Made {
    /// The same, with whether the cluster in a folder is new.
    pub fn with_cluster(self, folder: &Path, is_new: bool) -> Made {
        Made { cluster: Some(is_new.then(|| folder.to_owned())), ..self }
    }
}

/// A line for each; nothing of a restart.
impl std::fmt::Display for Made {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(Some(folder)) = &self.cluster {
            writeln!(formatter, "made a new cluster in {}", folder.display())?;
        }
        for drive in &self.drives {
            let verb = if drive.is_new { "made" } else { "formatted" };
            let size = format_size_bytes(drive.size_bytes);
            writeln!(formatter, "{verb} drive {} of {size}", drive.path.display())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(path: &Path) {
        let request = coquina_node::drive::FormatRequest {
            size_bytes: Some(64 << 20),
            shards: 1,
            segment_bytes: None,
            cluster_and_node: Default::default(),
            force: true,
        };
        coquina_node::drive::format(path, &request).unwrap();
    }

    #[test]
    fn what_a_start_makes_is_told_and_nothing_else() {
        // Beside the program: `/tmp` may be a file system without `O_DIRECT`.
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let [kept, blank, new, gone] = ["kept", "blank", "new", "gone"].map(|name| folder.path().join(name));
        format(&kept);
        std::fs::write(&blank, vec![0; 64 << 20]).unwrap();
        let all = [&kept, &blank, &new, &gone];
        let before = Before::look(all.map(PathBuf::as_path));
        format(&blank);
        format(&new);
        assert!(before.has_formatted_others(), "the blank one");
        assert_eq!(before.new_files().collect::<Vec<_>>(), [&new, &gone]);
        assert!(!Before::look([kept.as_path(), new.as_path()]).has_formatted_others());
        let made = before.made().with_cluster(folder.path(), true);
        let lines = [
            format!("made a new cluster in {}", folder.path().display()),
            format!("formatted drive {} of 64 MiB", blank.display()),
            format!("made drive {} of 64 MiB", new.display()),
        ];
        assert_eq!(made.to_string(), lines.map(|line| line + "\n").concat());
        let json = serde_json::to_value(&made).unwrap();
        assert_eq!(json["made_cluster"], true);
        assert_eq!(json["made_drives"][1]["path"], new.to_str().unwrap());
        assert_eq!(json["made_drives"][1]["size_bytes"], 64 << 20);

        let again = Before::look(all.map(PathBuf::as_path)).made().with_cluster(folder.path(), false);
        assert_eq!(again.to_string(), "");
        let json = serde_json::to_value(&again).unwrap();
        assert_eq!(json, serde_json::json!({ "made_cluster": false, "made_drives": [] }));
    }
}
