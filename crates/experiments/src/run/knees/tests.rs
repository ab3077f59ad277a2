use super::*;
use crate::report::{DriveFigures, Figures, Operation, Round};

fn point(drives: Option<u32>, clients: u32) -> Point {
    Point {
        scenario: "drives together".into(),
        operation: Operation::RandomRead,
        block_bytes: 4096,
        depth: 32,
        jobs: 1,
        volumes: 1,
        volumes_per_client: None,
        clients,
        drives,
        copies: None,
        placement: None,
        rate_iops: None,
    }
}

/// A case of one target with these rounds, on these drives of the machine.
fn case(point: Point, iops: &[f64], on: &[&str]) -> Case {
    let rounds = iops.iter().enumerate().map(|(index, iops)| Round {
        round: index as u32 + 1,
        total: Figures { iops: *iops, ..Figures::default() },
        drives: on
            .iter()
            .map(|name| DriveFigures { name: (*name).to_owned(), ..DriveFigures::default() })
            .collect(),
        ..Round::default()
    });
    let result =
        CaseResult { target: "files".into(), rounds: rounds.collect(), skipped: None, settled_s: 0.0 };
    Case { id: crate::definition::identifier(&point), point, results: vec![result] }
}

fn drives(steps: &[(u32, &[f64])], on: &[&str]) -> Vec<Case> {
    steps.iter().map(|(count, iops)| case(point(Some(*count), 1), iops, on)).collect()
}

/// Curves that stop growing.
fn stops(cases: &[Case], drives: u32) -> Vec<Finding> {
    of(cases, &[drives]).into_iter().filter(|finding| finding.kind == "stops-growing").collect()
}

fn only(cases: &[Case], drives: u32) -> String {
    let mut found = of(cases, &[drives]);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).text
}

#[test]
fn files_of_one_disk_stop_growing_at_the_first() {
    let cases = drives(
        &[(1, &[990.0, 1000.0, 1010.0]), (2, &[1000.0, 1005.0, 1010.0]), (4, &[995.0, 1000.0, 1015.0])],
        &["vda"],
    );
    let text = only(&cases, 4);
    assert!(text.starts_with("grows no more from 1 drive on: 1000 operations per second there"), "{text}");
    assert!(text.contains("one drive, vda,") && text.contains("each gives 25 % (25 to 26 %)"), "{text}");
}

/// What is sampled under two partitions is their one drive, and under a file on a RAID all of its drives.
#[test]
fn partitions_and_files_on_one_raid_are_told_what_they_share() {
    let flat: &[(u32, &[f64])] = &[(1, &[99.0, 100.0, 101.0]), (2, &[99.0, 100.0, 101.0])];
    let text = only(&drives(flat, &["sdb"]), 2);
    assert!(text.contains("they are files or partitions of one drive, sdb, and share"), "{text}");
    let text = only(&drives(flat, &["sda", "sdb"]), 2);
    assert!(text.contains("look for what they share: a RAID or volume, "), "{text}");
}

#[test]
fn noisy_rounds_of_one_disk_say_that_it_grows_little() {
    let cases = drives(
        &[(1, &[900.0, 1000.0, 1100.0]), (2, &[1080.0, 950.0, 1010.0]), (4, &[920.0, 1010.0, 1090.0])],
        &["vda"],
    );
    let text = only(&cases, 4);
    assert!(text.starts_with("grows little or not from 1 drive on"), "{text}");
    assert!(text.contains("300 % more would be in proportion") && text.contains("not shown"), "{text}");
}

/// A report said of reads that fell by a third with eight clients that it was not shown whether they still grew.
#[test]
fn the_step_that_leaves_doubt_is_named() {
    let clients = |steps: [(u32, &[f64]); 3]| -> Vec<Case> {
        steps.iter().map(|(clients, iops)| case(point(None, *clients), iops, &["vda"])).collect()
    };
    let cases =
        clients([(1, &[168e3, 166e3, 170e3]), (2, &[160e3, 171e3, 184e3]), (8, &[117e3, 116e3, 118e3])]);
    let text = only(&cases, 1);
    assert!(text.starts_with("grows little or not from 1 client on: 168000 "), "{text}");
    assert!(text.contains("117000 with 8 clients (-32 to -29 %)"), "{text}");
    let told = "whether it still grows by 5 % with 2 clients (-14 to +21 %) is not shown";
    assert!(text.contains(told), "{text}");
}

#[test]
fn a_last_step_that_may_be_noise_is_no_knee() {
    // Mean of the last step is below that of the one before, and its rounds allow for growth in proportion.
    let noisy: &[f64] = &[2400.0, 3600.0, 5400.0];
    let cases =
        drives(&[(1, &[990.0, 1000.0, 1010.0]), (3, &[3700.0, 3950.0, 4100.0]), (4, noisy)], &["a", "b"]);
    assert_eq!(stops(&cases, 4), []);
    // One or two rounds show nothing, however close they are.
    assert_eq!(stops(&drives(&[(1, &[1000.0]), (2, &[1000.0])], &["vda"]), 2), []);
    assert_eq!(stops(&drives(&[(1, &[1000.0, 1001.0]), (2, &[1000.0, 1001.0])], &["vda"]), 2), []);
}

