//! Drives: the I/O scheduler, read-ahead and write cache by kind of drive.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Level};
use super::place::{
    Below, below, device_of_mount, devices_of_mounts, drives_named, drives_under, is_device, mount_of,
};
use super::root::HostRoot;
use super::setting;
use crate::drive::{drive_of_path, is_drive, is_virtual_at};

/// With less, several readers in order of a rotating drive wait more for seeks than for data: at 150 MB/s, 4 MiB take
/// 28 ms; a seek takes about 10 ms.
const READ_AHEAD_ROTATING_KIB: u64 = 4096;

/// What kind of drive it is: what the advice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rotating,
    SolidState,
    Nvme,
    /// Of a virtual machine, or of another host: what lies below is the business of that host.
    Virtual,
    /// A loop device, RAID or volume: what lies below is a file or are other drives of this host, which sort requests.
    Layer,
}

/// The drives to look at, and a finding for each path whose drive cannot be told.
pub struct Chosen {
    drives: Vec<String>,
    /// RAIDs and volumes that file systems on these are on: of such a one some settings count, and not those of what is below.
    layers: Vec<String>,
    unknown: Vec<Finding>,
}

/// Chooses the drives under `paths`, or all of the host where no path is given.
pub fn choose(root: &HostRoot, paths: &[PathBuf]) -> Chosen {
    if paths.is_empty() {
        let names = root.names("/sys/block").into_iter();
        let drives: Vec<String> = names.filter(|name| is_physical(root, name)).collect();
        let none =
            drives.is_empty().then(|| Finding::unknown("IO_SCHEDULER", "drives", "none is shown here"));
        let mut layers = devices_of_mounts(root);
        layers.retain(|device| is_of_parts(root, device));
        return Chosen { drives, layers, unknown: none.into_iter().collect() };
    }
    let mut chosen = Chosen { drives: Vec::new(), layers: Vec::new(), unknown: Vec::new() };
    for path in paths {
        let drives = drives_named(root, path);
        if drives.is_empty() {
            let subject = path.display().to_string();
            chosen.unknown.push(Finding::unknown("IO_SCHEDULER", subject, no_drive(root, path)));
        }
        chosen.drives.extend(drives);
        let device = if is_device(root, path) { None } else { device_of_mount(root, path) };
        chosen.layers.extend(device.filter(|device| is_of_parts(root, device)));
    }
    for names in [&mut chosen.drives, &mut chosen.layers] {
        names.sort();
        names.dedup();
    }
    let Chosen { drives, layers, .. } = &mut chosen;
    layers.retain(|layer| !drives.contains(layer));
    chosen
}

/// Whether it is a RAID, a volume, or another device that is made of others.
fn is_of_parts(root: &HostRoot, device: &str) -> bool {
    matches!(below(root, device), Some(Below::Parts(_)))
}

/// Why no drive is found under a path.
fn no_drive(root: &HostRoot, path: &Path) -> &'static str {
    match mount_of(root, path).as_ref().map(|mount| mount.file_system.as_str()) {
        Some("tmpfs" | "ramfs") => "no drive is behind it, it is in memory",
        Some("nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "virtiofs") => {
            "no drive of this host is behind it, but another host"
        }
        _ => "which drive is under it is not shown here",
    }
}

/// Looks at the chosen drives.
pub fn check(root: &HostRoot, chosen: &Chosen) -> Vec<Finding> {
    let mut findings = chosen.unknown.clone();
    for drive in &chosen.drives {
        let kind = kind(root, drive);
        findings.push(scheduler(root, drive, kind));
        findings.push(read_ahead(root, drive, kind));
        findings.push(write_cache(root, drive, kind));
        // Of an NVMe drive with several ways to it, requests are sorted, if they are, on these.
        findings.extend(paths(root, drive).map(|path| scheduler(root, &path, kind)));
        findings.extend(drive_below(root, drive));
    }
    for layer in &chosen.layers {
        let kind = kind(root, layer);
        // What sorts requests itself hands them past the schedulers below.
        findings.extend(sorts_itself(root, layer).then(|| scheduler(root, layer, kind)));
        findings.push(read_ahead(root, layer, kind));
    }
    findings
}

/// Hidden ways to a drive.
fn paths(root: &HostRoot, drive: &str) -> impl Iterator<Item = String> {
    let is_way = move |name: &String| drive_of_path(name).is_some_and(|of| of == drive);
    root.names("/sys/block").into_iter().filter(is_way)
}

