//! How figures of the machine are said.

use coquina_host::sampler::{DriveUse, NetworkUse, ProcessUse, Role, ThrottleKind, Utilisation};

use super::{Evidence, LoadHosts};

/// Processes that a summary names.
const PROCESSES_MAX: usize = 5;
/// A machine that stood still for a smaller share of the time is not told of.
const STOOD_STILL_TOLD: f64 = 0.005;
/// Nor is a drive that stalled for less.
const STALLED_TOLD: f64 = 0.02;

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// `1 core`, `2 cores`.
pub(super) fn cores(count: usize) -> String {
    if count == 1 { "1 core".to_owned() } else { format!("{count} cores") }
}

/// `yes (pid 123)`.
pub(super) fn process(process: &ProcessUse) -> String {
    format!("{} (pid {})", process.name, process.pid)
}

/// `20 MiB/s`, `19.8 MiB/s`.
pub(super) fn mib_per_s(bytes_per_s: f64) -> String {
    let mib_per_s = bytes_per_s / f64::from(1 << 20);
    if mib_per_s.fract().abs() < 0.005 || mib_per_s >= 100.0 {
        format!("{mib_per_s:.0} MiB/s")
    } else {
        format!("{mib_per_s:.1} MiB/s")
    }
}

/// `10 Gbit/s`, `2.5 Gbit/s`.
pub(super) fn bits_per_s(bits_per_s: u64) -> String {
    if bits_per_s >= 1_000_000_000 {
        format!("{} Gbit/s", bits_per_s as f64 / 1e9)
    } else {
        format!("{} Mbit/s", bits_per_s as f64 / 1e6)
    }
}

/// A limit or a use, in the unit of what is limited.
pub(super) fn amount(kind: ThrottleKind, value: f64) -> String {
    match kind {
        ThrottleKind::ReadBytes | ThrottleKind::WriteBytes => mib_per_s(value),
        ThrottleKind::ReadOperations => format!("{value:.0} reads/s"),
        ThrottleKind::WriteOperations => format!("{value:.0} writes/s"),
        ThrottleKind::Cpu if value < 0.1 => format!("{value:.2} cores"),
        ThrottleKind::Cpu => format!("{value:.1} cores"),
    }
}

pub(super) fn latency(ns: f64) -> String {
    match ns / 1000.0 {
        us if us >= 10_000.0 => format!("{:.1} ms", us / 1000.0),
        us if us >= 10.0 => format!("{us:.0} us"),
        us => format!("{us:.1} us"),
    }
}

/// What the machine did, line by line.
pub(super) fn summary(evidence: &Evidence) -> Vec<String> {
    let utilisation = &evidence.utilisation;
    let mut lines = vec![
        format!(
            "load: {:.0} operations/s, {} in flight, {} each",
            evidence.iops,
            evidence.outstanding,
            latency(evidence.latency_ns_mean)
        ),
        roles(utilisation),
    ];
    lines.extend(busiest_processes(utilisation));
    lines.extend(utilisation.drives.iter().filter(|drive| drive.in_flight_mean > 0.0).map(drive_line));
    lines.extend(utilisation.networks.iter().map(network_line));
    lines.extend(utilisation.throttles.iter().map(|throttle| throttle.evidence.clone()));
    if let Some(pressures) = utilisation.pressures {
        lines.push(format!(
            "something waited for a core {} of the time, for a drive {}",
            percent(pressures.cpu_some),
            percent(pressures.io_some)
        ));
    }
    lines
}

/// Where what serves the target is not known.
pub(super) fn others_may_serve(evidence: &Evidence) -> String {
    let others = evidence.utilisation.role_cores(Role::Outside);
    format!(
        "not all that serves the target is known here: it may be among the others, which use {others:.2} cores, or on other hosts"
    )
}

/// What is sampled is another machine, or another process.
pub(super) fn load_hosts(hosts: &LoadHosts) -> String {
    let mut line =
        format!("load hosts are not sampled ({}): what follows is of this host", hosts.names.join(", "));
    if let Some(busiest) = &hosts.busiest {
        line += &format!(
            "; fio on {} used {:.2} cores for each of its jobs, as it says itself",
            busiest.host, busiest.thread_cores
        );
    }
    line
}

fn roles(utilisation: &Utilisation) -> String {
    let mut line = format!(
        "{:.2} of {} busy: generators {:.2}, targets {:.2}, harness {:.2}, kernel threads and interrupts {:.2}, others {:.2}",
        utilisation.busy_cores,
        cores(utilisation.cores_online as usize),
        utilisation.role_cores(Role::Generator),
        utilisation.role_cores(Role::Target),
        utilisation.role_cores(Role::Harness),
        utilisation.role_cores(Role::Kernel),
        utilisation.role_cores(Role::Outside),
    );
    if utilisation.steal_cores >= 0.01 {
        line += &format!("; {:.2} taken by the hypervisor", utilisation.steal_cores);
    }
    if let Some(share) = utilisation.stood_still.filter(|share| *share >= STOOD_STILL_TOLD) {
        line += &format!("; the whole machine stood still for {} of the time", percent(share));
    }
    if !utilisation.sees_kernel_threads {
        line += "; threads of the kernel cannot be seen from here and count as others";
    }
    line
}

fn busiest_processes(utilisation: &Utilisation) -> Option<String> {
    let busy = utilisation.processes.iter().filter(|process| process.cpu_us > 0).take(PROCESSES_MAX);
    let lines: Vec<String> =
        busy.map(|one| format!("{} {:.2}", process(one), utilisation.process_cores(one))).collect();
    (!lines.is_empty()).then(|| format!("busiest processes, in cores: {}", lines.join(", ")))
}

pub(super) fn drive_line(drive: &DriveUse) -> String {
    let mut line = format!(
        "drive {}: busy {}, {:.1} in flight, reads {:.0}/s {}, writes {:.0}/s {}",
        drive.name,
        percent(drive.busy),
        drive.in_flight_mean,
        drive.read_iops,
        mib_per_s(drive.read_bytes_per_s),
        drive.write_iops,
        mib_per_s(drive.write_bytes_per_s)
    );
    if let (Some(per_s), Some(share)) = (drive.flushes_per_s, drive.flushing)
        && per_s > 0.0
    {
        line += &format!(", flushes {per_s:.0}/s, {}", flushes_of_the_time(drive, share));
    }
    if let Some(share) = drive.stalled.filter(|share| *share >= STALLED_TOLD) {
        line += &format!(", stalled for {} of the time", percent(share));
    }
    line
}

/// `60 % of the time`. Several hardware queues may flush at once.
pub(super) fn flushes_of_the_time(drive: &DriveUse, share: f64) -> String {
    match drive.hardware_queues {
        0 | 1 => format!("{} of the time", percent(share)),
        queues => format!("at most {} of the time (by {queues} hardware queues)", percent(share)),
    }
}

pub(super) fn network_line(network: &NetworkUse) -> String {
    let speed = network.speed_bits_per_s.map_or("of unknown speed".to_owned(), bits_per_s);
    format!(
        "network {} ({speed}): {} in, {} out",
        network.name,
        mib_per_s(network.in_bytes_per_s),
        mib_per_s(network.out_bytes_per_s)
    )
}
