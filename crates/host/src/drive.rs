//! Bytes written to the drives under a file, from `/proc/diskstats`. They count everything on these drives, whoever wrote it.
//!
//! Of an NVMe namespace that may be reached by several controllers the kernel shows one drive (`nvme0n1`) and hides the ways to it
//! (`nvme0c1n1`). Before Linux 6.4 what is done with it is counted at these only, and its flushes are so since then, too.

use std::path::Path;

use crate::doctor::{HostRoot, drives_named, drives_under};

/// Size of a sector in `/proc/diskstats`, whatever the drive's own.
const DISKSTATS_SECTOR_BYTES: u64 = 512;

/// The counter of one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveCounter {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Its name, such as `vda`.
    pub name: String,
}

impl DriveCounter {
    /// The whole drives that hold a file or block device in the end: of partitions, volumes and RAIDs the kernel counts no flushes,
    /// nor that a RAID writes more than it is given. A file that is not there yet lies where its folder does. None where no drive of
    /// this host is known.
    pub fn under(path: &Path) -> Vec<Self> {
        Self::under_at(&HostRoot::here(), path)
    }

    fn under_at(root: &HostRoot, path: &Path) -> Vec<Self> {
        // One from the working folder would mean another below the root.
        let Ok(path) = std::path::absolute(path) else { return Vec::new() };
        let mut drives = drives_under(root, &path);
        if drives.is_empty() {
            // Of a loop device whose file is on no drive of this host, its own counter is all there is.
            drives = drives_named(root, &path);
        }
        let text = root.text("/proc/diskstats").unwrap_or_default();
        let counter = |drive: &String| {
            let number = root.text(&format!("/sys/block/{drive}/dev"))?;
            let (major, minor) = number.split_once(':')?;
            let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
            let (name, _) = find(&text, major, minor)?;
            Some(DriveCounter { major, minor, name: name.to_owned() })
        };
        drives.iter().filter_map(counter).collect()
    }

    /// Bytes written since the machine started.
    pub fn written_bytes(&self) -> Option<u64> {
        self.written_bytes_in(&std::fs::read_to_string("/proc/diskstats").ok()?)
    }

    fn written_bytes_in(&self, diskstats: &str) -> Option<u64> {
        let (_, own) = find(diskstats, self.major, self.minor)?;
        let of_path = |line: &str| {
            let mut fields = line.split_ascii_whitespace().skip(2);
            let is_path = drive_of_path(fields.next()?).is_some_and(|drive| drive == self.name);
            fields.nth(6).filter(|_| is_path)?.parse::<u64>().ok()
        };
        let by_paths = || diskstats.lines().filter_map(of_path).sum::<u64>();
        Some(if own > 0 { own } else { by_paths() } * DISKSTATS_SECTOR_BYTES)
    }
}

/// The drive to which this is one way, by its name: `nvme0n1` of `nvme0c1n1`. `None` for everything else.
pub(crate) fn drive_of_path(name: &str) -> Option<String> {
    let (subsystem, rest) = name.strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    [subsystem, controller, namespace]
        .into_iter()
        .all(is_number)
        .then(|| format!("nvme{subsystem}n{namespace}"))
}

/// Whether a block device is a drive of this host, by its name, and not made of others, of memory, or of another host's: what is done there
/// would count twice, or for nothing. Optical and floppy drives hold no data of this kind. Hidden ways to a drive are a part of it.
pub(crate) fn is_drive(name: &str) -> bool {
    const OTHERS: [&str; 12] =
        ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "rbd", "drbd", "bcache", "zd"];
    !OTHERS.iter().any(|kind| name.starts_with(kind)) && drive_of_path(name).is_none()
}

/// Whether a drive is one of a virtual machine, or of another host, by its name, who made it, or where it hangs: what it says of itself, as that
/// it spins, need not be so. A drive on an ATA bus has `ATA` for a vendor, and its maker in its model.
pub(crate) fn is_virtual(name: &str, vendor: &str, model: &str, path: &str) -> bool {
    const NAMES: [&str; 4] = ["vd", "xvd", "nbd", "rbd"];
    const VENDORS: [&str; 5] = ["QEMU", "VMware", "VBOX", "Msft", "Google"];
    const MODELS: [&str; 5] = ["QEMU", "VMware", "VBOX", "Virtual", "PersistentDisk"];
    NAMES.iter().any(|kind| name.starts_with(kind))
        || VENDORS.contains(&vendor)
        || MODELS.iter().any(|maker| model.contains(maker))
        || path.contains("/virtio")
}

