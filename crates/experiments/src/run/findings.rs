//! What a run found besides its figures: what held it back, figures that contradict each other, what was not steady.

use std::path::PathBuf;

use coquina_host::{DriveEnvironment, doctor};

use crate::definition::{Experiment, Mode, published_outstanding};
use crate::limit::{Evidence, LoadHosts, Neighbour, name_limit};
use crate::report::{Case, CaseResult, DriveFigures, Figures, Finding, Point, PublishedRow, Report, Round};
use crate::spread::Rounds;
use crate::statistics::{SAMPLES_MIN, sanity, steadiness};
use crate::view::{Metric, figure};

use super::knees;
use super::measure::Measured;
use super::rates;
use super::servers::Servers;

/// Of so much less in flight than there should be it is told that the load before was too short, as a share.
const MISSED_MIN: f64 = 0.05;
/// Of this share of the measured time it is told that not all generators measured at once.
const SKEW_MAX: f64 = 0.02;
/// The same of the machine that stood still.
const STOOD_STILL_MAX: f64 = 0.02;
/// Rounds in which a drive ended nothing for a larger share of the time are told of.
const STALLED_MAX: f64 = 0.1;

/// Mean operations per second of the good rounds.
pub fn mean_iops(result: &CaseResult) -> Option<f64> {
    let iops: Vec<f64> = result.good_rounds().map(|round| round.total.iops).collect();
    (!iops.is_empty()).then(|| iops.iter().sum::<f64>() / iops.len() as f64)
}

/// What is told of a round that failed.
pub fn left_out(label: &str, measured: &Measured) -> String {
    let reason = measured.first_error.as_deref().unwrap_or("the generator does not say why");
    format!(
        "{label}: round {} is left out of all figures, with {} failure(s): {reason}",
        measured.round.round, measured.round.errors
    )
}

/// What is told of hosts that made load.
pub fn of_load_hosts(hosts: &[String]) -> String {
    format!(
        "load was made by fio --server on {}: what these machines are, what else they did and which fio they have are not known. The machine, \
         its drives, CPU time and limits in this report are those of the host on which it was run",
        hosts.join(", ")
    )
}

/// Settings of the operating system that a report names.
pub fn setting_keys(drives: &[DriveEnvironment]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for drive in drives {
        keys.extend(["scheduler", "read_ahead_kb", "nr_requests"].map(|key| format!("{key}:{}", drive.name)));
    }
    keys.extend(["swappiness", "governor", "thp"].map(str::to_owned));
    keys
}

/// The value of a setting, if this host has it.
pub fn setting(key: &str) -> Option<String> {
    doctor::os_setting(key).ok()?.read().ok()
}

/// Names what held each round back on targets which have so many drives, with what is known of its neighbours up to now: the same
/// load on as many drives, or on any number where all are one disk, with more or less of it in flight.
pub fn name_limits(cases: &mut [Case], seen: &[Vec<Vec<Measured>>], drives: &[u32]) {
    for index in 0..cases.len().min(seen.len()) {
        for target in 0..cases[index].results.len() {
            let drives = drives.get(target).copied().unwrap_or(1);
            let Some(measured) = seen[index].get(target) else { continue };
            let mut neighbours = neighbours_of(cases, index, target, drives, share_one_disk(measured));
            let point = cases[index].point.on(drives);
            // All rounds say the same of how throughput grows.
            let own = mean_iops(&cases[index].results[target]);
            let outstanding = point.outstanding();
            neighbours.extend(own.map(|iops| Neighbour { outstanding, iops, has_same_threads: true }));
            for (round, measured) in cases[index].results[target].rounds.iter_mut().zip(measured) {
                let Some(utilisation) = measured.utilisation.as_ref().filter(|_| round.is_good()) else {
                    continue;
                };
                let part = |figures: &Option<Figures>, is_all: bool| match figures {
                    Some(figures) => figures.bytes_per_s,
                    None if is_all => round.total.bytes_per_s,
                    None => 0.0,
                };
                let evidence = Evidence {
                    utilisation: utilisation.clone(),
                    are_servers_known: measured.servers == Servers::All,
                    load_hosts: (!measured.hosts.is_empty()).then(|| LoadHosts {
                        names: measured.hosts.clone(),
                        busiest: measured.busiest_host.clone(),
                    }),
                    operation: point.operation,
                    block_bytes: point.block_bytes,
                    outstanding: point.outstanding(),
                    iops: round.total.iops,
                    latency_ns_mean: round.total.latency_ns_mean,
                    read_bytes_per_s: part(&round.read, !point.operation.writes()),
                    write_bytes_per_s: part(&round.write, !point.operation.reads()),
                    rate_iops: point.rate_iops.map(|rate_iops| rate_iops as f64),
                    neighbours: neighbours.clone(),
                };
                round.limit = name_limit(&evidence).into();
            }
        }
    }
}

