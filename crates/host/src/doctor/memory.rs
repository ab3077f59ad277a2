//! Memory: swap, what is left for caches, and huge pages.

use std::path::Path;

use super::finding::{Finding, Level};
use super::root::HostRoot;
use super::setting;

const HOST: &str = "host";

/// Swaps only what cannot be held otherwise.
const SWAPPINESS: u64 = 10;

/// Looks at the memory.
pub fn check(root: &HostRoot) -> Vec<Finding> {
    let mut findings = vec![swap(root)];
    findings.extend(swappiness(root));
    findings.push(cache(root));
    findings.extend(group_limit(root));
    findings.push(huge_pages(root));
    findings
}

/// A value of `/proc/meminfo` in KiB.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// For people, in GiB or MiB.
fn size(kib: u64) -> String {
    if kib >= 1 << 20 { format!("{:.1} GiB", kib as f64 / 1_048_576.0) } else { format!("{} MiB", kib >> 10) }
}

/// Swap's size and what is used of it, in KiB.
fn swap_kib(root: &HostRoot) -> Option<(u64, u64)> {
    let text = root.text("/proc/meminfo")?;
    let total = kib(&text, "SwapTotal")?;
    Some((total, total.saturating_sub(kib(&text, "SwapFree")?)))
}

fn swap(root: &HostRoot) -> Finding {
    const CODE: &str = "SWAP";
    let Some((total, used)) = swap_kib(root) else { return Finding::unknown(CODE, HOST, "") };
    if total == 0 {
        return Finding::new(CODE, HOST).is("off");
    }
    let level = if used > 0 { Level::Warning } else { Level::Advice };
    Finding::new(CODE, HOST)
        .is(format!("{}, {} in use", size(total), size(used)))
        .should_be(level, "off")
        .why(
            "A request that touches memory which was swapped out waits for a drive, often the very one that is busy. \
             Caches shrink by themselves when memory is short; swap is not needed for that.",
        )
        // Not applied: it takes as long as what is swapped needs to be read, and may end with memory used up.
        .how("swapoff -a, once `free -m` shows room for what is in use; for good: take it out of /etc/fstab")
        .undo("swapon -a")
}

fn swappiness(root: &HostRoot) -> Option<Finding> {
    const CODE: &str = "SWAPPINESS";
    let Some(value) = root.number("/proc/sys/vm/swappiness") else {
        return Some(Finding::unknown(CODE, HOST, ""));
    };
    // Without swap it does nothing.
    let has_swap = swap_kib(root)?.0 > 0;
    if !has_swap {
        return Some(Finding::new(CODE, HOST).is(format!("{value}, without swap")));
    }
    let finding = Finding::new(CODE, HOST).is(value.to_string());
    if value <= SWAPPINESS {
        return Some(finding);
    }
    let finding = finding
        .should_be(Level::Advice, "1")
        .why("As long as swap is on, this keeps the kernel from swapping programs out to make its page cache larger.")
        .how("sysctl vm.swappiness=1");
    Some(finding.change(root, "swappiness", "1"))
}

fn cache(root: &HostRoot) -> Finding {
    const CODE: &str = "MEMORY_FOR_CACHE";
    let text = root.text("/proc/meminfo").unwrap_or_default();
    let (Some(total), Some(available)) = (kib(&text, "MemTotal"), kib(&text, "MemAvailable")) else {
        return Finding::unknown(CODE, HOST, "");
    };
    let percent = available.min(total) * 100 / total.max(1);
    let finding = Finding::new(CODE, HOST).is(format!(
        "{} of {} available ({percent} %)",
        size(available),
        size(total)
    ));
    // Coquina's cache leaves an eighth of the memory to others.
    let level = match percent {
        0..=12 => Level::Warning,
        13..=24 => Level::Advice,
        _ => return finding,
    };
    finding
        .should_be(level, "a quarter or more")
        .why(
            "Caches take what a host can spare, and reads that miss them wait for the drives. Coquina leaves an eighth \
             of the memory to others, so below that its cache is empty.",
        )
        .how("see who has it: ps aux --sort=-rss | head; move it to another host, bound it, or add memory")
}

/// Whether a control group gives this session, and what is started in the same way, less than the host has, as containers mostly do. Coquina
/// takes the group's memory for the host's.
fn group_limit(root: &HostRoot) -> Option<Finding> {
    let total = kib(&root.text("/proc/meminfo")?, "MemTotal")?;
    let (limit, group) = least_limit_kib(root)?;
    (limit < total).then(|| {
        Finding::new("MEMORY_LIMIT", HOST).is(format!(
            "{} of {}, by the control group {group}",
            size(limit),
            size(total)
        ))
    })
}

