use coquina_host::DriveEnvironment;

use super::*;
use crate::report::Round;
use crate::view::made_up::made_up;

fn rounds(report: &mut Report, target: &str, mut change: impl FnMut(&mut Round)) {
    for result in report.cases.iter_mut().flat_map(|case| &mut case.results) {
        if result.target == target {
            result.rounds.iter_mut().for_each(&mut change);
        }
    }
}

fn verdicts(comparison: &ReportComparison, target: usize, metric: &str) -> Vec<Verdict> {
    let cases = comparison.cases.iter().filter(|case| case.target == target);
    cases
        .flat_map(|case| &case.metrics)
        .filter(|other| other.metric == metric)
        .map(|other| other.verdict)
        .collect()
}

#[test]
fn a_report_does_not_differ_from_itself() {
    let report = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    let comparison = compare(&report, &report).unwrap();
    assert!(comparison.notes.is_empty(), "{:?}", comparison.notes);
    assert!(comparison.cases.iter().flat_map(|case| &case.metrics).all(|metric| {
        metric.verdict == Verdict::NoDifferenceShown && metric.ratio.is_some_and(|ratio| ratio.mean == 1.0)
    }));
}

#[test]
fn what_became_faster_is_told_from_what_did_not() {
    let first = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    let mut second = first.clone();
    rounds(&mut second, "Coquina", |round| {
        round.total.iops *= 1.5;
        round.total.latency_ns_mean /= 1.5;
        if let Some(us) = round.cpu.as_mut().and_then(|cpu| cpu.machine_us_per_io.as_mut()) {
            *us *= 2.0;
        }
    });
    let comparison = compare(&first, &second).unwrap();
    assert!(verdicts(&comparison, 0, "iops").iter().all(|verdict| *verdict == Verdict::Faster));
    assert!(verdicts(&comparison, 0, "latency_us_mean").iter().all(|verdict| *verdict == Verdict::Faster));
    assert!(
        verdicts(&comparison, 0, "cpu_machine_us_per_io").iter().all(|verdict| *verdict == Verdict::Slower)
    );
    assert!(verdicts(&comparison, 1, "iops").iter().all(|verdict| *verdict == Verdict::NoDifferenceShown));
    let text = comparison.to_text(120);
    for wanted in ["second report against first", "faster", "no difference shown", "1.50", "depth 128"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let json = serde_json::to_value(&comparison).unwrap();
    assert_eq!(json["cases"][0]["metrics"][0]["verdict"], "faster");
    assert_eq!(json["targets"][0]["matched_by"], "label");
}

#[test]
fn rounds_that_failed_are_not_compared_and_are_told() {
    let first = made_up("hdd-tuning", &["Coquina"]);
    let mut second = first.clone();
    second.cases[0].results[0]
        .rounds
        .iter_mut()
        .for_each(|round| (round.errors, round.total.iops) = (1, 1e9));
    let bad = &mut second.cases[1].results[0].rounds[0];
    (bad.errors, bad.total.iops) = (1, 1e9);
    let comparison = compare(&first, &second).unwrap();
    assert!(comparison.cases.iter().all(|case| case.id != first.cases[0].id));
    let of_second = comparison.cases[0].metrics[0].second;
    assert!(of_second.count == 2 && of_second.mean < 1e8, "{of_second:?}");
    let notes = comparison.notes.join("\n");
    for wanted in [
        "all rounds of the second report failed, which are not compared: 1, such as",
        "which are left out: 1",
    ] {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
}

#[test]
fn reports_that_have_nothing_to_do_with_each_other_are_refused() {
    let report = made_up("hdd-tuning", &["Coquina"]);
    let other = made_up("arm-vs-x86", &["Coquina"]);
    let said = compare(&report, &other).unwrap_err().to_string();
    assert!(said.contains("hdd-tuning and arm-vs-x86"), "{said}");
    let old = Report { report_version: 99, ..report.clone() };
    assert_eq!(compare(&report, &old), Err(CompareError::UnknownVersion { which: "second", version: 99 }));
    let mut empty = report.clone();
    empty.cases.clear();
    let said = compare(&report, &empty).unwrap_err().to_string();
    assert!(said.contains("4 cases with figures in the first, 0 in the second"), "{said}");
}

#[test]
fn targets_are_matched_by_what_is_surest() {
    let matched = |first: &[&str], second: &[&str]| {
        let (first, second) = (made_up("hdd-tuning", first), made_up("hdd-tuning", second));
        let comparison = compare(&first, &second).unwrap();
        let pairs =
            comparison.targets.iter().map(|pair| (pair.first.clone(), pair.second.clone(), pair.matched_by));
        (pairs.collect::<Vec<_>>(), comparison.notes)
    };
    let pair = |first: &str, second: &str, by| (first.to_owned(), second.to_owned(), by);
    let (pairs, _) = matched(&["Coquina", "Ceph"], &["Ceph", "Coquina"]);
    assert_eq!(pairs, [pair("Coquina", "Coquina", MatchedBy::Label), pair("Ceph", "Ceph", MatchedBy::Label)]);
    let (pairs, notes) = matched(&["before"], &["after"]);
    assert_eq!(pairs, [pair("before", "after", MatchedBy::OnlyOne)]);
    assert!(notes[0].contains("each report has one target"));
    let (pairs, _) = matched(&["Coquina 1", "Ceph"], &["Coquina 2", "Ceph"]);
    assert_eq!(
        pairs,
        [pair("Coquina 1", "Coquina 2", MatchedBy::Spec), pair("Ceph", "Ceph", MatchedBy::Label)]
    );
    let mut second = made_up("hdd-tuning", &["c", "d"]);
    second.targets.iter_mut().for_each(|target| target.spec += " elsewhere");
    let comparison = compare(&made_up("hdd-tuning", &["a", "b"]), &second).unwrap();
    assert!(comparison.targets.iter().all(|pair| pair.matched_by == MatchedBy::Order));
    assert!(comparison.notes[0].contains("nothing else in common"));
}

#[test]
fn other_volumes_and_times_are_told() {
    let first = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    let mut second = first.clone();
    let timing = second.timing.as_mut().unwrap();
    (timing.runtime_s, timing.rounds) = (1.3, 4);
    second.layouts[0].volume_bytes = 512 << 20;
    let aged = second.layouts.iter_mut().find_map(|layout| layout.aged.as_mut()).unwrap();
    aged.overwrites = 1;
    let notes = compare(&first, &second).unwrap().notes.join("\n");
    for wanted in [
        "measured time of a round differs: 20 s and 1.3 s",
        "number of rounds differs: 5 and 4",
        "set-up of one volume differs: first 1 volume of 4 GiB, 3 copies, written full before, read once before cases that read; \
         second 1 volume of 512 MiB",
        "overwritten 3 times in writes of 64 KiB; second",
    ] {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
    assert!(!notes.contains("set-up of many volumes"), "{notes}");
    let older = Report { timing: None, layouts: Vec::new(), ..first.clone() };
    let notes = compare(&first, &older).unwrap().notes;
    assert!(notes[0].contains("of the second report are not known"), "{notes:?}");
    assert!(compare(&older, &older).unwrap().notes.is_empty());
}

/// A run that had to be quick cuts cases to three rounds, and plans as many as any other.
#[test]
fn cases_that_were_cut_short_and_times_of_runs_are_told() {
    let mut first = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    for result in first.cases.iter_mut().flat_map(|case| &mut case.results) {
        let more: Vec<Round> = result.rounds.iter().take(2).cloned().collect();
        result.rounds.extend(more);
    }
    let mut second = first.clone();
    let timing = second.timing.as_mut().unwrap();
    (timing.time_s, timing.warmup_crowd_s) = (600.0, 2.5);
    second.cases[1].results[0].rounds.truncate(3);
    let notes = compare(&first, &second).unwrap().notes;
    assert_eq!(
        notes,
        [
            "load before it, where several clients had more than 512 operations in flight, differs: as before others and 2.5 s".to_owned(),
            "time of the whole run differs: as long as it takes and 600 s".to_owned(),
            format!("Coquina: cases that were run in another number of rounds: 1, such as {}: 5 and 3", first.cases[1].id),
        ]
    );
    // As many as each was to have are told once.
    second.timing.as_mut().unwrap().rounds = 3;
    let all = second.cases.iter_mut().flat_map(|case| &mut case.results);
    all.for_each(|result| result.rounds.truncate(3));
    let notes = compare(&first, &second).unwrap().notes;
    assert!(notes.iter().any(|note| note == "number of rounds differs: 5 and 3"), "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("another number")), "{notes:?}");
}

#[test]
fn whatever_was_not_equal_is_listed() {
    let first = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    let mut second = first.clone();
    second.mode = "quick".to_owned();
    second.interrupted = Some("Ctrl-C".to_owned());
    second.settings.insert("swap".to_owned(), "on".to_owned());
    second.targets[1].copies = Some(2);
    second.targets[0].settings.clear();
    second.targets[0].server_processes.clear();
    second.environment.kernel = "6.12".to_owned();
    second.cases[3].point.volumes = 6;
    second.cases.pop();
    let notes = compare(&first, &second).unwrap().notes.join("\n");
    for wanted in [
        "the second report ended early: Ctrl-C",
        "mode differs: default and quick",
        "setting swap differs: off and on",
        "Ceph: copies differs: 3 and 2",
        "Coquina: drive cache differs: off and not known",
        "Coquina: CPU time of its servers differs: seen and not known",
        "kernel differs",
        "1 and 6 volumes",
    ] {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
}

#[test]
fn what_only_one_report_has_is_named() {
    let first = made_up("hdd-tuning", &["Coquina", "Ceph", "plain file"]);
    let mut second = made_up("hdd-tuning", &["Coquina", "Coquina over NBD"]);
    second.targets.iter_mut().for_each(|target| target.spec += " elsewhere");
    let gone = second.cases.pop().unwrap().id;
    let skipped = &mut second.cases[0].results[0];
    skipped.rounds.clear();
    skipped.skipped = Some("no room".to_owned());
    let failed = &mut second.cases[1].results[0];
    failed.rounds.iter_mut().for_each(|round| round.errors = 1);
    let found = compare(&first, &second).unwrap();
    assert_eq!(
        found.targets.len(),
        1,
        "a plain file is not held against a volume for its place: {:?}",
        found.targets
    );
    assert_eq!(found.only_first.targets, ["Ceph", "plain file"]);
    assert_eq!(found.only_first.cases, [gone.as_str()]);
    let figures = OneSidedFigures {
        target: "Coquina".to_owned(),
        case: first.cases[0].id.clone(),
        reason: Some("no room".to_owned()),
    };
    assert_eq!(found.only_first.figures, [figures]);
    assert_eq!(
        found.only_second,
        OneSided { targets: vec!["Coquina over NBD".to_owned()], ..OneSided::default() }
    );
    let text = found.to_text(200);
    let wanted = format!(
        "Only in the first report\n  the target Ceph\n  the target plain file\n  the case {gone}\n  figures of Coquina in {} (the \
         other: no room)\n\nOnly in the second report\n  the target Coquina over NBD\n",
        first.cases[0].id
    );
    assert!(text.ends_with(&wanted), "{text}");
    let same = compare(&first, &first).unwrap();
    assert_eq!((&same.only_first, &same.only_second), (&OneSided::default(), &OneSided::default()));
    assert!(!same.to_text(200).contains("Only in"));
}

#[test]
fn of_many_that_only_one_report_has_some_are_shown_and_the_rest_counted() {
    let first = made_up("curve-vs-ceph", &["Coquina"]);
    let mut second = first.clone();
    second.cases.truncate(1);
    let found = compare(&first, &second).unwrap();
    assert_eq!(found.only_first.cases.len(), first.cases.len() - 1);
    let text = found.to_text(200);
    assert!(text.contains(&format!("  and {} more cases\n", first.cases.len() - 11)), "{text}");
    assert_eq!(text.matches("  the case ").count(), 10);
}

/// A report told 4.5 ms where a comparison told 4,500 us.
#[test]
fn latencies_have_the_units_that_reports_have() {
    let mut first = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    let is_slow = |id: &str| id.starts_with("one volume / 4k random write");
    assert!(
        first.cases.iter().any(|case| is_slow(&case.id)) && !first.cases.iter().all(|case| is_slow(&case.id))
    );
    for case in &mut first.cases {
        let latency_ns = if is_slow(&case.id) { 4_500_000.0 } else { 250_000.0 };
        for round in case.results.iter_mut().flat_map(|result| &mut result.rounds) {
            round.total.latency_ns_mean = latency_ns;
        }
    }
    let heads = |text: &str| {
        let has = |unit: &str| text.contains(&format!("mean latency, {unit}"));
        (has("ms"), has("us"))
    };
    let shown = crate::table::text(&first, 200);
    assert_eq!(heads(&shown), (true, true), "{shown}");
    let compared = compare(&first, &first).unwrap().to_text(200);
    assert_eq!(heads(&compared), (true, true), "{compared}");
    let line = |part: &str| compared.lines().find(|line| line.contains(part)).unwrap_or_default().to_owned();
    let slow = first.cases.iter().find(|case| is_slow(&case.id)).unwrap();
    assert!(line(&slow.id).contains(" 4.50 "), "{compared}");
}

/// Shows what a person sees.
#[test]
#[ignore = "prints for people"]
fn look_at_text() {
    let first = made_up("hdd-tuning", &["Coquina", "Ceph"]);
    let mut second = first.clone();
    second.mode = "quick".to_owned();
    rounds(&mut second, "Coquina", |round| round.total.iops *= 1.2);
    println!("{}", compare(&first, &second).unwrap().to_text(110));
}

#[test]
fn drives_are_told_by_name_and_model_and_where_there_is_neither_that_is_told() {
    let with = |drives: &[(&str, &str)]| {
        let mut report = made_up("hdd-tuning", &["Coquina"]);
        let some = report.drives[0].clone();
        let drive = |(name, model): &(&str, &str)| DriveEnvironment {
            name: (*name).to_owned(),
            model: (*model).to_owned(),
            ..some.clone()
        };
        report.drives = drives.iter().map(drive).collect();
        report
    };
    let notes = |first: &[(&str, &str)], second: &[(&str, &str)]| {
        compare(&with(first), &with(second)).unwrap().notes.join("\n")
    };
    let (two, none) = ([("vda", ""), ("nvme0n1", "SAMSUNG MZQL2")], []);
    assert_eq!(notes(&two, &none), "drives differs: vda, nvme0n1 (SAMSUNG MZQL2) and none known");
    assert_eq!(notes(&none, &[("vda", "")]), "drives differs: none known and vda");
    assert_eq!(notes(&[("vda", "")], &[("vdb", "")]), "drives differs: vda and vdb");
    assert_eq!(notes(&two, &two), "");
}

#[test]
fn other_hosts_drives_and_settling_times_are_told() {
    let first = made_up("hdd-tuning", &["Coquina"]);
    let mut second = first.clone();
    second.hosts = vec!["10.0.0.2".to_owned(), "10.0.0.1".to_owned()];
    second.drives[1].write_cache = "write back".to_owned();
    second.drives[2].rotational = true;
    second.cases[0].results[0].settled_s = 5.0;
    second.cases[1].results[0].settled_s = 15.0;
    let notes = compare(&first, &second).unwrap().notes;
    let drive = |number: usize| first.drives[number].name.as_str();
    assert_eq!(
        notes,
        [
            format!("write cache of {} differs: write through and write back", drive(1)),
            format!("kind of drive of {} differs: it does not spin and it spins", drive(2)),
            "where the load was made differs: this machine and 10.0.0.1, 10.0.0.2".to_owned(),
            format!(
                "Coquina: cases before which its store settled for another time: 2, such as {}: 0 s and 5 s",
                first.cases[0].id
            ),
        ]
    );
    second.drives = vec![DriveEnvironment { name: "vda".to_owned(), ..DriveEnvironment::default() }];
    let notes = compare(&first, &second).unwrap().notes.join("\n");
    assert!(!notes.contains("write cache"), "nothing is known of the same drive: {notes}");
}

#[test]
fn ends_of_the_interval_of_a_small_ratio_can_be_told_apart() {
    let first = made_up("curve-vs-ceph", &["Coquina"]);
    let mut second = first.clone();
    rounds(&mut second, "Coquina", |round| {
        round.total.iops *= [0.0205, 0.0215, 0.021][round.round as usize % 3];
    });
    let comparison = compare(&first, &second).unwrap();
    let ratio = comparison.cases[0].metrics[0].ratio.unwrap();
    assert!(ratio.low > 0.0195 && ratio.high < 0.0225 && ratio.low < 0.0205, "{ratio:?}");
    let ends = format!("0.021 ({:.3} to {:.3})", ratio.low, ratio.high);
    let text = comparison.to_text(200);
    assert!(text.contains(&ends), "{ends} is not in {text}");
}
