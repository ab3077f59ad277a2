//! Made-up evidence for each kind of limit.

use std::collections::BTreeMap;

use coquina_host::sampler::{
    DriveUse, NetworkUse, Pressures, ProcessUse, Role, Throttle, ThrottleKind, Utilisation,
};

use super::*;

/// Two cores, of which little is used, and a virtual drive that has little to do, for ten seconds.
fn idle() -> Evidence {
    let by_role: BTreeMap<Role, f64> =
        [(Role::Generator, 0.2), (Role::Target, 0.2), (Role::Kernel, 0.1)].into();
    let drive = DriveUse { name: "vda".into(), busy: 0.3, in_flight_mean: 0.4, ..DriveUse::default() };
    Evidence {
        utilisation: Utilisation {
            seconds: 10.0,
            cores_online: 2,
            cores_allowed: vec![0, 1],
            busy_cores: 0.5,
            core_numbers: vec![0, 1],
            per_core_busy: vec![0.25, 0.25],
            by_role,
            processes: vec![
                process(10, "fio", Role::Generator, 0.2),
                process(11, "coquina-node", Role::Target, 0.2),
            ],
            sees_kernel_threads: true,
            drives: vec![drive],
            ..Utilisation::default()
        },
        are_servers_known: true,
        load_hosts: None,
        operation: Operation::RandomWrite,
        block_bytes: 4096,
        outstanding: 32,
        iops: 5000.0,
        latency_ns_mean: 6_400_000.0,
        read_bytes_per_s: 0.0,
        write_bytes_per_s: 5000.0 * 4096.0,
        rate_iops: None,
        neighbours: Vec::new(),
    }
}

/// A process that used so many cores for ten seconds, on one thread.
fn process(pid: u32, name: &str, role: Role, cores: f64) -> ProcessUse {
    let busiest_thread_cores = (role != Role::Outside).then_some(cores);
    let allowed_cores = if role == Role::Outside { Vec::new() } else { vec![0, 1] };
    let cpu_us = (cores * 1e7) as u64;
    ProcessUse { pid, name: name.into(), role, cpu_us, busiest_thread_cores, allowed_cores }
}

fn busy(evidence: &mut Evidence, per_core: [f64; 2]) {
    evidence.utilisation.per_core_busy = per_core.to_vec();
    evidence.utilisation.busy_cores = per_core.iter().sum();
}

fn others(evidence: &mut Evidence, cores: f64) {
    evidence.utilisation.by_role.insert(Role::Outside, cores);
    evidence.utilisation.processes.insert(0, process(123, "yes", Role::Outside, cores));
}

fn neighbours(evidence: &mut Evidence, points: &[(u32, f64)]) {
    let neighbour = |(outstanding, iops): &(u32, f64)| Neighbour {
        outstanding: *outstanding,
        iops: *iops,
        has_same_threads: true,
    };
    evidence.neighbours = points.iter().map(neighbour).collect();
}

#[track_caller]
fn assert_limit(evidence: &Evidence, kind: LimitKind, text: &str) -> String {
    let limit = name_limit(evidence);
    assert_eq!((limit.kind, limit.text.as_str()), (kind, text), "{:#?}", limit.evidence);
    assert!(!limit.evidence.is_empty());
    limit.evidence.join("\n")
}

#[test]
fn all_cores_are_busy_with_the_benchmark() {
    let mut evidence = idle();
    busy(&mut evidence, [0.95, 0.95]);
    evidence.utilisation.drives[0].busy = 1.0;
    let lines = assert_limit(&evidence, LimitKind::Cpu, "CPU: 1.9 of 2 cores");
    assert!(lines.contains("drive vda is busy 100 %, but it serves many operations at once"), "{lines}");
    // The kernel was busy elsewhere for a moment: named, but not blamed.
    others(&mut evidence, 0.3);
    assert_limit(&evidence, LimitKind::Cpu, "CPU: 1.9 of 2 cores, of which 0.3 by others: yes (pid 123)");
}

