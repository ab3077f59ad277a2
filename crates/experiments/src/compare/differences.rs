//! What was not equal when two reports were made.

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::format_size_bytes;
use coquina_host::DriveEnvironment;

use crate::definition::CROWD;
use crate::report::{Case, Report, TargetFacts, TimingFacts};
use crate::view::setup::layout_text;

use super::TargetPair;
use super::matching;

/// Most settings that are listed one by one.
const SETTINGS_MAX: usize = 20;
/// Most points that are listed one by one.
const POINTS_MAX: usize = 6;

/// Everything that was not equal.
pub(super) fn notes(first: &Report, second: &Report, targets: &[TargetPair]) -> Vec<String> {
    let mut notes = Vec::new();
    for (which, report) in [("first", first), ("second", second)] {
        if let Some(reason) = &report.interrupted {
            notes.push(format!("the {which} report ended early: {reason}"));
        }
    }
    differ(&mut notes, "mode", &first.mode, &second.mode);
    timing(&mut notes, first, second);
    layouts(&mut notes, first, second);
    differ(&mut notes, "version of coquina", &first.program_version, &second.program_version);
    let (ours, theirs) = (&first.environment, &second.environment);
    differ(&mut notes, "processor", &ours.cpu_model, &theirs.cpu_model);
    differ(&mut notes, "architecture", &ours.architecture, &theirs.architecture);
    differ(&mut notes, "cores", &ours.cores.to_string(), &theirs.cores.to_string());
    let memory = |bytes: u64| format_size_bytes(bytes);
    differ(&mut notes, "memory", &memory(ours.memory_bytes), &memory(theirs.memory_bytes));
    differ(&mut notes, "kernel", &ours.kernel, &theirs.kernel);
    differ(&mut notes, "file system", &ours.file_system, &theirs.file_system);
    differ(&mut notes, "drives", &drives(first), &drives(second));
    drive_settings(&mut notes, &first.drives, &second.drives);
    hosts(&mut notes, first, second);
    maps(&mut notes, "version of ", &first.versions, &second.versions);
    maps(&mut notes, "setting ", &first.settings, &second.settings);
    for pair in targets {
        for (which, report, label) in [("first", first, &pair.first), ("second", second, &pair.second)] {
            failures(&mut notes, which, report, label);
        }
        let ours = first.targets.iter().find(|target| target.label == pair.first);
        let theirs = second.targets.iter().find(|target| target.label == pair.second);
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            target(&mut notes, &pair.first, ours, theirs);
        }
        settling(&mut notes, first, second, pair);
        rounds(&mut notes, first, second, pair);
    }
    points(&mut notes, first, second);
    notes
}

/// Names of drives, and their models as far as they are known: those of virtual machines have none.
fn drives(report: &Report) -> String {
    let drives = report.drives.iter().map(|drive| match (drive.name.as_str(), drive.model.as_str()) {
        ("", "") => "one without a name".to_owned(),
        ("", one) | (one, "") => one.to_owned(),
        (name, model) => format!("{name} ({model})"),
    });
    let drives: Vec<String> = drives.collect();
    if drives.is_empty() { "none known".to_owned() } else { drives.join(", ") }
}

/// How drives are set that both have, or that have the same place among as many. Schedulers are among the settings of the system.
fn drive_settings(notes: &mut Vec<String>, first: &[DriveEnvironment], second: &[DriveEnvironment]) {
    let kind = |drive: &DriveEnvironment| if drive.rotational { "it spins" } else { "it does not spin" };
    for (place, ours) in first.iter().enumerate() {
        let same_place = || second.get(place).filter(|_| first.len() == second.len());
        let named = second.iter().find(|theirs| theirs.name == ours.name);
        if let Some(theirs) = named.or_else(same_place) {
            let name = &ours.name;
            differ(notes, &format!("write cache of {name}"), &ours.write_cache, &theirs.write_cache);
            differ(notes, &format!("kind of drive of {name}"), kind(ours), kind(theirs));
            if ours.size_bytes > 0 && theirs.size_bytes > 0 {
                let size = |drive: &DriveEnvironment| format_size_bytes(drive.size_bytes);
                differ(notes, &format!("size of {name}"), &size(ours), &size(theirs));
            }
        }
    }
}

