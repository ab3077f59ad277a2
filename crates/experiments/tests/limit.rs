//! Limits that are made on purpose on this machine, and have to be named: a throttle, a drive that stalls, and cores that others take.
//!
//! The tests need `fio`, and some need root; without them they say so and pass. They take turns, since each loads the
//! whole machine for a few seconds.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coquina_experiments::limit::{Evidence, Limit, LimitKind, name_limit};
use coquina_experiments::report::Operation;
use coquina_host::sampler::{Role, Sampler, SamplerSettings};
use coquina_host::{DriveCounter, Utilisation};

const FILE_BYTES: usize = 32 << 20;
const THROTTLE_BYTES_PER_S: u64 = 4 << 20;

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_program(name: &str) -> bool {
    let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// A file that fio can use as it is.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("data");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&vec![7; FILE_BYTES]).unwrap();
    file.sync_all().unwrap();
    (folder, path)
}

/// What fio measured: operations per second, and their mean latency in nanoseconds.
struct Measured {
    iops: f64,
    latency_ns_mean: f64,
}

/// Runs fio for four seconds, and looks at the machine in two of them. `group` is a control group to enter first.
fn run_fio(path: &Path, group: Option<&Path>, options: &[&str], direction: &str) -> (Utilisation, Measured) {
    run_fio_on(path, None, group, options, direction)
}

