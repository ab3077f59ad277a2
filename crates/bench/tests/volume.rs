//! Volumes by the native protocol, against the client's own test server.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../../client/tests/fake/mod.rs"]
mod fake;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use coquina_bench::{Hooks, IoBenchConfig, IoReport, TargetSpec, Workload, run_io};
use coquina_protocol::Status;
use fake::{Fake, Fault};

const VOLUME_BYTES: usize = 5 << 20;

fn run(fake: &Fake, change: impl FnOnce(&mut IoBenchConfig)) -> IoReport {
    let target = TargetSpec::Volume { server: fake.address(), name: "disk".to_owned() };
    let mut config = IoBenchConfig {
        workload: Workload::Mix { read_percent: 50 },
        depth: 8,
        runtime: Duration::from_millis(100),
        warmup: Duration::ZERO,
        verify: true,
        fill: true,
        ..IoBenchConfig::new(target)
    };
    change(&mut config);
    let stop = AtomicBool::new(false);
    run_io(&config, Hooks { progress: &mut |_| {}, stop: &stop, drive_write_bytes: None }).unwrap().report
}

#[test]
fn a_verified_mix_runs_on_a_volume_from_several_jobs() {
    let fake = Fake::start(VOLUME_BYTES);
    for block_bytes in [4096, 32_768] {
        let report = run(&fake, |config| (config.jobs, config.block_bytes) = (2, block_bytes));
        assert_eq!((report.errors, report.interrupted.as_deref()), (0, None));
        let found = report.verify.unwrap();
        assert!(found.blocks_checked >= (VOLUME_BYTES / 4096) as u64);
        assert_eq!(found.mismatches, 0, "{:?}", found.described);
    }
}

#[test]
fn a_run_goes_on_when_a_connection_is_cut() {
    let fake = Fake::start(VOLUME_BYTES);
    fake.fault(Fault::CutBefore);
    let report = run(&fake, |_| {});
    assert_eq!(fake.faults_left(), 0);
    assert_eq!((report.errors, report.interrupted.as_deref()), (0, None));
    assert_eq!(report.verify.unwrap().mismatches, 0);
}

#[test]
fn a_refused_operation_is_an_error_with_its_number() {
    let fake = Fake::start(VOLUME_BYTES);
    fake.fault(Fault::Refuse(Status::NoSpace));
    let report = run(&fake, |config| {
        (config.workload, config.fill) = (Workload::RandWrite, false);
    });
    assert_eq!(report.errors, 1);
    assert!(report.first_error.unwrap().contains("No space left"));
}
