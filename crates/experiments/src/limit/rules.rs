//! The rules that name a limit, in the order in which they are asked.
//!
//! Invariant: a rule answers only where its own figures carry the answer; it leaves doubt to the rules after it.

use std::collections::BTreeSet;

use coquina_host::sampler::{DriveUse, ProcessUse, Role, Throttle, ThrottleKind, Utilisation};

use super::text::{
    amount, bits_per_s, cores, drive_line, flushes_of_the_time, latency, mib_per_s, network_line, percent,
    process,
};
use super::{Evidence, Limit, LimitKind, Neighbour};

/// From here on a limit counts as reached.
const FULL: f64 = 0.9;
/// A thread that uses this much of a core does nothing else.
const FULL_THREAD: f64 = 0.93;
/// An offered rate counts as served from here on.
const RATE_SERVED: f64 = 0.98;
/// Throughput counts as growing with depth from here on, for a doubling.
const GROWTH_PER_DOUBLING: f64 = 1.1;
/// So much more by more in flight is growth, however many doublings lie between.
const GROWTH_IN_ALL: f64 = GROWTH_PER_DOUBLING * GROWTH_PER_DOUBLING;
/// A point that had so many doublings less in flight tells of the deepest one whether it still grows. Between more of them
/// throughput may have stopped growing long before.
const DOUBLINGS_BEFORE_MAX: f64 = 2.0;
/// Processors that are full of work cannot gain so much from a doubled depth, whatever larger batches save.
const GROWTH_OF_POLLERS: f64 = 1.3;
/// Others are named with the CPU from this many cores on.
const OTHERS_NAMED_CORES: f64 = 0.1;
/// Others are the limit when they have this share of the busy time.
const OTHERS_BLAMED: f64 = 0.33;
/// So many processes outside of the benchmark are named.
const OUTSIDERS_MAX: usize = 5;
/// A CPU quota counts when a group had to wait in this share of its periods.
const QUOTA_WAITED: f64 = 0.1;
/// So does the machine's own ration of processor time when it stood still for this share of the time.
const STOOD_STILL: f64 = 0.1;
/// So does a drive that ended nothing for this share of the time.
const STALLED: f64 = 0.2;
/// A drive holds most of what is in flight from here on.
const IN_DRIVE: f64 = 0.5;
/// A drive that flushes for this share of the time makes writes wait, though it may not be what bounds them.
const FLUSHES_OFTEN: f64 = 0.5;

/// A drive and the processors count as busy in turns when each is for this share of the time, and neither is full.
const BUSY_IN_TURNS: f64 = 0.65;

/// Processors are short for most of the time where so much of them is used, and something waits for one for so much of the time.
const CPU_MOSTLY: f64 = 0.75;
const WAITED_MOSTLY: f64 = 0.5;

type Rule = fn(&Evidence) -> Option<Limit>;

/// Asked one after the other; the first answer counts.
pub(super) const ALL: [Rule; 17] = [
    rate,
    throttle,
    rationed,
    stalled_drive,
    cpu,
    pinned,
    generator,
    one_core,
    network,
    spinning_drive,
    outside,
    latency_limit,
    flushing_drive,
    parallel_drive,
    several,
    mostly_cpu,
    mostly_drive,
];

fn limit(kind: LimitKind, text: String, evidence: Vec<String>) -> Option<Limit> {
    Some(Limit { kind, text, evidence })
}

fn rate(evidence: &Evidence) -> Option<Limit> {
    let offered = evidence.rate_iops.filter(|rate| *rate > 0.0)?;
    let text = format!("rate: all of the {offered:.0} operations/s that were offered");
    let line = format!("{:.0} operations/s of {offered:.0} offered", evidence.iops);
    (evidence.iops >= offered * RATE_SERVED).then_some(())?;
    limit(LimitKind::Rate, text, vec![line])
}

