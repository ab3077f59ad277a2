//! Whole runs against real targets: files, and an NBD server that misbehaves on demand.

#![allow(clippy::unwrap_used)]

mod memory_server;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coquina_bench::{
    BenchError, Hooks, IoBenchConfig, IoOutcome, IoReport, OperationReport, Phase, Progress, TargetError,
    TargetSpec, Workload, run_io, verify_ledger,
};
use memory_server::{Fault, MemoryServer};

const BLOCK: usize = 4096;

fn run(config: &IoBenchConfig) -> Result<IoOutcome, BenchError> {
    let stop = AtomicBool::new(false);
    run_io(config, Hooks { progress: &mut |_| {}, stop: &stop, drive_write_bytes: None })
}

/// Runs for as long as it takes to get something done, however slow the machine is just now.
fn run_some(config: &IoBenchConfig) -> IoOutcome {
    let mut config = config.clone();
    loop {
        let outcome = run(&config).unwrap();
        if outcome.report.total.operations > 0 {
            return outcome;
        }
        config.runtime *= 4;
    }
}

/// A run of a few dozen milliseconds.
fn short(target: TargetSpec, workload: Workload) -> IoBenchConfig {
    IoBenchConfig {
        workload,
        depth: 8,
        runtime: Duration::from_millis(60),
        warmup: Duration::from_millis(10),
        ..IoBenchConfig::new(target)
    }
}

/// Not in /tmp, which may be a file system without `O_DIRECT`.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

fn file(folder: &Path) -> TargetSpec {
    TargetSpec::File { path: folder.join("file") }
}

fn export(folder: &Path, name: &str) -> TargetSpec {
    TargetSpec::Nbd { uri: format!("nbd+unix:///{name}?socket={}", folder.join("socket").display()) }
}

fn assert_consistent(report: &IoReport) {
    let total = &report.total;
    assert!(total.operations > 0, "something was done");
    assert_eq!(report.errors, 0, "{:?}", report.first_error);
    assert_eq!(report.interrupted, None);
    assert_eq!(total.latency_histogram.iter().map(|(_, count)| count).sum::<u64>(), total.operations);
    assert!(total.latency_ns_min <= total.latency_ns_p50 && total.latency_ns_p50 <= total.latency_ns_p99);
    assert!(total.latency_ns_p99 <= total.latency_ns_p99_9 && total.latency_ns_p99_9 <= total.latency_ns_max);
    let bytes_per_s = total.iops * f64::from(report.config.block_bytes);
    assert!((total.bytes_per_s / bytes_per_s - 1.0).abs() < 1e-9);
    let again: IoReport = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(again.total.operations, total.operations);
    assert!(report.to_table().contains("CPU per I/O"));
}

#[test]
fn every_workload_runs_on_a_file_and_a_file_is_prewritten_before_it_is_used() {
    let folder = folder();
    let mut config = short(file(folder.path()), Workload::RandRead);
    config.size_bytes = 2 << 20;
    config.jobs = 2;
    for workload in ["randread", "randwrite", "read", "write", "mix:50"] {
        config.workload = workload.parse().unwrap();
        let report = run_some(&config).report;
        assert_consistent(&report);
        assert_eq!(report.range_bytes, 2 << 20);
        assert_eq!(report.read.is_some(), workload == "mix:50");
    }
    let written = std::fs::read(folder.path().join("file")).unwrap();
    assert_eq!(written.len(), 2 << 20);
    assert!(written.chunks(BLOCK).all(|block| block[16..].iter().any(|byte| *byte != 0)));
}

/// What was asked for was done in the warm-up, and nothing was measured.
#[test]
fn bytes_after_which_a_load_ends_are_those_of_the_measured_time() {
    let folder = folder();
    for warmup_ms in [0, 500] {
        let config = IoBenchConfig {
            size_bytes: 1 << 20,
            runtime: Duration::from_secs(60),
            warmup: Duration::from_millis(warmup_ms),
            end_after_bytes: Some(64 << 10),
            ..short(file(folder.path()), Workload::Write)
        };
        let began = std::time::Instant::now();
        let report = run(&config).unwrap().report;
        assert_consistent(&report);
        assert!(report.total.operations * 4096 >= 64 << 10, "{}", report.total.operations);
        assert!(
            report.measured_s < 30.0 && began.elapsed() < Duration::from_secs(40),
            "{}",
            report.measured_s
        );
    }
}

