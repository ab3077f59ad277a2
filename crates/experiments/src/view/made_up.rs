//! A report that nobody measured, for tests and for looking at pages.

use std::collections::BTreeMap;

use coquina_host::{DriveEnvironment, Environment};

use crate::definition::{Experiment, ModeName, expand};
use crate::report::*;

/// Three rounds of each case of a built-in experiment on these targets, drawn from smooth curves and a little noise.
pub(crate) fn made_up(experiment: &str, labels: &[&str]) -> Report {
    let experiment = Experiment::load(experiment).unwrap();
    let mut noise = Noise(7);
    let limits = &experiment.modes.default;
    let timing = TimingFacts {
        rounds: limits.rounds,
        runtime_s: limits.runtime_s,
        warmup_s: limits.warmup_s,
        warmup_crowd_s: 0.0,
        settle_s: limits.settle_s,
        time_s: limits.time_s,
        passes_max: limits.passes_max,
    };
    let planned = expand(&experiment, ModeName::Default);
    let layouts = planned.iter().map(|scenario| scenario.layout.facts(&scenario.name)).collect();
    let cases = expand(&experiment, ModeName::Default)
        .into_iter()
        .flat_map(|scenario| scenario.points)
        .map(|planned| {
            let results = labels
                .iter()
                .enumerate()
                .map(|(place, label)| result(&planned.point, place, label, &mut noise));
            Case { id: planned.id, results: results.collect(), point: planned.point }
        })
        .collect();
    let settings = [("scheduler:nvme0n1", "none"), ("read-ahead:nvme0n1", "128 KiB"), ("swap", "off")];
    Report {
        comparisons: Vec::new(),
        report_version: REPORT_VERSION,
        program_version: "0.9.0".to_owned(),
        command: format!("coquina bench run {} --target coquina: --peer rbd:bench/disk", experiment.name),
        experiment: ExperimentFacts {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            published_setup: experiment.published_setup.clone(),
            published_finding: experiment.published_finding.clone(),
        },
        mode: "default".to_owned(),
        began_unix_s: 1_795_396_419,
        elapsed_s: 7260.0,
        seed: 4711,
        hosts: Vec::new(),
        timing: Some(timing),
        layouts,
        environment: Environment {
            kernel: "6.1.0-40-amd64".to_owned(),
            architecture: "x86_64".to_owned(),
            cpu_model: "AMD EPYC 7543P 32-Core Processor".to_owned(),
            cores: 32,
            memory_bytes: 128 << 30,
            file_system: "xfs".to_owned(),
            drive: None,
            version: "0.9.0".to_owned(),
        },
        drives: (0..3)
            .map(|number| DriveEnvironment {
                name: format!("nvme{number}n1"),
                model: "SAMSUNG MZQL23T8HCLS-00A07".to_owned(),
                rotational: false,
                scheduler: "none".to_owned(),
                write_cache: "write through".to_owned(),
                size_bytes: 3840 << 30,
                is_virtual: false,
            })
            .collect(),
        versions: BTreeMap::from([
            ("fio".to_owned(), "3.33".to_owned()),
            ("ceph".to_owned(), "16.2.15".to_owned()),
        ]),
        settings: settings.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        targets: labels.iter().enumerate().map(|(place, label)| target(place, label)).collect(),
        cases,
        published: experiment.published.rows().unwrap(),
        findings: vec![
            Finding {
                kind: "unequal".to_owned(),
                subject: labels.last().copied().unwrap_or_default().to_owned(),
                text: "its client keeps 32 MiB in a cache that the other target has not".to_owned(),
            },
            Finding {
                kind: "stops-growing".to_owned(),
                subject: "one volume / 4k random write".to_owned(),
                text: "throughput grows by less than 5 % beyond depth 128".to_owned(),
            },
        ],
        interrupted: None,
    }
}

fn target(place: usize, label: &str) -> TargetFacts {
    let settings = [("placement groups", "256"), ("object size", "4 MiB"), ("drive cache", "off")];
    TargetFacts {
        label: label.to_owned(),
        spec: ["coquina:bench", "rbd:bench/disk", "drive:/dev/nvme3n1"][place % 3].to_owned(),
        system: label.to_owned(),
        copies: Some(3),
        durable: [Some(true), Some(true), None][place % 3],
        cache: ["none", "client 32 MiB, servers 4 GiB each", "none"][place % 3].to_owned(),
        generator: ["coquina native", "fio rbd", "fio io_uring"][place % 3].to_owned(),
        settings: settings.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        server_processes: vec![["coquina-node", "ceph-osd", ""][place % 3].to_owned()],
        drives: (0..3).map(|number| format!("nvme{number}n1")).collect(),
        is_plain: None,
        drive_count: None,
    }
}

fn result(point: &Point, place: usize, label: &str, noise: &mut Noise) -> CaseResult {
    if place == 1 && point.scenario == "store 75 % full" && point.depth == 16 {
        return CaseResult {
            target: label.to_owned(),
            skipped: Some("the pool holds 12 GiB less than the scenario asks for".to_owned()),
            ..CaseResult::default()
        };
    }
    let rounds = (1..=3).map(|number| round(point, place, number, noise)).collect();
    CaseResult { target: label.to_owned(), rounds, skipped: None, settled_s: 0.0 }
}