#[test]
fn cores_that_did_far_more_at_a_greater_depth_were_not_full_of_work() {
    let mut evidence = idle();
    busy(&mut evidence, [1.0, 1.0]);
    evidence.outstanding = 1;
    evidence.latency_ns_mean = 210_000.0;
    neighbours(&mut evidence, &[(16, 5000.0 * 1.5_f64.powi(4)), (128, 60_000.0)]);
    let text = "latency at this depth: 1 in flight, 210 us each, 2.0 of 2 cores busy";
    let lines = assert_limit(&evidence, LimitKind::Latency, text);
    assert!(lines.contains("threads poll"), "{lines}");
    // What larger batches save is less.
    neighbours(&mut evidence, &[(16, 5000.0 * 1.2_f64.powi(4))]);
    assert_limit(&evidence, LimitKind::Cpu, "CPU: 2.0 of 2 cores");
    // The deepest point may be full of work.
    evidence.outstanding = 128;
    neighbours(&mut evidence, &[(16, 1000.0)]);
    assert_limit(&evidence, LimitKind::Cpu, "CPU: 2.0 of 2 cores");
    // And others are the limit whatever depth brings.
    evidence.outstanding = 1;
    others(&mut evidence, 1.0);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Outside);
}

#[test]
fn a_core_that_others_took_is_named_when_all_are_busy() {
    let mut evidence = idle();
    busy(&mut evidence, [1.0, 0.9]);
    others(&mut evidence, 1.0);
    let text = "CPU: 1.9 of 2 cores, of which 1.0 by others: yes (pid 123)";
    let lines = assert_limit(&evidence, LimitKind::Outside, text);
    assert!(lines.contains("yes (pid 123) uses 1.00 cores"), "{lines}");
}

#[test]
fn a_core_that_others_took_is_named_when_work_waits_for_the_rest() {
    let mut evidence = idle();
    busy(&mut evidence, [1.0, 0.6]);
    others(&mut evidence, 1.0);
    let text = "CPU taken by others: 1.0 of 2 cores busy outside of the benchmark (process yes, pid 123)";
    assert_limit(&evidence, LimitKind::Outside, text);
    busy(&mut evidence, [1.0, 0.2]);
    evidence.utilisation.pressures = Some(Pressures { cpu_some: 0.4, ..Pressures::default() });
    assert_limit(&evidence, LimitKind::Outside, text);
    // Somebody else's core does no harm while nothing waits for it.
    evidence.utilisation.pressures = None;
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown);
}

#[test]
fn others_that_may_serve_the_target_are_not_blamed() {
    let mut evidence = idle();
    evidence.are_servers_known = false;
    busy(&mut evidence, [1.0, 0.9]);
    others(&mut evidence, 1.4);
    let text = "CPU: 1.9 of 2 cores, of which 1.4 by others: yes (pid 123), which may serve the target";
    let lines = assert_limit(&evidence, LimitKind::Cpu, text);
    assert!(lines.contains("which may serve the target: yes (pid 123) uses 1.40 cores"), "{lines}");
    // Not where work waits for the rest, either.
    busy(&mut evidence, [1.0, 0.6]);
    let text = "unknown: nothing that is sampled is full (1.6 of 2 cores, drive vda 30 % busy); \
        not all of the target's hosts and servers are seen";
    let lines = assert_limit(&evidence, LimitKind::Unknown, text);
    assert!(lines.contains("it may be among the others, which use 1.40 cores, or on other hosts"), "{lines}");
    // Nor on a core on which the generator must run.
    busy(&mut evidence, [1.0, 0.1]);
    evidence.utilisation.processes[1].allowed_cores = vec![0];
    let text = "CPU: 1.0 of the 1 core that fio (pid 10) may use, of which 0.8 by others: yes (pid 123), which may serve the target";
    assert_limit(&evidence, LimitKind::OneCore, text);
}

#[test]
fn of_a_target_that_is_not_seen_nobody_says_that_nothing_is_busy() {
    let mut evidence = idle();
    (evidence.outstanding, evidence.latency_ns_mean) = (1, 210_000.0);
    evidence.are_servers_known = false;
    let text = "latency at this depth: 1 in flight, 210 us each, nothing on this host is busy; \
        not all of the target's hosts and servers are seen";
    assert_limit(&evidence, LimitKind::Latency, text);
}