fn throttle(evidence: &Evidence) -> Option<Limit> {
    let reached = |throttle: &&Throttle| match throttle.kind {
        ThrottleKind::Cpu => throttle.throttled_share.is_some_and(|share| share >= QUOTA_WAITED),
        _ => throttle.used.is_some_and(|used| used >= throttle.limit * FULL),
    };
    let throttles = &evidence.utilisation.throttles;
    let share = |throttle: &Throttle| throttle.used.unwrap_or(0.0) / throttle.limit;
    let throttle =
        throttles.iter().filter(reached).max_by(|left, right| share(left).total_cmp(&share(right)))?;
    let allowed = amount(throttle.kind, throttle.limit);
    let text = match throttle.kind {
        ThrottleKind::Cpu => format!(
            "throttle: the cgroup allows {allowed}, and had to wait in {} of its periods",
            percent(throttle.throttled_share.unwrap_or(0.0))
        ),
        kind => format!(
            "throttle: the cgroup allows {allowed} {} {}, {} were used",
            if matches!(kind, ThrottleKind::ReadBytes | ThrottleKind::ReadOperations) {
                "from"
            } else {
                "to"
            },
            throttle.subject,
            amount(kind, throttle.used.unwrap_or(0.0))
        ),
    };
    limit(LimitKind::Throttle, text, vec![throttle.evidence.clone()])
}

/// The machine's own host stops it again and again.
fn rationed(evidence: &Evidence) -> Option<Limit> {
    let utilisation = &evidence.utilisation;
    let share = utilisation.stood_still.filter(|share| *share >= STOOD_STILL)?;
    let text = format!(
        "throttle: the whole machine stood still for {} of the time: its own host gives it no more processor time",
        percent(share)
    );
    let line = format!(
        "{:.2} of {} busy, and what the host does for this machine, such as its disk's work, may count, too",
        utilisation.busy_cores,
        cores(utilisation.cores_online as usize)
    );
    limit(LimitKind::Throttle, text, vec![line])
}

/// A drive that stops now and then, whatever is busy while it does not. Of several one that ended nothing at all may be one that nobody here uses,
/// and that hangs.
fn stalled_drive(evidence: &Evidence) -> Option<Limit> {
    let drives = &evidence.utilisation.drives;
    let is_used = |drive: &&DriveUse| drives.len() == 1 || drive.read_iops + drive.write_iops > 0.0;
    let stalled = drives
        .iter()
        .filter(is_used)
        .filter_map(|drive| Some((drive, drive.stalled.filter(|share| *share >= STALLED)?)));
    let (drive, share) = stalled.max_by(|left, right| left.1.total_cmp(&right.1))?;
    let text = format!(
        "drive {} stalled for {} of the time: it ended nothing, with operations in flight",
        drive.name,
        percent(share)
    );
    limit(LimitKind::Drive, text, vec![drive_line(drive)])
}

fn is_cpu_full(utilisation: &Utilisation) -> bool {
    let all = f64::from(utilisation.cores_online);
    all > 0.0 && utilisation.busy_cores + utilisation.steal_cores >= all * FULL
}

/// All cores are busy.
fn cpu(evidence: &Evidence) -> Option<Limit> {
    let utilisation = &evidence.utilisation;
    let all = f64::from(utilisation.cores_online);
    let gone = utilisation.busy_cores + utilisation.steal_cores;
    is_cpu_full(utilisation).then_some(())?;
    let place = format!("{:.1} of {}", utilisation.busy_cores, cores(utilisation.cores_online as usize));
    let mut lines = vec![format!("{} of all CPU time was used or taken away", percent(gone / all))];
    let (mut kind, mut text) = (LimitKind::Cpu, format!("CPU: {place}"));
    if utilisation.steal_cores >= OTHERS_NAMED_CORES {
        text += &format!(", and {:.1} taken by the hypervisor", utilisation.steal_cores);
        lines.push(format!("{:.2} cores were given to other machines", utilisation.steal_cores));
    }
    let others = utilisation.role_cores(Role::Outside);
    if others >= OTHERS_NAMED_CORES {
        text += &format!(", of which {others:.1} by {}", others_named(evidence));
        lines.extend(outside_lines(evidence));
    }
    let blamed = if are_others_known(evidence) { others } else { 0.0 };
    if blamed + utilisation.steal_cores >= gone * OTHERS_BLAMED {
        kind = LimitKind::Outside;
    } else if polls(evidence) {
        return None;
    }
    lines.extend(growth(evidence).line());
    lines.extend(weak_drives(utilisation));
    limit(kind, text, lines)
}