/// Says what is below a loop device, RAID or volume, since that is neither looked at nor changed with it.
fn drive_below(root: &HostRoot, drive: &str) -> Option<Finding> {
    let (is, name) = match below(root, drive)? {
        Below::Parts(parts) => (format!("made of {}", parts.join(", ")), parts),
        Below::File(file, drives) if drives.is_empty() => (format!("the file {file}"), drives),
        Below::File(file, drives) => (format!("the file {file} on {}", drives.join(", ")), drives),
    };
    let finding = Finding::new("DRIVE_BELOW", subject(drive)).level(Level::Info).is(is);
    if name.is_empty() {
        return Some(finding);
    }
    let options: Vec<String> = name.iter().map(|name| format!("--drive /dev/{name}")).collect();
    Some(finding.why(format!(
        "What is below has settings of its own, which are neither looked at nor changed along with {drive}; to look at \
         them: {}",
        options.join(" ")
    )))
}

/// Whether it is a drive, and not made of others or of memory.
fn is_physical(root: &HostRoot, name: &str) -> bool {
    is_drive(name) && root.number(&format!("/sys/block/{name}/size")).is_some_and(|sectors| sectors > 0)
}

fn kind(root: &HostRoot, drive: &str) -> Option<Kind> {
    if drive.starts_with("nvme") {
        return Some(Kind::Nvme);
    }
    if below(root, drive).is_some() && !sorts_itself(root, drive) {
        return Some(Kind::Layer);
    }
    if is_virtual_at(root, drive) || is_on_virtual_drives(root, drive) {
        return Some(Kind::Virtual);
    }
    match root.number(&format!("/sys/block/{drive}/queue/rotational"))? {
        0 => Some(Kind::SolidState),
        _ => Some(Kind::Rotating),
    }
}

/// Whether it is a device of the device mapper that has a scheduler, as that of several paths to one drive has: its requests go past the
/// schedulers of what is below. The kernel brackets what is chosen only where there is something to choose.
fn sorts_itself(root: &HostRoot, drive: &str) -> bool {
    let schedulers = root.text(&format!("/sys/block/{drive}/queue/scheduler"));
    drive.starts_with("dm-") && schedulers.is_some_and(|schedulers| schedulers.contains('['))
}

/// Whether any drive that a RAID or volume is made of in the end is a virtual one.
fn is_on_virtual_drives(root: &HostRoot, drive: &str) -> bool {
    let drives = if is_of_parts(root, drive) {
        drives_under(root, &Path::new("/dev").join(drive))
    } else {
        Vec::new()
    };
    drives.iter().any(|drive| is_virtual_at(root, drive))
}

fn subject(drive: &str) -> String {
    format!("drive {drive}")
}

fn scheduler(root: &HostRoot, drive: &str, kind: Option<Kind>) -> Finding {
    const CODE: &str = "IO_SCHEDULER";
    let text = root.text(&format!("/sys/block/{drive}/queue/scheduler"));
    let (Some(text), Some(kind)) = (text, kind) else {
        return Finding::unknown(CODE, subject(drive), "/sys does not show it");
    };
    let is = setting::chosen(&text);
    let finding = Finding::new(CODE, subject(drive)).is(is);
    // A zoned drive needs writes of a zone in order, which mq-deadline is for.
    let is_zoned = kind != Kind::Layer
        && root.text(&format!("/sys/block/{drive}/queue/zoned")).as_deref() == Some("host-managed");
    if kind == Kind::Rotating || is_zoned {
        if is == "mq-deadline" || (is == "bfq" && !is_zoned) {
            return finding;
        }
        let others = setting::offered(&text);
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let wanted = if others.contains(&"bfq") && !others.contains(&"mq-deadline") && !is_zoned {
            "bfq"
        } else {
            "mq-deadline"
        };
        return finding
            .should_be(Level::Warning, wanted)
            .why(if is_zoned {
                "A zoned drive takes writes of a zone in their order only, which mq-deadline keeps; with another one, before \
                 Linux 6.10, they may come in any, and fail."
            } else {
                "A rotating drive gains much when requests are sorted by place, and reads do not wait behind a row of \
                 writes; with none they go as they come."
            })
            .how(format!(
                "modprobe mq-deadline && echo mq-deadline > /sys/block/{drive}/queue/scheduler"
            ))
            .change(root, &format!("scheduler:{drive}"), wanted);
    }
    if is == "none" {
        return finding;
    }
    let why = match kind {
        Kind::Virtual => {
            "The host behind it orders requests itself; sorting them here as well costs CPU time and latency for each \
             request."
        }
        Kind::Layer => {
            "What is below sorts requests itself; sorting them here as well costs CPU time and latency for each request."
        }
        _ => {
            "A drive without moving parts gains nothing from sorted requests; the scheduler's lock and its work cost \
             CPU time and latency for each request."
        }
    };
    finding
        .should_be(Level::Advice, "none")
        .why(why)
        .how(format!("echo none > /sys/block/{drive}/queue/scheduler"))
        .change(root, &format!("scheduler:{drive}"), "none")
}