/// The same of a whole drive of a host.
pub(crate) fn is_virtual_at(root: &HostRoot, drive: &str) -> bool {
    let folder = format!("/sys/block/{drive}");
    let read = |file: &str| root.text(&format!("{folder}/device/{file}")).unwrap_or_default();
    let device = root.link(&format!("{folder}/device")).unwrap_or_default();
    let path = root.real(Path::new(&folder)).join(device);
    is_virtual(drive, &read("vendor"), &read("model"), &path.to_string_lossy())
}

/// Name and sectors written.
fn find(text: &str, major: u32, minor: u32) -> Option<(&str, u64)> {
    text.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let is_it = fields.next()?.parse() == Ok(major) && fields.next()?.parse() == Ok(minor);
        let name = fields.next()?;
        // Reads: done, merged, sectors, ms; writes: done, merged, sectors.
        let sectors = fields.nth(6)?.parse().ok()?;
        is_it.then_some((name, sectors))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::test_host::TestHost;

    #[test]
    fn finds_sectors_written() {
        let text = " 7 0 loop0 1 2 3 4 5 6 7 8 0 0 0\n 254 0 vda 10 20 30 40 50 60 70 80 0 0 0\n";
        assert_eq!(find(text, 254, 0), Some(("vda", 70)));
        assert_eq!(find(text, 1, 1), None);
        assert_eq!(find("garbage\n1 2\n", 1, 2), None);
    }

    #[test]
    fn drives_of_virtual_machines_are_known_by_what_any_of_them_says() {
        for (name, vendor, model, path) in [
            ("vda", "", "", ""),
            ("nbd0", "", "", ""),
            ("sda", "ATA", "QEMU HARDDISK", "/sys/devices/pci0000:00/0000:00:1f.2/ata1/block/sda"),
            ("sda", "ATA", "VMware Virtual S", ""),
            ("sda", "ATA", "VBOX HARDDISK", ""),
            ("sda", "VBOX", "HARDDISK", ""),
            ("sda", "Google", "PersistentDisk", ""),
            ("sda", "", "PersistentDisk", ""),
            ("sda", "Google", "EphemeralDisk", ""),
            ("sda", "Msft", "Virtual Disk", ""),
            ("sda", "", "", "/sys/devices/pci0000:00/0000:00:05.0/virtio2/host2/block/sda"),
        ] {
            assert!(is_virtual(name, vendor, model, path), "{name} {vendor} {model} {path}");
        }
        assert!(!is_virtual(
            "sda",
            "ATA",
            "ST4000NM0035",
            "/sys/devices/pci0000:00/0000:00:1f.2/ata1/block/sda"
        ));
        let drives = ["sda", "nvme0n1", "vda", "mmcblk0"];
        assert!(drives.iter().all(|name| is_drive(name)));
        let others = ["drbd0", "bcache0", "zd16", "dm-0", "md127", "loop1", "fd0", "sr0", "nvme0c0n1"];
        assert!(!others.iter().any(|name| is_drive(name)));
    }

    #[test]
    fn what_is_counted_at_hidden_ways_to_a_drive_only_is_that_drive_s() {
        let drive = DriveCounter { major: 259, minor: 0, name: "nvme0n1".to_owned() };
        let ways = "0 0 nvme0c0n1 1 0 8 0 2 0 30 1 0 1 1\n0 0 nvme0c1n1 1 0 8 0 2 0 10 1 0 1 1\n\
                    0 0 nvme0c0n2 1 0 8 0 2 0 500 1 0 1 1\n";
        let of =
            |own: u32| drive.written_bytes_in(&format!("{ways}259 0 nvme0n1 0 0 0 0 0 0 {own} 0 0 0 0\n"));
        assert_eq!(of(0), Some(40 * 512), "before Linux 6.4");
        assert_eq!(of(41), Some(41 * 512));
        assert_eq!(drive.written_bytes_in(ways), None);
        assert_eq!(drive_of_path("nvme12c3n4").as_deref(), Some("nvme12n4"));
        for other in ["nvme0n1", "nvme0c0", "nvme0c0n1p2", "nvmecn", "sdc", "nvme0cxn1"] {
            assert_eq!(drive_of_path(other), None, "{other}");
        }
    }

    /// Two drives with two partitions each: a RAID on the first ones, a volume on another, and loop devices.
    fn host() -> TestHost {
        let host = TestHost::empty();
        host.hdd("sda", "8:0");
        host.ssd("sdb", "8:16");
        for drive in ["sda", "sdb"] {
            host.file(&format!("sys/block/{drive}/{drive}2/partition"), "2\n");
            host.link(&format!("sys/class/block/{drive}2"), &format!("../../block/{drive}/{drive}2"));
        }
        let layers = [("md0", "9:0"), ("dm-0", "253:0"), ("loop0", "7:0"), ("loop1", "7:1")];
        for (name, number) in layers {
            host.file(&format!("sys/block/{name}/dev"), &format!("{number}\n"));
            host.link(&format!("sys/class/block/{name}"), &format!("../../block/{name}"));
            host.link(&format!("sys/dev/block/{number}"), &format!("../../block/{name}"));
        }
        host.link("sys/block/md0/slaves/sda1", "../../sda/sda1");
        host.link("sys/block/md0/slaves/sdb1", "../../sdb/sdb1");
        host.link("sys/block/dm-0/slaves/sdb2", "../../sdb/sdb2");
        host.file("sys/block/loop0/loop/backing_file", "/volume/image\n");
        host.file("sys/block/loop1/loop/backing_file", "/run/image\n");
        host.file(
            "proc/self/mountinfo",
            "22 1 9:0 / / rw - ext4 /dev/md0 rw\n\
             23 22 253:0 / /volume rw - ext4 /dev/mapper/volume rw\n\
             24 22 0:51 / /run rw - tmpfs tmpfs rw\n",
        );
        let numbers = [("sda", "8 0"), ("sda1", "8 1"), ("sda2", "8 2"), ("sdb", "8 16"), ("sdb1", "8 17")];
        let layers = layers.map(|(name, number)| (name, number.replace(':', " ")));
        let mut diskstats: String =
            numbers.map(|(name, number)| format!("{number} {name} 1 2 3 4 5 6 7 8 0 0 0\n")).concat();
        diskstats +=
            &layers.map(|(name, number)| format!("{number} {name} 1 2 3 4 5 6 7 8 0 0 0\n")).concat();
        host.file("proc/diskstats", &diskstats);
        host
    }

    #[test]
    fn counters_are_those_of_the_whole_drives_below() {
        let host = host();
        let names = |path: &str| -> Vec<String> {
            let found = DriveCounter::under_at(&host.root(), Path::new(path));
            found.into_iter().map(|counter| counter.name).collect()
        };
        for (path, drives) in [
            ("/home/new", vec!["sda", "sdb"]),
            ("/dev/md0", vec!["sda", "sdb"]),
            ("/volume/data", vec!["sdb"]),
            ("/dev/dm-0", vec!["sdb"]),
            ("/dev/loop0", vec!["sdb"]),
            ("/dev/sda", vec!["sda"]),
            ("/run/data", vec![]),
            // What is below is on no drive.
            ("/dev/loop1", vec!["loop1"]),
        ] {
            assert_eq!(names(path), drives, "{path}");
        }
        let sdb = DriveCounter { major: 8, minor: 16, name: "sdb".to_owned() };
        assert_eq!(DriveCounter::under_at(&host.root(), Path::new("/volume/data")), [sdb]);
    }

    #[test]
    fn partitions_of_one_drive_have_its_counter() {
        let host = host();
        let of = |path: &str| DriveCounter::under_at(&host.root(), Path::new(path));
        assert_eq!(of("/dev/sdb1"), of("/dev/sdb"));
        assert_eq!(of("/dev/sdb2"), of("/dev/sdb"));
        assert_eq!(of("/dev/sdb").len(), 1);
        assert_ne!(of("/dev/sda1"), of("/dev/sdb1"));
    }

    #[test]
    fn a_path_from_the_working_folder_lies_there() {
        let host = host();
        let here = std::env::current_dir().unwrap().display().to_string().replace(' ', "\\040");
        let mounts = [("8:0", "/"), ("8:16", here.as_str())];
        let lines = mounts.map(|(number, point)| format!("22 1 {number} / {point} rw - ext4 any rw\n"));
        host.file("proc/self/mountinfo", &lines.concat());
        let found = DriveCounter::under_at(&host.root(), Path::new("new"));
        assert_eq!(found, DriveCounter::under_at(&host.root(), Path::new("/dev/sdb")));
    }
}