#[test]
fn all_drives_are_as_many_as_there_are() {
    // The last step is "all drives": four, as the step before.
    let steps: &[(u32, &[f64])] = &[
        (1, &[99.0, 100.0, 101.0]),
        (2, &[199.0, 200.0, 201.0]),
        (4, &[398.0, 400.0, 402.0]),
        (0, &[397.0, 400.0, 403.0]),
    ];
    assert_eq!(stops(&drives(steps, &["a", "b", "c", "d"]), 4), []);
    let text = only(&drives(steps, &["a", "b", "c", "d"]), 4);
    assert_eq!(
        text, "with 4 drives, each gives 100 % (98 to 102 %) of what one gives alone",
        "a straight line"
    );
    // A target with one drive has no curve.
    let one: &[(u32, &[f64])] = &[(1, &[99.0, 100.0, 101.0]), (0, &[99.0, 100.0, 101.0])];
    assert_eq!(of(&drives(one, &["a"]), &[1]), []);
    let text = only(&drives(&[steps[0], steps[1], (0, &[199.0, 200.0, 201.0])], &["a", "b", "c", "d"]), 4);
    assert!(text.contains("from 2 drives on") && text.contains("with all 4 drives"), "{text}");
    assert!(text.contains("each gives 50 % (49 to 51 %) of what one gives alone; below 90 %"), "{text}");
    assert!(text.contains(" % from all 4 drives on; look for what they share"), "{text}");
}

/// Each step is more than 5 % faster than the one before, so that it never stops growing.
#[test]
fn drives_that_give_less_and_less_are_told_though_their_sum_grows() {
    let around = |mean: f64| [mean * 0.99, mean, mean * 1.01];
    let sums = [1.0, 1.8, 3.0, 4.6, 7.0].map(|sum| around(sum * 1000.0));
    let steps: Vec<(u32, &[f64])> =
        [1, 2, 4, 8, 16].into_iter().zip(sums.iter().map(|sum| &sum[..])).collect();
    let found = of(&drives(&steps, &["a", "b"]), &[16]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].kind, "scaling");
    let text = &found[0].text;
    assert!(
        text.starts_with("with 16 drives, each gives 44 % (43 to 45 %) of what one gives alone; "),
        "{text}"
    );
    // 90 % with two, by the means: their rounds allow for more.
    assert!(text.contains("; below 90 % from 4 drives on; they lie on 2 drives only (a, b)"), "{text}");
    let few: Vec<(u32, &[f64])> = steps.iter().map(|(count, iops)| (*count, &iops[..1])).collect();
    let text = only(&drives(&few, &["a"]), 16);
    assert!(text.contains("each gives 44 % (how sure that is takes 3 rounds to tell)"), "{text}");
    assert!(
        text.ends_with("the means are below 90 % from 4 drives on, which their rounds do not show"),
        "{text}"
    );
}

#[test]
fn curves_of_other_jobs_and_placements_are_not_mixed() {
    let pinned = |placement: &str, jobs, drives, iops: &[f64]| {
        let point = Point { jobs, placement: Some(placement.to_owned()), ..point(Some(drives), 1) };
        case(point, iops, &["a"])
    };
    let flat: &[f64] = &[99.0, 100.0, 101.0];
    let cases = [
        pinned("whole cores", 1, 1, flat),
        pinned("whole cores", 2, 1, flat),
        pinned("siblings", 2, 1, flat),
        pinned("siblings", 4, 1, flat),
    ];
    assert_eq!(of(&cases, &[1]), []);
    let cases =
        [pinned("siblings", 2, 1, flat), pinned("siblings", 2, 2, flat), pinned("siblings", 4, 2, flat)];
    let found = of(&cases, &[2]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].subject, "drives together, 4k random read, 2 job(s), on siblings: files");
}

#[test]
fn each_number_of_clients_has_its_own_curve_of_drives() {
    let at = |clients, drives, iops: f64| {
        case(point(Some(drives), clients), &[iops - 1.0, iops, iops + 1.0], &["vda"])
    };
    let cases = [at(1, 1, 100.0), at(1, 2, 116.0), at(2, 1, 150.0), at(2, 2, 126.0)];
    let found: Vec<String> = of(&cases, &[2]).into_iter().map(|finding| finding.text).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("each gives 58 %") && found[1].contains("each gives 42 %"), "{found:?}");
}

#[test]
fn a_ladder_that_ended_within_noise_says_so() {
    let clients = |clients, iops: &[f64]| case(point(None, clients), iops, &[]);
    let mut cases = vec![
        clients(1, &[800.0, 1000.0, 1200.0]),
        clients(2, &[760.0, 1000.0, 1300.0]),
        clients(4, &[800.0, 1000.0, 1290.0]),
    ];
    let end = |cases: &[Case], at: usize| end_of_ladder(&cases[..=at], &cases[at].id, &cases[at].point, 0, 1);
    assert_eq!(end(&cases, 1), None, "one step that did not grow may be chance");
    let reason = end(&cases, 2).unwrap();
    assert_eq!(reason, "throughput grew by less than 5 % from 1 client to 4 clients");
    let mut left_out = clients(8, &[]);
    left_out.results[0].skipped = Some(reason);
    cases.push(left_out);
    let text = only(&cases, 1);
    assert!(text.contains("the steps after 4 clients were left out") && text.contains("not shown"), "{text}");
    cases[1] = clients(2, &[1400.0, 1500.0, 1600.0]);
    assert_eq!(end(&cases, 2), None, "the step between grew");
}