/// All drives of the target lie on one disk of this host, as files of one folder do. What is sampled are the disks of all its drives,
/// whether a step loads them or not.
fn share_one_disk(measured: &[Measured]) -> bool {
    let mut sampled = measured.iter().filter_map(|round| round.utilisation.as_ref()).peekable();
    sampled.peek().is_some() && sampled.all(|utilisation| utilisation.drives.len() == 1)
}

/// Depth, jobs and clients may differ. With other drives there is more to do the work, which says nothing of one of them, unless
/// all are one disk.
fn neighbours_of(
    cases: &[Case],
    index: usize,
    target: usize,
    drives: u32,
    is_one_disk: bool,
) -> Vec<Neighbour> {
    let on_drives = |point: &Point| point.on(drives).drives;
    let without = |point: &Point| {
        let drives = on_drives(point).filter(|_| !is_one_disk);
        Point { depth: 0, clients: 0, jobs: 0, drives, ..point.clone() }
    };
    let threads = |point: &Point| (point.jobs, point.clients, on_drives(point));
    let here = &cases[index].point;
    let key = without(here);
    let others =
        cases.iter().enumerate().filter(|(other, case)| *other != index && without(&case.point) == key);
    let others = others.filter_map(|(_, case)| {
        let iops = mean_iops(case.results.get(target)?)?;
        let has_same_threads = threads(&case.point) == threads(here);
        Some(Neighbour { outstanding: case.point.on(drives).outstanding(), iops, has_same_threads })
    });
    others.collect()
}

/// What the cases of one scenario show together, on targets which have so many drives.
pub fn of_scenario(cases: &[Case], limits: &Mode, drives: &[u32]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for case in cases {
        for result in &case.results {
            let subject = format!("{}: {}", case.id, result.target);
            findings.extend(unsteady(&subject, result, limits));
        }
    }
    findings.extend(unsteady_over_rounds(cases, limits));
    findings.extend(skewed(cases));
    findings.extend(stood_still(cases));
    findings.extend(stalled(cases));
    findings.extend(short_warm_up(cases, limits, drives));
    findings.extend(knees::of(cases, drives));
    findings.extend(rates::of_scenario(cases));
    findings
}

/// Throughput that was not steady within its good rounds.
fn unsteady(subject: &str, result: &CaseResult, limits: &Mode) -> Option<Finding> {
    let doubtful = result.good_rounds().filter(|round| round.is_steady == Some(false));
    let last = doubtful.clone().next_back()?;
    let text = format!(
        "{} of {} rounds, in up to {} passes each: {}",
        doubtful.count(),
        result.good_rounds().count(),
        limits.passes_max,
        last.steadiness
    );
    Some(finding("not-steady", subject, &text))
}

/// Rounds that are too short to tell: whether throughput was steady over all rounds of a case. One finding for all. Of what is too short
/// also with all rounds together nothing is said.
fn unsteady_over_rounds(cases: &[Case], limits: &Mode) -> Option<Finding> {
    let (mut results, mut moved) = (0, Vec::new());
    for case in cases {
        for result in case.results.iter().filter(|result| result.good_rounds().next().is_some()) {
            if result.good_rounds().any(|round| round.is_steady.is_some()) {
                continue;
            }
            let all: Vec<f64> = result.good_rounds().flat_map(|round| round.series.iter().copied()).collect();
            if all.len() < SAMPLES_MIN {
                continue;
            }
            results += 1;
            let over_all = steadiness(&all);
            if !over_all.is_steady {
                moved.push(format!("{}: {} ({})", case.id, result.target, over_all.text));
            }
        }
    }
    let first = moved.first()?;
    let subject = cases.first().map_or("", |case| case.point.scenario.as_str());
    let text = format!(
        "rounds of {} s are too short to tell whether throughput was steady; over all rounds together it was not in {} of \
         {results} results, such as {first}. Longer rounds give surer figures: leave --quick out, or use --runtime",
        limits.runtime_s,
        moved.len()
    );
    Some(finding("not-steady", subject, &text))
}