#[test]
fn the_load_begins_when_it_is_told_to() {
    let folder = folder();
    let config = IoBenchConfig {
        size_bytes: 1 << 20,
        baseline: Duration::ZERO,
        start_at_ns: Some(coquina_host::monotonic_ns() + 700_000_000),
        ..short(file(folder.path()), Workload::RandWrite)
    };
    let began = std::time::Instant::now();
    run(&config).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(750), "700 ms, and the load of 70");
    run(&config).unwrap();
    let in_an_hour = Some(coquina_host::monotonic_ns() + 3_600_000_000_000);
    assert!(run(&IoBenchConfig { start_at_ns: in_an_hour, ..config }).is_err());
}

#[test]
fn a_verified_run_on_a_file_finds_nothing_wrong_until_a_block_is_changed() {
    let folder = folder();
    let mut config = short(file(folder.path()), Workload::Mix { read_percent: 50 });
    (config.size_bytes, config.jobs, config.verify, config.durable) = (1 << 20, 2, true, true);
    let outcome = run_some(&config);
    assert_consistent(&outcome.report);
    let found = outcome.report.verify.unwrap();
    assert!(found.blocks_checked >= 256, "reads and the final pass: {}", found.blocks_checked);
    assert_eq!(found.mismatches, 0, "{:?}", found.described);
    let ledger = outcome.ledger.unwrap();
    assert_eq!((ledger.blocks_acknowledged(), ledger.blocks_uncertain()), (256, 0));

    let path = folder.path().join("file");
    let mut data = std::fs::read(&path).unwrap();
    data[7 * BLOCK + 100] ^= 1;
    data.copy_within(9 * BLOCK..10 * BLOCK, 10 * BLOCK);
    std::fs::write(&path, data).unwrap();
    let stop = AtomicBool::new(false);
    let hooks = Hooks { progress: &mut |_| {}, stop: &stop, drive_write_bytes: None };
    let found = verify_ledger(&config, &ledger, hooks).unwrap();
    assert_eq!((found.blocks_checked, found.mismatches), (256, 2), "{:?}", found.described);
}

