use super::*;
use crate::definition::{ModeName, built_in_names};
use crate::report::{DriveFigures, Operation, Round};

/// Contradictions of the published rows of an experiment, with their subjects.
fn contradictions(experiment: &Experiment) -> Vec<String> {
    let published = experiment.published.rows().unwrap();
    let findings = of_report(&Report { published, ..Report::default() }, experiment);
    let wrong = findings.into_iter().filter(|finding| finding.kind == "contradiction");
    wrong.map(|finding| format!("{}: {}", finding.subject, finding.text)).collect()
}

#[test]
fn published_rows_that_do_not_fit_are_told() {
    let all =
        || built_in_names().into_iter().flat_map(|name| contradictions(&Experiment::load(name).unwrap()));
    let bandwidths: Vec<String> = all().filter(|found| found.contains(" bytes are ")).collect();
    assert_eq!(bandwidths.len(), 1, "{bandwidths:?}");
    let row = "published: many volumes, 512k sequential read, client 2, depth 128: Curve 1.2.4: 1340 operations/s of 524288 bytes";
    assert!(bandwidths[0].starts_with(row), "{bandwidths:?}");
    // All the others are of depths that were told for one volume, or for objects.
    let in_flight: Vec<String> = all().filter(|found| found.contains("Little's law")).collect();
    assert_eq!(in_flight.len(), 2, "{in_flight:?}");
    for (scenario, found) in ["one volume", "striped volume"].iter().zip(&in_flight) {
        let row = format!("published: {scenario}, 4k random read, depth 256: Curve 1.2.4: ");
        assert!(found.starts_with(&row) && found.contains("not 256"), "{found}");
    }
}

/// An experiment with one scenario, and a published row of depth 4 with so many operations per second of 1 ms each.
fn published(scenario: &str, sweep: &str, iops: u32) -> Experiment {
    let mode =
        r#"{ rounds = 1, runtime_s = 1.0, warmup_s = 0.0, volume_bytes_max = "16MiB", volumes_max = 2 }"#;
    let toml = format!(
        r#"format = 1
        name = "made-up"
        title = "Made up"
        modes = {{ quick = {mode}, default = {mode}, full = {mode} }}
        [[scenario]]
        name = "some volumes"
        volume_size = "1GiB"
        {scenario}
        [[scenario.sweep]]
        operation = ["random_read", "random_write"]
        block = ["4KiB", "512KiB"]
        depth = [1, 4]
        {sweep}
        [published]
        columns = ["scenario", "workload", "depth", "system", "iops", "latency_us_mean"]
        rows = [["some volumes", "4k random write", 4, "others", {iops}, 1000]]"#
    );
    Experiment::parse(&toml, "made-up.toml").unwrap()
}

#[test]
fn published_rows_are_judged_by_the_scenario_of_their_experiment() {
    let fits =
        |scenario, sweep, in_flight: u32| contradictions(&published(scenario, sweep, in_flight * 1000));
    for (scenario, sweep, lanes) in [
        ("volumes = 8", "", 8),
        ("", "", 1),
        ("volumes = 8", "jobs = { default = [1, 2], full = [5] }", 40),
        ("volumes = 8", "clients = 3", 8),
        ("volumes = 8", "clients = 3\nvolumes_per_client = 2", 6),
        ("", "drives = 16", 16),
    ] {
        assert_eq!(fits(scenario, sweep, 4 * lanes), [""; 0], "{scenario}, {sweep}");
        let wrong = fits(scenario, sweep, 8 * lanes);
        assert_eq!(wrong.len(), 1, "{scenario}, {sweep}");
        let told = format!("in flight by Little's law, not {} (as if 2 jobs", 4 * lanes);
        assert!(wrong[0].contains(&told), "{wrong:?}");
    }
    // Where it may have been this or that, nothing is judged.
    for sweep in [
        "jobs = [1, 4]",
        "clients = [1, 9]\nvolumes_per_client = 1",
        "drives = [1, 16]",
        "drives = 0",
        "rate = 5000",
    ] {
        assert_eq!(fits("volumes = 8", sweep, 1), [""; 0], "{sweep}");
    }
    let mut other = published("volumes = 8", "", 1000);
    other.scenarios[0].name = "of another name".to_owned();
    assert_eq!(contradictions(&other), [""; 0], "nobody knows");
}