/// All cores on which a process may run are busy, and there are others.
fn pinned(evidence: &Evidence) -> Option<Limit> {
    let utilisation = &evidence.utilisation;
    let mut seen = BTreeSet::new();
    let mine = utilisation.processes.iter().filter(|process| is_load(process));
    for one in mine.filter(|one| seen.insert(one.allowed_cores.clone())) {
        let allowed = &one.allowed_cores;
        if allowed.is_empty() || allowed.len() >= utilisation.core_numbers.len() {
            continue;
        }
        let busy = busy_on(utilisation, allowed);
        if busy < allowed.len() as f64 * FULL {
            continue;
        }
        let same =
            utilisation.processes.iter().filter(|other| is_load(other) && &other.allowed_cores == allowed);
        let own: f64 = same.map(|other| utilisation.process_cores(other)).sum();
        let rest = (busy - own).max(0.0);
        let place = format!("{busy:.1} of the {} that {} may use", cores(allowed.len()), process(one));
        let line = format!(
            "cores {allowed:?}: {busy:.2} busy, {own:.2} of it by the benchmark's processes that are bound to them"
        );
        let mut lines = vec![line];
        if rest >= busy * OTHERS_BLAMED && utilisation.role_cores(Role::Outside) >= rest * 0.5 {
            lines.extend(outside_lines(evidence));
            let text = format!("CPU: {place}, of which {rest:.1} by {}", others_named(evidence));
            let kind = match are_others_known(evidence) {
                true => LimitKind::Outside,
                false if allowed.len() == 1 => LimitKind::OneCore,
                false => LimitKind::Cpu,
            };
            return limit(kind, text, lines);
        }
        if own >= busy * 0.5 {
            let kind = if allowed.len() == 1 { LimitKind::OneCore } else { LimitKind::Cpu };
            return limit(kind, format!("CPU: {place}"), lines);
        }
    }
    None
}

/// A thread that makes load has a whole core.
fn generator(evidence: &Evidence) -> Option<Limit> {
    (!gains_when_deeper(evidence)).then_some(())?;
    let of_host = evidence.load_hosts.as_ref().and_then(|hosts| hosts.busiest.as_ref());
    if let Some(busiest) = of_host.filter(|busiest| busiest.thread_cores >= FULL_THREAD) {
        let text = format!("generator: fio on {} uses a whole core for each of its jobs", busiest.host);
        return limit(LimitKind::Generator, text, Vec::new());
    }
    let utilisation = &evidence.utilisation;
    let generators: Vec<&ProcessUse> =
        utilisation.processes.iter().filter(|process| process.role == Role::Generator).collect();
    let full: Vec<&&ProcessUse> =
        generators.iter().filter(|process| thread_cores(process) >= FULL_THREAD).collect();
    let first = full.first()?;
    let working = generators.iter().filter(|process| thread_cores(process) >= 0.05).count();
    let text = match full.len() {
        1 => format!("generator: {} uses a whole core", first.name),
        count => format!("generator: {count} of {working} {} use a whole core each", first.name),
    };
    let line = |process: &&&ProcessUse| {
        format!("the busiest thread of {} uses {:.2} cores", self::process(process), thread_cores(process))
    };
    limit(LimitKind::Generator, text, full.iter().map(line).collect())
}