/// The same, and looks at these drives rather than at all.
fn run_fio_on(
    path: &Path,
    drives: Option<Vec<String>>,
    group: Option<&Path>,
    options: &[&str],
    direction: &str,
) -> (Utilisation, Measured) {
    let mut command = match group {
        Some(group) => {
            let mut command = Command::new("sh");
            command.args(["-c", "echo $$ > \"$0\" && exec fio \"$@\""]).arg(group.join("cgroup.procs"));
            command
        }
        None => Command::new("fio"),
    };
    let filename = format!("--filename={}", path.display());
    let size = format!("--size={FILE_BYTES}");
    let common = ["--name=job", "--time_based", "--runtime=4", "--group_reporting", "--output-format=json"];
    let child = command
        .args(common)
        .args([&filename, &size])
        .args(options)
        .current_dir(path.parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut fio = Running(child);
    let sampler = Sampler::start(SamplerSettings { drives, ..SamplerSettings::default() }).unwrap();
    sampler.watch(fio.0.id(), Role::Generator);
    std::thread::sleep(Duration::from_millis(1200));
    let from = sampler.mark();
    std::thread::sleep(Duration::from_secs(2));
    let to = sampler.mark();
    let utilisation = sampler.window(from, to).unwrap();
    let text = std::io::read_to_string(fio.0.stdout.take().unwrap()).unwrap();
    assert!(fio.0.wait().unwrap().success(), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let figures = &report["jobs"][0][direction];
    let iops = figures["iops"].as_f64().unwrap();
    (utilisation, Measured { iops, latency_ns_mean: figures["lat_ns"]["mean"].as_f64().unwrap() })
}

fn name(utilisation: Utilisation, measured: &Measured, point: (Operation, u32, u32)) -> Limit {
    let (operation, block_bytes, outstanding) = point;
    let bytes_per_s = measured.iops * f64::from(block_bytes);
    let sampled = utilisation.sampler_cores;
    let limit = name_limit(&Evidence {
        utilisation,
        are_servers_known: true,
        load_hosts: None,
        operation,
        block_bytes,
        outstanding,
        iops: measured.iops,
        latency_ns_mean: measured.latency_ns_mean,
        read_bytes_per_s: if operation.writes() { 0.0 } else { bytes_per_s },
        write_bytes_per_s: if operation.writes() { bytes_per_s } else { 0.0 },
        rate_iops: None,
        neighbours: Vec::new(),
    });
    println!("{}: {}", limit.kind.name(), limit.text);
    for line in &limit.evidence {
        println!("  {line}");
    }
    println!("  sampling took {:.2} % of a core", sampled * 100.0);
    limit
}

/// A control group that is removed at the end.
struct Group(PathBuf);

impl Group {
    /// Makes one that limits writes to a drive, of version 1 or 2, or says why it cannot.
    fn throttle_writes(drive: &str) -> Result<Self, String> {
        let name = format!("coquina-test-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/blkio");
        if first.is_dir() {
            let group = Group::make(first.join(name))?;
            let setting = format!("{drive} {THROTTLE_BYTES_PER_S}");
            return group.set("blkio.throttle.write_bps_device", &setting);
        }
        let second = Path::new("/sys/fs/cgroup");
        let controllers = std::fs::read_to_string(second.join("cgroup.subtree_control")).unwrap_or_default();
        if !controllers.split_whitespace().any(|name| name == "io") {
            return Err("no control groups with limits on drives: neither blkio nor io".into());
        }
        Group::make(second.join(name))?.set("io.max", &format!("{drive} wbps={THROTTLE_BYTES_PER_S}"))
    }

    /// Makes one that allows a share of a core, of version 1 or 2, or says why it cannot.
    fn allow_cpu_us(quota_us: u32) -> Result<Self, String> {
        let name = format!("coquina-test-cpu-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu");
        if first.is_dir() {
            return Group::make(first.join(name))?.set("cpu.cfs_quota_us", &quota_us.to_string());
        }
        Group::make(Path::new("/sys/fs/cgroup").join(name))?.set("cpu.max", &format!("{quota_us} 100000"))
    }

    fn make(folder: PathBuf) -> Result<Self, String> {
        std::fs::create_dir(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Group(folder))
    }

    fn set(self, file: &str, text: &str) -> Result<Self, String> {
        // A file that the kernel did not make is no setting.
        let opened = std::fs::OpenOptions::new().write(true).open(self.0.join(file));
        let set = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
        set.map_err(|error| format!("cannot set {file} to {text}: {error}"))?;
        Ok(self)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // When a test fails, jobs of fio live a little longer than fio.
        for _ in 0..60 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// `major:minor` of the whole drive under a file, if it is one: control groups limit no partitions.
fn whole_drive(path: &Path) -> Option<String> {
    match DriveCounter::under(path).as_slice() {
        [drive] => Some(format!("{}:{}", drive.major, drive.minor)),
        _ => None,
    }
}

#[test]
fn a_throttle_is_named() {
    let _turn = turn();
    if !has_program("fio") {
        return skip("fio is not installed");
    }
    let (_folder, path) = file();
    let Some(drive) = whole_drive(&path) else { return skip("the test's folder is not on one drive") };
    let group = match Group::throttle_writes(&drive) {
        Ok(group) => group,
        Err(reason) => return skip(&reason),
    };
    let options = ["--rw=randwrite", "--bs=64k", "--iodepth=8", "--ioengine=libaio", "--direct=1"];
    let (utilisation, measured) = run_fio(&path, Some(&group.0), &options, "write");
    let throttle = &utilisation.throttles[0];
    assert_eq!(throttle.limit, THROTTLE_BYTES_PER_S as f64);
    let limit = name(utilisation, &measured, (Operation::RandomWrite, 65536, 8));
    assert_eq!(limit.kind, LimitKind::Throttle);
    assert!(limit.text.starts_with("throttle: the cgroup allows 4 MiB/s to "), "{}", limit.text);
}

#[test]
fn a_cpu_quota_is_named() {
    let _turn = turn();
    if !has_program("fio") {
        return skip("fio is not installed");
    }
    let (_folder, path) = file();
    // Little, so that the group gets there on a machine that is busy with other things.
    let group = match Group::allow_cpu_us(5000) {
        Ok(group) => group,
        Err(reason) => return skip(&reason),
    };
    let options = ["--rw=randread", "--bs=4k", "--ioengine=psync", "--invalidate=0"];
    let (utilisation, measured) = run_fio(&path, Some(&group.0), &options, "read");
    let limit = name(utilisation, &measured, (Operation::RandomRead, 4096, 1));
    assert_eq!(limit.kind, LimitKind::Throttle);
    assert!(limit.text.starts_with("throttle: the cgroup allows 0.05 cores"), "{}", limit.text);
}

/// A block device whose file lies on a file system that can be frozen: then it ends no write.
struct Freezable {
    folder: tempfile::TempDir,
    /// `/dev/loop7`: the device, and before it the one with the file system.
    devices: Vec<String>,
    is_mounted: bool,
}

impl Freezable {
    /// Makes one, or says why it cannot.
    fn make() -> Result<Self, String> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut made = Freezable { folder, devices: Vec::new(), is_mounted: false };
        made.attach("around", 3 * FILE_BYTES as u64)?;
        let around = made.devices[0].clone();
        done("mkfs.ext4", &["-q", &around])?;
        std::fs::create_dir(made.mounted()).unwrap();
        done("mount", &[&around, made.mounted().to_str().unwrap()])?;
        made.is_mounted = true;
        made.attach("mounted/device", FILE_BYTES as u64)?;
        Ok(made)
    }

    fn attach(&mut self, name: &str, bytes: u64) -> Result<(), String> {
        let path = self.folder.path().join(name);
        let failed = |error: std::io::Error| format!("cannot make {}: {error}", path.display());
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).map_err(failed)?;
        let device = done("losetup", &["--find", "--show", path.to_str().unwrap()])?;
        self.devices.push(device.trim().to_owned());
        Ok(())
    }

    fn mounted(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    fn freeze(&self, option: &str) -> Result<String, String> {
        done("fsfreeze", &[option, self.mounted().to_str().unwrap()])
    }
}

impl Drop for Freezable {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = self.freeze("--unfreeze");
        }
        let mounted = self.mounted();
        for (place, device) in self.devices.iter().enumerate().rev() {
            // When a test fails, fio may still have it open.
            for _ in 0..60 {
                if place == 0 && self.is_mounted {
                    self.is_mounted = done("umount", &[mounted.to_str().unwrap()]).is_err();
                }
                if (place > 0 || !self.is_mounted) && done("losetup", &["--detach", device]).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Runs a program; gives what it says, or why it failed.
fn done(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start {program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_drive_that_stalls_is_named() {
    let _turn = turn();
    if !has_program("fio") {
        return skip("fio is not installed");
    }
    let freezable = match Freezable::make() {
        Ok(freezable) => freezable,
        Err(reason) => return skip(&reason),
    };
    let device = PathBuf::from(&freezable.devices[1]);
    let drives = Some(vec![device.file_name().unwrap().to_str().unwrap().to_owned()]);
    let options = ["--rw=randwrite", "--bs=4k", "--iodepth=8", "--ioengine=libaio", "--direct=1"];
    let (utilisation, measured) = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1700));
            freezable.freeze("--freeze").unwrap();
            std::thread::sleep(Duration::from_millis(1000));
            freezable.freeze("--unfreeze").unwrap();
        });
        run_fio_on(&device, drives, None, &options, "write")
    });
    let limit = name(utilisation.clone(), &measured, (Operation::RandomWrite, 4096, 8));
    let stalled = utilisation.drives[0].stalled.unwrap();
    assert!((0.3..0.8).contains(&stalled), "1 s of 2 s: {stalled}");
    assert_eq!(limit.kind, LimitKind::Drive);
    assert!(limit.text.contains(" stalled for "), "{}", limit.text);
}

/// Takes cores away: loops that are bound to them.
fn take_cores(cores: &[u32]) -> Vec<Running> {
    let take = |core: &u32| {
        let script = "while :; do :; done";
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string(), "sh", "-c", script]);
        Running(command.stdin(Stdio::null()).spawn().unwrap())
    };
    cores.iter().map(take).collect()
}

