//! Interrupts of drives and network interfaces: whether their queues share one core.
//!
//! Each queue's interrupts belong to the core that got most of them. What counts is whether busy queues are on different
//! cores, and whether one has most of many, not how busy each is: one queue may well do most of the work.

use std::collections::BTreeMap;

use super::finding::{Finding, Level};
use super::root::HostRoot;

const CODE: &str = "INTERRUPTS";
/// A queue with fewer since the start of the host says nothing.
const BUSY_INTERRUPTS: u64 = 1000;
/// Of so many busy queues more than half are too many for one core, where there are as many cores.
const MANY_QUEUES: usize = 4;

/// An interrupt of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Queue {
    irq: u32,
    /// The drive, interface or adapter that it belongs to.
    device: String,
    interrupts: u64,
    /// The number of the core that got most of them.
    core: u32,
}

/// Looks at where interrupts go.
pub fn check(root: &HostRoot) -> Vec<Finding> {
    let Some(text) = root.text("/proc/interrupts") else {
        return vec![Finding::unknown(CODE, "host", "")];
    };
    // Columns are of cores that are online, whose numbers need not follow each other.
    let columns = text.lines().next().unwrap_or_default().split_ascii_whitespace();
    let numbers: Vec<u32> = columns.filter_map(|column| column.strip_prefix("CPU")?.parse().ok()).collect();
    let cores = numbers.len();
    let queues = queues(root, &text, &numbers);
    let mut devices: BTreeMap<&str, Vec<&Queue>> = BTreeMap::new();
    for queue in queues.iter().filter(|queue| queue.interrupts >= BUSY_INTERRUPTS) {
        devices.entry(&queue.device).or_default().push(queue);
    }
    if cores < 2 || devices.is_empty() {
        let why = if cores < 2 { "one core takes all" } else { "no drive or interface had enough to say" };
        return vec![Finding::new(CODE, "host").level(Level::Info).is(why)];
    }
    let mut findings: Vec<Finding> =
        devices.iter().map(|(device, queues)| spread(root, device, queues, &numbers)).collect();
    let all: Vec<&Queue> = devices.values().flatten().copied().collect();
    // Devices with a queue each can still meet on one core.
    if devices.len() > 1 && findings.iter().all(|finding| finding.level < Level::Advice) && on_one_core(&all)
    {
        findings.push(spread(root, "all drives and interfaces", &all, &numbers));
    }
    findings
}

fn on_one_core(queues: &[&Queue]) -> bool {
    queues.len() > 1 && queues.iter().all(|queue| queue.core == queues[0].core)
}

/// The core with most of the queues, and how many these are.
fn fullest_core(queues: &[&Queue]) -> (u32, usize) {
    let mut by_core: BTreeMap<u32, usize> = BTreeMap::new();
    queues.iter().for_each(|queue| *by_core.entry(queue.core).or_default() += 1);
    by_core.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default()
}

fn spread(root: &HostRoot, subject: &str, queues: &[&Queue], cores: &[u32]) -> Finding {
    let mut used: Vec<u32> = queues.iter().map(|queue| queue.core).collect();
    used.sort_unstable();
    used.dedup();
    let busy =
        if queues.len() == 1 { "1 busy queue".to_owned() } else { format!("{} busy queues", queues.len()) };
    let on = if used.len() == 1 { format!("core {}", used[0]) } else { format!("{} cores", used.len()) };
    let (fullest, count) = fullest_core(queues);
    let has_most = queues.len() >= MANY_QUEUES
        && cores.len() >= queues.len()
        && count * 2 > queues.len()
        && count < queues.len();
    let most = if has_most { format!(", {count} of them on core {fullest}") } else { String::new() };
    let finding = Finding::new(CODE, subject).is(format!("{busy} on {on}{most}"));
    if !has_most && !on_one_core(queues) {
        return finding;
    }
    let level = if has_most { Level::Advice } else { Level::Warning };
    let affinity = |irq: u32| root.text(&format!("/proc/irq/{irq}/smp_affinity_list"));
    let commands = |value: &dyn Fn(usize, &Queue) -> Option<String>| -> Vec<String> {
        let each = queues.iter().enumerate().filter_map(|(index, queue)| {
            Some(format!("echo {} > /proc/irq/{}/smp_affinity_list", value(index, queue)?, queue.irq))
        });
        each.collect()
    };
    let how = commands(&|index, _| Some(cores[index % cores.len()].to_string()));
    let undo = commands(&|_, queue| affinity(queue.irq));
    let finding = finding
        .should_be(level, "spread over the cores")
        .why(
            match has_most {
                true => {
                    "One core handles most completions and packets; when it is full, drives and network wait for it while other \
                     cores are idle."
                }
                false => {
                    "One core handles all completions and packets; when it is full, drives and network wait for it while other \
                     cores are idle."
                }
            },
        )
        .how(format!(
            "start irqbalance, or without it: {}. Queues of NVMe drives that the kernel places itself refuse that",
            how.join("; ")
        ));
    if undo.len() == queues.len() { finding.undo(undo.join("; ")) } else { finding }
}