fn case(clients: u32, rounds: &[(f64, u64)]) -> Case {
    let point = Point {
        scenario: "s".into(),
        operation: Operation::RandomWrite,
        block_bytes: 4096,
        depth: 1,
        jobs: 1,
        volumes: 1,
        volumes_per_client: None,
        clients,
        drives: None,
        copies: None,
        placement: None,
        rate_iops: None,
    };
    let rounds = rounds.iter().map(|(iops, errors)| Round {
        total: Figures { iops: *iops, ..Figures::default() },
        is_steady: Some(*errors == 0),
        errors: *errors,
        ..Round::default()
    });
    let result = CaseResult { target: "t".into(), rounds: rounds.collect(), skipped: None, settled_s: 0.0 };
    Case { id: format!("{clients} clients"), point, results: vec![result] }
}

#[test]
fn rounds_that_failed_are_in_no_mean_and_no_curve() {
    assert_eq!(mean_iops(&case(1, &[(100.0, 0), (90000.0, 3), (120.0, 0)]).results[0]), Some(110.0));
    assert_eq!(mean_iops(&case(1, &[(90000.0, 3)]).results[0]), None);
    let limits = Experiment::load("hdd-tuning").unwrap().modes.get(ModeName::Quick).clone();
    let good = |iops: f64| [(iops - 1.0, 0), (iops, 0), (iops + 1.0, 0)];
    let fails = |iops: f64| [(iops, 1), (iops, 1), (iops, 1)];
    let grows = [
        case(1, &[good(100.0), fails(9000.0)].concat()),
        case(2, &[good(200.0), fails(200.0)].concat()),
        case(4, &good(400.0)),
    ];
    assert_eq!(of_scenario(&grows, &limits, &[1]), [], "neither a knee nor unsteady");
    let failing_end = [case(1, &good(100.0)), case(2, &good(101.0)), case(4, &fails(400.0))];
    let found = of_scenario(&failing_end, &limits, &[1]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].text.starts_with("grows no more from 1 client on: 100 "), "{found:?}");
}

#[test]
fn what_more_copies_cost_has_an_interval() {
    let with_copies = |copies, rounds: &[(f64, u64)]| {
        let mut case = case(1, rounds);
        (case.point.copies, case.point.scenario) = (Some(copies), format!("{copies} copies"));
        case
    };
    let found = |more: &[(f64, u64)]| {
        let mut report = crate::view::made_up::made_up("ceph-2x-vs-3x", &["t"]);
        // A smaller load, and a round that failed, do not count.
        let few = with_copies(2, &[(100.0, 0), (110.0, 0)]);
        let many = with_copies(2, &[(990.0, 0), (1000.0, 0), (1010.0, 0), (9e9, 1)]);
        report.cases = vec![few, many, with_copies(3, more)];
        report.published = Vec::new();
        let found = cost_of_copies(&report);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].text.clone()
    };
    let text = found(&[(490.0, 0), (500.0, 0), (510.0, 0)]);
    let rest = text.strip_prefix("3 copies give 0.50 (0.").expect(&text);
    assert!(rest.ends_with(") of what 2 give: 500 of 1000 operations per second"), "{text}");
    let (low, high) = rest.split_once(')').unwrap().0.split_once(" to 0.").expect(&text);
    let percent = |digits: &str| digits.parse::<u32>().unwrap();
    assert!((46..50).contains(&percent(low)) && (51..55).contains(&percent(high)), "{text}");
    assert_eq!(found(&[(500.0, 0)]), "3 copies give 0.50 of what 2 give: 500 of 1000 operations per second");
}