/// Every good round, with its case and target.
fn good_rounds(cases: &[Case]) -> impl Iterator<Item = (&Case, &CaseResult, &Round)> {
    cases.iter().flat_map(|case| {
        let results = case.results.iter();
        results.flat_map(move |result| result.good_rounds().map(move |round| (case, result, round)))
    })
}

/// Generators of one load that did not measure at once: sums of what they did are of no one time. One finding for all, with the worst.
fn skewed(cases: &[Case]) -> Option<Finding> {
    let share =
        |round: &Round| round.skew_s.map_or(0.0, |skew_s| skew_s / round.measured_s.max(f64::MIN_POSITIVE));
    let skewed: Vec<_> = good_rounds(cases).filter(|(_, _, round)| share(round) > SKEW_MAX).collect();
    let (case, result, round) = skewed.iter().max_by(|a, b| share(a.2).total_cmp(&share(b.2)))?;
    let text = format!(
        "in {} rounds the generators did not all measure at once for more than {:.0} % of the time, up to {:.2} of {:.1} s ({}: {}): \
         each has its own figures of these moments, and their sum may be too high. Longer rounds or fewer clients make that less",
        skewed.len(),
        SKEW_MAX * 100.0,
        round.skew_s.unwrap_or(0.0),
        round.measured_s,
        case.id,
        result.target
    );
    Some(finding("note", &case.point.scenario, &text))
}

/// Rounds in which the whole machine stood still. One finding for all, with the worst.
fn stood_still(cases: &[Case]) -> Option<Finding> {
    let share = |round: &Round| round.stood_still.unwrap_or(0.0);
    let still: Vec<_> = good_rounds(cases).filter(|(_, _, round)| share(round) > STOOD_STILL_MAX).collect();
    let (case, result, round) = still.iter().max_by(|a, b| share(a.2).total_cmp(&share(b.2)))?;
    let text = format!(
        "in {} of {} rounds the whole machine stood still for more than {:.0} % of the time, up to {:.0} % ({}: {}): its own host gives it no more \
         processor time then, as where it may have so much in each period. Latency includes that, and so does the time for which processors \
         count as busy",
        still.len(),
        good_rounds(cases).count(),
        STOOD_STILL_MAX * 100.0,
        share(round) * 100.0,
        case.id,
        result.target
    );
    Some(finding("note", &case.point.scenario, &text))
}

/// The drive that stalled for the largest share of a round's time, after that share. Of several not one that did nothing at all: it may hang, and
/// be none of the target's.
fn most_stalled(round: &Round) -> (f64, &str) {
    let is_used = |drive: &&DriveFigures| {
        round.drives.len() == 1 || drive.read_bytes_per_s + drive.write_bytes_per_s > 0.0
    };
    let used = round.drives.iter().filter(is_used);
    let shares = used.filter_map(|drive| Some((drive.stalled?, drive.name.as_str())));
    shares.max_by(|left, right| left.0.total_cmp(&right.0)).unwrap_or_default()
}

/// Rounds in which a drive ended nothing for a good part of the time. One finding for all, with the worst.
fn stalled(cases: &[Case]) -> Option<Finding> {
    let stalled: Vec<_> =
        good_rounds(cases).filter(|(_, _, round)| most_stalled(round).0 > STALLED_MAX).collect();
    let (case, result, round) =
        stalled.iter().max_by(|a, b| most_stalled(a.2).0.total_cmp(&most_stalled(b.2).0))?;
    let (worst, drive) = most_stalled(round);
    let text = format!(
        "in {} of {} rounds a drive stalled for more than {:.0} % of the time, up to {:.0} % ({drive}, {}: {}): for 100 ms and more at a time it \
         ended nothing, with operations in flight. Such a round tells of the drive more than of the target",
        stalled.len(),
        good_rounds(cases).count(),
        STALLED_MAX * 100.0,
        worst * 100.0,
        case.id,
        result.target
    );
    Some(finding("note", &case.point.scenario, &text))
}