/// A thread that serves load, or of the kernel, has a whole core; or a core is full of what cannot go elsewhere.
fn one_core(evidence: &Evidence) -> Option<Limit> {
    (!gains_when_deeper(evidence)).then_some(())?;
    let utilisation = &evidence.utilisation;
    let full = utilisation.processes.iter().find(|process| match process.role {
        Role::Target => thread_cores(process) >= FULL_THREAD,
        Role::Kernel => utilisation.process_cores(process) >= FULL_THREAD,
        _ => false,
    });
    if let Some(full) = full {
        let used =
            if full.role == Role::Kernel { utilisation.process_cores(full) } else { thread_cores(full) };
        let text = format!("one core: a thread of {} uses a whole core", process(full));
        let line = format!("the busiest thread of {} uses {used:.2} cores", process(full));
        let mut lines = vec![line];
        let growth = growth_of_threads(evidence);
        if matches!(growth, Growth::NotKnown | Growth::UpToHere(_)) {
            lines.push("if that thread polls, it uses a whole core in any case".into());
        }
        lines.extend(growth.line());
        return limit(LimitKind::OneCore, text, lines);
    }
    // Interrupts stay on their core.
    let cores = utilisation.core_numbers.iter().zip(&utilisation.per_core_busy);
    let cores =
        cores.zip(&utilisation.per_core_interrupts).map(|((number, busy), own)| (number, *busy, *own));
    let full = cores.filter(|(_, busy, interrupts)| *busy >= FULL_THREAD && *interrupts >= busy * 0.5);
    let (number, busy, interrupts) = full.max_by(|left, right| left.1.total_cmp(&right.1))?;
    let text = format!("one core: core {number} is busy {}, mostly with interrupts", percent(busy));
    let line = format!(
        "interrupts take {interrupts:.2} of core {number}, {:.2} cores in all",
        utilisation.interrupt_cores
    );
    limit(LimitKind::OneCore, text, vec![line])
}

fn network(evidence: &Evidence) -> Option<Limit> {
    let share = |network: &coquina_host::sampler::NetworkUse| {
        let speed = network.speed_bits_per_s? as f64;
        Some(network.in_bytes_per_s.max(network.out_bytes_per_s) * 8.0 / speed)
    };
    let networks = evidence.utilisation.networks.iter();
    let shares = networks.filter_map(|network| Some((network, share(network)?)));
    let (network, share) = shares.max_by(|left, right| left.1.total_cmp(&right.1))?;
    (share >= FULL).then_some(())?;
    let speed = bits_per_s(network.speed_bits_per_s?);
    let text = format!("network {} {} of {speed}", network.name, percent(share));
    limit(LimitKind::Network, text, vec![network_line(network)])
}

/// A drive that spins does one thing at a time, so being busy is being full, unless it does more where it can choose among more.
fn spinning_drive(evidence: &Evidence) -> Option<Limit> {
    let drive = busiest_drive(&evidence.utilisation, |drive| drive.is_rotational)?;
    let growth = growth(evidence);
    (drive.busy >= FULL && !matches!(growth, Growth::Grows(..))).then_some(())?;
    let text = format!("drive {} {} busy", drive.name, percent(drive.busy));
    let mut lines = vec![format!("{}; it spins, so this is all it can do", drive_line(drive))];
    lines.extend(growth.line());
    limit(LimitKind::Drive, text, lines)
}

/// Others have a good part of the CPU, and the rest is short.
fn outside(evidence: &Evidence) -> Option<Limit> {
    let utilisation = &evidence.utilisation;
    let all = f64::from(utilisation.cores_online);
    let others = utilisation.role_cores(Role::Outside);
    let waited = utilisation.pressures.is_some_and(|pressures| pressures.cpu_some >= 0.2);
    let is_short = utilisation.busy_cores >= all * 0.75 || waited;
    (are_others_known(evidence) && all > 0.0 && others >= all * 0.25 && is_short).then_some(())?;
    let text = format!(
        "CPU taken by others: {others:.1} of {} busy outside of the benchmark{}",
        cores(utilisation.cores_online as usize),
        outsiders(utilisation)
            .first()
            .map(|one| format!(" (process {}, pid {})", one.name, one.pid))
            .unwrap_or_default()
    );
    limit(LimitKind::Outside, text, outside_lines(evidence))
}

