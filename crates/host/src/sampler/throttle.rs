//! Limits that control groups set, of version 1 and 2.
//!
//! Invariants:
//! - a limit of any group above a process's own counts, up to where the hierarchy is mounted;
//! - a limit that does not limit (`max`, -1) is none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::utilisation::ThrottleKind;

/// A limit as it is set, and what the group used up to now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub kind: ThrottleKind,
    /// The drive as `major:minor`, or `cpu`.
    pub subject: String,
    pub group: String,
    /// Bytes per second, operations per second, or cores.
    pub limit: f64,
    /// Bytes, operations or seconds of CPU time since the group was made.
    pub used: Option<f64>,
    /// Periods of a CPU quota, and those in which the group had to wait.
    pub periods: Option<(u64, u64)>,
    pub evidence: String,
}

/// Where control groups are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hierarchies {
    mounts: Vec<Mount>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// The group that is mounted.
    group: String,
    folder: PathBuf,
    /// Controllers of version 1; none for version 2.
    controllers: Option<Vec<String>>,
}

impl Hierarchies {
    /// Those of this host.
    pub(super) fn here() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// Reads `/proc/self/mountinfo`.
    pub(super) fn parse(mountinfo: &str) -> Self {
        let mount = |line: &str| {
            let (left, right) = line.split_once(" - ")?;
            let mut left = left.split(' ').skip(3);
            let (group, folder) = (left.next()?.to_owned(), PathBuf::from(left.next()?));
            let mut right = right.split(' ');
            let controllers = match right.next()? {
                "cgroup" => Some(right.nth(1)?.split(',').map(str::to_owned).collect()),
                "cgroup2" => None,
                _ => return None,
            };
            Some(Mount { group, folder, controllers })
        };
        Hierarchies { mounts: mountinfo.lines().filter_map(mount).collect() }
    }

    /// The folders of the groups that a process is in, from its own up, with what is limited there. `text` is its
    /// `/proc/PID/cgroup`.
    pub(super) fn folders(&self, text: &str) -> BTreeSet<(Controller, PathBuf, String)> {
        let mut folders = BTreeSet::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(names), Some(group)) = (fields.next(), fields.next()) else { continue };
            for (controller, wanted) in
                [(Controller::Block1, "blkio"), (Controller::Cpu1, "cpu"), (Controller::Version2, "")]
            {
                let is_it = names.split(',').any(|name| name == wanted);
                let mount = self.mounts.iter().find(|mount| match &mount.controllers {
                    Some(controllers) => controllers.iter().any(|name| name == wanted),
                    None => wanted.is_empty(),
                });
                let Some(mount) = mount.filter(|_| is_it) else { continue };
                let Some(below) = group.strip_prefix(mount.group.trim_end_matches('/')) else { continue };
                let mut below = Some(Path::new(below.trim_start_matches('/')));
                while let Some(path) = below {
                    let name = format!("/{}", path.display());
                    folders.insert((controller, mount.folder.join(path), name));
                    below = path.parent();
                }
            }
        }
        folders
    }
}

/// Which files a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Controller {
    /// `blkio` of version 1.
    Block1,
    /// `cpu` of version 1.
    Cpu1,
    /// Version 2.
    Version2,
}

/// The limits of a group.
pub(super) fn settings(controller: Controller, folder: &Path, group: &str) -> Vec<Setting> {
    match controller {
        Controller::Block1 => block_1(folder, group),
        Controller::Cpu1 => cpu_1(folder, group).into_iter().collect(),
        Controller::Version2 => {
            let mut all = block_2(folder, group);
            all.extend(cpu_2(folder, group));
            all
        }
    }
}

fn read(folder: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(folder.join(name)).ok()
}

/// Setting, and in which of the counters its use is found.
const BLOCK_1: [(ThrottleKind, &str, &str, &str); 4] = {
    use ThrottleKind::{ReadBytes, ReadOperations, WriteBytes, WriteOperations};
    let (bytes, operations) = ("io_service_bytes", "io_serviced");
    [
        (ReadBytes, "read_bps_device", bytes, "Read"),
        (WriteBytes, "write_bps_device", bytes, "Write"),
        (ReadOperations, "read_iops_device", operations, "Read"),
        (WriteOperations, "write_iops_device", operations, "Write"),
    ]
};