fn round(point: &Point, place: usize, number: u32, noise: &mut Noise) -> Round {
    let outstanding = f64::from(point.outstanding());
    let is_large = point.block_bytes >= 64 << 10;
    let service_us = [90.0, 240.0, 70.0][place % 3] * if is_large { 12.0 } else { 1.0 };
    let writes = if point.operation.writes() { 0.55 } else { 1.0 };
    let most = [310_000.0, 98_000.0, 420_000.0][place % 3] * writes / if is_large { 50.0 } else { 1.0 };
    let offered = outstanding * 1e6 / service_us;
    let iops = offered * most / (offered + most) * (1.0 + 0.03 * noise.next());
    let mean_us = outstanding * 1e6 / iops;
    let us_per_io = [21.0, 74.0, 9.0][place % 3] * (1.0 + 3.0 / outstanding) * (1.0 + 0.02 * noise.next());
    let operations = iops as u64 * 20;
    let at = |share: f64| (mean_us * 1e3 * share) as u64;
    let histogram: Vec<(u64, u64)> = (0..60)
        .map(|step: i32| {
            let share = 0.5 * 1.09f64.powi(step);
            (at(share), (operations as f64 * 0.35 * 0.72f64.powi(step)).max(f64::from(step < 55)) as u64)
        })
        .collect();
    let figures = Figures {
        operations,
        iops,
        bytes_per_s: iops * f64::from(point.block_bytes),
        latency_ns_mean: mean_us * 1e3,
        latency_ns_p50: at(0.9),
        latency_ns_p90: at(1.6),
        latency_ns_p99: at(3.1),
        latency_ns_p99_9: at(8.0),
        latency_ns_p99_99: at(20.0),
        latency_ns_max: at(60.0),
        latency_histogram: histogram,
    };
    let is_mix = point.operation == Operation::Mixed70;
    let kind = ["cpu", "cpu", "drive"][place % 3];
    Round {
        round: number,
        began_unix_ms: 1_795_396_419_000 + u64::from(number) * 60_000,
        measured_s: 20.0,
        skew_s: None,
        afterwards_s: Some(0.25),
        is_quiet_afterwards: Some(true),
        generator: "fio".to_owned(),
        read: is_mix.then(|| figures.clone()),
        write: is_mix.then(|| Figures { latency_ns_mean: mean_us * 1.8e3, ..figures.clone() }),
        total: figures,
        series: (0..20).map(|_| iops * (1.0 + 0.02 * noise.next())).collect(),
        series_interval_ms: 1000,
        steadiness: "no trend over 20 s".to_owned(),
        is_steady: Some(!(place == 0 && point.depth == 4 && number == 2)),
        stood_still: Some(0.0),
        passes: 1,
        cores_pinned: point.placement.as_deref().map(|placement| match placement {
            "siblings" => point.jobs.div_ceil(2),
            _ => point.jobs,
        }),
        cpu: Some(CpuFigures {
            machine_us_per_io: Some(us_per_io),
            busy_cores: us_per_io * iops / 1e6,
            client_us_per_io: us_per_io * 0.3,
            servers_us_per_io: Some(us_per_io * 0.5),
            kernel_threads_us_per_io: Some(us_per_io * 0.2),
            processes: [("fio", 0.3), ("ceph-osd", 0.2), ("ceph-osd", 0.3)]
                .map(|(name, share)| ProcessFigures {
                    name: name.to_owned(),
                    pid: number,
                    us_per_io: us_per_io * share,
                })
                .into(),
            ..CpuFigures::default()
        }),
        drives: vec![DriveFigures { name: "nvme0n1".to_owned(), busy: 0.7, ..DriveFigures::default() }],
        networks: Vec::new(),
        drive_bytes_per_user_byte: point
            .operation
            .writes()
            .then(|| [3.1, 4.4, 1.0][place % 3] + 0.02 * noise.next()),
        limit: LimitFigures {
            kind: kind.to_owned(),
            text: match kind {
                "cpu" => format!("CPU: {:.1} of 32 cores", us_per_io * iops / 1e6),
                _ => "drive nvme0n1: 98 % busy".to_owned(),
            },
            evidence: vec![
                "no drive was over 70 % busy".to_owned(),
                "the network carried 2.1 of 12.5 GB/s".to_owned(),
            ],
        },
        utilisation: (-5..20)
            .map(|second: i64| UtilisationSample {
                at_ms: second * 1000,
                busy_cores: us_per_io * iops / 1e6 * (1.0 + 0.05 * noise.next()),
                drive_busy: (0.7 + 0.05 * noise.next()).min(1.0),
                read_bytes_per_s: 0.0,
                write_bytes_per_s: iops * f64::from(point.block_bytes) * 3.0 * (1.0 + 0.1 * noise.next()),
                network_bytes_per_s: 1e9,
            })
            .collect(),
        errors: 0,
        contradictions: if place == 1 && point.depth == 256 && number == 1 {
            vec!["256 operations in flight at this mean latency would be 101,000 IOPS, not 93,000".to_owned()]
        } else {
            Vec::new()
        },
    }
}

/// Values between -1 and 1 that are the same in each run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / f64::from(1 << 23) - 1.0
    }
}