fn queues(root: &HostRoot, text: &str, cores: &[u32]) -> Vec<Queue> {
    let interfaces = root.names("/sys/class/net");
    let names = |folder: &str, link: &str| -> Vec<(String, String)> {
        let names = root.names(folder).into_iter();
        let devices = names.filter_map(|name| {
            let device = root.link(&format!("{folder}/{name}/{link}"))?;
            Some((device.file_name()?.to_str()?.to_owned(), name))
        });
        devices.collect()
    };
    // Devices of virtual machines are named by their bus.
    let mut virtio = names("/sys/class/net", "device");
    virtio.iter_mut().for_each(|(_, name)| *name = format!("interface {name}"));
    virtio
        .extend(names("/sys/block", "device").into_iter().map(|(bus, name)| (bus, format!("drive {name}"))));
    let queue = |line: &str| {
        let (irq, rest) = line.split_once(':')?;
        let irq = irq.trim().parse().ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let counts: Vec<u64> =
            fields.by_ref().take(cores.len()).map_while(|field| field.parse().ok()).collect();
        if counts.len() < cores.len() {
            return None;
        }
        let device = fields.find_map(|name| device_of(name.trim_end_matches(','), &interfaces, &virtio))?;
        let (core, _) = cores.iter().zip(&counts).max_by_key(|(_, count)| **count)?;
        Some(Queue { irq, device, interrupts: counts.iter().sum(), core: *core })
    };
    text.lines().filter_map(queue).collect()
}