#[test]
fn of_load_that_other_hosts_make_this_host_is_not_the_generator() {
    let mut evidence = idle();
    let mut hosts = LoadHosts { names: vec!["a".to_owned(), "b".to_owned()], busiest: None };
    evidence.load_hosts = Some(hosts.clone());
    (evidence.outstanding, evidence.latency_ns_mean) = (1, 210_000.0);
    let text = "latency at this depth: 1 in flight, 210 us each, nothing on this host is busy; load hosts are not sampled";
    let lines = assert_limit(&evidence, LimitKind::Latency, text);
    assert!(lines.contains("load hosts are not sampled (a, b)"), "{lines}");
    // fio knows of its own threads.
    hosts.busiest = Some(BusyHost { host: "b".to_owned(), thread_cores: 0.97 });
    evidence.load_hosts = Some(hosts);
    let lines = assert_limit(
        &evidence,
        LimitKind::Generator,
        "generator: fio on b uses a whole core for each of its jobs",
    );
    assert!(lines.contains("fio on b used 0.97 cores for each of its jobs"), "{lines}");
    neighbours(&mut evidence, &[(16, 80_000.0)]);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Latency, "it polls");
    // A fio --server on this host is none of the processes that are watched.
    busy(&mut evidence, [1.0, 0.9]);
    others(&mut evidence, 1.4);
    evidence.outstanding = 32;
    neighbours(&mut evidence, &[]);
    evidence.load_hosts = Some(LoadHosts { names: vec!["127.0.0.1".to_owned()], busiest: None });
    let text = "CPU: 1.9 of 2 cores, of which 1.4 by others: yes (pid 123), which may make the load";
    assert_limit(&evidence, LimitKind::Cpu, text);
}

/// Of four drives, "4 drives" and "all drives" are one load; a report named a drive for one of them, and latency for the other.
#[test]
fn points_that_are_the_same_load_have_the_same_limit() {
    let mut evidence = idle();
    let drive = &mut evidence.utilisation.drives[0];
    (drive.busy, drive.in_flight_mean) = (1.0, 120.0);
    evidence.outstanding = 128;
    for (iops, own) in [(98_500.0, 98_000.0), (90_000.0, 92_000.0)] {
        evidence.iops = iops;
        let other = 190_000.0 - own;
        neighbours(&mut evidence, &[(32, 70_000.0), (96, 93_000.0), (128, other), (128, own)]);
        let lines = assert_limit(&evidence, LimitKind::Drive, "drive vda 100 % busy");
        assert!(
            lines.contains("does not grow with depth: 93000 operations/s with 96 in flight, 95000 with 128"),
            "{lines}"
        );
    }
    // One of other threads is another load.
    evidence.iops = 98_500.0;
    neighbours(&mut evidence, &[(96, 93_000.0), (128, 60_000.0), (128, 98_000.0)]);
    evidence.neighbours[1].has_same_threads = false;
    assert_eq!(name_limit(&evidence).kind, LimitKind::Latency);
}

#[test]
fn time_that_the_hypervisor_took_counts_as_taken() {
    let mut evidence = idle();
    busy(&mut evidence, [0.5, 0.5]);
    evidence.utilisation.steal_cores = 0.9;
    let text = "CPU: 1.0 of 2 cores, and 0.9 taken by the hypervisor";
    assert_limit(&evidence, LimitKind::Outside, text);
}

#[test]
fn time_in_which_the_machine_stood_still_is_evidence() {
    let mut evidence = idle();
    for (share, told) in
        [(None, ""), (Some(0.004), ""), (Some(0.056), "; the whole machine stood still for 6 % of the time")]
    {
        evidence.utilisation.stood_still = share;
        let lines = name_limit(&evidence).evidence.join("\n");
        assert!(
            lines.contains(&format!("{told}\n")) && lines.contains("stood still") != told.is_empty(),
            "{lines}"
        );
    }
}

