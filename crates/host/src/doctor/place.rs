//! Which drives lie under a path: through mounts, partitions, device mapper, software RAID and loop devices.

use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::root::HostRoot;

/// Loop devices and device mapper on top of each other, at most.
const LAYERS_MAX: u32 = 8;

/// File systems in which the kernel shows itself: nobody's data is in them.
const OF_KERNEL: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// Whether the kernel shows itself in a file system of this type, which holds nobody's data.
pub fn is_of_kernel(file_system: &str) -> bool {
    OF_KERNEL.contains(&file_system)
}

/// The mount that holds a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `MAJOR:MINOR`.
    pub device: String,
    /// Type of the file system, such as `ext4`.
    pub file_system: String,
    /// What is mounted, such as `/dev/sda1`.
    pub source: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Whether it is mounted read-only.
    pub is_read_only: bool,
    /// Whether times of files stay in memory until something else of them is written (`lazytime`).
    pub has_lazy_times: bool,
}

/// The mount that holds `path` in this process's view.
pub fn mount_of(root: &HostRoot, path: &Path) -> Option<Mount> {
    mount_in(&root.text("/proc/self/mountinfo")?, &root.real(path))
}

/// The mount that holds `path`, which has no symbolic links: the mount point with the longest path above it.
fn mount_in(mountinfo: &str, path: &Path) -> Option<Mount> {
    let above = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let point = PathBuf::from(unescaped(before.get(4)?));
        let mut after = after.split(' ');
        let (file_system, source, super_options) = (after.next()?, after.next()?, after.next().unwrap_or(""));
        let options = [*before.get(5)?, super_options];
        let has = |option| options.iter().any(|all| all.split(',').any(|one| one == option));
        let mount = Mount {
            device: (*before.get(2)?).to_owned(),
            file_system: file_system.to_owned(),
            source: unescaped(source),
            is_read_only: has("ro"),
            has_lazy_times: has("lazytime"),
            point,
        };
        path.starts_with(&mount.point).then(|| (mount.point.components().count(), mount))
    });
    // Of equal paths the one mounted last is seen, and `max_by_key` gives the last.
    above.max_by_key(|(length, _)| *length).map(|(_, mount)| mount)
}

/// White space and backslashes are written in octal, as in `\040`.
pub(super) fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

/// How far down to go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// To the drives that hold the data in the end.
    Bottom,
    /// To loop devices at most: the file behind one is on a file system that others use as well.
    Loops,
}

/// The whole drives under a file, folder or block device; empty where that cannot be told.
pub fn drives_under(root: &HostRoot, path: &Path) -> Vec<String> {
    under(root, path, root.text("/proc/self/mountinfo").as_deref(), Depth::Bottom, 0)
}

/// The whole drives under a path as another process sees it; it must be absolute there.
pub fn drives_under_for(root: &HostRoot, process: &str, path: &Path) -> Vec<String> {
    under(root, path, root.text(&format!("/proc/{process}/mountinfo")).as_deref(), Depth::Bottom, 0)
}

/// The drives that somebody means who names a path: a block device itself, whatever is behind it, or the drives of the
/// file system that a file or folder is on. Empty where that cannot be told.
pub fn drives_named(root: &HostRoot, path: &Path) -> Vec<String> {
    match device_name(root, &root.real(path)) {
        Some(name) => whole_drive(root, &name).into_iter().collect(),
        None => under(root, path, root.text("/proc/self/mountinfo").as_deref(), Depth::Loops, 0),
    }
}

/// The whole device that the file system of a file or folder is on, whatever that is made of; `None` where it has none of its own, as btrfs.
pub fn device_of_mount(root: &HostRoot, path: &Path) -> Option<String> {
    mounted_device(root, &mount_of(root, path)?.device)
}

/// The same of all file systems that are mounted.
pub fn devices_of_mounts(root: &HostRoot) -> Vec<String> {
    let mounts = root.text("/proc/self/mountinfo").unwrap_or_default();
    let numbers = mounts.lines().filter_map(|line| line.split(' ').nth(2));
    let mut devices: Vec<String> = numbers.filter_map(|number| mounted_device(root, number)).collect();
    devices.sort();
    devices.dedup();
    devices
}

fn mounted_device(root: &HostRoot, number: &str) -> Option<String> {
    whole_drive(root, &name_of_number(root, number)?)
}

/// The kernel's name of a block device, by its number.
fn name_of_number(root: &HostRoot, number: &str) -> Option<String> {
    let path = std::fs::canonicalize(root.path(&format!("/sys/dev/block/{number}"))).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}