#[test]
fn reading_a_sparse_file_of_somebody_else_is_refused_rather_than_overwriting_it() {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let refused = run(&short(file(folder.path()), Workload::RandRead));
    assert!(matches!(refused, Err(BenchError::Target(TargetError::Unsuitable { .. }))));
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn an_open_loop_keeps_its_rate_and_says_what_it_could_not_do() {
    let folder = folder();
    MemoryServer::start(&folder.path().join("socket"), 1 << 20, Fault::None);
    let mut config = short(export(folder.path(), "disk"), Workload::RandWrite);
    (config.rate_iops, config.jobs) = (Some(500), 2);
    (config.runtime, config.warmup) = (Duration::from_millis(200), Duration::ZERO);
    let report = run(&config).unwrap().report;
    assert!(
        (80..=101).contains(&(report.total.operations + report.rate_unmet)),
        "{}",
        report.total.operations
    );
    config.rate_iops = Some(1_000_000_000);
    let report = run(&config).unwrap().report;
    assert!(report.rate_unmet > 100_000_000, "{}", report.rate_unmet);
}

/// Operations in a histogram.
fn counted(figures: &OperationReport) -> u64 {
    figures.latency_histogram.iter().map(|(_, operations)| operations).sum()
}

#[test]
fn an_open_loop_does_not_hide_a_stall_at_its_end() {
    let folder = folder();
    let stall = Duration::from_millis(700);
    MemoryServer::start(&folder.path().join("socket"), 1 << 20, Fault::Stall(40, stall));
    let mut config = short(export(folder.path(), "disk"), Workload::RandWrite);
    (config.rate_iops, config.depth) = (Some(100), 4);
    (config.warmup, config.runtime) = (Duration::from_millis(100), Duration::from_millis(500));
    let report = run(&config).unwrap().report;
    let total = &report.total;
    // Write 40 is due at 400 ms, 4 of them wait for its answer to 1.1 s, and 16 that are due up to 600 ms are never started.
    assert_eq!(counted(total), 50, "all that were due in the measured time, and none of the warm-up");
    assert!(total.operations < 40, "those that completed in it: {}", total.operations);
    assert!((total.iops * report.measured_s - total.operations as f64).abs() < 0.5, "{}", total.iops);
    assert!(report.rate_unmet >= 10, "{}", report.rate_unmet);
    assert!(total.latency_ns_max >= 690_000_000, "{}", total.latency_ns_max);
    assert!(total.latency_ns_p90 >= 400_000_000, "{}", total.latency_ns_p90);
}

#[test]
fn what_a_rate_far_out_of_reach_never_starts_is_counted_by_its_kind() {
    let folder = folder();
    MemoryServer::start(&folder.path().join("socket"), 1 << 20, Fault::None);
    let mut config = short(export(folder.path(), "disk"), Workload::Mix { read_percent: 70 });
    (config.rate_iops, config.warmup) = (Some(1_000_000_000), Duration::ZERO);
    let report = run(&config).unwrap().report;
    let parts = [&report.read, &report.write].map(|part| counted(part.as_ref().unwrap()));
    let all = counted(&report.total);
    assert_eq!(parts.iter().sum::<u64>(), all);
    assert!((59_999_000..60_001_000).contains(&all), "all that were due in 60 ms: {all}");
    assert!((parts[0] as f64 / all as f64 - 0.7).abs() < 0.01, "{parts:?}");
    assert!(report.total.latency_ns_p50 >= 10_000_000, "half of them waited for half of the time");
}

#[test]
fn every_workload_runs_on_an_nbd_export() {
    let folder = folder();
    let server = MemoryServer::start(&folder.path().join("socket"), 2 << 20, Fault::None);
    let mut config = short(export(folder.path(), "disk"), Workload::RandRead);
    (config.jobs, config.verify, config.fill, config.durable) = (2, true, true, true);
    for (workload, block_bytes) in [("randread", 4096), ("randwrite", 8192), ("read", 16_384), ("mix", 4096)]
    {
        (config.workload, config.block_bytes) = (workload.parse().unwrap(), block_bytes);
        let report = run_some(&config).report;
        assert_consistent(&report);
        let found = report.verify.unwrap();
        assert!(found.blocks_checked >= 512);
        assert_eq!(found.mismatches, 0, "{:?}", found.described);
    }
    assert!(server.writes() > 0);
    let unknown = run(&short(export(folder.path(), "other"), Workload::RandRead));
    assert!(matches!(unknown, Err(BenchError::Target(TargetError::Refused { .. }))));
}

#[test]
fn a_lost_write_is_found() {
    let folder = folder();
    MemoryServer::start(&folder.path().join("socket"), 256 << 10, Fault::Lose(20));
    let mut config = short(export(folder.path(), "disk"), Workload::Write);
    // One pass and no more, so that the lost block is not written again: the rate sees to that.
    (config.verify, config.depth, config.rate_iops) = (true, 4, Some(50));
    (config.runtime, config.warmup) = (Duration::from_secs(1), Duration::ZERO);
    let report = run(&config).unwrap().report;
    assert!(report.total.operations > 20 && report.total.operations < 64);
    let found = report.verify.unwrap();
    assert_eq!(found.mismatches, 1, "{:?}", found.described);
    assert!(found.described[0].contains("block at byte 81920"), "{:?}", found.described);
}

#[test]
fn a_failed_write_is_an_error_and_may_have_happened() {
    let folder = folder();
    MemoryServer::start(&folder.path().join("socket"), 256 << 10, Fault::Refuse(10));
    let mut config = short(export(folder.path(), "disk"), Workload::RandWrite);
    (config.verify, config.runtime) = (true, Duration::from_millis(500));
    let outcome = run(&config).unwrap();
    assert_eq!(outcome.report.errors, 1);
    let text = outcome.report.first_error.unwrap();
    assert!(text.contains("No space left"), "{text}");
    assert_eq!(outcome.report.verify.unwrap().mismatches, 0);
    assert_eq!(outcome.ledger.unwrap().blocks_uncertain(), 1);
}

#[test]
fn a_server_that_dies_leaves_a_report_and_a_ledger_that_can_be_checked_later() {
    let folder = folder();
    MemoryServer::start(&folder.path().join("socket"), 256 << 10, Fault::HangUp(50));
    let mut config = short(export(folder.path(), "disk"), Workload::RandWrite);
    // It ends by itself when the server hangs up.
    (config.verify, config.runtime) = (true, Duration::from_secs(60));
    let outcome = run(&config).unwrap();
    assert!(outcome.report.interrupted.as_deref().is_some_and(|text| text.contains("broke")));
    let ledger = outcome.ledger.unwrap();
    assert!(ledger.blocks_acknowledged() > 0 && ledger.blocks_uncertain() > 0);
    let stop = AtomicBool::new(false);
    let hooks = Hooks { progress: &mut |_| {}, stop: &stop, drive_write_bytes: None };
    let found = verify_ledger(&config, &ledger, hooks).unwrap();
    assert_eq!(found.blocks_checked, ledger.blocks_acknowledged());
    assert_eq!(found.mismatches, 0, "{:?}", found.described);
}

#[test]
fn a_stopped_run_still_reports() {
    let folder = folder();
    MemoryServer::start(&folder.path().join("socket"), 1 << 20, Fault::None);
    let mut config = short(export(folder.path(), "disk"), Workload::RandWrite);
    (config.runtime, config.warmup) = (Duration::from_secs(600), Duration::ZERO);
    let stop = AtomicBool::new(false);
    let mut counter = 0;
    let hooks = Hooks {
        progress: &mut |progress| {
            if progress.phase == Phase::Measure && progress.iops > 0.0 {
                stop.store(true, Relaxed);
            }
        },
        stop: &stop,
        drive_write_bytes: Some(&mut || {
            counter += 1000;
            Some(counter)
        }),
    };
    let report = run_io(&config, hooks).unwrap().report;
    assert!(report.interrupted.is_some());
    assert!(report.total.operations > 0 && report.measured_s < 600.0);
    assert_eq!(report.drive_write_bytes, Some(1000));
    assert!(report.write_amplification.is_some());
}

/// What was in flight when it was stopped counted as done, and its time did not. Of a load that was stopped in its warm-up it was
/// divided by nothing.
#[test]
fn what_completes_after_a_stop_is_not_counted() {
    let folder = folder();
    // Stopped while a group of operations is answered much later, in the measured time of the first and in the warm-up of the second.
    for (warmup_ms, late_ms, phase) in [(0, 250, Phase::Measure), (500, 1000, Phase::WarmUp)] {
        let socket = folder.path().join("socket");
        let _ = std::fs::remove_file(&socket);
        MemoryServer::start(&socket, 1 << 20, Fault::Late(Duration::from_millis(late_ms)));
        let config = IoBenchConfig {
            depth: 64,
            runtime: Duration::from_secs(600),
            warmup: Duration::from_millis(warmup_ms),
            baseline: Duration::ZERO,
            ..short(export(folder.path(), "disk"), Workload::RandRead)
        };
        let stop = AtomicBool::new(false);
        let mut ticks = 0;
        let mut progress = |progress: &Progress| {
            ticks += u32::from(progress.phase == phase);
            stop.store(ticks > 2 || phase == Phase::WarmUp, Relaxed);
        };
        let hooks = Hooks { progress: &mut progress, stop: &stop, drive_write_bytes: None };
        let report = run_io(&config, hooks).unwrap().report;
        assert!(report.interrupted.is_some());
        assert!(report.measured_s < 300.0, "{}", report.measured_s);
        assert_eq!(counted(&report.total), report.total.operations);
        assert_eq!(report.total.operations > 0, phase == Phase::Measure, "{}", report.total.operations);
        assert!(report.outstanding() <= 64.0 * 1.1, "{} in {} s", report.outstanding(), report.measured_s);
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Whoever asked a cluster what it had written was told that the load began when the answer was there.
#[test]
fn when_a_load_began_does_not_go_by_how_long_the_probe_takes() {
    let folder = folder();
    MemoryServer::start(&folder.path().join("socket"), 1 << 20, Fault::None);
    let config = IoBenchConfig {
        runtime: Duration::from_secs(1),
        warmup: Duration::from_millis(200),
        baseline: Duration::ZERO,
        ..short(export(folder.path(), "disk"), Workload::RandWrite)
    };
    let mut asked_ms = Vec::new();
    let mut probe = || {
        asked_ms.push(unix_ms());
        std::thread::sleep(Duration::from_millis(300));
        Some(0)
    };
    let stop = AtomicBool::new(false);
    let hooks = Hooks { progress: &mut |_| {}, stop: &stop, drive_write_bytes: Some(&mut probe) };
    let before_ms = unix_ms();
    let report = run_io(&config, hooks).unwrap().report;
    let began_ms = report.measured_began_unix_ms;
    // Clocks are read in whole milliseconds, and one of them may be set a little meanwhile.
    assert!(began_ms <= asked_ms[0] + 5, "began {began_ms}, asked {asked_ms:?}");
    assert!(began_ms + 5 >= before_ms + 200, "began {began_ms}, started {before_ms}");
}

#[test]
fn nobody_there_is_an_error_that_names_the_address() {
    let folder = folder();
    let error = run(&short(export(folder.path(), "disk"), Workload::RandRead)).err().unwrap();
    assert!(error.to_string().contains("socket"), "{error}");
    let error = run(&short(file(folder.path()), Workload::RandRead)).err().unwrap();
    assert!(error.to_string().contains("--size"), "{error}");
}