/// More at once gives more.
fn latency_limit(evidence: &Evidence) -> Option<Limit> {
    let outstanding = evidence.outstanding;
    (outstanding > 0 && evidence.iops > 0.0 && evidence.latency_ns_mean > 0.0).then_some(())?;
    let growth = growth(evidence);
    let alone = outstanding == 1 && !matches!(growth, Growth::Stopped(_));
    (alone || matches!(growth, Growth::Grows(..))).then_some(())?;
    let busy = nothing_or_what_is_busy(evidence);
    let each = latency(evidence.latency_ns_mean);
    let text = match evidence.rate_iops {
        // Latency counts from when an operation was due.
        Some(_) => format!(
            "latency at this depth: {outstanding} in flight at most, {each} each with the wait for a place among them, {busy}"
        ),
        None => format!("latency at this depth: {outstanding} in flight, {each} each, {busy}"),
    };
    let mut lines: Vec<String> = growth.line().into_iter().collect();
    if is_cpu_full(&evidence.utilisation) && polls(evidence) {
        lines.push(
            "processors that are busy now did far more at a greater depth: threads poll, or look for their next event before they sleep"
                .into(),
        );
    }
    if let Some(drive) =
        busiest_drive(&evidence.utilisation, |_| true).filter(|drive| drive.in_flight_mean > 0.0)
    {
        let share = drive.in_flight_mean / f64::from(outstanding);
        lines.push(if share <= 1.0 {
            format!(
                "drive {} has {:.2} of {outstanding} in flight, {}; the rest is on its way",
                drive.name,
                drive.in_flight_mean,
                percent(share)
            )
        } else {
            format!(
                "drive {} has {:.2} in flight for {outstanding} of the load: each becomes several, or others use it as well",
                drive.name, drive.in_flight_mean
            )
        });
    }
    lines.extend(weak_drives(&evidence.utilisation));
    limit(LimitKind::Latency, text, lines)
}

/// Flushes of a drive with one hardware queue come one after the other, whatever else it does at once, and what must be durable waits for the
/// next one. With more queues each flushes for itself, so that one which flushes all the time may do more at once.
fn flushing_drive(evidence: &Evidence) -> Option<Limit> {
    let flushing = |drive: &DriveUse| drive.flushing.unwrap_or(0.0);
    let drives = evidence.utilisation.drives.iter().filter(|drive| drive.hardware_queues <= 1);
    let drive = drives.max_by(|left, right| flushing(left).total_cmp(&flushing(right)))?;
    let share = flushing(drive);
    (share >= FULL && evidence.write_bytes_per_s > 0.0).then_some(())?;
    let text = format!("drive {} makes its write cache durable {} of the time", drive.name, percent(share));
    let mut lines = vec![format!(
        "{}; one flush is under way at a time, and what must be durable waits for the next",
        drive_line(drive)
    )];
    lines.extend(growth(evidence).line());
    limit(LimitKind::Drive, text, lines)
}

/// A drive that serves many at once is full when most of what is in flight waits there, and more of it gives no more.
fn parallel_drive(evidence: &Evidence) -> Option<Limit> {
    let drive = busiest_drive(&evidence.utilisation, |drive| !drive.is_rotational)?;
    let holds_most = drive.in_flight_mean >= f64::from(evidence.outstanding) * IN_DRIVE;
    (drive.busy >= FULL && evidence.iops > 0.0).then_some(())?;
    let growth = growth(evidence);
    let stopped = matches!(growth, Growth::Stopped(_));
    let flushes = drive.flushing.filter(|share| *share >= FLUSHES_OFTEN && evidence.write_bytes_per_s > 0.0);
    (holds_most || stopped || flushes.is_some()).then_some(())?;
    let mut text = format!("drive {} {} busy", drive.name, percent(drive.busy));
    if let Some(share) = flushes {
        text += &format!(", {} with flushes", flushes_of_the_time(drive, share));
    }
    let mut lines = vec![drive_line(drive)];
    lines.extend(growth.line());
    if holds_most && stopped {
        lines.push("most of what is in flight waits in the drive, and more of it gives no more".into());
        return limit(LimitKind::Drive, text, lines);
    }
    lines.extend(weak_drives(&evidence.utilisation));
    limit(LimitKind::Drive, format!("{text} (weak: it serves many operations at once)"), lines)
}

/// Neither a drive nor the processors are full, and one waits for the other: what is written comes from processors, and what
/// they answer waits until it is written.
fn several(evidence: &Evidence) -> Option<Limit> {
    let utilisation = &evidence.utilisation;
    let drive = busiest_drive(utilisation, |_| true).filter(|drive| drive.busy >= BUSY_IN_TURNS)?;
    let all = f64::from(utilisation.cores_online);
    let gone = utilisation.busy_cores + utilisation.steal_cores;
    (evidence.are_servers_known && evidence.load_hosts.is_none() && all > 0.0).then_some(())?;
    (gone >= all * BUSY_IN_TURNS).then_some(())?;
    let mut text = format!("several in turns: drive {} {} busy", drive.name, percent(drive.busy));
    if let Some(share) = drive.flushing.filter(|share| *share >= FLUSHES_OFTEN) {
        text += &format!(", {} with flushes", flushes_of_the_time(drive, share));
    }
    let place = cores(utilisation.cores_online as usize);
    text += &format!("; CPU {:.1} of {place}", utilisation.busy_cores);
    if utilisation.steal_cores >= OTHERS_NAMED_CORES {
        text += &format!(" and {:.1} taken by the hypervisor", utilisation.steal_cores);
    }
    let mut lines = vec![
        "neither is full (weak): while the drive works processors wait for it, and the drive for them"
            .to_owned(),
        drive_line(drive),
    ];
    lines.extend(growth(evidence).line());
    limit(LimitKind::Several, text, lines)
}