/// Machines that made the load.
fn hosts(notes: &mut Vec<String>, first: &Report, second: &Report) {
    let names = |report: &Report| {
        let mut hosts = report.hosts.clone();
        hosts.sort_unstable();
        if hosts.is_empty() { "this machine".to_owned() } else { hosts.join(", ") }
    };
    differ(notes, "where the load was made", &names(first), &names(second));
}

/// How long stores settled before cases that both measured.
fn settling(notes: &mut Vec<String>, first: &Report, second: &Report, pair: &TargetPair) {
    let settled_s = |case: &Case, label: &str| {
        let result = case.results.iter().find(|result| result.target == label)?;
        result.good_rounds().next().map(|_| result.settled_s)
    };
    let different: Vec<String> = matching::cases(first, second)
        .into_iter()
        .filter_map(|(one, other)| {
            let (ours, theirs) = (settled_s(one, &pair.first)?, settled_s(other, &pair.second)?);
            (ours != theirs).then(|| format!("{}: {ours} s and {theirs} s", one.id))
        })
        .collect();
    if let Some(case) = different.first() {
        notes.push(format!(
            "{}: cases before which its store settled for another time: {}, such as {case}",
            pair.first,
            different.len()
        ));
    }
}

/// Cases that were not run as often in both reports, though they were to be, or not in the same way: those that a run which had to be quick cut
/// short, or that it came to before it ended early.
fn rounds(notes: &mut Vec<String>, first: &Report, second: &Report, pair: &TargetPair) {
    let count = |case: &Case, label: &str| {
        let result = case.results.iter().find(|result| result.target == label)?;
        Some(result.rounds.len()).filter(|count| *count > 0)
    };
    let planned = |report: &Report| report.timing.as_ref().map(|timing| timing.rounds as usize);
    let planned = planned(first).zip(planned(second));
    let different: Vec<String> = matching::cases(first, second)
        .into_iter()
        .filter_map(|(one, other)| {
            let (ours, theirs) = (count(one, &pair.first)?, count(other, &pair.second)?);
            let is_told = ours == theirs || planned == Some((ours, theirs));
            (!is_told).then(|| format!("{}: {ours} and {theirs}", one.id))
        })
        .collect();
    if let Some(case) = different.first() {
        notes.push(format!(
            "{}: cases that were run in another number of rounds: {}, such as {case}",
            pair.first,
            different.len()
        ));
    }
}

/// What is left out because operations failed.
fn failures(notes: &mut Vec<String>, which: &str, report: &Report, label: &str) {
    let results = report.cases.iter().flat_map(|case| case.results.iter().map(move |result| (case, result)));
    let results: Vec<_> = results.filter(|(_, result)| result.target == label).collect();
    let failed: Vec<&str> =
        results.iter().filter(|(_, result)| result.has_failed()).map(|(case, _)| case.id.as_str()).collect();
    if let Some(first) = failed.first() {
        notes.push(format!(
            "{label}: cases in which all rounds of the {which} report failed, which are not compared: {}, such as {first}",
            failed.len()
        ));
    }
    let rounds =
        results.iter().filter(|(_, result)| !result.has_failed()).flat_map(|(_, result)| &result.rounds);
    let bad = rounds.filter(|round| !round.is_good()).count();
    if bad > 0 {
        notes.push(format!(
            "{label}: rounds of the {which} report with failed operations, which are left out: {bad}"
        ));
    }
}

fn differ(notes: &mut Vec<String>, what: &str, first: &str, second: &str) {
    if first != second {
        let or_none = |text: &str| if text.is_empty() { "not known".to_owned() } else { text.to_owned() };
        notes.push(format!("{what} differs: {} and {}", or_none(first), or_none(second)));
    }
}