#[test]
fn a_drive_that_stalls_is_the_limit_whatever_is_busy_between() {
    let mut evidence = idle();
    for share in [None, Some(0.01), Some(0.19)] {
        evidence.utilisation.drives[0].stalled = share;
        let limit = name_limit(&evidence);
        assert_ne!(limit.kind, LimitKind::Drive, "{limit:?}");
        assert_eq!(limit.evidence.join("\n").contains(", stalled for 19 % of the time"), share == Some(0.19));
    }
    evidence.utilisation.drives[0].stalled = Some(0.19);
    let hangs = DriveUse { name: "vdb".into(), stalled: Some(1.0), ..DriveUse::default() };
    evidence.utilisation.drives.push(hangs);
    assert_ne!(name_limit(&evidence).kind, LimitKind::Drive, "nobody is known to use that one");
    evidence.utilisation.drives[0].stalled = Some(0.41);
    evidence.utilisation.drives[0].write_iops = 10.0;
    let text = "drive vda stalled for 41 % of the time: it ended nothing, with operations in flight";
    assert_limit(&evidence, LimitKind::Drive, text);
    busy(&mut evidence, [1.0, 1.0]);
    assert_limit(&evidence, LimitKind::Drive, text);
}

#[test]
fn a_machine_that_stands_still_often_is_held_back_by_its_host() {
    let mut evidence = idle();
    busy(&mut evidence, [0.4, 0.4]);
    evidence.utilisation.stood_still = Some(0.09);
    assert_ne!(name_limit(&evidence).kind, LimitKind::Throttle);
    evidence.utilisation.stood_still = Some(0.13);
    let text = "throttle: the whole machine stood still for 13 % of the time: its own host gives it no more processor time";
    assert_limit(&evidence, LimitKind::Throttle, text);
    // Also where all that it is given is used.
    busy(&mut evidence, [1.0, 1.0]);
    assert_limit(&evidence, LimitKind::Throttle, text);
}

#[test]
fn a_process_that_is_bound_to_a_busy_core() {
    let mut evidence = idle();
    busy(&mut evidence, [1.0, 0.1]);
    evidence.utilisation.processes[0] = process(10, "fio", Role::Generator, 0.5);
    evidence.utilisation.processes[0].allowed_cores = vec![0];
    others(&mut evidence, 0.5);
    let text = "CPU: 1.0 of the 1 core that fio (pid 10) may use, of which 0.5 by others: yes (pid 123)";
    assert_limit(&evidence, LimitKind::Outside, text);

    let mut alone = idle();
    busy(&mut alone, [0.92, 0.1]);
    alone.utilisation.processes[1] = process(11, "coquina-node", Role::Target, 0.91);
    alone.utilisation.processes[1].allowed_cores = vec![0];
    let text = "CPU: 0.9 of the 1 core that coquina-node (pid 11) may use";
    assert_limit(&alone, LimitKind::OneCore, text);
}

#[test]
fn a_generator_that_has_a_whole_core() {
    let mut evidence = idle();
    busy(&mut evidence, [0.98, 0.3]);
    evidence.utilisation.processes[0] = process(10, "fio", Role::Generator, 0.97);
    assert_limit(&evidence, LimitKind::Generator, "generator: fio uses a whole core");
    // A thread that polls has a whole core at any depth.
    neighbours(&mut evidence, &[(64, 9000.0)]);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Latency);
    neighbours(&mut evidence, &[(16, 2500.0), (64, 5100.0)]);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Generator);
    // Two threads do twice as much, however full each is.
    neighbours(&mut evidence, &[(64, 10_000.0)]);
    evidence.neighbours[0].has_same_threads = false;
    assert_eq!(name_limit(&evidence).kind, LimitKind::Generator);
    evidence.utilisation.processes[0] = process(10, "fio", Role::Generator, 0.5);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Latency);
}

#[test]
fn a_server_or_a_kernel_thread_that_has_a_whole_core() {
    let mut evidence = idle();
    busy(&mut evidence, [0.98, 0.3]);
    evidence.utilisation.processes[1] = process(11, "coquina-node", Role::Target, 0.97);
    let text = "one core: a thread of coquina-node (pid 11) uses a whole core";
    assert_limit(&evidence, LimitKind::OneCore, text);

    let mut kernel = idle();
    busy(&mut kernel, [0.98, 0.3]);
    kernel.utilisation.processes.push(process(40, "kworker/0:1H", Role::Kernel, 0.97));
    assert_eq!(name_limit(&kernel).kind, LimitKind::OneCore);

    let mut interrupts = idle();
    busy(&mut interrupts, [0.98, 0.3]);
    (interrupts.utilisation.interrupt_cores, interrupts.utilisation.per_core_interrupts) =
        (0.8, vec![0.79, 0.01]);
    let text = "one core: core 0 is busy 98 %, mostly with interrupts";
    assert_limit(&interrupts, LimitKind::OneCore, text);
}

