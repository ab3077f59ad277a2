//! Whether a file or device is named twice: two loads on one drive would measure each other, and overwrite each other's data.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::device_use;

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

    /// Whether both are partitions of one device.
    fn is_beside(&self, other: &Thing) -> bool {
        match (self, other) {
            (Thing::Device(one), Thing::Device(other)) => {
                let device = one.parent().filter(|parent| parent.file_name() != Some("block".as_ref()));
                one != other && device.is_some() && device == other.parent()
            }
            _ => false,
        }
    }

    fn overlaps(&self, other: &Thing) -> bool {
        match (self, other) {
            (Thing::Device(one), Thing::Device(other)) => one.starts_with(other) || other.starts_with(one),
            _ => self == other,
        }
    }
}

/// What a path leads to, and if that is a loop device, or a part of one, what is behind it.
#[derive(Debug)]
struct Place {
    thing: Thing,
    behind: Option<Thing>,
}

impl Place {
    fn at(path: &Path) -> Place {
        let metadata = std::fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_block_device());
        let file = metadata.and_then(|metadata| {
            device_use::behind(libc::major(metadata.rdev()), libc::minor(metadata.rdev()))
        });
        Place { thing: Thing::at(path), behind: file.map(|file| Thing::at(&file)) }
    }

    fn overlaps(&self, other: &Place) -> bool {
        let leads_to = |one: &Place, other: &Place| {
            one.behind.as_ref().is_some_and(|behind| behind.overlaps(&other.thing))
        };
        self.thing.overlaps(&other.thing)
            || leads_to(self, other)
            || leads_to(other, self)
            || (self.behind.is_some() && self.behind == other.behind && !self.thing.is_beside(&other.thing))
    }
}

/// Places of the first two of these paths that lead to the same bytes, if any do: equal, linked, a device and its partition,
/// or a loop device and what is behind it.
pub fn find(paths: &[&Path]) -> Option<(usize, usize)> {
    let places: Vec<Place> = paths.iter().map(|path| Place::at(path)).collect();
    (0..paths.len()).find_map(|later| {
        let earlier = (0..later).find(|earlier| places[*earlier].overlaps(&places[later]))?;
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
    fn a_loop_device_overlaps_what_is_behind_it() {
        let device = |path: &str| Thing::Device(PathBuf::from(path));
        let on = |path: &str, file: u64| Place { thing: device(path), behind: Some(Thing::File(1, file)) };
        let file = |number: u64| Place { thing: Thing::File(1, number), behind: None };
        let whole = on("/sys/devices/virtual/block/loop0", 7);
        let (first, second) = (
            on("/sys/devices/virtual/block/loop0/loop0p1", 7),
            on("/sys/devices/virtual/block/loop0/loop0p2", 7),
        );
        assert!(whole.overlaps(&file(7)) && file(7).overlaps(&whole) && file(7).overlaps(&second));
        assert!(!whole.overlaps(&file(8)));
        assert!(whole.overlaps(&first) && !first.overlaps(&second));
        assert!(
            first.overlaps(&on("/sys/devices/virtual/block/loop1/loop1p1", 7)),
            "another device on one file"
        );
        assert!(whole.overlaps(&on("/sys/devices/virtual/block/loop1", 7)));
        assert!(!whole.overlaps(&on("/sys/devices/virtual/block/loop1", 8)));
        let on_device = Place { thing: device("/sys/b/loop2"), behind: Some(device("/sys/b/sda/sda1")) };
        let disk = Place { thing: device("/sys/b/sda"), behind: None };
        assert!(on_device.overlaps(&disk) && disk.overlaps(&on_device));
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
