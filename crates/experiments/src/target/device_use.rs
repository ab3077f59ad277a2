//! Who uses a block device, or a part of it. The kernel refuses most of these to whoever opens it exclusively, but does not say
//! who it is, and does not count loop devices.

use std::fs::{File, TryLockError};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Who uses a device of this number or a partition of it, in words; nobody known if there are none.
pub fn users(major: u32, minor: u32) -> Vec<String> {
    users_under(Path::new("/"), major, minor)
}

/// Who uses a file as a device or as swap space, in words: writes to it would change what is theirs.
pub fn users_of_file(path: &Path) -> Vec<String> {
    users_of_file_under(Path::new("/"), path)
}

/// Whether a process has locked a file or device for itself, as a Coquina server has its drives.
pub fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // A lock that was got here goes with the file. It is shared with others who just look, or each would take the other for a user.
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn users_of_file_under(root: &Path, path: &Path) -> Vec<String> {
    let Ok(path) = path.canonicalize() else { return Vec::new() };
    let name = path.to_string_lossy();
    let swaps = std::fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    let mut swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let is_swap = swaps.any(|swap| is_same(swap, &name));
    let behind = loops(root).into_iter().filter(|(_, file)| is_same(file, &name));
    let swap = is_swap.then(|| "it is swap space".to_owned());
    behind.map(|(by, _)| format!("it is behind /dev/{by}")).chain(swap).collect()
}

/// What is behind a loop device of this number, or one whose partition it is.
pub fn behind(major: u32, minor: u32) -> Option<PathBuf> {
    let node = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    backing_file(whole(&node)).map(PathBuf::from)
}

/// The device of a partition, or the device itself.
fn whole(node: &Path) -> &Path {
    node.parent().filter(|_| node.join("partition").exists()).unwrap_or(node)
}

/// What is behind a device, if it is a loop device.
fn backing_file(device: &Path) -> Option<String> {
    let file = std::fs::read_to_string(device.join("loop/backing_file")).ok()?;
    Some(file.trim_end_matches('\n').to_owned())
}

/// Whether two paths lead to one file or device, as those of a hard link or of a folder that is mounted twice do. The kernel may show
/// the path of a file as it was when that was opened: then paths are all there is.
fn is_same(one: &str, other: &str) -> bool {
    let identity = |path: &str| {
        let metadata = std::fs::metadata(path).ok()?;
        let is_device = metadata.file_type().is_block_device();
        Some(if is_device { (None, metadata.rdev()) } else { (Some(metadata.dev()), metadata.ino()) })
    };
    one == other || identity(one).is_some_and(|one| identity(other) == Some(one))
}

fn users_under(root: &Path, major: u32, minor: u32) -> Vec<String> {
    let Ok(node) = root.join(format!("sys/dev/block/{major}:{minor}")).canonicalize() else {
        return Vec::new();
    };
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let tables =
        Tables { mounts: read("proc/self/mountinfo"), swaps: read("proc/swaps"), loops: loops(root) };
    let mut found = tables.users(&node);
    let whole = whole(&node);
    let Some(file) = backing_file(whole) else { return found };
    let name = whole.file_name().and_then(|name| name.to_str());
    // Another loop device on this file has the same bytes.
    for (other, behind) in &tables.loops {
        if name != Some(other.as_str()) && is_same(behind, &file) {
            let users = tables.users(&root.join("sys/block").join(other));
            found.extend(users.into_iter().map(|user| format!("{user} ({other} is on {file} as well)")));
        }
    }
    found
}

/// What the kernel shows of mounts, swap space and loop devices.
struct Tables {
    mounts: String,
    swaps: String,
    loops: Vec<(String, String)>,
}

impl Tables {
    /// Who uses a device, by its folder in sysfs, or a partition of it.
    fn users(&self, node: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for part in parts(node) {
            let Some(name) = part.file_name().and_then(|name| name.to_str()) else { continue };
            let number = std::fs::read_to_string(part.join("dev")).unwrap_or_default();
            let holders = entries(&part.join("holders"));
            let holders = holders.iter().filter_map(|path| path.file_name()?.to_str());
            found.extend(holders.map(|holder| format!("{name} is a part of {holder}")));
            let places = mounted_on(&self.mounts, number.trim());
            found.extend(places.map(|place| format!("{name} is mounted on {place}")));
            let device = format!("/dev/{name}");
            if self.swaps.lines().any(|line| line.split_whitespace().next() == Some(&device)) {
                found.push(format!("{name} is swap space"));
            }
            let behind = self.loops.iter().filter(|(_, file)| is_same(file, &device));
            found.extend(behind.map(|(by, _)| format!("{name} is behind {by}")));
        }
        found
    }
}

