use super::*;
use crate::definition::{Experiment, ModeName, built_in_names};
use crate::report::{Operation, Round};

/// Subjects of the published rows of which bandwidth does not fit operations per second.
fn bandwidths_that_do_not_fit() -> Vec<String> {
    let mut found = Vec::new();
    for name in built_in_names() {
        let published = Experiment::load(name).unwrap().published.rows().unwrap();
        let findings = of_report(&Report { published, ..Report::default() });
        let wrong = findings
            .into_iter()
            .filter(|finding| finding.kind == "contradiction" && finding.text.contains(" bytes are "));
        found.extend(wrong.map(|finding| format!("{}: {}", finding.subject, finding.text)));
    }
    found
}

#[test]
fn one_published_bandwidth_does_not_fit_its_operations() {
    let found = bandwidths_that_do_not_fit();
    assert_eq!(found.len(), 1, "{found:?}");
    let row = "published: many volumes, 512k sequential read, client 2, depth 128: Curve 1.2.4: 1340 operations/s of 524288 bytes";
    assert!(found[0].starts_with(row), "{found:?}");
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
        hosts: Vec::new(),
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
        hosts: Vec::new(),
    };
    let mut cases = [all];
    name_limits(&mut cases, &[vec![vec![seen]]], &[20]);
    let lines = cases[0].results[0].rounds[0].limit.evidence.join("\n");
    assert!(lines.contains(", 20 in flight,"), "{lines}");
}
