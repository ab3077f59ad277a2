//! How much memory the block cache takes: what the host can spare, within a bound. A control group (a container, a service) that gives this
//! process less than the host has counts as the host: at its limit the kernel ends the process.

use std::fs;
use std::path::Path;

/// Part of the host's memory that is left free for others.
const SPARE_PART: u64 = 8;
/// Index memory where none is given: a part of the host's memory.
const INDEX_MEMORY_PART: u64 = 8;
/// Smallest cache.
const CACHE_BYTES_MIN: u64 = 16 << 20;

/// Memory of the host, or of the control group that allows less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostMemory {
    /// All of it.
    pub total_bytes: u64,
    /// What could be given out without swapping.
    pub available_bytes: u64,
}

impl HostMemory {
    /// Asks the kernel; `None` where it does not say.
    pub fn read() -> Option<HostMemory> {
        Self::read_below(Path::new("/"))
    }

    fn read_below(root: &Path) -> Option<HostMemory> {
        let host = Self::parse(&fs::read_to_string(root.join("proc/meminfo")).ok()?)?;
        let limits = groups(root).into_iter().filter(|group| group.total_bytes < host.total_bytes);
        Some(limits.fold(host, |least, group| HostMemory {
            total_bytes: least.total_bytes.min(group.total_bytes),
            available_bytes: least.available_bytes.min(group.available_bytes),
        }))
    }

    fn parse(text: &str) -> Option<HostMemory> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 =
                line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kibibytes << 10)
        };
        Some(HostMemory { total_bytes: field("MemTotal")?, available_bytes: field("MemAvailable")? })
    }
}

/// What each control group of this process, and each above it, allows and has left, where it says so. Of a container these are its own:
/// the outermost that it sees is the one with its limit. Version 1 writes more than any host has where nothing is limited.
fn groups(root: &Path) -> Vec<HostMemory> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(names), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (folder, [limit, usage]) = match names {
            "" => ("sys/fs/cgroup", ["memory.max", "memory.current"]),
            names if names.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.usage_in_bytes"])
            }
            _ => continue,
        };
        for group in Path::new(group).ancestors() {
            let group = root.join(folder).join(group.strip_prefix("/").unwrap_or(group));
            let number = |file: &str| -> Option<u64> {
                fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
            };
            let (Some(total_bytes), Some(used_bytes)) = (number(limit), number(usage)) else { continue };
            let available_bytes = total_bytes.saturating_sub(used_bytes.saturating_sub(file_bytes(&group)));
            found.push(HostMemory { total_bytes, available_bytes });
        }
    }
    found
}

/// What the kernel holds of files for a group, and gives up before it ends anybody.
fn file_bytes(group: &Path) -> u64 {
    let text = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    // Version 1 counts the groups below under other names.
    let of = |name: &str| field(&format!("total_{name}")).or_else(|| field(name)).unwrap_or(0);
    of("active_file") + of("inactive_file")
}

/// What the cache should be bounded by now, given what it holds.
pub fn target_bytes(memory: HostMemory, held_bytes: u64, bound_bytes: u64) -> u64 {
    let spare = memory.total_bytes / SPARE_PART;
    let room = memory.available_bytes + held_bytes;
    room.saturating_sub(spare).clamp(CACHE_BYTES_MIN.min(bound_bytes), bound_bytes)
}

/// The bound where none is given: half of that memory.
pub fn default_bound_bytes(memory: Option<HostMemory>) -> u64 {
    memory.map_or(256 << 20, |memory| memory.total_bytes / 2)
}

/// Most bytes of index where no bound is given: a part of that memory.
pub fn default_index_bytes(memory: Option<HostMemory>) -> u64 {
    memory.map_or(1 << 30, |memory| memory.total_bytes / INDEX_MEMORY_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container with 4 GiB on a host with 256 it took up to 128, and was ended.
    #[test]
    fn the_limit_of_a_control_group_counts_as_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let read = || {
            HostMemory::read_below(folder.path()).map(|memory| (memory.total_bytes, memory.available_bytes))
        };
        assert_eq!(read(), None);
        file("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
        let host = Some((16 << 30, 8 << 30));
        assert_eq!(read(), host);
        file("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/docker/a\n0::/a.slice/b.service\n");
        assert_eq!(read(), host);
        file("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        file("sys/fs/cgroup/a.slice/b.service/memory.current", "1048576\n");
        file("sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "9223372036854771712\n");
        file("sys/fs/cgroup/memory/docker/a/memory.usage_in_bytes", "1048576\n");
        assert_eq!(read(), host, "nothing is limited");
        file("sys/fs/cgroup/a.slice/memory.max", &format!("{}\n", 4_u64 << 30));
        file("sys/fs/cgroup/a.slice/memory.current", &format!("{}\n", 3_u64 << 30));
        assert_eq!(read(), Some((4 << 30, 1 << 30)));
        file(
            "sys/fs/cgroup/a.slice/memory.stat",
            &format!("anon 5\nactive_file {}\ninactive_file 4096\n", 1_u64 << 30),
        );
        assert_eq!(read(), Some((4 << 30, (2 << 30) + 4096)), "files can be given up");
        file("sys/fs/cgroup/memory/memory.limit_in_bytes", &format!("{}\n", 2_u64 << 30));
        file("sys/fs/cgroup/memory/memory.usage_in_bytes", &format!("{}\n", 3_u64 << 30));
        file("sys/fs/cgroup/memory/memory.stat", "active_file 1\ntotal_active_file 8192\n");
        assert_eq!(read(), Some((2 << 30, 0)), "more is used than is allowed");
        let memory = HostMemory::read_below(folder.path()).unwrap();
        assert_eq!(default_bound_bytes(Some(memory)), 1 << 30);
        assert_eq!(target_bytes(memory, 1 << 30, 64 << 30), 768 << 20);
    }

    #[test]
    fn gives_way_when_others_need_memory() {
        let memory =
            HostMemory::parse("MemTotal:  16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n").unwrap();
        assert_eq!(memory, HostMemory { total_bytes: 16 << 30, available_bytes: 8 << 30 });
        assert_eq!(target_bytes(memory, 0, 64 << 30), 6 << 30);
        assert_eq!(target_bytes(memory, 0, 1 << 30), 1 << 30);
        let tight = HostMemory { available_bytes: 1 << 30, ..memory };
        assert_eq!(target_bytes(tight, 3 << 30, 64 << 30), 2 << 30);
        assert_eq!(target_bytes(tight, 0, 64 << 30), 16 << 20);
    }
}