/// A little of each of many cores is none of the core that is full.
#[test]
fn interrupts_of_other_cores_are_not_those_of_the_full_one() {
    let mut evidence = idle();
    let utilisation = &mut evidence.utilisation;
    utilisation.cores_online = 32;
    utilisation.core_numbers = (0..32).collect();
    utilisation.per_core_busy = vec![0.3; 32];
    utilisation.per_core_interrupts = vec![0.03; 32];
    utilisation.interrupt_cores = 0.96;
    (utilisation.per_core_busy[17], utilisation.busy_cores) = (0.97, 10.27);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown);
    // The busiest one need not be the one with the interrupts.
    evidence.utilisation.per_core_busy[5] = 0.95;
    evidence.utilisation.per_core_interrupts[5] = 0.7;
    let text = "one core: core 5 is busy 95 %, mostly with interrupts";
    let lines = assert_limit(&evidence, LimitKind::OneCore, text);
    assert!(lines.contains("interrupts take 0.70 of core 5"), "{lines}");
}

#[test]
fn a_drive_that_spins_is_full_when_it_is_busy() {
    let mut evidence = idle();
    evidence.utilisation.drives.push(DriveUse {
        name: "sdb".into(),
        is_rotational: true,
        busy: 0.98,
        in_flight_mean: 20.0,
        ..DriveUse::default()
    });
    let lines = assert_limit(&evidence, LimitKind::Drive, "drive sdb 98 % busy");
    assert!(lines.contains("it spins"), "{lines}");
    neighbours(&mut evidence, &[(64, 5050.0)]);
    let lines = assert_limit(&evidence, LimitKind::Drive, "drive sdb 98 % busy");
    assert!(lines.contains("does not grow"), "{lines}");
    // With more to choose from its head goes shorter ways.
    neighbours(&mut evidence, &[(64, 9000.0)]);
    let text = "latency at this depth: 32 in flight, 6400 us each, drive sdb is waited for but not full";
    let lines = assert_limit(&evidence, LimitKind::Latency, text);
    assert!(!lines.contains("all it can do"), "{lines}");
}

#[test]
fn a_drive_that_serves_many_at_once_is_full_when_more_gives_no_more() {
    let mut evidence = idle();
    evidence.utilisation.drives[0].busy = 1.0;
    evidence.utilisation.drives[0].in_flight_mean = 30.0;
    let weak = "drive vda 100 % busy (weak: it serves many operations at once)";
    assert_limit(&evidence, LimitKind::Drive, weak);
    neighbours(&mut evidence, &[(16, 4800.0), (64, 5050.0)]);
    let lines = assert_limit(&evidence, LimitKind::Drive, "drive vda 100 % busy");
    assert!(lines.contains("does not grow with depth: 5000 operations/s with 32 in flight"), "{lines}");
    // Most of the time is spent elsewhere, but more gives no more.
    evidence.utilisation.drives[0].in_flight_mean = 2.0;
    assert_limit(&evidence, LimitKind::Drive, weak);
    neighbours(&mut evidence, &[(64, 9500.0)]);
    let text = "latency at this depth: 32 in flight, 6400 us each, drive vda is waited for but not full";
    let lines = assert_limit(&evidence, LimitKind::Latency, text);
    assert!(lines.contains("2.00 of 32 in flight, 6 %"), "{lines}");
}

