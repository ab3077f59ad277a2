//! The sampler on the host that runs the tests. Other tests run beside it, so bounds on the whole host are wide.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::ProcessClock;
use crate::doctor::test_host::TestHost;

/// A shell that is killed at the end.
struct Shell(Child);

impl Shell {
    fn run(script: &str) -> Self {
        let mut command = Command::new("sh");
        Shell(command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn sampler(interval_ms: u64) -> Sampler {
    Sampler::start(SamplerSettings { interval_ms, ..SamplerSettings::default() }).unwrap()
}

#[test]
fn a_busy_process_is_measured_exactly_and_its_role_may_come_later() {
    let shell = Shell::run("while :; do :; done");
    let clock = ProcessClock::of(shell.0.id()).unwrap();
    let sampler = sampler(50);
    let before_ns = clock.now_ns().unwrap();
    let from = sampler.mark();
    sleep(600);
    let to = sampler.mark();
    let used_us = (clock.now_ns().unwrap() - before_ns) / 1000;
    sampler.watch(shell.0.id(), Role::Target);
    let window = sampler.window(from, to).unwrap();
    let process = window.processes.iter().find(|process| process.pid == shell.0.id()).unwrap();
    assert_eq!(process.role, Role::Target);
    // Both readings lie outside of the window, by less than 20 ms unless this test waits for a core.
    assert!(process.cpu_us <= used_us + 1000, "{} of {used_us}", process.cpu_us);
    assert!(process.cpu_us * 10 >= used_us * 7, "{} of {used_us}", process.cpu_us);
    assert!((window.role_cores(Role::Target) - window.process_cores(process)).abs() < 0.001);
    assert!(window.busy_cores > 0.1 && window.busy_cores <= f64::from(window.cores_online));
    assert!(window.per_core_busy.iter().all(|busy| (0.0..=1.0).contains(busy)));
    assert!(window.samples.len() >= 4 && window.samples.len() <= 13, "{:?}", window.samples);
    sampler.stop();
}

#[test]
fn children_have_the_role_of_their_parent_and_what_they_used_is_kept() {
    let sampler = sampler(50);
    // The child's whole time is in what its parent waited for, however late it was last seen.
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let shell = Shell::run(&format!("sleep 0.3; sh -c '{busy}; :'; sleep 5"));
    let from = sampler.mark();
    sampler.watch(shell.0.id(), Role::Generator);
    sleep(400);
    let middle = sampler.mark();
    let is_done = || {
        let path = format!("/proc/{0}/task/{0}/children", shell.0.id());
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.any(|pid| crate::process_name(pid) == "sleep")
    };
    for _ in 0..200 {
        sleep(20);
        if is_done() {
            break;
        }
    }
    let to = sampler.mark();
    let window = sampler.window(from, to).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", shell.0.id())).unwrap();
    let fields: Vec<u64> =
        stat.rsplit_once(')').unwrap().1.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // Without the letter of the state: cutime and cstime are the 13th and 14th of the rest.
    let reaped_us = (fields[12] + fields[13]) * 10_000;
    let used_us = window.role_cores(Role::Generator) * window.seconds * 1e6;
    assert!(used_us + 20_000.0 > reaped_us as f64, "{used_us} of {reaped_us}");
    assert!(sampler.window(from, middle).unwrap().seconds < window.seconds);
}

/// A process that never had a child is asked for one that nobody saw at marks, where all is looked at.
#[test]
fn a_child_that_no_look_saw_counts_at_the_next_mark() {
    // Lines that it gets are numbers of turns that a child makes.
    let script = "while read turns; do (i=0; while [ $i -lt $turns ]; do i=$((i+1)); done); echo done; done";
    let mut shell =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let sampler = sampler(60_000);
    sampler.watch(shell.id(), Role::Target);
    let from = sampler.mark();
    shell.stdin.as_mut().unwrap().write_all(b"200000\n").unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let window = sampler.window(from, sampler.mark()).unwrap();
    drop(shell.stdin.take());
    shell.wait().unwrap();
    let used_s = window.role_cores(Role::Target) * window.seconds;
    assert!(used_s > 0.02, "{used_s} s of {}", window.seconds);
}

#[test]
fn windows_without_samples_are_none() {
    let early = Instant::now();
    sleep(20);
    let sampler = sampler(1000);
    let from = sampler.mark();
    assert!(sampler.window(early, from).is_none());
    assert!(sampler.window(from, from).is_none());
    assert!(sampler.window(from, Instant::now() + Duration::from_secs(10)).is_none());
    sleep(20);
    // What is over, but not sampled yet, is sampled then.
    assert!(sampler.window(from, Instant::now()).is_some());
}

#[test]
fn what_is_done_on_a_drive_counts_once() {
    let all =
        ["sda", "vda", "nvme0n1", "nvme0c0n1", "md0", "dm-1", "nbd0", "rbd1", "zd0", "mmcblk0", "loop3"];
    let drives: Vec<&str> = all.into_iter().filter(|name| is_drive(name)).collect();
    assert_eq!(drives, ["sda", "vda", "nvme0n1", "mmcblk0"]);
}

#[test]
fn no_drives_are_not_all_drives() {
    let settings = SamplerSettings { drives: Some(Vec::new()), ..SamplerSettings::default() };
    let sampler = Sampler::start(settings).unwrap();
    let from = sampler.mark();
    sleep(20);
    let window = sampler.window(from, sampler.mark()).unwrap();
    assert_eq!(window.drives, []);
}

#[test]
fn bad_settings_are_refused() {
    let interval = SamplerSettings { interval_ms: 5, ..SamplerSettings::default() };
    assert!(matches!(Sampler::start(interval), Err(HostError::Interval { interval_ms: 5 })));
    let drives = SamplerSettings { drives: Some(vec!["nonesuch".into()]), ..SamplerSettings::default() };
    let error = Sampler::start(drives).unwrap_err().to_string();
    assert!(error.contains("nonesuch") && error.contains("lsblk"), "{error}");
}

#[test]
fn counters_are_read_from_text() {
    let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 1000 50 4 6 7 0 0\ncpu3 1 1 1 1 1 1 1 1\nintr 5 cpu\n";
    let cores = counters::cores(text);
    assert_eq!(cores.iter().map(|core| core.number).collect::<Vec<_>>(), [0, 3]);
    assert_eq!((cores[0].unused_ticks, cores[0].steal_ticks, cores[0].interrupt_ticks), (1057, 7, 10));
    assert!(counters::cores("garbage").is_empty());

    let text = " 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 0 0\n 254 1 vda1 1 2\n 254 2 vdb 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n";
    let drives = counters::drives(text, &["vda1".into(), "vda".into(), "vdb".into()]);
    assert_eq!(drives[0], None);
    let vda = drives[1].unwrap();
    assert_eq!((vda.reads, vda.read_bytes, vda.writes, vda.written_bytes), (1, 1536, 5, 3584));
    assert_eq!((vda.busy_ms, vda.weighted_ms, vda.flushes), (10, 11, None));
    let flushes = drives[2].unwrap().flushes.unwrap();
    assert_eq!((flushes.count, flushes.busy_ms), (16, 17));

    let text = "Inter-| Receive\n face |bytes\n  eth0: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\nbad: 1\n";
    let networks = counters::networks(text);
    assert_eq!((networks[0].in_bytes, networks[0].out_bytes, networks.len()), (100, 200, 1));

    let text = "some avg10=1.00 avg60=0.10 avg300=0.00 total=500\nfull avg10=0.00 total=20\n";
    assert_eq!(counters::pressure(text), Some((500, 20)));
    assert_eq!(counters::pressure("some avg10=0 total=5\n"), Some((5, 0)));
    assert_eq!(counters::pressure(""), None);
}

/// What sampling costs. Run it alone: `cargo test -p coquina-host -- --ignored --nocapture sampling_is_cheap`.
#[test]
#[ignore = "measures CPU time for five seconds, and needs the host for itself"]
fn sampling_is_cheap() {
    let watched: Vec<Shell> = (0..10).map(|_| Shell::run("sleep 9 & sleep 9")).collect();
    let processes = watched.iter().map(|shell| (shell.0.id(), Role::Target)).collect();
    let sampler = Sampler::start(SamplerSettings { processes, ..SamplerSettings::default() }).unwrap();
    let clock = ProcessClock::of(std::process::id()).unwrap();
    let (from, before_ns) = (sampler.mark(), clock.now_ns().unwrap());
    sleep(5000);
    let used_ns = clock.now_ns().unwrap() - before_ns;
    let window = sampler.window(from, sampler.mark()).unwrap();
    let of_process = used_ns as f64 / 1e9 / window.seconds;
    let processes = std::fs::read_dir("/proc").unwrap().count();
    println!(
        "{processes} entries in /proc, {} watched: sampling takes {:.3} % of a core, this process {:.3} %",
        window.processes.iter().filter(|process| process.role == Role::Target).count(),
        window.sampler_cores * 100.0,
        of_process * 100.0
    );
    assert!(of_process < 0.01, "{of_process}");
}

#[test]
fn a_drive_spins_that_says_so_and_is_no_virtual_one_and_its_hardware_queues_are_counted() {
    let host = TestHost::empty();
    host.hdd("sda", "8:0");
    host.hdd("sdb", "8:16");
    host.file("sys/block/sdb/device/vendor", "Google  \n");
    host.file("sys/block/sdb/device/model", "PersistentDisk  \n");
    host.nvme("nvme0n1", "259:0");
    for queue in ["sda/mq/0", "nvme0n1/mq/0", "nvme0n1/mq/1", "nvme1c0n1/mq/0", "nvme1c1n1/mq/0"] {
        host.folder(&format!("sys/block/{queue}"));
    }
    host.nvme("nvme1n1", "259:8");
    let look = |name: &str| {
        let drive = look_at_drive(&host.root(), name);
        (drive.is_rotational, drive.hardware_queues)
    };
    assert_eq!([look("sda"), look("sda1")], [(true, 1); 2]);
    assert_eq!(look("sdb"), (false, 0));
    assert_eq!([look("nvme0n1"), look("nvme1n1")], [(false, 2); 2]);
}

#[test]
fn details_are_looked_at_with_every_so_many_samples() {
    let due_ms = |interval_ms, detail_interval_ms| {
        let settings = SamplerSettings { interval_ms, detail_interval_ms, ..SamplerSettings::default() };
        detail_interval(&settings).as_millis()
    };
    assert_eq!(due_ms(250, 1000), 875, "the fourth sample, also when it comes early");
    assert_eq!(due_ms(150, 300), 225);
    assert_eq!(due_ms(125, 300), 313, "the third");
    assert_eq!(due_ms(21_600, 1000), 10_800, "each");

    let settings = SamplerSettings {
        interval_ms: 50,
        detail_interval_ms: 100,
        processes: vec![(std::process::id(), Role::Harness)],
        ..SamplerSettings::default()
    };
    let sampler = Sampler::start(settings).unwrap();
    let from = sampler.mark();
    sleep(800);
    let to = sampler.mark();
    let inside = sampler.shared.lock().history.details(from, to).len();
    // Both marks have details as well; the machine may be busy.
    assert!((5..=10).contains(&inside), "{inside}");
    sampler.stop();
}
