//! Memory: swap, what is left for caches, and huge pages.

use std::path::Path;

use super::finding::{Finding, Level};
use super::place::unescaped;
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

/// A place for what is swapped out.
struct Swap {
    /// A device or file.
    name: String,
    size_kib: u64,
    used_kib: u64,
    /// The kernel's own choice is below 0, and cannot be asked for.
    priority: i64,
    is_in_memory: bool,
}

/// All places for what is swapped out; `None` where the kernel does not say.
fn swaps(root: &HostRoot) -> Option<Vec<Swap>> {
    let text = root.text("/proc/swaps")?;
    let swap = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (name, _type) = (unescaped(fields.next()?), fields.next()?);
        let (size_kib, used_kib) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let priority = fields.next()?.parse().ok()?;
        let is_in_memory = is_in_memory(root, &name);
        Some(Swap { name, size_kib, used_kib, priority, is_in_memory })
    };
    Some(text.lines().skip(1).filter_map(swap).collect())
}

/// Whether it is compressed memory, of which nothing goes to a drive.
fn is_in_memory(root: &HostRoot, swap: &str) -> bool {
    let name = swap.strip_prefix("/dev/").unwrap_or(swap);
    let behind = root.text(&format!("/sys/block/{name}/backing_dev"));
    name.starts_with("zram") && behind.is_none_or(|behind| behind == "none")
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/_-.:@".contains(letter);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

fn swap(root: &HostRoot) -> Finding {
    const CODE: &str = "SWAP";
    let Some(swaps) = swaps(root) else { return Finding::unknown(CODE, HOST, "") };
    let (in_memory, on_drives): (Vec<Swap>, Vec<Swap>) =
        swaps.into_iter().partition(|swap| swap.is_in_memory);
    let told = |swaps: &[Swap]| {
        let sum = |of: fn(&Swap) -> u64| size(swaps.iter().map(of).sum());
        format!("{}, {} in use", sum(|swap| swap.size_kib), sum(|swap| swap.used_kib))
    };
    if on_drives.is_empty() {
        let finding = Finding::new(CODE, HOST);
        return match in_memory.as_slice() {
            [] => finding.is("off"),
            swaps => finding
                .level(Level::Info)
                .is(format!("compressed in memory, {}", told(swaps)))
                .why("What is swapped out waits for no drive, but costs CPU time when it is needed."),
        };
    }
    let level = if on_drives.iter().any(|swap| swap.used_kib > 0) { Level::Warning } else { Level::Advice };
    let names: Vec<String> = on_drives.iter().map(|swap| quoted(&swap.name)).collect();
    let on = |swap: &Swap| match swap.priority {
        priority @ 0.. => format!("swapon -p {priority} {}", quoted(&swap.name)),
        _ => format!("swapon {}", quoted(&swap.name)),
    };
    let undo: Vec<String> = on_drives.iter().map(on).collect();
    Finding::new(CODE, HOST)
        .is(told(&on_drives))
        .should_be(level, "off")
        .why(
            "A request that touches memory which was swapped out waits for a drive, often the very one that is busy. \
             Caches shrink by themselves when memory is short; swap is not needed for that.",
        )
        // Not applied: it takes as long as what is swapped needs to be read, and may end with memory used up.
        .how(format!(
            "swapoff {}, once `free -m` shows room for what is in use; for good: take it out of /etc/fstab, or of what else turns it on",
            names.join(" ")
        ))
        .undo(undo.join("; "))
}

fn swappiness(root: &HostRoot) -> Option<Finding> {
    const CODE: &str = "SWAPPINESS";
    let Some(value) = root.number("/proc/sys/vm/swappiness") else {
        return Some(Finding::unknown(CODE, HOST, ""));
    };
    let swaps = swaps(root)?;
    // Without swap it does nothing, and what is compressed in memory is worth more of it.
    if swaps.iter().all(|swap| swap.is_in_memory) {
        let with = if swaps.is_empty() { "without swap" } else { "with swap in memory only" };
        return Some(Finding::new(CODE, HOST).is(format!("{value}, {with}")));
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
    // A control group counts as the host where it has less, as it does for Coquina's cache.
    let of_group = |group: Group| {
        (group.limit_kib, group.available_kib, format!(", by the control group {}", group.name))
    };
    let groups = groups(root).into_iter().filter(|group| group.limit_kib < total).map(of_group);
    let share = |total: u64, available: u64| available.min(total) * 100 / total.max(1);
    let host = (total, available, String::new());
    // Of equal ones the first: the host.
    let least =
        std::iter::once(host).chain(groups).min_by_key(|(total, available, _)| share(*total, *available));
    let (total, available, by) = least.unwrap_or((total, available, String::new()));
    let percent = share(total, available);
    let finding = Finding::new(CODE, HOST).is(format!(
        "{} of {} available ({percent} %){by}",
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
    let group = groups(root).into_iter().min_by_key(|group| group.limit_kib)?;
    (group.limit_kib < total).then(|| {
        Finding::new("MEMORY_LIMIT", HOST).is(format!(
            "{} of {}, by the control group {}",
            size(group.limit_kib),
            size(total),
            group.name
        ))
    })
}

/// A control group that limits memory.
struct Group {
    name: String,
    limit_kib: u64,
    /// What it has left when the kernel gives up what it holds of files; all where that is not shown.
    available_kib: u64,
}

/// The control groups of this process, and those above it, that limit memory.
fn groups(root: &HostRoot) -> Vec<Group> {
    let text = root.text("/proc/self/cgroup").unwrap_or_default();
    let mut groups = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(names), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (folder, limit, usage) = match names {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            names if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        // `max` is no number. What version 1 writes where nothing is limited is more than any host has.
        let of_group = |group: &Path| {
            let name = group.display().to_string();
            let folder = format!("{folder}{}", name.trim_end_matches('/'));
            let limit = root.number(&format!("{folder}/{limit}"))?;
            let usage = root.number(&format!("{folder}/{usage}")).unwrap_or(0);
            let used = usage.saturating_sub(file_bytes(root, &folder));
            Some(Group { name, limit_kib: limit >> 10, available_kib: limit.saturating_sub(used) >> 10 })
        };
        groups.extend(Path::new(group).ancestors().filter_map(of_group));
    }
    groups
}

/// What the kernel holds of files for a control group.
fn file_bytes(root: &HostRoot, folder: &str) -> u64 {
    let text = root.text(&format!("{folder}/memory.stat")).unwrap_or_default();
    let field = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    // Version 1 counts the groups below under other names.
    let of = |name: &str| field(&format!("total_{name}")).or_else(|| field(name)).unwrap_or(0);
    of("active_file") + of("inactive_file")
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
        let used_kib = swap_kib - swap_free_kib;
        match swap_kib {
            0 => swaps_of(&host, &[]),
            _ => swaps_of(&host, &[&format!("/dev/sda2 partition {swap_kib} {used_kib} -2")]),
        }
        host
    }

    fn swaps_of(host: &TestHost, lines: &[&str]) {
        let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority";
        host.file("proc/swaps", &format!("{}\n", [&[head], lines].concat().join("\n")));
    }

    #[test]
    fn swap_in_memory_waits_for_no_drive_and_what_is_on_one_can_be_turned_on_again() {
        let host = host(1, 0, 0);
        let zram = "/dev/zram0 partition 4194304 49152 100";
        swaps_of(&host, &[zram]);
        let finding = swap(&host.root());
        assert_eq!((finding.level, &finding.undo), (Level::Info, &None));
        assert_eq!(finding.is, "compressed in memory, 4.0 GiB, 48 MiB in use");
        assert_eq!(swappiness(&host.root()).unwrap().level, Level::Ok);
        swaps_of(&host, &[zram, "/swap\\040file\t\tfile\t1048576\t0\t5", "/dev/dm-1 partition 1048576 0 -2"]);
        let finding = swap(&host.root());
        assert_eq!((finding.level, finding.is.as_str()), (Level::Advice, "2.0 GiB, 0 MiB in use"));
        assert!(finding.how.starts_with("swapoff '/swap file' /dev/dm-1, once"), "{finding:?}");
        assert_eq!(finding.undo.as_deref(), Some("swapon -p 5 '/swap file'; swapon /dev/dm-1"));
        assert_eq!(swappiness(&host.root()).unwrap().level, Level::Advice);
        // It writes to a drive what it cannot hold.
        swaps_of(&host, &[zram]);
        host.file("sys/block/zram0/backing_dev", "/dev/sda3\n");
        assert_eq!(swap(&host.root()).level, Level::Warning);
        host.file("sys/block/zram0/backing_dev", "none\n");
        assert_eq!(swap(&host.root()).level, Level::Info);
    }

    #[test]
    fn a_control_group_that_is_nearly_full_leaves_no_memory_for_caches() {
        let host = host(900_000, 0, 0);
        host.file("proc/self/cgroup", "0::/system.slice/coquina.service\n");
        let folder = "sys/fs/cgroup/system.slice";
        host.file(&format!("{folder}/memory.max"), &format!("{}\n", 400 << 20));
        host.file(&format!("{folder}/memory.current"), &format!("{}\n", 380 << 20));
        let finding = cache(&host.root());
        let text = "20 MiB of 400 MiB available (5 %), by the control group /system.slice";
        assert_eq!((finding.level, finding.is.as_str()), (Level::Warning, text));
        // What it holds of files the kernel gives up.
        host.file(
            &format!("{folder}/memory.stat"),
            "anon 5\nactive_file 104857600\ninactive_file 104857600\n",
        );
        let finding = cache(&host.root());
        let text = "220 MiB of 400 MiB available (55 %), by the control group /system.slice";
        assert_eq!((finding.level, finding.is.as_str()), (Level::Ok, text));
        host.file(&format!("{folder}/memory.max"), "max\n");
        assert!(!cache(&host.root()).is.contains("control group"));
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