#[test]
fn a_drive_that_flushes_all_the_time_is_full() {
    let mut evidence = idle();
    evidence.write_bytes_per_s = 20e6;
    let drive = &mut evidence.utilisation.drives[0];
    (drive.busy, drive.in_flight_mean) = (1.0, 3.0);
    (drive.flushes_per_s, drive.flushing) = (Some(7_000.0), Some(0.97));
    let full = "drive vda makes its write cache durable 97 % of the time";
    let lines = assert_limit(&evidence, LimitKind::Drive, full);
    assert!(lines.contains("flushes 7000/s, 97 % of the time; one flush is under way at a time"), "{lines}");
    // Where more at once gives more, the drive is not full.
    neighbours(&mut evidence, &[(64, 9500.0)]);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Latency);
    // One that flushes often is busy with that, if it is busy.
    neighbours(&mut evidence, &[]);
    evidence.utilisation.drives[0].flushing = Some(0.6);
    let weak =
        "drive vda 100 % busy, 60 % of the time with flushes (weak: it serves many operations at once)";
    assert_limit(&evidence, LimitKind::Drive, weak);
    evidence.utilisation.drives[0].flushing = Some(0.4);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown);
    // Reads do not wait for what others have flushed.
    evidence.utilisation.drives[0].flushing = Some(0.97);
    evidence.write_bytes_per_s = 0.0;
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown);
}

/// Each queue has one flush under way at a time, and their times are added up.
#[test]
fn a_drive_with_several_hardware_queues_is_not_full_of_flushes() {
    let mut evidence = idle();
    evidence.write_bytes_per_s = 20e6;
    let drive = &mut evidence.utilisation.drives[0];
    (drive.busy, drive.in_flight_mean, drive.hardware_queues) = (1.0, 3.0, 8);
    (drive.flushes_per_s, drive.flushing) = (Some(7_000.0), Some(1.0));
    let weak = "drive vda 100 % busy, at most 100 % of the time (by 8 hardware queues) with flushes (weak: it serves many \
                operations at once)";
    let lines = assert_limit(&evidence, LimitKind::Drive, weak);
    assert!(!lines.contains("one flush is under way at a time"), "{lines}");
    evidence.utilisation.drives[0].hardware_queues = 1;
    let full = "drive vda makes its write cache durable 100 % of the time";
    assert_limit(&evidence, LimitKind::Drive, full);
}

#[test]
fn a_network_that_is_full() {
    let mut evidence = idle();
    evidence.utilisation.networks.push(NetworkUse {
        name: "eth0".into(),
        in_bytes_per_s: 1e6,
        out_bytes_per_s: 0.97 * 1.25e9,
        speed_bits_per_s: Some(10_000_000_000),
    });
    assert_limit(&evidence, LimitKind::Network, "network eth0 97 % of 10 Gbit/s");
    evidence.utilisation.networks[0].speed_bits_per_s = None;
    let limit = name_limit(&evidence);
    assert_eq!(limit.kind, LimitKind::Unknown);
    assert!(limit.text.contains("network eth0 1156 MiB/s"), "{}", limit.text);
}

#[test]
fn a_throttle_that_is_reached() {
    let mut evidence = idle();
    // A throttled drive looks busy, and that is not what holds it back.
    evidence.utilisation.drives[0].is_rotational = true;
    evidence.utilisation.drives[0].busy = 1.0;
    evidence.utilisation.throttles.push(Throttle {
        kind: ThrottleKind::WriteBytes,
        subject: "vda".into(),
        group: "/bench".into(),
        limit: f64::from(20 << 20),
        used: Some(19.8 * f64::from(1 << 20)),
        throttled_share: None,
        evidence: "io.max of cgroup /bench: 254:0 wbps=20971520".into(),
    });
    let text = "throttle: the cgroup allows 20 MiB/s to vda, 19.8 MiB/s were used";
    let lines = assert_limit(&evidence, LimitKind::Throttle, text);
    assert!(lines.starts_with("io.max of cgroup /bench: 254:0 wbps=20971520"), "{lines}");
    evidence.utilisation.throttles[0].used = Some(1e6);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Drive);
}

#[test]
fn a_cpu_quota_that_is_used_up() {
    let mut evidence = idle();
    evidence.utilisation.throttles.push(Throttle {
        kind: ThrottleKind::Cpu,
        subject: "cpu".into(),
        group: "/bench".into(),
        limit: 0.5,
        used: Some(0.5),
        throttled_share: Some(0.8),
        evidence: "cpu.max of cgroup /bench: 50000 100000".into(),
    });
    let text = "throttle: the cgroup allows 0.5 cores, and had to wait in 80 % of its periods";
    assert_limit(&evidence, LimitKind::Throttle, text);
    evidence.utilisation.throttles[0].throttled_share = Some(0.0);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown);
}