/// Operations that took longer than the load before the measured time: the first ones of a queue do not wait in a full one, and with them
/// latency is too low. Little's law tells by how much. One finding for all, with the worst.
fn short_warm_up(cases: &[Case], limits: &Mode, drives: &[u32]) -> Option<Finding> {
    let mut found: Vec<(f64, f64, String)> = Vec::new();
    for case in cases.iter().filter(|case| case.point.rate_iops.is_none()) {
        for (target, result) in case.results.iter().enumerate() {
            let point = case.point.on(drives.get(target).copied().unwrap_or(1));
            let rounds: Vec<&Round> = result.good_rounds().collect();
            let mean = |of: fn(&Round) -> f64| {
                rounds.iter().map(|round| of(round)).sum::<f64>() / rounds.len().max(1) as f64
            };
            let latency_s = mean(|round| round.total.latency_ns_mean) / 1e9;
            let in_flight = mean(|round| round.total.iops * round.total.latency_ns_mean / 1e9);
            let share = in_flight / f64::from(point.outstanding());
            let is_long = latency_s > limits.warmup_s_of(&point).max(limits.runtime_s * MISSED_MIN / 2.0);
            if is_long && share < 1.0 - MISSED_MIN {
                found.push((share, latency_s, format!("{}: {}", case.id, result.target)));
            }
        }
    }
    let (share, latency_s, worst) = found.iter().min_by(|one, other| one.0.total_cmp(&other.0))?;
    let text = format!(
        "of {} results operations took longer than the load before them that is not measured, and began before all that is to be in flight \
         was: their latency is told too low, by {:.0} % of {latency_s:.2} s in the worst case ({worst}). --warmup {:.0} gives it",
        found.len(),
        (1.0 / share - 1.0) * 100.0,
        (latency_s * 3.0).ceil()
    );
    Some(finding("note", &cases.first()?.point.scenario, &text))
}

/// What of the advice for storage this host does not follow.
pub fn advice(places: &[PathBuf]) -> Vec<Finding> {
    let question = doctor::Question { drives: places.to_vec(), folder: None };
    let found = doctor::examine(&doctor::HostRoot::here(), &question);
    let worth_telling = found.into_iter().filter(|found| found.level >= doctor::Level::Advice);
    let told = worth_telling.map(|found| {
        let text =
            format!("is {}; better {}: {} To change it: {}", found.is, found.should_be, found.why, found.how);
        finding("advice", &found.subject, &text)
    });
    told.collect()
}

/// Where a target did most of a workload in a scenario, with its mean operations per second.
fn best<'a>(
    cases: &'a [Case],
    scenario: &str,
    workload: &str,
    target: &str,
) -> Option<(&'a CaseResult, f64)> {
    let cases =
        cases.iter().filter(|case| case.point.scenario == scenario && case.point.workload() == workload);
    let means = cases.filter_map(|case| {
        let result = case.results.iter().find(|result| result.target == target)?;
        Some((result, mean_iops(result)?))
    });
    means.max_by(|one, other| one.1.total_cmp(&other.1))
}

/// The interval of a ratio of means of two scenarios, whose rounds have nothing in common, in brackets; empty where there is one round.
fn interval_of_ratio(first: &CaseResult, second: &CaseResult, ratio: f64) -> String {
    let compared = figure::against(first, second, Metric::Iops, Rounds::Apart);
    let spread = compared.map(|compared| compared.ratio).filter(|spread| spread.half_width().is_some());
    spread.map_or_else(String::new, |spread| {
        let spread = spread.around(ratio);
        format!(" ({:.2} to {:.2})", spread.low.max(0.0), spread.high)
    })
}