/// What the name of an interrupt belongs to. `None` for what does no I/O, and for queues for commands only.
fn device_of(name: &str, interfaces: &[String], virtio: &[(String, String)]) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if let Some((number, queue)) = name.strip_prefix("nvme").and_then(|rest| rest.split_once('q')) {
        return (is_number(number) && is_number(queue) && queue != "0")
            .then(|| format!("drive nvme{number}"));
    }
    if let Some((bus, queue)) = name.split_once('-').filter(|(bus, _)| bus.starts_with("virtio")) {
        let is_io = ["req", "input", "output", "rx", "tx"].iter().any(|kind| queue.starts_with(kind));
        let (_, known) = virtio.iter().find(|(device, _)| device == bus)?;
        return is_io.then(|| known.clone());
    }
    if let Some((_, bus)) = name.split_once('@').filter(|(queue, _)| queue.starts_with("mlx5_comp")) {
        return Some(format!("adapter {bus}"));
    }
    if let Some(adapter) =
        ["mpt3sas", "mpi3mr", "megasas", "smartpqi", "ahci"].iter().find(|kind| name.starts_with(**kind))
    {
        let end = name[adapter.len()..].find('-').map_or(name.len(), |end| adapter.len() + end);
        return Some(format!("adapter {}", &name[..end]));
    }
    let mut parts = name.split(['-', ':', '@']);
    let interface = parts.find(|part| interfaces.iter().any(|interface| interface == part))?;
    Some(format!("interface {interface}"))
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    const HEADER: &str = "            CPU0       CPU1       CPU2       CPU3\n";

    fn host(lines: &str) -> TestHost {
        let host = TestHost::empty();
        host.file("proc/interrupts", &format!("{HEADER}{lines}"));
        host.folder("sys/class/net/eth0");
        for irq in 30..34 {
            host.file(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
        }
        host
    }

    #[test]
    fn queues_that_share_one_core_are_named_with_what_spreads_them() {
        let host = host(
            " 29:  5 0 0 0  PCI-MSIX-0000:01:00.0  0-edge  nvme0q0\n\
             30:  50000 1 0 0  PCI-MSIX-0000:01:00.0  1-edge  nvme0q1\n\
             31:  40000 0 3 0  PCI-MSIX-0000:01:00.0  2-edge  nvme0q2\n\
             NMI: 1 2 3 4 Non-maskable interrupts\nERR: 0\n",
        );
        let findings = check(&host.root());
        assert_eq!(findings.len(), 1, "{findings:?}");
        let finding = &findings[0];
        assert_eq!((finding.level, finding.subject.as_str()), (Level::Warning, "drive nvme0"));
        assert_eq!(finding.is, "2 busy queues on core 0");
        assert!(finding.how.contains("echo 1 > /proc/irq/31/smp_affinity_list"), "{finding:?}");
        let undo = "echo 0-3 > /proc/irq/30/smp_affinity_list; echo 0-3 > /proc/irq/31/smp_affinity_list";
        assert_eq!(finding.undo.as_deref(), Some(undo));
    }

    #[test]
    fn spread_queues_are_fine_and_idle_ones_do_not_count() {
        let host = host(
            "30:  50000 0 0 0  PCI-MSI 1-edge  eth0-TxRx-0\n\
             31:  0 0 40000 0  PCI-MSI 2-edge  eth0-TxRx-1\n\
             32:  5 0 0 0  PCI-MSI 3-edge  eth0-TxRx-2\n",
        );
        let findings = check(&host.root());
        assert_eq!((findings[0].level, findings[0].is.as_str()), (Level::Ok, "2 busy queues on 2 cores"));
    }

    #[test]
    fn cores_that_are_offline_are_not_counted_as_those_before_them() {
        let host = host("");
        host.file(
            "proc/interrupts",
            "  CPU0  CPU2  CPU6\n30: 0 50000 0 PCI-MSI 1-edge eth0-TxRx-0\n31: 0 40000 0 PCI-MSI 2-edge eth0-TxRx-1\n",
        );
        let finding = &check(&host.root())[0];
        assert_eq!((finding.level, finding.is.as_str()), (Level::Warning, "2 busy queues on core 2"));
        assert!(finding.how.contains("echo 2 > /proc/irq/31/smp_affinity_list"), "{finding:?}");
    }

    #[test]
    fn most_of_many_queues_on_one_core_are_told() {
        let lines = |cores: &[usize]| -> String {
            let line = |(index, core): (usize, &usize)| {
                let counts: Vec<&str> = (0..4).map(|at| if at == *core { "50000" } else { "1" }).collect();
                format!("{}: {} PCI-MSI {index}-edge eth0-TxRx-{index}\n", 30 + index, counts.join(" "))
            };
            cores.iter().enumerate().map(line).collect()
        };
        let found = |cores: &[usize]| check(&host(&lines(cores)).root()).remove(0);
        let most = found(&[0, 0, 1, 0]);
        assert_eq!(
            (most.level, most.is.as_str()),
            (Level::Advice, "4 busy queues on 2 cores, 3 of them on core 0")
        );
        assert!(most.how.contains("echo 1 > /proc/irq/31/smp_affinity_list"), "{most:?}");
        assert!(most.undo.is_some());
        assert_eq!(found(&[0, 0, 1, 2]).level, Level::Ok, "half of them");
        assert_eq!(found(&[0, 0, 1]).level, Level::Ok, "few");
        assert_eq!(found(&[0, 0, 0, 0, 1]).level, Level::Ok, "more queues than cores");
        assert_eq!(found(&[0, 0, 0, 0]).level, Level::Warning, "all of them");
    }

    #[test]
    fn devices_with_a_queue_each_may_meet_on_one_core() {
        let host = host(
            "30:  0 50000 0 0  PCI-MSI 1-edge  virtio1-req.0\n\
             31:  0 40000 0 0  PCI-MSI 2-edge  virtio2-input.0\n\
             32:  0 90000 0 0  PCI-MSI 2-edge  virtio2-config\n",
        );
        host.folder("sys/devices/virtio1");
        host.folder("sys/devices/virtio2");
        host.link("sys/block/vda/device", "../../../devices/virtio1");
        host.link("sys/class/net/eth0/device", "../../../devices/virtio2");
        let findings = check(&host.root());
        let subjects: Vec<&str> = findings.iter().map(|finding| finding.subject.as_str()).collect();
        assert_eq!(subjects, ["drive vda", "interface eth0", "all drives and interfaces"]);
        assert_eq!(findings[2].level, Level::Warning);
    }

    #[test]
    fn nothing_busy_or_one_core_says_so() {
        assert_eq!(check(&host("").root())[0].level, Level::Info);
        let one = TestHost::empty();
        one.file("proc/interrupts", "  CPU0\n 30:  50000  PCI-MSI nvme0q1\n");
        assert_eq!(check(&one.root())[0].is, "one core takes all");
        let garbage = TestHost::empty();
        garbage.file("proc/interrupts", "\u{fffd}: : :\n1:\n");
        assert_eq!(check(&garbage.root()).len(), 1);
    }

    #[test]
    fn names_of_interrupts_are_told_apart() {
        let interfaces = ["eno1".to_owned()];
        for (name, device) in [
            ("nvme12q3", Some("drive nvme12")),
            ("nvme0q0", None),
            ("i40e-eno1-TxRx-3", Some("interface eno1")),
            ("mlx5_comp4@pci:0000:81:00.0", Some("adapter pci:0000:81:00.0")),
            ("mpt3sas0-msix7", Some("adapter mpt3sas0")),
            ("ahci[0000:00:17.0]", Some("adapter ahci[0000:00:17.0]")),
            ("i8042", None),
            ("nvmeXqY", None),
            ("virtio9-req.0", None),
        ] {
            assert_eq!(device_of(name, &interfaces, &[]).as_deref(), device, "{name}");
        }
    }
}
