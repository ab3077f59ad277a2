//! The CPU: what sets its frequency, and how its cores are made up.

use super::finding::{Finding, Level};
use super::root::HostRoot;
use super::setting::os_setting_at;

const HOST: &str = "host";
const FOLDER: &str = "/sys/devices/system/cpu";

/// Looks at the CPU.
pub fn check(root: &HostRoot) -> Vec<Finding> {
    vec![governor(root), shape(root)]
}

fn governor(root: &HostRoot) -> Finding {
    const CODE: &str = "CPU_GOVERNOR";
    let Some(is) = os_setting_at(root, "governor").ok().and_then(|setting| setting.read().ok()) else {
        return Finding::unknown(CODE, HOST, "no cpufreq here")
            .why("In a virtual machine its host sets the frequency, on some servers the firmware does: look there.");
    };
    let finding = Finding::new(CODE, HOST).is(is.clone());
    if is == "performance" {
        return finding;
    }
    finding
        .should_be(Level::Advice, "performance")
        .why(
            "Cores that wait for I/O look idle and are clocked down, and each request then takes longer. It costs \
             electric power; leave it where that matters more.",
        )
        .how("cpupower frequency-set -g performance")
        .change(root, "governor", "performance")
}

/// How many cores, threads and memory nodes there are: figures depend on it.
fn shape(root: &HostRoot) -> Finding {
    const CODE: &str = "CPU_SHAPE";
    let online = root.text(&format!("{FOLDER}/online")).and_then(|list| count(&list));
    let Some(threads) = online else { return Finding::unknown(CODE, HOST, "") };
    let smt = match root.text(&format!("{FOLDER}/smt/active")).as_deref() {
        Some("1") => ", two or more to a core (SMT)",
        Some("0") => ", one to a core (no SMT)",
        _ => "",
    };
    let nodes = root.text("/sys/devices/system/node/online").and_then(|list| count(&list)).unwrap_or(1);
    let finding = Finding::new(CODE, HOST)
        .level(Level::Info)
        .is(format!("{threads} threads{smt}, NUMA nodes: {nodes}"));
    if nodes < 2 {
        return finding;
    }
    finding.why(
        "Memory and drives of the other node cost more to reach. A process for each node, bound with numactl to the node \
         of its drives (/sys/block/DRIVE/device/numa_node), keeps them near.",
    )
}

/// How many numbers a list such as `0-3,8` has.
fn count(list: &str) -> Option<usize> {
    list.split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    #[test]
    fn a_governor_that_saves_power_is_named_and_can_be_changed() {
        let host = TestHost::empty();
        assert_eq!(governor(&host.root()).level, Level::Unknown);
        let folder = "sys/devices/system/cpu/cpu0/cpufreq";
        host.file(&format!("{folder}/scaling_governor"), "powersave\n");
        host.file(&format!("{folder}/scaling_available_governors"), "performance powersave\n");
        let finding = governor(&host.root());
        assert_eq!((finding.level, finding.is.as_str()), (Level::Advice, "powersave"));
        assert_eq!(finding.change.unwrap().value, "performance");
        host.file(&format!("{folder}/scaling_governor"), "performance\n");
        assert_eq!(governor(&host.root()).level, Level::Ok);
    }

    #[test]
    fn the_shape_of_the_cpu_is_told() {
        let host = TestHost::empty();
        host.file("sys/devices/system/cpu/online", "0-15\n");
        host.file("sys/devices/system/cpu/smt/active", "1\n");
        host.file("sys/devices/system/node/online", "0-1\n");
        let finding = shape(&host.root());
        assert_eq!(finding.is, "16 threads, two or more to a core (SMT), NUMA nodes: 2");
        assert!(finding.why.contains("numactl") && finding.level == Level::Info);
    }

    #[test]
    fn lists_are_counted() {
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count("0"), Some(1));
        for bad in ["", "a", "3-1", "1,,2"] {
            assert_eq!(count(bad), None, "{bad}");
        }
    }
}