/// The device and its partitions.
fn parts(node: &Path) -> Vec<PathBuf> {
    let partitions = entries(node).into_iter().filter(|entry| entry.join("partition").exists());
    std::iter::once(node.to_owned()).chain(partitions).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = found.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Loop devices, and what is behind them.
fn loops(root: &Path) -> Vec<(String, String)> {
    let all = entries(&root.join("sys/block"));
    let loops = all.iter().filter_map(|device| {
        let file = backing_file(device)?;
        Some((device.file_name()?.to_str()?.to_owned(), file))
    });
    loops.collect()
}

/// Where `major:minor` is mounted.
fn mounted_on<'a>(mounts: &'a str, number: &'a str) -> impl Iterator<Item = &'a str> {
    mounts.lines().filter_map(move |line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == number).then(|| fields.nth(1)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn who_only_looks_whether_a_file_is_locked_does_not_use_it() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "drive", "data");
        let path = folder.path().join("drive");
        let other = File::open(&path).unwrap();
        other.lock_shared().unwrap();
        assert!(!is_locked(&path));
        other.unlock().unwrap();
        other.lock().unwrap();
        assert!(is_locked(&path));
    }

    #[test]
    fn a_file_behind_a_device_and_one_that_is_swap_are_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let file = |name: &str| root.join(name).canonicalize().unwrap();
        for name in ["disk", "swap", "free"] {
            write(root, name, "data");
        }
        write(root, "sys/block/loop3/loop/backing_file", &format!("{}\n", file("disk").display()));
        write(root, "proc/swaps", &format!("Filename Type\n{} file 8 0 -2\n", file("swap").display()));
        std::os::unix::fs::symlink(root.join("disk"), root.join("link")).unwrap();
        std::fs::hard_link(root.join("disk"), root.join("hard")).unwrap();
        std::fs::hard_link(root.join("swap"), root.join("hard swap")).unwrap();
        let users = |name: &str| users_of_file_under(root, &root.join(name)).join(", ");
        assert_eq!(users("disk"), "it is behind /dev/loop3");
        assert_eq!(users("link"), "it is behind /dev/loop3");
        assert_eq!(users("hard"), "it is behind /dev/loop3");
        assert_eq!(users("hard swap"), "it is swap space");
        assert_eq!(users("swap"), "it is swap space");
        assert_eq!((users("free"), users("new")), (String::new(), String::new()));
    }

    #[test]
    fn users_of_another_loop_device_on_the_same_file_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let file = |name: &str| root.join(name).canonicalize().unwrap().display().to_string();
        write(root, "disk", "data");
        write(root, "else", "data");
        std::fs::hard_link(root.join("disk"), root.join("hard")).unwrap();
        std::fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        for (minor, name) in [(3, "disk"), (4, "hard"), (5, "else"), (6, "disk")] {
            let device = format!("sys/block/loop{minor}");
            write(root, &format!("{device}/loop/backing_file"), &format!("{}\n", file(name)));
            write(root, &format!("{device}/dev"), &format!("7:{minor}\n"));
            let link = root.join(format!("sys/dev/block/7:{minor}"));
            std::os::unix::fs::symlink(root.join(device), link).unwrap();
        }
        write(root, "sys/block/loop4/loop4p1/partition", "1\n");
        write(root, "sys/block/loop4/loop4p1/dev", "259:0\n");
        std::os::unix::fs::symlink(root.join("sys/block/loop4/loop4p1"), root.join("sys/dev/block/259:0"))
            .unwrap();
        write(root, "proc/self/mountinfo", "30 1 7:3 / /image rw - ext4 /dev/loop3 rw\n");
        let by_other =
            |name: &str| [format!("loop3 is mounted on /image (loop3 is on {} as well)", file(name))];
        assert_eq!(users_under(root, 7, 3), ["loop3 is mounted on /image"]);
        assert_eq!(users_under(root, 7, 4), by_other("hard"));
        assert_eq!(users_under(root, 259, 0), by_other("hard"), "a partition");
        assert_eq!(users_under(root, 7, 6), by_other("disk"));
        assert!(users_under(root, 7, 5).is_empty());
    }

    #[test]
    fn users_of_a_device_and_of_its_partitions_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (name, number) in [("sda", "8:0"), ("sdb", "8:16")] {
            write(root, &format!("sys/devices/{name}/dev"), &format!("{number}\n"));
        }
        for (name, number) in [("sda1", "8:1"), ("sda2", "8:2"), ("sda3", "8:3")] {
            write(root, &format!("sys/devices/sda/{name}/dev"), &format!("{number}\n"));
            write(root, &format!("sys/devices/sda/{name}/partition"), "1\n");
        }
        write(root, "sys/devices/sda/sda3/holders/dm-0/x", "");
        write(root, "sys/block/loop3/loop/backing_file", "/dev/sda2\n");
        write(
            root,
            "proc/self/mountinfo",
            "30 1 8:1 / /srv/data rw - ext4 /dev/sda1 rw\n31 1 8:17 / /x rw - ext4 y rw\n",
        );
        write(root, "proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 8 0 -2\n");
        std::fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        for (number, node) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("8:16", "sdb")] {
            let link = root.join("sys/dev/block").join(number);
            std::os::unix::fs::symlink(root.join("sys/devices").join(node), link).unwrap();
        }
        assert_eq!(
            users_under(root, 8, 0),
            [
                "sda1 is mounted on /srv/data",
                "sda2 is swap space",
                "sda2 is behind loop3",
                "sda3 is a part of dm-0"
            ]
        );
        assert_eq!(users_under(root, 8, 1), ["sda1 is mounted on /srv/data"]);
        assert!(users_under(root, 8, 16).is_empty());
        assert!(users_under(root, 9, 9).is_empty());
    }
}