/// Processors are not full all the time, but something waits for one for most of it: work comes in bursts.
fn mostly_cpu(evidence: &Evidence) -> Option<Limit> {
    let utilisation = &evidence.utilisation;
    let all = f64::from(utilisation.cores_online);
    let waited = utilisation.pressures?.cpu_some;
    let gone = utilisation.busy_cores + utilisation.steal_cores;
    (all > 0.0 && gone >= all * CPU_MOSTLY && waited >= WAITED_MOSTLY).then_some(())?;
    let text = format!(
        "CPU: {:.1} of {} (weak: not all the time, but something waited for a core {} of it)",
        utilisation.busy_cores,
        cores(utilisation.cores_online as usize),
        percent(waited)
    );
    let mut lines = vec![format!("{} of all CPU time was used or taken away", percent(gone / all))];
    lines.extend(growth(evidence).line());
    limit(LimitKind::Cpu, text, lines)
}

/// A drive is not full, but busy for most of the time, with flushes that writes wait for or so that more in flight gives no more, and
/// processors are not.
fn mostly_drive(evidence: &Evidence) -> Option<Limit> {
    let utilisation = &evidence.utilisation;
    let drive = busiest_drive(utilisation, |_| true).filter(|drive| drive.busy >= BUSY_IN_TURNS)?;
    (evidence.are_servers_known && evidence.load_hosts.is_none()).then_some(())?;
    let growth = growth(evidence);
    let flushes = drive.flushing.filter(|share| *share >= FLUSHES_OFTEN && evidence.write_bytes_per_s > 0.0);
    (flushes.is_some() || matches!(growth, Growth::Stopped(_))).then_some(())?;
    let mut text = format!("drive {} {} busy", drive.name, percent(drive.busy));
    if let Some(share) = flushes {
        text += &format!(", {} with flushes", flushes_of_the_time(drive, share));
    }
    text += &format!(
        " (weak: it is not full, but busier than processors, {:.1} of {})",
        utilisation.busy_cores,
        cores(utilisation.cores_online as usize)
    );
    let mut lines = vec![drive_line(drive)];
    lines.extend(growth.line());
    limit(LimitKind::Drive, text, lines)
}

/// Nothing is near its limit.
pub(super) fn unknown(evidence: &Evidence) -> Limit {
    let utilisation = &evidence.utilisation;
    let mut parts =
        vec![format!("{:.1} of {}", utilisation.busy_cores, cores(utilisation.cores_online as usize))];
    if let Some(drive) = busiest_drive(utilisation, |_| true) {
        parts.push(format!("drive {} {} busy", drive.name, percent(drive.busy)));
    }
    let bytes =
        |network: &coquina_host::sampler::NetworkUse| network.in_bytes_per_s.max(network.out_bytes_per_s);
    let busiest = utilisation.networks.iter().max_by(|left, right| bytes(left).total_cmp(&bytes(right)));
    if let Some(network) = busiest.filter(|network| bytes(network) >= 1e6) {
        parts.push(format!("network {} {}", network.name, mib_per_s(bytes(network))));
    }
    let unseen = unseen(evidence);
    let text = format!("unknown: nothing that is sampled is full ({}){unseen}", parts.join(", "));
    Limit { kind: LimitKind::Unknown, text, evidence: growth(evidence).line().into_iter().collect() }
}

/// How throughput went with what was in flight around a point.
enum Growth {
    /// By how much for each doubling.
    Grows(String, f64),
    Stopped(String),
    /// It did up to this point, from far less in flight; whether more would give more, nothing tells.
    UpToHere(String),
    NotKnown,
}