/// What a drive is made of, which has settings of its own: the parts of a RAID or volume, or the file of a loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Below {
    /// Block devices, by name.
    Parts(Vec<String>),
    /// A file, and the drives that it is on, as far as that can be told.
    File(String, Vec<String>),
}

/// What is below a drive; `None` below most, which hold data themselves.
pub fn below(root: &HostRoot, drive: &str) -> Option<Below> {
    let parts = root.names(&format!("/sys/block/{drive}/slaves"));
    if !parts.is_empty() {
        return Some(Below::Parts(parts));
    }
    let file = root.text(&format!("/sys/block/{drive}/loop/backing_file"))?;
    let drives = drives_named(root, Path::new(&file));
    Some(Below::File(file, drives))
}

fn under(root: &HostRoot, path: &Path, mountinfo: Option<&str>, depth: Depth, layer: u32) -> Vec<String> {
    let real = root.real(path);
    if let Some(name) = device_name(root, &real) {
        return whole(root, &name, mountinfo, depth, layer);
    }
    let Some(mount) = mountinfo.and_then(|text| mount_in(text, &real)) else { return Vec::new() };
    // A file system with devices of its own, such as btrfs, shows no drive's number, but its first drive as its source.
    let name = name_of_number(root, &mount.device)
        .or_else(|| device_name(root, &root.real(Path::new(&mount.source))));
    let Some(name) = name else { return Vec::new() };
    let devices = devices_with(root, &name);
    let mut drives: Vec<String> =
        devices.iter().flat_map(|name| whole(root, name, mountinfo, depth, layer)).collect();
    drives.sort();
    drives.dedup();
    drives
}

/// All devices of the btrfs file system that a device belongs to; the device itself where it belongs to none.
fn devices_with(root: &HostRoot, name: &str) -> Vec<String> {
    let file_systems = root.names("/sys/fs/btrfs").into_iter();
    let mut devices = file_systems.map(|id| root.names(&format!("/sys/fs/btrfs/{id}/devices")));
    devices.find(|names| names.iter().any(|one| one == name)).unwrap_or_else(|| vec![name.to_owned()])
}

/// Whether a path is a block device, or lies where these are.
pub fn is_device(root: &HostRoot, path: &Path) -> bool {
    path.starts_with("/dev") || device_name(root, &root.real(path)).is_some()
}

/// The kernel's name of a block device.
fn device_name(root: &HostRoot, real: &Path) -> Option<String> {
    // Its number is surer than its name, which may be any other one.
    if let Some(metadata) = real.to_str().and_then(|text| std::fs::metadata(root.path(text)).ok())
        && metadata.file_type().is_block_device()
    {
        let device = metadata.st_rdev();
        let link = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
        let found = std::fs::canonicalize(root.path(&link)).ok();
        if let Some(name) = found.as_deref().and_then(Path::file_name) {
            return Some(name.to_str()?.to_owned());
        }
    }
    let name = real.strip_prefix("/dev").ok()?.file_name()?.to_str()?;
    root.has(&format!("/sys/class/block/{name}")).then(|| name.to_owned())
}

/// The whole drives that a block device is made of.
fn whole(root: &HostRoot, name: &str, mountinfo: Option<&str>, depth: Depth, layer: u32) -> Vec<String> {
    let Some(name) = whole_drive(root, name).filter(|_| layer < LAYERS_MAX) else { return Vec::new() };
    let parts = root.names(&format!("/sys/block/{name}/slaves"));
    let mut drives: Vec<String> = if !parts.is_empty() {
        parts.iter().flat_map(|part| whole(root, part, mountinfo, depth, layer + 1)).collect()
    } else if let Some(file) = root.text(&format!("/sys/block/{name}/loop/backing_file"))
        && depth == Depth::Bottom
    {
        under(root, Path::new(&file), mountinfo, depth, layer + 1)
    } else {
        vec![name]
    };
    drives.sort();
    drives.dedup();
    drives
}