/// How long and how often cases were run.
fn timing(notes: &mut Vec<String>, first: &Report, second: &Report) {
    let (Some(ours), Some(theirs)) = (&first.timing, &second.timing) else {
        for (which, report, other) in [("first", first, second), ("second", second, first)] {
            if report.timing.is_none() && other.timing.is_some() {
                notes.push(format!(
                    "volumes, rounds and times of the {which} report are not known: an older program wrote it"
                ));
            }
        }
        return;
    };
    let seconds = |seconds: f64| format!("{seconds} s");
    differ(notes, "number of rounds", &ours.rounds.to_string(), &theirs.rounds.to_string());
    differ(notes, "measured time of a round", &seconds(ours.runtime_s), &seconds(theirs.runtime_s));
    differ(notes, "load before it", &seconds(ours.warmup_s), &seconds(theirs.warmup_s));
    let or = |none: &str, s: f64| if s > 0.0 { seconds(s) } else { none.to_owned() };
    let crowd = |timing: &TimingFacts| or("as before others", timing.warmup_crowd_s);
    let what = format!("load before it, where several clients had more than {CROWD} operations in flight,");
    differ(notes, &what, &crowd(ours), &crowd(theirs));
    let whole = |timing: &TimingFacts| or("as long as it takes", timing.time_s);
    differ(notes, "time of the whole run", &whole(ours), &whole(theirs));
    differ(notes, "load that aged stores settle under", &seconds(ours.settle_s), &seconds(theirs.settle_s));
    differ(notes, "most passes", &ours.passes_max.to_string(), &theirs.passes_max.to_string());
}

/// What targets were made to look like in scenarios that both have.
fn layouts(notes: &mut Vec<String>, first: &Report, second: &Report) {
    for ours in &first.layouts {
        if let Some(theirs) = second.layouts.iter().find(|theirs| theirs.scenario == ours.scenario) {
            let (one, other) = (layout_text(ours), layout_text(theirs));
            if one != other {
                notes.push(format!("set-up of {} differs: first {one}; second {other}", ours.scenario));
            }
        }
    }
}

fn maps(
    notes: &mut Vec<String>,
    what: &str,
    first: &BTreeMap<String, String>,
    second: &BTreeMap<String, String>,
) {
    let keys: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let different: Vec<&String> =
        keys.into_iter().filter(|key| first.get(*key) != second.get(*key)).collect();
    let value = |map: &BTreeMap<String, String>, key: &str| map.get(key).cloned().unwrap_or_default();
    for key in different.iter().take(SETTINGS_MAX) {
        differ(notes, &format!("{what}{key}"), &value(first, key), &value(second, key));
    }
    if different.len() > SETTINGS_MAX {
        notes.push(format!("{} more differ in {}", different.len() - SETTINGS_MAX, what.trim_end()));
    }
}

fn target(notes: &mut Vec<String>, label: &str, first: &TargetFacts, second: &TargetFacts) {
    let copies = |target: &TargetFacts| target.copies.map_or_else(String::new, |copies| copies.to_string());
    let durable = |target: &TargetFacts| match target.durable {
        Some(true) => "durable",
        Some(false) => "not durable",
        None => "",
    };
    differ(notes, &format!("{label}: copies"), &copies(first), &copies(second));
    differ(notes, &format!("{label}: whether writes are durable"), durable(first), durable(second));
    // It is a part of the CPU per operation where it is seen.
    let servers = |target: &TargetFacts| if target.server_processes.is_empty() { "" } else { "seen" };
    differ(notes, &format!("{label}: CPU time of its servers"), servers(first), servers(second));
    differ(notes, &format!("{label}: system"), &first.system, &second.system);
    differ(notes, &format!("{label}: caches"), &first.cache, &second.cache);
    differ(notes, &format!("{label}: what makes the load"), &first.generator, &second.generator);
    maps(notes, &format!("{label}: "), &first.settings, &second.settings);
}

/// Points of the same name that are not the same, such as those of fewer volumes in a shorter mode.
fn points(notes: &mut Vec<String>, first: &Report, second: &Report) {
    let different: Vec<_> =
        matching::cases(first, second).into_iter().filter(|(one, other)| one.point != other.point).collect();
    for (one, other) in different.iter().take(POINTS_MAX) {
        let (ours, theirs) = (&one.point, &other.point);
        let what = match (ours.volumes == theirs.volumes, ours.copies == theirs.copies) {
            (false, _) => format!("{} and {} volumes", ours.volumes, theirs.volumes),
            (_, false) => "different copies".to_owned(),
            _ => "different points".to_owned(),
        };
        notes.push(format!("{}: {what}", one.id));
    }
    if different.len() > POINTS_MAX {
        notes.push(format!("{} more cases differ in their points", different.len() - POINTS_MAX));
    }
}