impl Growth {
    fn line(self) -> Option<String> {
        match self {
            Growth::Grows(line, _) | Growth::Stopped(line) | Growth::UpToHere(line) => Some(line),
            Growth::NotKnown => None,
        }
    }
}

/// Depth, jobs and clients alike bring more in flight.
fn growth(evidence: &Evidence) -> Growth {
    growth_among(evidence, |_| true)
}

/// The next deeper point says it; at the deepest, the one before, if it is near. Points that are the same load, as that of the last drive and of
/// all drives, are one: what noise there is between them would be growth of one and none of the other.
fn growth_among(evidence: &Evidence, is_meant: fn(&Neighbour) -> bool) -> Growth {
    let others = evidence.neighbours.iter().filter(|neighbour| is_meant(neighbour));
    let usable = others.filter(|other| other.outstanding > 0 && other.iops > 0.0);
    let (same, others): (Vec<&Neighbour>, Vec<&Neighbour>) =
        usable.partition(|other| other.outstanding == evidence.outstanding);
    let same: Vec<f64> = same.iter().filter(|other| other.has_same_threads).map(|other| other.iops).collect();
    let mean = || same.iter().sum::<f64>() / same.len() as f64;
    let here = (evidence.outstanding, if same.is_empty() { evidence.iops } else { mean() });
    let others = others.iter().map(|other| (other.outstanding, other.iops));
    let (deeper, shallower): (Vec<_>, Vec<_>) = others.partition(|other| other.0 > here.0);
    let next = deeper.into_iter().min_by_key(|other| other.0);
    let before = shallower.into_iter().max_by_key(|other| other.0);
    let (low, high) = match (next, before) {
        (Some(next), _) => (here, next),
        (None, Some(before)) => (before, here),
        (None, None) => return Growth::NotKnown,
    };
    if low.0 == 0 || low.1 <= 0.0 {
        return Growth::NotKnown;
    }
    let doublings = (f64::from(high.0) / f64::from(low.0)).log2();
    let per_doubling = (high.1 / low.1).powf(1.0 / doublings);
    let line = |word: &str| {
        format!(
            "throughput {word} with depth: {:.0} operations/s with {} in flight, {:.0} with {}",
            low.1, low.0, high.1, high.0
        )
    };
    let is_deepest = next.is_none();
    if per_doubling < GROWTH_PER_DOUBLING && (is_deepest || high.1 < low.1 * GROWTH_IN_ALL) {
        Growth::Stopped(line("does not grow"))
    } else if is_deepest && doublings > DOUBLINGS_BEFORE_MAX {
        Growth::UpToHere(format!("{}; whether more would give more was not tried", line("grew")))
    } else {
        Growth::Grows(line("still grows"), per_doubling)
    }
}

/// The same for threads: more of these do more also where each is full.
fn growth_of_threads(evidence: &Evidence) -> Growth {
    growth_among(evidence, |neighbour| neighbour.has_same_threads)
}

/// A full thread that does more at a greater depth was not full of work: it polls, or it makes larger batches.
fn gains_when_deeper(evidence: &Evidence) -> bool {
    let is_deeper =
        |neighbour: &Neighbour| neighbour.has_same_threads && neighbour.outstanding > evidence.outstanding;
    evidence.neighbours.iter().any(is_deeper) && matches!(growth_of_threads(evidence), Growth::Grows(..))
}

/// Full processors that do far more with more in flight were not full of work.
fn polls(evidence: &Evidence) -> bool {
    let is_deeper = |neighbour: &Neighbour| neighbour.outstanding > evidence.outstanding;
    evidence.neighbours.iter().any(is_deeper)
        && matches!(growth(evidence), Growth::Grows(_, factor) if factor >= GROWTH_OF_POLLERS)
}

fn is_load(process: &ProcessUse) -> bool {
    matches!(process.role, Role::Generator | Role::Target)
}

fn thread_cores(process: &ProcessUse) -> f64 {
    process.busiest_thread_cores.unwrap_or(0.0)
}