/// The drive of a partition, or the drive itself. `None` where there is no such block device.
pub fn whole_drive(root: &HostRoot, name: &str) -> Option<String> {
    if root.has(&format!("/sys/block/{name}")) {
        return Some(name.to_owned());
    }
    let class = format!("/sys/class/block/{name}");
    if !root.has(&format!("{class}/partition")) {
        return None;
    }
    let partition = std::fs::canonicalize(root.path(&class)).ok()?;
    Some(partition.parent()?.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 8:16 / /srv rw shared:1 - xfs /dev/sdb rw
24 22 0:50 / /pool rw - btrfs /dev/sdb rw
25 22 0:51 / /run rw - tmpfs tmpfs rw
26 22 253:0 / /mapped rw - ext4 /dev/mapper/data rw
27 22 8:17 / /with\\040space ro - ext4 /dev/sdb1 rw
28 22 8:17 / /frozen rw - ext4 /dev/sdb1 ro,x
";

    fn host() -> TestHost {
        let host = TestHost::empty();
        host.hdd("sda", "8:0");
        host.ssd("sdb", "8:16");
        host.file("proc/self/mountinfo", MOUNTS);
        host.file("sys/block/dm-0/size", "10");
        host.link("sys/block/dm-0/slaves/sda1", "../../sda/sda1");
        host.link("sys/block/dm-0/slaves/sdb", "../../sdb");
        host.link("sys/class/block/dm-0", "../../block/dm-0");
        host.link("sys/dev/block/253:0", "../../block/dm-0");
        host.file("sys/block/loop0/loop/backing_file", "/srv/image\n");
        host.link("sys/class/block/loop0", "../../block/loop0");
        host.file("sys/block/loop1/loop/backing_file", "/dev/loop1\n");
        host.link("sys/class/block/loop1", "../../block/loop1");
        host
    }

    #[test]
    fn drives_are_found_through_all_layers() {
        let host = host();
        for (path, drives) in [
            ("/home/data", vec!["sda"]),
            ("/srv/data", vec!["sdb"]),
            ("/pool/x", vec!["sdb"]),
            ("/run/x", vec![]),
            ("/mapped/x", vec!["sda", "sdb"]),
            ("/dev/sda1", vec!["sda"]),
            ("/dev/sda", vec!["sda"]),
            ("/dev/loop0", vec!["sdb"]),
            ("/dev/loop1", vec![]),
        ] {
            assert_eq!(drives_under(&host.root(), Path::new(path)), drives, "{path}");
        }
    }

    #[test]
    fn a_file_system_with_several_devices_is_on_all_of_them() {
        let host = host();
        host.folder("sys/fs/btrfs/features");
        host.link("sys/fs/btrfs/7b3c/devices/sda1", "../../../../block/sda/sda1");
        host.link("sys/fs/btrfs/7b3c/devices/sdb", "../../../../block/sdb");
        assert_eq!(drives_under(&host.root(), Path::new("/pool/x")), ["sda", "sdb"]);
        assert_eq!(drives_named(&host.root(), Path::new("/pool/x")), ["sda", "sdb"]);
    }

    #[test]
    fn a_device_that_is_named_is_itself_and_what_is_behind_it_is_not_named() {
        let host = host();
        host.file("proc/self/mountinfo", &format!("{MOUNTS}29 22 7:0 / /image rw - ext4 /dev/loop0 rw\n"));
        host.link("sys/dev/block/7:0", "../../block/loop0");
        for (path, drives) in [
            ("/dev/loop0", vec!["loop0"]),
            ("/dev/loop1", vec!["loop1"]),
            ("/dev/dm-0", vec!["dm-0"]),
            ("/dev/sda1", vec!["sda"]),
            ("/image/data", vec!["loop0"]),
            ("/srv/data", vec!["sdb"]),
            ("/mapped/x", vec!["sda", "sdb"]),
            ("/run/x", vec![]),
        ] {
            assert_eq!(drives_named(&host.root(), Path::new(path)), drives, "{path}");
        }
        let of = |drive| below(&host.root(), drive);
        assert_eq!(of("loop0"), Some(Below::File("/srv/image".into(), vec!["sdb".into()])));
        assert_eq!(of("dm-0"), Some(Below::Parts(vec!["sdb".into(), "sda1".into()])));
        assert_eq!(of("sda"), None);
    }

    #[test]
    fn mounts_are_told_apart() {
        let mount = |path| mount_in(MOUNTS, Path::new(path)).unwrap();
        assert_eq!(mount("/with space/x").source, "/dev/sdb1");
        assert!(mount("/with space/x").is_read_only && mount("/frozen").is_read_only);
        assert!(!mount("/srv").is_read_only);
        assert_eq!(mount("/srvx").device, "8:1");
        assert_eq!(mount_in("garbage\n1 2 - \n", Path::new("/")), None);
    }

    #[test]
    fn what_is_no_block_device_has_no_drive() {
        assert_eq!(whole_drive(&host().root(), "sda1").as_deref(), Some("sda"));
        assert_eq!(whole_drive(&host().root(), "sdz"), None);
    }
}