fn read_ahead(root: &HostRoot, drive: &str, kind: Option<Kind>) -> Finding {
    const CODE: &str = "READ_AHEAD";
    let size = root.number(&format!("/sys/block/{drive}/queue/read_ahead_kb"));
    let (Some(size_kib), Some(kind)) = (size, kind) else {
        return Finding::unknown(CODE, subject(drive), "/sys does not show it");
    };
    let finding = Finding::new(CODE, subject(drive)).is(format!("{size_kib} KiB"));
    // Of a RAID or volume its own counts, whatever the drives below have.
    let spins = || root.number(&format!("/sys/block/{drive}/queue/rotational")) == Some(1);
    let is_rotating = match kind {
        Kind::Rotating => true,
        Kind::Layer => is_of_parts(root, drive) && spins() && !is_on_virtual_drives(root, drive),
        Kind::SolidState | Kind::Nvme | Kind::Virtual => false,
    };
    if !is_rotating || size_kib >= READ_AHEAD_ROTATING_KIB {
        return finding;
    }
    let key = format!("read_ahead_kb:{drive}");
    finding
        .should_be(Level::Advice, format!("{READ_AHEAD_ROTATING_KIB} KiB or more"))
        .why(
            "Several files read in order share a rotating drive well only if each seek fetches much. This is for reads \
             through the page cache (file systems, backups, Ceph's buffered reads); Coquina reads past it.",
        )
        .how(format!("echo {READ_AHEAD_ROTATING_KIB} > /sys/block/{drive}/queue/read_ahead_kb"))
        .change(root, &key, &READ_AHEAD_ROTATING_KIB.to_string())
}

