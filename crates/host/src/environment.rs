//! What machine a figure comes from.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cpu_model::{cpu_model, field};
use super::doctor::{HostRoot, mount_of};
use super::drive::{DriveCounter, is_virtual, is_virtual_at};

/// The machine. Texts are empty where the kernel does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Release of the kernel.
    pub kernel: String,
    /// Architecture, such as `x86_64`.
    pub architecture: String,
    /// Model of the CPU.
    pub cpu_model: String,
    /// Cores that may be used.
    pub cores: usize,
    /// Size of the memory.
    pub memory_bytes: u64,
    /// Type of the file system under a file target.
    pub file_system: String,
    /// The drive under a local target, the first where there are several.
    pub drive: Option<DriveEnvironment>,
    /// Version of this program.
    pub version: String,
}

/// A drive and its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveEnvironment {
    /// Name, such as `nvme0n1`.
    pub name: String,
    /// Model.
    pub model: String,
    /// Whether it spins.
    pub rotational: bool,
    /// The chosen I/O scheduler.
    pub scheduler: String,
    /// `write back` or `write through`.
    pub write_cache: String,
    /// Its size; 0 where the kernel does not say, and in reports of older programs.
    #[serde(default)]
    pub size_bytes: u64,
    /// Whether it is one of a virtual machine, or of another host, as far as more than its name and model says so.
    #[serde(default)]
    pub is_virtual: bool,
}

/// Size of a sector in `/sys/block/*/size`, whatever the drive's own.
const SYSFS_SECTOR_BYTES: u64 = 512;

impl Environment {
    /// Looks at this machine, and at what lies under `path`.
    pub fn here(path: Option<&Path>) -> Self {
        let memory_kib: u64 = field(&read("/proc/meminfo"), "MemTotal")
            .split_ascii_whitespace()
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or(0);
        Environment {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib << 10,
            file_system: path.map(|path| file_system(&HostRoot::here(), path)).unwrap_or_default(),
            drive: path.and_then(|path| DriveEnvironment::under(path).into_iter().next()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl DriveEnvironment {
    /// The whole drives that hold a file or block device in the end.
    pub fn under(path: &Path) -> Vec<Self> {
        DriveCounter::under(path).iter().map(Self::of).collect()
    }

    /// What kind of drive it is, in words. Virtual ones say of themselves that they spin, and are not believed.
    pub fn kind(&self) -> &'static str {
        // Reports of older programs have these two only.
        if self.is_virtual || is_virtual(&self.name, "", &self.model, "") {
            "virtual drive"
        } else if self.name.starts_with("nvme") {
            "NVMe"
        } else if self.rotational {
            "hard disk"
        } else {
            "flash"
        }
    }

    fn of(counter: &DriveCounter) -> Self {
        let base = format!("/sys/dev/block/{}:{}", counter.major, counter.minor);
        let setting = |name: &str| read(&format!("{base}/{name}")).trim().to_owned();
        let schedulers = setting("queue/scheduler");
        let chosen =
            schedulers.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
        DriveEnvironment {
            name: counter.name.clone(),
            model: setting("device/model"),
            rotational: setting("queue/rotational") == "1",
            scheduler: chosen.unwrap_or(&schedulers).to_owned(),
            write_cache: setting("queue/write_cache"),
            size_bytes: setting("size").parse::<u64>().unwrap_or(0).saturating_mul(SYSFS_SECTOR_BYTES),
            is_virtual: is_virtual_at(&HostRoot::here(), &counter.name),
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Type of the file system that holds `path`.
fn file_system(root: &HostRoot, path: &Path) -> String {
    let Ok(path) = path.canonicalize() else { return String::new() };
    mount_of(root, &path).map(|mount| mount.file_system).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::test_host::TestHost;

    #[test]
    fn a_virtual_drive_is_no_hard_disk_whatever_it_says() {
        let kind = |name: &str, model: &str, rotational| {
            let (name, model) = (name.to_owned(), model.to_owned());
            DriveEnvironment { name, model, rotational, ..DriveEnvironment::default() }.kind()
        };
        assert_eq!(kind("vda", "", true), "virtual drive");
        assert_eq!(kind("sda", "QEMU HARDDISK", true), "virtual drive");
        assert_eq!(kind("sda", "ST4000NM0035", true), "hard disk");
        assert_eq!(kind("sda", "VBOX HARDDISK", true), "virtual drive");
        let hidden = DriveEnvironment { rotational: true, is_virtual: true, ..DriveEnvironment::default() };
        assert_eq!(hidden.kind(), "virtual drive");
        assert_eq!((kind("sdb", "INTEL SSDSC2KB96", false), kind("nvme0n1", "", false)), ("flash", "NVMe"));
    }

    #[test]
    fn a_mount_point_may_have_white_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b");
        std::fs::create_dir(&path).unwrap();
        let point = path.canonicalize().unwrap().display().to_string().replace(' ', "\\040");
        let host = TestHost::empty();
        let mounts =
            format!("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:2 / {point} rw - xfs /dev/sda2 rw\n");
        host.file("proc/self/mountinfo", &mounts);
        assert_eq!(file_system(&host.root(), &path), "xfs");
    }

    #[test]
    fn sees_this_machine() {
        let here = Environment::here(Some(Path::new("/proc/self/stat")));
        assert!(!here.kernel.is_empty());
        assert!(here.cores > 0);
        assert!(here.memory_bytes > 0);
        assert_eq!(here.file_system, "proc");
    }
}