/// The least that any control group of this process, or above it, allows, in KiB, and its name. `None` where nothing is limited.
fn least_limit_kib(root: &HostRoot) -> Option<(u64, String)> {
    let text = root.text("/proc/self/cgroup")?;
    let mut limits: Vec<(u64, String)> = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(names), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (folder, file) = match names {
            "" => ("/sys/fs/cgroup", "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // `max` is no number. What version 1 writes where nothing is limited is more than any host has.
        let limit = |group: &Path| {
            let group = group.display().to_string();
            let bytes = root.number(&format!("{folder}{}/{file}", group.trim_end_matches('/')))?;
            Some((bytes >> 10, group))
        };
        limits.extend(Path::new(group).ancestors().filter_map(limit));
    }
    limits.into_iter().min_by_key(|(limit, _)| *limit)
}

fn huge_pages(root: &HostRoot) -> Finding {
    const CODE: &str = "HUGE_PAGES";
    const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";
    let Some(enabled) = root.text(&format!("{FOLDER}/enabled")) else {
        return Finding::unknown(CODE, HOST, "");
    };
    let enabled = setting::chosen(&enabled).to_owned();
    let defrag = root.text(&format!("{FOLDER}/defrag")).unwrap_or_default();
    let finding = Finding::new(CODE, HOST).is(enabled.clone());
    // Huge pages as such do no harm. What does is waiting for memory to be moved together, for everybody.
    if enabled != "always" || setting::chosen(&defrag) != "always" {
        return finding;
    }
    finding
        .is("always, with defrag always")
        .should_be(Level::Advice, "madvise")
        .why(
            "Any program that touches new memory may wait for milliseconds while the kernel moves pages together: \
             that shows as rare slow requests.",
        )
        .how(format!("echo madvise > {FOLDER}/enabled"))
        .change(root, "thp", "madvise")
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    fn host(available_kib: u64, swap_kib: u64, swap_free_kib: u64) -> TestHost {
        let host = TestHost::empty();
        let text = format!(
            "MemTotal:  1000000 kB\nMemFree: 1 kB\nMemAvailable: {available_kib} kB\nSwapCached: 7 kB\n\
             SwapTotal: {swap_kib} kB\nSwapFree: {swap_free_kib} kB\n"
        );
        host.file("proc/meminfo", &text);
        host.file("proc/sys/vm/swappiness", "60\n");
        host
    }

    #[test]
    fn swap_is_worse_when_it_is_used() {
        assert_eq!(swap(&host(1, 0, 0).root()).level, Level::Ok);
        assert_eq!(swap(&host(1, 4_194_304, 4_194_304).root()).level, Level::Advice);
        let finding = swap(&host(1, 4_194_304, 4_145_152).root());
        assert_eq!((finding.level, finding.is.as_str()), (Level::Warning, "4.0 GiB, 48 MiB in use"));
        assert!(finding.change.is_none());
    }

    #[test]
    fn swappiness_matters_where_there_is_swap() {
        assert_eq!(swappiness(&host(1, 0, 0).root()).unwrap().level, Level::Ok);
        let finding = swappiness(&host(1, 5, 5).root()).unwrap();
        assert_eq!(finding.level, Level::Advice);
        assert_eq!(finding.undo.as_deref(), Some("sysctl vm.swappiness=60"));
        assert_eq!(finding.change.unwrap().key, "swappiness");
    }

    #[test]
    fn caches_need_memory() {
        for (available_kib, level) in [
            (900_000, Level::Ok),
            (250_000, Level::Ok),
            (200_000, Level::Advice),
            (100_000, Level::Warning),
            (0, Level::Warning),
        ] {
            assert_eq!(cache(&host(available_kib, 0, 0).root()).level, level, "{available_kib}");
        }
    }

    #[test]
    fn a_control_group_that_gives_less_than_the_host_has_is_told() {
        let host = host(900_000, 0, 0);
        let told = || group_limit(&host.root()).map(|finding| (finding.level, finding.is));
        assert_eq!(told(), None);
        host.file(
            "proc/self/cgroup",
            "12:cpu,cpuacct:/x\n4:memory:/docker/a\n0::/system.slice/coquina.service\n",
        );
        host.file("sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "9223372036854771712\n");
        host.file("sys/fs/cgroup/system.slice/coquina.service/memory.max", "max\n");
        assert_eq!(told(), None);
        host.file("sys/fs/cgroup/system.slice/memory.max", "536870912\n");
        let text = "512 MiB of 976 MiB, by the control group /system.slice";
        assert_eq!(told(), Some((Level::Ok, text.to_owned())));
        // The kernel's own limit of a container is that of the group that it sees as the outermost one.
        host.file("proc/self/cgroup", "0::/\n");
        host.file("sys/fs/cgroup/memory.max", "104857600\n");
        assert!(told().unwrap().1.starts_with("100 MiB of"));
    }

    #[test]
    fn huge_pages_are_left_alone_unless_everybody_waits_for_them() {
        let host = TestHost::empty();
        let folder = "sys/kernel/mm/transparent_hugepage";
        for (enabled, defrag, level) in [
            ("always [madvise] never", "[always] defer madvise", Level::Ok),
            ("[always] madvise never", "always defer [madvise]", Level::Ok),
            ("[always] madvise never", "[always] defer madvise", Level::Advice),
        ] {
            host.file(&format!("{folder}/enabled"), enabled);
            host.file(&format!("{folder}/defrag"), defrag);
            let finding = huge_pages(&host.root());
            assert_eq!(finding.level, level, "{enabled} {defrag}");
            assert_eq!(finding.change.is_some(), level == Level::Advice);
        }
    }
}