fn block_1(folder: &Path, group: &str) -> Vec<Setting> {
    let mut all = Vec::new();
    for (kind, file, counter, direction) in BLOCK_1 {
        let file = format!("blkio.throttle.{file}");
        let Some(text) = read(folder, &file).filter(|text| !text.trim().is_empty()) else { continue };
        let counters = read(folder, &format!("blkio.throttle.{counter}_recursive"))
            .or_else(|| read(folder, &format!("blkio.throttle.{counter}")))
            .unwrap_or_default();
        for line in text.lines() {
            let Some((drive, limit)) = line.split_once(' ') else { continue };
            let Ok(limit) = limit.trim().parse::<u64>() else { continue };
            let used = counters.lines().find_map(|line| {
                let mut fields = line.split_ascii_whitespace();
                let is_it = fields.next()? == drive && fields.next()? == direction;
                fields.next()?.parse::<u64>().ok().filter(|_| is_it)
            });
            all.push(Setting {
                kind,
                subject: drive.to_owned(),
                group: group.to_owned(),
                limit: limit as f64,
                // A drive that the group has not used yet is not listed.
                used: Some(used.unwrap_or(0) as f64),
                periods: None,
                evidence: format!("{file} of cgroup {group}: {}", line.trim()),
            });
        }
    }
    all
}

fn cpu_1(folder: &Path, group: &str) -> Option<Setting> {
    let quota_us: f64 = read(folder, "cpu.cfs_quota_us")?.trim().parse().ok().filter(|quota| *quota > 0.0)?;
    let period_us: f64 = read(folder, "cpu.cfs_period_us")?.trim().parse().ok()?;
    Some(Setting {
        kind: ThrottleKind::Cpu,
        subject: "cpu".into(),
        group: group.to_owned(),
        limit: quota_us / period_us,
        used: None,
        periods: periods(&read(folder, "cpu.stat").unwrap_or_default()),
        evidence: format!("cpu.cfs_quota_us of cgroup {group}: {quota_us} of {period_us}"),
    })
}

/// Keys of `io.max` and `io.stat`.
const BLOCK_2: [(ThrottleKind, &str, &str); 4] = [
    (ThrottleKind::ReadBytes, "rbps", "rbytes"),
    (ThrottleKind::WriteBytes, "wbps", "wbytes"),
    (ThrottleKind::ReadOperations, "riops", "rios"),
    (ThrottleKind::WriteOperations, "wiops", "wios"),
];

fn block_2(folder: &Path, group: &str) -> Vec<Setting> {
    let Some(text) = read(folder, "io.max") else { return Vec::new() };
    let counters = read(folder, "io.stat").unwrap_or_default();
    let mut all = Vec::new();
    for line in text.lines() {
        let Some((drive, values)) = line.split_once(' ') else { continue };
        let values = pairs(values);
        // 259:10 is another drive than 259:1.
        let of_drive = counters.lines().find(|line| line.split_ascii_whitespace().next() == Some(drive));
        let used = of_drive.map(pairs).unwrap_or_default();
        for (kind, setting, counter) in BLOCK_2 {
            let Some(limit) = values.get(setting).and_then(|limit| limit.parse::<u64>().ok()) else {
                continue;
            };
            let used = used.get(counter).and_then(|used| used.parse::<u64>().ok()).unwrap_or(0);
            all.push(Setting {
                kind,
                subject: drive.to_owned(),
                group: group.to_owned(),
                limit: limit as f64,
                used: Some(used as f64),
                periods: None,
                evidence: format!("io.max of cgroup {group}: {drive} {setting}={limit}"),
            });
        }
    }
    all
}

fn cpu_2(folder: &Path, group: &str) -> Option<Setting> {
    let text = read(folder, "cpu.max")?;
    let (quota_us, period_us) = text.trim().split_once(' ')?;
    let (quota_us, period_us): (f64, f64) = (quota_us.parse().ok()?, period_us.parse().ok()?);
    let stat = read(folder, "cpu.stat").unwrap_or_default();
    Some(Setting {
        kind: ThrottleKind::Cpu,
        subject: "cpu".into(),
        group: group.to_owned(),
        limit: quota_us / period_us,
        used: value(&stat, "usage_usec").map(|used_us| used_us as f64 / 1e6),
        periods: periods(&stat),
        evidence: format!("cpu.max of cgroup {group}: {}", text.trim()),
    })
}