#[test]
fn only_the_same_drives_tell_whether_more_in_flight_gives_more() {
    let step = |drives, depth, jobs, iops| {
        let mut case = case(1, &[(iops, 0)]);
        case.point = Point { drives: Some(drives), depth, jobs, ..case.point };
        case
    };
    let cases = [
        step(4, 1, 1, 100.0),
        step(4, 8, 1, 300.0),
        step(4, 1, 2, 200.0),
        step(8, 1, 1, 190.0),
        step(0, 8, 1, 390.0),
    ];
    let among = |index, drives, is_one_disk| -> Vec<(u32, bool)> {
        let found = neighbours_of(&cases, index, 0, drives, is_one_disk);
        found.iter().map(|neighbour| (neighbour.outstanding, neighbour.has_same_threads)).collect()
    };
    let of = |index, drives| among(index, drives, false);
    assert_eq!(of(0, 8), [(32, true), (8, false)]);
    assert_eq!(of(3, 8), [(64, true)], "all drives are eight");
    assert_eq!(of(4, 8), [(8, true)]);
    let on_one_disk = [(32, true), (8, false), (8, false), (64, false)];
    assert_eq!(among(0, 8, true), on_one_disk, "files of one folder: all of them load the same disk");
}

#[test]
fn drives_are_one_disk_where_only_one_was_sampled() {
    let drive = |name: &str| coquina_host::sampler::DriveUse { name: name.to_owned(), ..Default::default() };
    let round = |names: &[&str]| Measured {
        round: case(1, &[(1.0, 0)]).results[0].rounds[0].clone(),
        utilisation: Some(coquina_host::Utilisation {
            drives: names.iter().copied().map(drive).collect(),
            ..Default::default()
        }),
        first_error: None,
        servers: Servers::All,
        hosts: Vec::new(),
        busiest_host: None,
        grown: None,
        waited_at: None,
    };
    assert!(share_one_disk(&[round(&["vda"]), round(&["vda"])]));
    assert!(!share_one_disk(&[round(&["vda"]), round(&["sda", "sdb"])]));
    assert!(!share_one_disk(&[round(&[])]), "elsewhere, or in memory");
    assert!(!share_one_disk(&[]), "nothing is known");
}

#[test]
fn all_drives_have_as_much_in_flight_as_there_are_drives() {
    let mut all = case(1, &[(4000.0, 0)]);
    all.point.drives = Some(0);
    let seen = Measured {
        round: all.results[0].rounds[0].clone(),
        utilisation: Some(coquina_host::Utilisation::default()),
        first_error: None,
        servers: Servers::All,
        hosts: vec!["192.0.2.7".to_owned()],
        busiest_host: None,
        grown: None,
        waited_at: None,
    };
    let mut cases = [all];
    name_limits(&mut cases, &[vec![vec![seen]]], &[20]);
    let lines = cases[0].results[0].rounds[0].limit.evidence.join("\n");
    assert!(lines.contains(", 20 in flight,"), "{lines}");
    assert!(lines.contains("load hosts are not sampled (192.0.2.7)"), "{lines}");
}

#[test]
fn generators_that_do_not_measure_at_once_are_told_once() {
    let with = |skews_s: &[Option<f64>]| {
        let mut case = case(2, &vec![(100.0, 0); skews_s.len()]);
        for (round, skew_s) in case.results[0].rounds.iter_mut().zip(skews_s) {
            (round.measured_s, round.skew_s) = (10.0, *skew_s);
        }
        case
    };
    assert_eq!(skewed(&[with(&[None, Some(0.19), Some(0.0)])]), None);
    let found = skewed(&[with(&[Some(0.3), Some(0.1)]), with(&[Some(0.25), Some(2.5)])]).unwrap();
    assert_eq!((found.kind.as_str(), found.subject.as_str()), ("note", "s"));
    assert!(
        found.text.starts_with("in 3 rounds") && found.text.contains("up to 2.50 of 10.0 s"),
        "{found:?}"
    );
}

