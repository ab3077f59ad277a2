//! Whether a file or device is named twice: two loads on one drive would measure each other, and overwrite each other's data.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a path leads to, whatever it is called.
#[derive(Debug, PartialEq, Eq)]
enum Thing {
    /// A file that is there, by file system and number.
    File(u64, u64),
    /// A file to be made, by its path without links.
    New(PathBuf),
    /// A block device, by its folder in sysfs. The folder of a partition lies in that of its device.
    Device(PathBuf),
}

impl Thing {
    fn at(path: &Path) -> Thing {
        let Ok(metadata) = std::fs::metadata(path) else {
            let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
            let new = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
            return Thing::New(new.unwrap_or_else(|| path.to_owned()));
        };
        if !metadata.file_type().is_block_device() {
            return Thing::File(metadata.dev(), metadata.ino());
        }
        let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        let node = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        Thing::Device(node.canonicalize().unwrap_or(node))
    }

    fn overlaps(&self, other: &Thing) -> bool {
        match (self, other) {
            (Thing::Device(one), Thing::Device(other)) => one.starts_with(other) || other.starts_with(one),
            _ => self == other,
        }
    }
}

/// Places of the first two of these paths that lead to the same bytes, if any do: equal, linked, or a device and its partition.
pub fn find(paths: &[&Path]) -> Option<(usize, usize)> {
    let things: Vec<Thing> = paths.iter().map(|path| Thing::at(path)).collect();
    (0..paths.len()).find_map(|later| {
        let earlier = (0..later).find(|earlier| things[*earlier].overlaps(&things[later]))?;
        Some((earlier, later))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_by_several_names_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "data").unwrap();
        std::fs::write(at("b"), "data").unwrap();
        std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
        std::fs::hard_link(at("a"), at("hard")).unwrap();
        std::os::unix::fs::symlink(folder.path(), at("folder")).unwrap();
        for (one, other, is_same) in [
            ("a", "a", true),
            ("a", "link", true),
            ("a", "hard", true),
            ("a", "folder/a", true),
            ("new", "folder/new", true),
            ("a", "b", false),
            ("new", "newer", false),
            ("a", "new", false),
        ] {
            let (one, other) = (at(one), at(other));
            assert_eq!(find(&[&one, &other]).is_some(), is_same, "{} {}", one.display(), other.display());
        }
    }

    #[test]
    fn a_device_overlaps_its_partitions() {
        let device = |path: &str| Thing::Device(PathBuf::from(path));
        let whole = device("/sys/devices/pci/block/sda");
        assert!(whole.overlaps(&device("/sys/devices/pci/block/sda/sda1")));
        assert!(!whole.overlaps(&device("/sys/devices/pci/block/sdaa")));
        assert!(
            !device("/sys/devices/pci/block/sda/sda1").overlaps(&device("/sys/devices/pci/block/sda/sda2"))
        );
    }
}