#[test]
fn one_operation_at_a_time_waits_for_itself() {
    let mut evidence = idle();
    (evidence.outstanding, evidence.latency_ns_mean) = (1, 210_000.0);
    let text = "latency at this depth: 1 in flight, 210 us each, nothing is busy";
    assert_limit(&evidence, LimitKind::Latency, text);
    // One that the load counts may be several for the drive.
    evidence.utilisation.drives[0].in_flight_mean = 1.93;
    let lines = assert_limit(&evidence, LimitKind::Latency, text);
    assert!(
        lines.contains("drive vda has 1.93 in flight for 1 of the load: each becomes several"),
        "{lines}"
    );
    neighbours(&mut evidence, &[(2, 9000.0)]);
    let lines = assert_limit(&evidence, LimitKind::Latency, text);
    assert!(
        lines.contains("still grows with depth: 5000 operations/s with 1 in flight, 9000 with 2"),
        "{lines}"
    );
}

#[test]
fn a_plateau_where_nothing_is_full_is_not_explained() {
    let mut evidence = idle();
    neighbours(&mut evidence, &[(16, 4900.0), (64, 5050.0)]);
    let text = "unknown: nothing that is sampled is full (0.5 of 2 cores, drive vda 30 % busy)";
    let lines = assert_limit(&evidence, LimitKind::Unknown, text);
    assert!(lines.contains("does not grow"), "{lines}");
    // At the deepest point, the one before says it.
    neighbours(&mut evidence, &[(16, 3000.0)]);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Latency);
}

/// As Ceph's reads and Coquina's sequential writes at one depth, of which reports said that nothing was full.
#[test]
fn what_is_busy_most_of_the_time_is_named_where_nothing_is_full() {
    let mut evidence = idle();
    busy(&mut evidence, [0.9, 0.84]);
    evidence.utilisation.pressures = Some(Pressures { cpu_some: 0.77, ..Pressures::default() });
    let text = "CPU: 1.7 of 2 cores (weak: not all the time, but something waited for a core 77 % of it)";
    let lines = assert_limit(&evidence, LimitKind::Cpu, text);
    assert!(lines.contains("87 % of all CPU time was used or taken away"), "{lines}");
    evidence.utilisation.pressures = Some(Pressures { cpu_some: 0.23, ..Pressures::default() });
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown);

    let mut evidence = idle();
    evidence.write_bytes_per_s = 20e6;
    busy(&mut evidence, [0.4, 0.33]);
    let drive = &mut evidence.utilisation.drives[0];
    (drive.busy, drive.flushing) = (0.73, Some(0.58));
    let text = "drive vda 73 % busy, 58 % of the time with flushes (weak: it is not full, but busier than processors, 0.7 of 2 cores)";
    assert_limit(&evidence, LimitKind::Drive, text);
    evidence.utilisation.drives[0].flushing = Some(0.3);
    assert_eq!(
        name_limit(&evidence).kind,
        LimitKind::Unknown,
        "it may have something in flight all the time"
    );
    neighbours(&mut evidence, &[(16, 4900.0), (64, 5050.0)]);
    let text = "drive vda 73 % busy (weak: it is not full, but busier than processors, 0.7 of 2 cores)";
    let lines = assert_limit(&evidence, LimitKind::Drive, text);
    assert!(lines.contains("does not grow"), "{lines}");
    evidence.are_servers_known = false;
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown);
}

#[test]
fn a_drive_and_processors_that_are_busy_in_turns_are_named_together() {
    let mut evidence = idle();
    evidence.outstanding = 128;
    evidence.write_bytes_per_s = 20e6;
    busy(&mut evidence, [0.8, 0.7]);
    let drive = &mut evidence.utilisation.drives[0];
    (drive.busy, drive.flushing) = (0.76, Some(0.68));
    let text = "several in turns: drive vda 76 % busy, 68 % of the time with flushes; CPU 1.5 of 2 cores";
    let lines = assert_limit(&evidence, LimitKind::Several, text);
    assert!(lines.contains("neither is full (weak)"), "{lines}");
    evidence.are_servers_known = false;
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown, "they may wait for what is not seen");
    evidence.are_servers_known = true;
    busy(&mut evidence, [0.6, 0.6]);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Drive, "that alone, and weakly");
    busy(&mut evidence, [0.8, 0.7]);
    evidence.utilisation.drives[0].busy = 0.6;
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown);
}

