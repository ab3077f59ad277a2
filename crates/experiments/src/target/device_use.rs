//! Who uses a block device, or a part of it. The kernel refuses most of these to whoever opens it exclusively, but does not say
//! who it is, and does not count loop devices.

use std::path::{Path, PathBuf};

/// Who uses a device of this number or a partition of it, in words; nobody known if there are none.
pub fn users(major: u32, minor: u32) -> Vec<String> {
    users_under(Path::new("/"), major, minor)
}

/// Who uses a file as a device or as swap space, in words: writes to it would change what is theirs.
pub fn users_of_file(path: &Path) -> Vec<String> {
    users_of_file_under(Path::new("/"), path)
}

fn users_of_file_under(root: &Path, path: &Path) -> Vec<String> {
    let Ok(path) = path.canonicalize() else { return Vec::new() };
    let name = path.to_string_lossy();
    let swaps = std::fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    let is_swap = swaps.lines().any(|line| line.split_whitespace().next() == Some(&*name));
    let behind = loops(root).into_iter().filter(|(_, file)| **file == *name);
    let swap = is_swap.then(|| "it is swap space".to_owned());
    behind.map(|(by, _)| format!("it is behind /dev/{by}")).chain(swap).collect()
}

/// What is behind a loop device of this number, or one whose partition it is.
pub fn behind(major: u32, minor: u32) -> Option<PathBuf> {
    let node = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    let whole = if node.join("partition").exists() { node.parent()? } else { &node };
    let file = std::fs::read_to_string(whole.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(file.trim_end_matches('\n')))
}

fn users_under(root: &Path, major: u32, minor: u32) -> Vec<String> {
    let Ok(node) = root.join(format!("sys/dev/block/{major}:{minor}")).canonicalize() else {
        return Vec::new();
    };
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let (mounts, swaps) = (read("proc/self/mountinfo"), read("proc/swaps"));
    let loops = loops(root);
    let mut found = Vec::new();
    for part in parts(&node) {
        let Some(name) = part.file_name().and_then(|name| name.to_str()) else { continue };
        let number = std::fs::read_to_string(part.join("dev")).unwrap_or_default();
        let holders = entries(&part.join("holders"));
        let holders = holders.iter().filter_map(|path| path.file_name()?.to_str());
        found.extend(holders.map(|holder| format!("{name} is a part of {holder}")));
        found.extend(mounted_on(&mounts, number.trim()).map(|place| format!("{name} is mounted on {place}")));
        let device = format!("/dev/{name}");
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(&device)) {
            found.push(format!("{name} is swap space"));
        }
        let behind = loops.iter().filter(|(_, file)| *file == device);
        found.extend(behind.map(|(by, _)| format!("{name} is behind {by}")));
    }
    found
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
        let file = std::fs::read_to_string(device.join("loop/backing_file")).ok()?;
        Some((device.file_name()?.to_str()?.to_owned(), file.trim_end().to_owned()))
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
        let users = |name: &str| users_of_file_under(root, &root.join(name)).join(", ");
        assert_eq!(users("disk"), "it is behind /dev/loop3");
        assert_eq!(users("link"), "it is behind /dev/loop3");
        assert_eq!(users("swap"), "it is swap space");
        assert_eq!((users("free"), users("new")), (String::new(), String::new()));
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