#[test]
fn a_drive_that_stalled_is_told_once() {
    let with = |shares: &[Option<f64>]| {
        let mut case = case(2, &vec![(100.0, 0); shares.len()]);
        for (round, share) in case.results[0].rounds.iter_mut().zip(shares) {
            let drive = |name: &str, write_bytes_per_s, stalled| DriveFigures {
                name: name.into(),
                write_bytes_per_s,
                stalled,
                ..Default::default()
            };
            let hangs = drive("sdc", 0.0, Some(1.0));
            round.drives = vec![drive("sda", 5.0, Some(0.01)), drive("sdb", 5.0, *share), hangs];
        }
        case
    };
    assert_eq!(stalled(&[with(&[None, Some(0.1), Some(0.0)])]), None);
    let found = stalled(&[with(&[Some(0.12), Some(0.01)]), with(&[Some(0.416), None])]).unwrap();
    assert_eq!((found.kind.as_str(), found.subject.as_str()), ("note", "s"));
    let told = "in 2 of 4 rounds a drive stalled for more than 10 % of the time, up to 42 % (sdb, ";
    assert!(found.text.starts_with(told), "{found:?}");
    let mut failed = with(&[Some(0.5)]);
    failed.results[0].rounds[0].errors = 1;
    assert_eq!(stalled(&[failed]), None);
}

#[test]
fn a_machine_that_stood_still_is_told_once() {
    let with = |shares: &[Option<f64>]| {
        let mut case = case(2, &vec![(100.0, 0); shares.len()]);
        for (round, share) in case.results[0].rounds.iter_mut().zip(shares) {
            round.stood_still = *share;
        }
        case
    };
    assert_eq!(stood_still(&[with(&[None, Some(0.02), Some(0.0)])]), None);
    let found = stood_still(&[with(&[Some(0.03), Some(0.01)]), with(&[Some(0.076), None])]).unwrap();
    assert_eq!((found.kind.as_str(), found.subject.as_str()), ("note", "s"));
    assert!(found.text.starts_with("in 2 of 4 rounds") && found.text.contains("up to 8 %"), "{found:?}");
    let mut failed = with(&[Some(0.5)]);
    failed.results[0].rounds[0].errors = 1;
    assert_eq!(stood_still(&[failed]), None);
}

/// As 128 writes of 4 MiB in flight that took a second each after half a second of load.
#[test]
fn latency_that_is_too_low_since_queues_were_not_full_yet_is_told() {
    let mut limits = Experiment::load("arm-vs-x86").unwrap().modes.get(ModeName::Quick).clone();
    let of = |limits: &Mode, latency_s: f64| {
        let mut case = case(1, &[(106.5, 0), (106.5, 0)]);
        case.point.depth = 128;
        for round in &mut case.results[0].rounds {
            round.total.latency_ns_mean = latency_s * 1e9;
        }
        short_warm_up(&[case], limits, &[1]).map(|found| found.text)
    };
    let text = of(&limits, 1.051).unwrap();
    assert!(
        text.contains("by 14 % of 1.05 s in the worst case (1 clients: t). --warmup 4 gives it"),
        "{text}"
    );
    assert_eq!(of(&limits, 1.2), None, "as many are in flight as should be");
    assert_eq!(of(&limits, 0.4), None, "what is missing is so for another reason");
    limits.warmup_s = 5.0;
    assert_eq!(of(&limits, 1.051), None);
}

#[test]
fn of_what_is_too_short_to_tell_nothing_is_said() {
    let limits = Experiment::load("hdd-tuning").unwrap().modes.get(ModeName::Quick).clone();
    let of = |series: &[f64]| {
        let mut case = case(1, &[(100.0, 0), (100.0, 0)]);
        for round in &mut case.results[0].rounds {
            (round.is_steady, round.series) = (None, series.to_vec());
        }
        of_scenario(&[case], &limits, &[1])
    };
    assert_eq!(of(&[50.0, 100.0, 200.0]), []);
    let found = of(&[50.0, 100.0, 150.0, 200.0]);
    assert!(found.len() == 1 && found[0].text.contains("in 1 of 1 results"), "{found:?}");
}