#[test]
fn growth_from_far_below_does_not_tell_that_the_deepest_point_still_grows() {
    let mut evidence = idle();
    evidence.outstanding = 128;
    evidence.write_bytes_per_s = 20e6;
    let drive = &mut evidence.utilisation.drives[0];
    (drive.busy, drive.in_flight_mean) = (1.0, 90.0);
    (drive.flushes_per_s, drive.flushing) = (Some(800.0), Some(0.97));
    // Five times as much as with one in flight, as much as with 32: the drive is full.
    neighbours(&mut evidence, &[(1, 1000.0)]);
    let lines =
        assert_limit(&evidence, LimitKind::Drive, "drive vda makes its write cache durable 97 % of the time");
    let told = "throughput grew with depth: 1000 operations/s with 1 in flight, 5000 with 128; whether more would give more was not";
    assert!(lines.contains(told), "{lines}");
    // A near one tells, and so does a far one from which nothing has grown.
    neighbours(&mut evidence, &[(1, 1000.0), (32, 3000.0)]);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Latency);
    neighbours(&mut evidence, &[(1, 4900.0)]);
    let limit = name_limit(&evidence);
    assert!(limit.evidence.iter().any(|line| line.contains("does not grow")), "{:?}", limit.evidence);
    // And a polling thread is no proof of a full core where nothing tells of more depth.
    evidence.utilisation.processes[1] = process(11, "coquina-node", Role::Target, 0.97);
    neighbours(&mut evidence, &[(1, 1000.0)]);
    let limit = name_limit(&evidence);
    assert_eq!(limit.kind, LimitKind::OneCore);
    assert!(limit.evidence.iter().any(|line| line.contains("if that thread polls")), "{:?}", limit.evidence);
}

#[test]
fn nearly_twice_as_much_far_above_is_growth() {
    let mut evidence = idle();
    evidence.outstanding = 1;
    neighbours(&mut evidence, &[(128, 9500.0)]);
    let limit = name_limit(&evidence);
    assert_eq!(limit.kind, LimitKind::Latency);
    let told = "throughput still grows with depth: 5000 operations/s with 1 in flight, 9500 with 128";
    assert_eq!(limit.evidence[0], told);
    neighbours(&mut evidence, &[(128, 5500.0)]);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown, "that little is none");
}

#[test]
fn an_offered_rate_that_is_served() {
    let mut evidence = idle();
    evidence.rate_iops = Some(5000.0);
    assert_limit(&evidence, LimitKind::Rate, "rate: all of the 5000 operations/s that were offered");
    evidence.rate_iops = Some(8000.0);
    assert_eq!(name_limit(&evidence).kind, LimitKind::Unknown);
    neighbours(&mut evidence, &[(64, 7900.0)]);
    let limit = name_limit(&evidence);
    assert_eq!(limit.kind, LimitKind::Latency);
    assert!(limit.text.contains("in flight at most"), "{}", limit.text);
}

#[test]
fn nothing_known_is_no_panic() {
    let evidence = Evidence {
        utilisation: Utilisation::default(),
        outstanding: 0,
        iops: 0.0,
        latency_ns_mean: 0.0,
        neighbours: vec![
            Neighbour { outstanding: 0, iops: 0.0, has_same_threads: true },
            Neighbour { outstanding: 1, iops: f64::NAN, has_same_threads: true },
        ],
        ..idle()
    };
    let figures = LimitFigures::from(name_limit(&evidence));
    assert_eq!(figures.kind, "unknown");
}

#[test]
fn kinds_are_named_alike_in_reports_and_in_words() {
    for kind in [LimitKind::OneCore, LimitKind::Cpu, LimitKind::Unknown] {
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.name()));
    }
    let utilisation = idle().utilisation;
    let text = serde_json::to_string(&utilisation).unwrap();
    assert_eq!(serde_json::from_str::<Utilisation>(&text).unwrap(), utilisation);
}