fn pairs(text: &str) -> BTreeMap<&str, &str> {
    text.split_ascii_whitespace().filter_map(|pair| pair.split_once('=')).collect()
}

fn periods(stat: &str) -> Option<(u64, u64)> {
    Some((value(stat, "nr_periods")?, value(stat, "nr_throttled")?))
}

fn value(stat: &str, key: &str) -> Option<u64> {
    let line = stat.lines().find(|line| line.split(' ').next() == Some(key))?;
    line.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        std::fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn groups_above_a_process_are_found() {
        let mounts = Hierarchies::parse(
            "30 25 0:26 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
             31 25 0:27 /docker/x /sys/fs/cgroup/cpu rw master:9 - cgroup cgroup rw,cpu,cpuacct\n\
             32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             33 25 0:29 / /proc rw - proc proc rw\n",
        );
        let text = "7:blkio:/a/b\n1:cpu,cpuacct:/docker/x/y\n2:cpuset:/\n0::/\n";
        let folders: Vec<String> =
            mounts.folders(text).into_iter().map(|(_, folder, _)| folder.display().to_string()).collect();
        let wanted = ["blkio/", "blkio/a", "blkio/a/b", "cpu/", "cpu/y", "unified/"];
        assert_eq!(folders, wanted.map(|name| format!("/sys/fs/cgroup/{name}")));
        assert!(mounts.folders("garbage").is_empty());
    }

    #[test]
    fn limits_of_version_1() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "blkio.throttle.write_bps_device", "254:0 20971520\n");
        write(folder.path(), "blkio.throttle.read_bps_device", "");
        let used = "254:0 Read 1\n254:0 Write 500\n254:0 Total 501\nTotal 501\n";
        write(folder.path(), "blkio.throttle.io_service_bytes", used);
        let found = settings(Controller::Block1, folder.path(), "/a");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].limit), (ThrottleKind::WriteBytes, 20971520.0));
        assert_eq!((found[0].subject.as_str(), found[0].used), ("254:0", Some(500.0)));

        write(folder.path(), "cpu.cfs_quota_us", "-1\n");
        write(folder.path(), "cpu.cfs_period_us", "100000\n");
        assert!(settings(Controller::Cpu1, folder.path(), "/a").is_empty());
        write(folder.path(), "cpu.cfs_quota_us", "150000\n");
        write(folder.path(), "cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 5\n");
        let found = settings(Controller::Cpu1, folder.path(), "/a");
        assert_eq!((found[0].limit, found[0].periods), (1.5, Some((10, 4))));
    }

    #[test]
    fn limits_of_version_2() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "io.max", "254:1 rbps=max wbps=1000 riops=max wiops=50\n");
        let other = "254:16 rbytes=9 wbytes=999 rios=9 wios=99 dbytes=0 dios=0";
        let own = "254:1 rbytes=1 wbytes=70 rios=2 wios=3 dbytes=0 dios=0";
        write(folder.path(), "io.stat", &format!("{other}\n{own}\n"));
        write(folder.path(), "cpu.max", "max 100000\n");
        let found = settings(Controller::Version2, folder.path(), "/a");
        let limits: Vec<_> = found.iter().map(|found| (found.kind, found.limit, found.used)).collect();
        let bytes = (ThrottleKind::WriteBytes, 1000.0, Some(70.0));
        assert_eq!(limits, [bytes, (ThrottleKind::WriteOperations, 50.0, Some(3.0))]);
        write(folder.path(), "cpu.max", "50000 100000\n");
        write(folder.path(), "cpu.stat", "usage_usec 2000000\nnr_periods 10\nnr_throttled 4\n");
        let found = settings(Controller::Version2, folder.path(), "/a");
        assert_eq!((found[2].limit, found[2].used, found[2].periods), (0.5, Some(2.0), Some((10, 4))));
    }
}