/// What more copies cost: scenarios of the same workloads that differ in their copies, by target, beside what was published.
fn cost_of_copies(report: &Report) -> Vec<Finding> {
    let mut scenarios: Vec<(&str, u32)> = Vec::new();
    for point in report.cases.iter().map(|case| &case.point) {
        if let Some(copies) = point.copies
            && !scenarios.iter().any(|(name, _)| *name == point.scenario)
        {
            scenarios.push((&point.scenario, copies));
        }
    }
    let mut findings = Vec::new();
    for (fewer, more) in scenarios.iter().zip(scenarios.iter().skip(1)) {
        if fewer.1 >= more.1 {
            continue;
        }
        let mut workloads: Vec<String> = Vec::new();
        for case in report.cases.iter().filter(|case| case.point.scenario == fewer.0) {
            if !workloads.contains(&case.point.workload()) {
                workloads.push(case.point.workload());
            }
        }
        for workload in workloads {
            let published = |copies: u32| {
                let rows = report
                    .published
                    .iter()
                    .filter(|row| row.workload == workload && row.copies == Some(copies));
                rows.filter_map(|row| Some((row.iops?, row.system.as_str())))
                    .max_by(|a, b| a.0.total_cmp(&b.0))
            };
            for target in &report.targets {
                let best = |scenario| best(&report.cases, scenario, &workload, &target.label);
                let (Some((fewer_result, of_fewer)), Some((more_result, of_more))) =
                    (best(fewer.0), best(more.0))
                else {
                    continue;
                };
                let ratio = of_more / of_fewer;
                let mut text = format!(
                    "{} copies give {ratio:.2}{} of what {} give: {of_more:.0} of {of_fewer:.0} operations per second",
                    more.1,
                    interval_of_ratio(fewer_result, more_result, ratio),
                    fewer.1
                );
                if let (Some(of_fewer), Some(of_more)) = (published(fewer.1), published(more.1)) {
                    text += &format!("; published: {:.2}, {}", of_more.0 / of_fewer.0, of_more.1);
                }
                findings.push(finding("copies", &format!("{workload}: {}", target.label), &text));
            }
        }
    }
    findings
}

/// What the report as a whole shows, which is one of this experiment.
pub fn of_report(report: &Report, experiment: &Experiment) -> Vec<Finding> {
    let mut findings: Vec<Finding> = cost_of_copies(report);
    for row in &report.published {
        for text in published_contradictions(row, experiment) {
            let depth = row.depth.map(|depth| format!(", depth {depth}")).unwrap_or_default();
            let client = row.client.map(|client| format!(", client {client}")).unwrap_or_default();
            let subject =
                format!("published: {}, {}{client}{depth}: {}", row.scenario, row.workload, row.system);
            findings.push(finding("contradiction", &subject, &text));
        }
    }
    findings
}

/// Operations in flight of a published row, where the experiment tells how its scenario was loaded. What one of several clients did, or
/// the latency of the reads of a mix, is not that of all.
fn published_in_flight(row: &PublishedRow, experiment: &Experiment) -> Option<f64> {
    let is_of_all = row.client.is_none() && row.latency_us_mean_write.is_none();
    let depth = row.depth.filter(|_| is_of_all)?;
    let scenario = experiment.scenarios.iter().find(|scenario| scenario.name == row.scenario)?;
    published_outstanding(scenario, &row.workload, depth).map(f64::from)
}

/// Contradictions of a published row.
fn published_contradictions(row: &PublishedRow, experiment: &Experiment) -> Vec<String> {
    let block_bytes =
        row.workload.split(' ').next().and_then(|size| coquina_base::parse_size_bytes(size).ok());
    let figures = sanity::Figures {
        iops: row.iops,
        bandwidth_bytes_per_s: row.bandwidth_mib_s.map(|mib| mib * 1_048_576.0),
        in_flight_at_end_bytes_per_s: None,
        block_bytes: block_bytes.and_then(|bytes| u32::try_from(bytes).ok()),
        latency_ns_mean: row.latency_us_mean.map(|us| us * 1e3),
        outstanding: published_in_flight(row, experiment),
        between_ns_max: 0.0,
        is_open_loop: false,
    };
    let rounding = [row.iops, row.bandwidth_mib_s].into_iter().flatten().map(sanity::rounding).sum();
    sanity::check_printed(&figures, rounding).into_iter().map(|found| found.text).collect()
}

/// A finding of a kind, about something.
pub fn finding(kind: &str, subject: &str, text: &str) -> Finding {
    Finding { kind: kind.to_owned(), subject: subject.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests;