fn write_cache(root: &HostRoot, drive: &str, kind: Option<Kind>) -> Finding {
    const CODE: &str = "WRITE_CACHE";
    let mode = root.text(&format!("/sys/block/{drive}/queue/write_cache"));
    let (Some(mode), Some(kind)) = (mode, kind) else {
        return Finding::unknown(CODE, subject(drive), "/sys does not show it");
    };
    let finding = Finding::new(CODE, subject(drive)).is(mode.clone());
    match (mode.as_str(), kind) {
        ("write back", Kind::SolidState | Kind::Nvme) => finding
            .should_be(Level::Advice, "write through, on a drive whose cache survives a power cut")
            .why(
                "The drive says that its cache is lost in a power cut, so every durable write has to flush it. A \
                 consumer drive takes about 1 ms for that, and many flushes wear it; one with power-loss protection \
                 answers at once.",
            )
            .how(format!(
                "use drives with power-loss protection. Only if the data sheet promises it for this one: echo 'write \
                 through' > /sys/block/{drive}/queue/write_cache; on any other drive that loses data in a power cut"
            )),
        ("write back", Kind::Rotating) => finding
            .level(Level::Info)
            .why("A durable write waits until the drive has flushed its cache, about one turn of the platters."),
        ("write back", Kind::Virtual) => finding
            .level(Level::Info)
            .why("Durable writes are flushes to the host, which decides what they cost and whether they are durable."),
        ("write back", Kind::Layer) => finding
            .level(Level::Info)
            .why("Durable writes are flushes of what is below, which decides what they cost."),
        _ => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::apply;
    use super::super::test_host::TestHost;
    use super::*;

    fn findings(host: &TestHost, paths: &[&str]) -> Vec<Finding> {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        check(&host.root(), &choose(&host.root(), &paths))
    }

    fn levels(host: &TestHost) -> Vec<(String, Level, String)> {
        let findings = findings(host, &[]);
        findings.into_iter().map(|finding| (finding.code, finding.level, finding.should_be)).collect()
    }

    fn expect(levels: &[(String, Level, String)], expected: [(Level, &str); 3]) {
        let names = ["IO_SCHEDULER", "READ_AHEAD", "WRITE_CACHE"];
        assert_eq!(levels.len(), 3, "{levels:?}");
        for ((code, level, should_be), (name, (want, part))) in levels.iter().zip(names.iter().zip(expected))
        {
            assert_eq!((code.as_str(), *level), (*name, want), "{levels:?}");
            assert!(should_be.contains(part), "{levels:?}");
        }
    }

    #[test]
    fn a_rotating_drive_wants_sorted_requests_and_much_read_ahead() {
        let host = TestHost::empty();
        host.hdd("sda", "8:0");
        let want = [(Level::Warning, "mq-deadline"), (Level::Advice, "4096 KiB"), (Level::Info, "")];
        expect(&levels(&host), want);
        for mut finding in findings(&host, &[]) {
            apply(&host.root(), &mut finding);
        }
        // The kernel would keep the list; this file holds what was written.
        host.file("sys/block/sda/queue/scheduler", "none [mq-deadline] bfq");
        expect(&levels(&host), [(Level::Ok, ""), (Level::Ok, ""), (Level::Info, "")]);
        host.file("sys/block/sda/queue/scheduler", "none [bfq]");
        assert_eq!(levels(&host)[0].1, Level::Ok);
        host.file("sys/block/sda/queue/scheduler", "[none] bfq");
        assert_eq!(levels(&host)[0].2, "bfq");
    }

    #[test]
    fn a_scheduler_that_is_not_loaded_is_named_but_not_applied() {
        let host = TestHost::empty();
        host.drive("sda", "8:0", &[("rotational", "1"), ("scheduler", "[none]")]);
        let finding = &findings(&host, &[])[0];
        assert_eq!((finding.level, finding.should_be.as_str()), (Level::Warning, "mq-deadline"));
        assert!(finding.change.is_none() && finding.how.contains("modprobe"), "{finding:?}");
    }

    #[test]
    fn solid_state_drives_want_no_scheduler_and_a_protected_cache() {
        let host = TestHost::empty();
        host.ssd("sda", "8:0");
        let advice = "power cut";
        expect(&levels(&host), [(Level::Advice, "none"), (Level::Ok, ""), (Level::Advice, advice)]);
        let cache = &findings(&host, &[])[2];
        assert!(cache.change.is_none(), "what may lose data is never applied");
        let host = TestHost::empty();
        host.nvme("nvme0n1", "259:0");
        expect(&levels(&host), [(Level::Ok, ""), (Level::Ok, ""), (Level::Ok, "")]);
    }

    #[test]
    fn ways_to_a_drive_are_looked_at_with_it_for_what_they_have_of_their_own() {
        let host = TestHost::empty();
        host.nvme("nvme0n1", "259:0");
        let queue = [("rotational", "0"), ("scheduler", "none [mq-deadline]"), ("write_cache", "write back")];
        host.drive("nvme0c1n1", "259:10", &queue);
        let named = ["/dev/nvme0n1"];
        for paths in [&named[..0], &named[..]] {
            let found = findings(&host, paths);
            let told: Vec<(&str, &str, Level)> =
                found.iter().map(|one| (one.subject.as_str(), one.code.as_str(), one.level)).collect();
            let of_drive = |code| ("drive nvme0n1", code, Level::Ok);
            let of_way = ("drive nvme0c1n1", "IO_SCHEDULER", Level::Advice);
            let drive = ["IO_SCHEDULER", "READ_AHEAD", "WRITE_CACHE"].map(of_drive);
            assert_eq!(told, [&drive[..], &[of_way]].concat(), "{paths:?}");
        }
    }

    #[test]
    fn drives_of_virtual_machines_leave_order_and_cache_to_their_host() {
        let host = TestHost::empty();
        host.hdd("vda", "254:0");
        expect(&levels(&host), [(Level::Ok, ""), (Level::Ok, ""), (Level::Info, "")]);
        host.file("sys/block/vda/queue/scheduler", "none [mq-deadline]");
        expect(&levels(&host), [(Level::Advice, "none"), (Level::Ok, ""), (Level::Info, "")]);
        host.hdd("sda", "8:0");
        host.file("sys/block/sda/device/vendor", "QEMU    \n");
        assert_eq!(kind(&host.root(), "sda"), Some(Kind::Virtual));
    }

    #[test]
    fn drives_on_buses_of_virtual_machines_do_not_spin_whatever_they_say() {
        let host = TestHost::empty();
        host.hdd("sda", "8:0");
        for (vendor, model) in
            [("ATA", "QEMU HARDDISK"), ("ATA", "VMware Virtual S"), ("ATA", "VBOX HARDDISK")]
        {
            host.file("sys/block/sda/device/vendor", &format!("{vendor}     \n"));
            host.file("sys/block/sda/device/model", &format!("{model}   \n"));
            expect(&levels(&host), [(Level::Ok, ""), (Level::Ok, ""), (Level::Info, "")]);
        }
        host.file("sys/block/sda/device/model", "ST4000NM0035\n");
        assert_eq!(levels(&host)[0].1, Level::Warning);
    }

    /// A device with the files of its queue that is made of these.
    fn layer(host: &TestHost, name: &str, device: &str, queue: &[(&str, &str)], parts: &[&str]) {
        host.drive(name, device, queue);
        for part in parts {
            host.link(&format!("sys/block/{name}/slaves/{part}"), &format!("../../{part}"));
        }
    }

    #[test]
    fn several_paths_to_a_drive_are_judged_as_that_drive() {
        let host = TestHost::empty();
        host.hdd("sda", "8:0");
        host.hdd("sdb", "8:16");
        let queue = |scheduler| [("rotational", "1"), ("scheduler", scheduler), ("read_ahead_kb", "4096")];
        layer(&host, "dm-0", "253:0", &queue("[none] mq-deadline"), &["sda", "sdb"]);
        let of = |host: &TestHost, paths: &[&str]| -> Vec<(String, Level, String)> {
            let found = findings(host, paths).into_iter().filter(|finding| finding.code == "IO_SCHEDULER");
            found.map(|finding| (finding.subject, finding.level, finding.should_be)).collect()
        };
        let wanted = |subject: &str| (subject.to_owned(), Level::Warning, "mq-deadline".to_owned());
        assert_eq!(of(&host, &["/dev/dm-0"]), [wanted("drive dm-0")]);
        // The file system is on it as well.
        host.file("proc/self/mountinfo", "22 1 253:0 / / rw - ext4 /dev/mapper/a rw\n");
        let both = [wanted("drive sda"), wanted("drive sdb"), wanted("drive dm-0")];
        assert_eq!(of(&host, &["/srv"]), both);
        host.file("sys/block/dm-0/queue/rotational", "0\n");
        host.file("sys/block/dm-0/queue/scheduler", "none [mq-deadline]\n");
        let advice = ("drive dm-0".to_owned(), Level::Advice, "none".to_owned());
        assert_eq!(of(&host, &["/dev/dm-0"]), [advice]);
        // A volume of the device mapper has no scheduler.
        host.file("sys/block/dm-0/queue/scheduler", "none\n");
        host.file("sys/block/dm-0/queue/rotational", "1\n");
        let fine = ("drive dm-0".to_owned(), Level::Ok, String::new());
        assert_eq!(of(&host, &["/dev/dm-0"]), [fine]);
        assert_eq!(of(&host, &["/srv"]), both[..2]);
    }

    #[test]
    fn read_ahead_is_that_of_the_device_that_the_file_system_is_on() {
        let host = TestHost::empty();
        host.hdd("sda", "8:0");
        host.file("sys/block/sda/queue/read_ahead_kb", "4096\n");
        let queue = [("rotational", "1"), ("scheduler", "none"), ("read_ahead_kb", "128")];
        layer(&host, "dm-0", "253:0", &queue, &["sda"]);
        host.file("proc/self/mountinfo", "22 1 253:0 / / rw - ext4 /dev/mapper/a rw\n");
        let of = |paths: &[&str]| -> Vec<(String, Level, Option<String>)> {
            let found = findings(&host, paths).into_iter().filter(|finding| finding.code == "READ_AHEAD");
            found.map(|one| (one.subject, one.level, one.change.map(|change| change.key))).collect()
        };
        let volume = ("drive dm-0".to_owned(), Level::Advice, Some("read_ahead_kb:dm-0".to_owned()));
        let disk = ("drive sda".to_owned(), Level::Ok, None);
        assert_eq!(of(&["/dev/dm-0"]), std::slice::from_ref(&volume));
        for paths in [&[][..], &["/srv"], &["/srv", "/home"]] {
            assert_eq!(of(paths), [disk.clone(), volume.clone()], "{paths:?}");
        }
        assert_eq!(of(&["/dev/dm-0", "/srv"]), [volume.clone(), disk.clone()], "each once");
        // What virtual drives say of themselves is not believed of a volume on them either.
        host.file("sys/block/sda/device/model", "QEMU HARDDISK\n");
        assert_eq!(of(&["/dev/dm-0"]), [("drive dm-0".to_owned(), Level::Ok, None)]);
    }

    #[test]
    fn a_zoned_drive_keeps_the_scheduler_that_orders_its_writes() {
        let host = TestHost::empty();
        let queue = [("rotational", "1"), ("scheduler", "none mq-deadline [bfq]"), ("zoned", "host-managed")];
        host.drive("sda", "8:0", &queue);
        let found = &findings(&host, &[])[0];
        assert!(found.should_be == "mq-deadline" && found.why.contains("zoned"), "{found:?}");
        // Flash may be zoned as well.
        let queue = [("rotational", "0"), ("scheduler", "[none] mq-deadline"), ("zoned", "host-managed")];
        host.drive("nvme0n1", "259:0", &queue);
        let found = &findings(&host, &["/dev/nvme0n1"])[0];
        assert!(found.should_be == "mq-deadline" && !found.why.contains("otating"), "{found:?}");
    }

    #[test]
    fn a_loop_device_that_is_named_is_looked_at_and_changed_and_the_drive_of_its_file_is_not() {
        let host = TestHost::empty();
        host.hdd("sda", "8:0");
        host.file("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        let queue = [("rotational", "1"), ("scheduler", "none [mq-deadline]"), ("read_ahead_kb", "128")];
        host.drive("loop0", "7:0", &queue);
        host.file("sys/block/loop0/loop/backing_file", "/srv/image\n");
        let mut found = findings(&host, &["/dev/loop0"]);
        assert!(found.iter().all(|finding| finding.subject == "drive loop0"), "{found:?}");
        assert_eq!((found[0].level, found[0].should_be.as_str()), (Level::Advice, "none"));
        let below = found.iter().find(|finding| finding.code == "DRIVE_BELOW").unwrap();
        assert_eq!((below.level, below.is.as_str()), (Level::Info, "the file /srv/image on sda"));
        assert!(below.why.contains("--drive /dev/sda"), "{below:?}");
        let before = host.text("sys/block/sda/queue/scheduler");
        for finding in &mut found {
            apply(&host.root(), finding);
        }
        assert_eq!(host.text("sys/block/sda/queue/scheduler"), before);
        assert_eq!(host.text("sys/block/sda/queue/read_ahead_kb"), "128\n");
        assert_eq!(host.text("sys/block/loop0/queue/scheduler"), "none");
    }

    #[test]
    fn where_no_drive_is_behind_a_path_that_is_said() {
        let host = TestHost::empty();
        host.file("proc/self/mountinfo", "25 22 0:51 / /run rw - tmpfs tmpfs rw\n");
        let found = findings(&host, &["/run/x"]);
        assert!(found[0].is.contains("no drive is behind it"), "{found:?}");
    }

    #[test]
    fn only_drives_are_looked_at_or_those_that_are_named() {
        let host = TestHost::empty();
        host.hdd("sda", "8:0");
        host.ssd("sdb", "8:16");
        for other in ["loop0", "ram1", "zram0", "dm-3", "md127", "nbd4", "sr0", "drbd0"] {
            host.file(&format!("sys/block/{other}/size"), "5\n");
        }
        host.file("sys/block/sdz/size", "0\n");
        let subjects = |findings: Vec<Finding>| {
            let mut subjects: Vec<String> = findings.into_iter().map(|finding| finding.subject).collect();
            subjects.dedup();
            subjects
        };
        assert_eq!(subjects(findings(&host, &[])), ["drive sda", "drive sdb"]);
        assert_eq!(subjects(findings(&host, &["/dev/sdb1"])), ["drive sdb"]);
        let unknown = findings(&host, &["/run/x"]);
        assert_eq!((unknown.len(), unknown[0].level), (1, Level::Unknown));
    }
}