fn allowed_cores() -> Vec<u32> {
    let settings =
        SamplerSettings { processes: vec![(std::process::id(), Role::Harness)], ..Default::default() };
    let sampler = Sampler::start(settings).unwrap();
    let from = sampler.mark();
    std::thread::sleep(Duration::from_millis(20));
    sampler.window(from, sampler.mark()).unwrap().cores_allowed
}

fn cannot_take_cores() -> Option<&'static str> {
    match (has_program("fio"), has_program("taskset")) {
        (false, _) => Some("fio is not installed"),
        (true, false) => Some("taskset is needed to take a core away"),
        (true, true) => None,
    }
}

/// Others are the limit, the loops are among them, and the busiest of all is named.
fn assert_others(utilisation: Utilisation, measured: &Measured, loops: &[Running]) {
    let others = utilisation.processes.iter().filter(|process| process.role == Role::Outside);
    let others: Vec<u32> = others.map(|process| process.pid).collect();
    assert!(loops.iter().all(|one| others.contains(&one.0.id())), "{:#?}", utilisation.processes);
    let limit = name(utilisation, measured, (Operation::RandomRead, 4096, 1));
    assert_eq!(limit.kind, LimitKind::Outside);
    assert!(limit.text.contains(&format!("(pid {})", others[0])), "{}", limit.text);
}

#[test]
fn cores_that_others_take_are_named_when_all_are_busy() {
    let _turn = turn();
    if let Some(reason) = cannot_take_cores() {
        return skip(reason);
    }
    let (_folder, path) = file();
    let cores = allowed_cores();
    if cores.len() < 2 {
        return skip("with one core, there is none left to take");
    }
    let loops = take_cores(&cores[..cores.len().div_ceil(2)]);
    // Reads from memory need nothing but CPU time.
    let jobs = format!("--numjobs={}", cores.len() - loops.len());
    let options = ["--rw=randread", "--bs=4k", "--ioengine=psync", "--invalidate=0", &jobs];
    let (utilisation, measured) = run_fio(&path, None, &options, "read");
    assert_others(utilisation, &measured, &loops);
}

#[test]
fn a_core_that_others_take_from_a_bound_generator_is_named() {
    let _turn = turn();
    if let Some(reason) = cannot_take_cores() {
        return skip(reason);
    }
    let (_folder, path) = file();
    let core = allowed_cores()[0];
    let loops = take_cores(&[core]);
    let bound = format!("--cpus_allowed={core}");
    let options = ["--rw=randread", "--bs=4k", "--ioengine=psync", "--invalidate=0", &bound];
    let (utilisation, measured) = run_fio(&path, None, &options, "read");
    assert_others(utilisation, &measured, &loops);
}