fn busy_on(utilisation: &Utilisation, allowed: &[u32]) -> f64 {
    let cores = utilisation.core_numbers.iter().zip(&utilisation.per_core_busy);
    cores.filter(|(number, _)| allowed.contains(number)).map(|(_, busy)| busy).sum()
}

fn busiest_drive(utilisation: &Utilisation, is_meant: fn(&DriveUse) -> bool) -> Option<&DriveUse> {
    let drives = utilisation.drives.iter().filter(|drive| is_meant(drive));
    drives.max_by(|left, right| left.busy.total_cmp(&right.busy))
}

/// Whether processes outside of the benchmark are nothing but that: not servers of the target, and not what makes the load.
fn are_others_known(evidence: &Evidence) -> bool {
    evidence.are_servers_known && evidence.load_hosts.is_none()
}

/// Said where nothing that is seen is busy, and not all is seen.
fn unseen(evidence: &Evidence) -> String {
    let mut text = String::new();
    if !evidence.are_servers_known {
        text += "; not all of the target's hosts and servers are seen";
    }
    if evidence.load_hosts.is_some() {
        text += "; load hosts are not sampled";
    }
    text
}

/// What others may be.
fn may_be(evidence: &Evidence) -> &'static str {
    match (evidence.are_servers_known, evidence.load_hosts.is_some()) {
        (true, false) => "",
        (false, false) => "which may serve the target",
        (true, true) => "which may make the load",
        (false, true) => "which may serve the target or make the load",
    }
}

/// Others, and the busiest process outside of the benchmark, if it is worth naming.
fn others_named(evidence: &Evidence) -> String {
    let named = outsiders(&evidence.utilisation).first().map(|one| format!(": {}", process(one)));
    let named = named.unwrap_or_default();
    match may_be(evidence) {
        "" => format!("others{named}"),
        may_be => format!("others{named}, {may_be}"),
    }
}

fn outsiders(utilisation: &Utilisation) -> Vec<&ProcessUse> {
    let is_named =
        |one: &&ProcessUse| one.role == Role::Outside && utilisation.process_cores(one) >= OTHERS_NAMED_CORES;
    utilisation.processes.iter().filter(is_named).take(OUTSIDERS_MAX).collect()
}

fn outside_lines(evidence: &Evidence) -> Vec<String> {
    let utilisation = &evidence.utilisation;
    let what = match may_be(evidence) {
        "" => "outside of the benchmark".to_owned(),
        may_be => format!("not known to be of the benchmark, {may_be}"),
    };
    let line = |one: &&ProcessUse| {
        format!("{what}: {} uses {:.2} cores", process(one), utilisation.process_cores(one))
    };
    let named = outsiders(utilisation);
    let known: f64 = named.iter().map(|one| utilisation.process_cores(one)).sum();
    let mut lines: Vec<String> = named.iter().map(line).collect();
    let rest = utilisation.role_cores(Role::Outside) - known;
    if rest >= OTHERS_NAMED_CORES {
        lines.push(format!("{what}: other, small or short processes use {rest:.2} cores"));
    }
    lines
}

/// What a busy drive is worth as evidence where it serves many at once.
fn weak_drives(utilisation: &Utilisation) -> Vec<String> {
    let line = |drive: &DriveUse| {
        format!(
            "drive {} is busy {}, but it serves many operations at once: this says only that something was in flight",
            drive.name,
            percent(drive.busy)
        )
    };
    let busy = |drive: &&DriveUse| !drive.is_rotational && drive.busy >= FULL;
    utilisation.drives.iter().filter(busy).map(line).collect()
}

fn nothing_or_what_is_busy(evidence: &Evidence) -> String {
    let utilisation = &evidence.utilisation;
    let all = f64::from(utilisation.cores_online);
    if utilisation.busy_cores >= all * 0.7 {
        let of = cores(utilisation.cores_online as usize);
        return format!("{:.1} of {of} busy", utilisation.busy_cores);
    }
    match busiest_drive(utilisation, |_| true).filter(|drive| drive.busy >= 0.7) {
        Some(drive) => format!("drive {} is waited for but not full", drive.name),
        None => match unseen(evidence) {
            unseen if unseen.is_empty() => "nothing is busy".to_owned(),
            unseen => format!("nothing on this host is busy{unseen}"),
        },
    }
}
