use super::*;
use crate::report::{CpuFigures, TargetComparison};
use crate::view::made_up::made_up;

fn find<'a>(tables: &'a [Table], scenario: &str, workload: &str) -> &'a Table {
    tables.iter().find(|table| table.scenario == scenario && table.workload == workload).unwrap()
}

fn cell(table: &Table, group: &str, column: &str, row: usize) -> String {
    let place = table.groups.iter().position(|other| other.title == group).unwrap();
    let columns = &table.groups[place].columns;
    let column = columns.iter().position(|other| other.title == column).unwrap();
    table.rows[row].cells[place][column].clone()
}

#[test]
fn a_row_for_each_depth_with_targets_ratios_and_what_was_published() {
    let report = made_up("curve-vs-ceph", &["Coquina 0.9.0", "Ceph 16.2.15"]);
    let tables = tables(&report);
    let writes = find(&tables, "one volume", "4k random write");
    assert_eq!(writes.keys, ["depth"]);
    let depths: Vec<&str> = writes.rows.iter().map(|row| row.keys[0].as_str()).collect();
    assert_eq!(depths, ["1", "4", "16", "64", "128", "256"]);
    let heads: Vec<&str> = writes.groups[0].columns.iter().map(|column| column.title.as_str()).collect();
    assert_eq!(
        heads,
        ["Coquina 0.9.0", "Ceph 16.2.15", "Coquina / Ceph", "Ceph 16.2.9", "Curve 1.2.4", "Curve / Ceph"]
    );
    assert_eq!(cell(writes, "IOPS", "Ceph 16.2.9", 4), "72,100");
    assert_eq!(cell(writes, "IOPS", "Curve / Ceph", 4), "2.26");
    assert!(cell(writes, "IOPS", "Coquina 0.9.0", 4).contains('±'));
    assert_eq!(cell(writes, "limit", "Ceph 16.2.15", 0), "cpu");
    assert!(writes.groups.iter().any(|group| group.title == "drive/user bytes"));
    let reads = find(&tables, "one volume", "4k random read");
    assert!(
        reads.groups.iter().all(|group| group.title != "drive/user bytes" && group.title != "throughput")
    );
    assert!(find(&tables, "one volume", "512k sequential read").groups.iter().any(|g| g.unit == "MiB/s"));
    let full = find(&tables, "store 75 % full", "512k sequential write");
    assert_eq!(cell(full, "IOPS", "Ceph 16.2.15", 0), "-");
    assert!(full.notes.iter().any(|note| note.contains("12 GiB less")), "{:?}", full.notes);
}

#[test]
fn pairs_and_verdicts_are_those_of_the_report() {
    let mut report = made_up("hdd-tuning", &["Coquina", "nvme0n1", "Ceph"]);
    let said = |metric: &str, verdict: &str| TargetComparison {
        case: report.cases[0].id.clone(),
        metric: metric.to_owned(),
        target: "Coquina".to_owned(),
        reference: "Ceph".to_owned(),
        ratio: 7.25,
        ratio_low: Some(7.2),
        ratio_high: Some(7.3),
        verdict: verdict.to_owned(),
        text: String::new(),
    };
    report.comparisons = vec![said("iops", "better"), said("cpu", "no difference shown")];
    let tables = tables(&report);
    let heads: Vec<&str> = tables[0].groups[0].columns.iter().map(|column| column.title.as_str()).collect();
    assert_eq!(heads, ["Coquina", "nvme0n1", "Ceph", "Coquina / Ceph"]);
    assert_eq!(cell(&tables[0], "IOPS", "Coquina / Ceph", 0), "7.25");
    assert_eq!(cell(&tables[0], "CPU", "Coquina / Ceph", 0), "~7.25");
    assert!(text(&report, 400).contains("7.25 times Ceph, 7.25 times its CPU per I/O (not certain)"));
    for round in report.cases[1].results.iter_mut().flat_map(|result| &mut result.rounds) {
        (round.total.iops, round.round) = (100.0, 1);
    }
    assert_eq!(cell(&super::tables(&report)[1], "IOPS", "Coquina / Ceph", 0), "~1.00");
}

#[test]
fn rounds_that_failed_are_left_out_of_every_figure() {
    let labels = ["Coquina", "Ceph"];
    let good = made_up("hdd-tuning", &labels);
    let mut report = good.clone();
    let ids: Vec<String> = report.cases.iter().map(|case| case.id.clone()).collect();
    report.comparisons = ids.iter().map(|id| said(id)).collect();
    for result in &mut report.cases[0].results {
        let mut fast = result.rounds[0].clone();
        (fast.errors, fast.round, fast.limit.kind) = (7, 4, "network".to_owned());
        (fast.total.iops, fast.total.latency_ns_mean) = (1e9, 1.0);
        fast.total.latency_histogram = vec![(1, u64::MAX >> 8)];
        result.rounds.extend(vec![fast; 9]);
    }
    report.cases[1].results[0].rounds.iter_mut().for_each(|round| round.errors = 1);
    let (tables, without) = (tables(&report), super::tables(&good));
    assert_eq!(tables[0].groups, without[0].groups);
    assert_eq!(tables[0].rows, without[0].rows, "not what the report says of failing rounds, either");
    for metric in ["IOPS", "mean latency", "p99 latency", "CPU"] {
        assert_eq!(cell(&tables[1], metric, "Coquina", 0), "failed");
        assert_eq!(cell(&tables[1], metric, "Coquina / Ceph", 0), "-");
    }
    assert_eq!(cell(&tables[1], "limit", "Coquina", 0), "-");
    assert!(tables[0].notes[0].contains("rounds with failed operations are left out at"), "{:?}", tables[0]);
    assert!(tables[1].notes[0].contains("Coquina failed in all rounds at"), "{:?}", tables[1].notes);
    report.cases[1].results[1].rounds.iter_mut().for_each(|round| round.errors = 1);
    let nothing = &super::tables(&report)[1];
    assert_eq!((nothing.groups.len(), cell(nothing, "IOPS", "Ceph", 0)), (1, "failed".to_owned()));
    let page = crate::html::render(&report);
    assert!(page.contains("Coquina failed in all rounds at") && page.contains(">failed</td>"));
}

#[test]
fn what_a_report_says_of_its_good_rounds_counts_though_others_failed() {
    let mut report = made_up("hdd-tuning", &["Coquina", "Ceph"]);
    let cell_of = |report: &Report| cell(&super::tables(report)[0], "IOPS", "Coquina / Ceph", 0);
    let by_rounds = cell_of(&report);
    assert!(!by_rounds.starts_with('~'), "{by_rounds}");
    let results = &report.cases[0].results;
    let ratios = results[0].rounds.iter().zip(&results[1].rounds);
    let logarithms: Vec<f64> = ratios.map(|(own, other)| (own.total.iops / other.total.iops).ln()).collect();
    let geometric = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
    let mut told = said(&report.cases[0].id);
    (told.ratio, told.verdict) = (geometric, "no difference shown".to_owned());
    report.comparisons = vec![told];
    let mut failed = report.cases[0].results[0].rounds[0].clone();
    (failed.errors, failed.round) = (1, 9);
    report.cases[0].results[0].rounds.push(failed);
    assert_eq!(cell_of(&report), format!("~{by_rounds}"), "corrected with all of the report, not for itself");
}

#[test]
fn where_all_was_skipped_there_are_reasons_and_no_empty_table() {
    let mut report = made_up("hdd-tuning", &["Coquina"]);
    report.published.clear();
    for result in report.cases.iter_mut().flat_map(|case| &mut case.results) {
        result.rounds.clear();
        result.skipped = Some("it has no room".to_owned());
    }
    for table in tables(&report) {
        let text = table.to_text(120);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(format!("{} / {}", table.scenario, table.workload).as_str()));
        assert!(lines.all(|line| line.starts_with("  ")), "only notes: {text}");
        assert!(!text.contains("---") && text.contains("it has no room"), "{text}");
        let page = crate::html::render(&report);
        assert!(!page.contains("<tbody><tr><th scope=\"row\">1</th></tr>"), "no rows of depths alone");
    }
    report.cases.iter_mut().for_each(|case| case.results.clear());
    assert!(tables(&report)[0].to_text(120).ends_with("\n  note: nothing was measured\n"));
}

fn said(id: &str) -> TargetComparison {
    TargetComparison {
        case: id.to_owned(),
        metric: "iops".to_owned(),
        target: "Coquina".to_owned(),
        reference: "Ceph".to_owned(),
        ratio: 7.25,
        ratio_low: Some(7.2),
        ratio_high: Some(7.3),
        verdict: "better".to_owned(),
        text: String::new(),
    }
}

#[test]
fn cpu_that_was_not_seen_is_a_dash_and_no_zero() {
    let mut report = made_up("hdd-tuning", &["Coquina", "Ceph"]);
    let seen = cell(&tables(&report)[0], "CPU", "Ceph", 0);
    for round in report.cases.iter_mut().flat_map(|case| &mut case.results[0].rounds) {
        round.cpu = None;
    }
    report.cases[0].results[1].rounds[0].cpu = None;
    let table = &tables(&report)[0];
    assert_eq!(cell(table, "CPU", "Coquina", 0), "-");
    assert_eq!(cell(table, "CPU", "Coquina / Ceph", 0), "-");
    let digits = |text: &str| text.split_once(' ').unwrap().0.replace(',', "").parse::<f64>().unwrap();
    let (all, two) = (digits(&seen), digits(&cell(table, "CPU", "Ceph", 0)));
    assert!((two / all - 1.0).abs() < 0.1, "the mean of two rounds, not of two and a zero: {two} and {all}");
}

#[test]
fn volumes_and_times_are_told() {
    let report = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    let text = text(&report, 400);
    for wanted in [
        "each case: 5 rounds of 20 s after 5 s of load, each run up to 3 times until it is steady",
        "striped volume: 1 volume of 4 GiB, 3 copies, striped in units of 64 KiB over 64 objects, written full before",
        "many volumes: 15 volumes of 4 GiB",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
        let (_, value) = wanted.split_once(": ").unwrap();
        assert!(crate::html::render(&report).contains(value), "{value} is not on the page");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        (&json["timing"]["runtime_s"], &json["layouts"][0]["volume_bytes"]),
        (&20.0.into(), &(4u64 << 30).into())
    );
}

#[test]
fn clients_that_were_published_one_by_one_are_added_up() {
    let report = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    let tables = tables(&report);
    let many = find(&tables, "many volumes", "512k sequential write");
    assert_eq!(cell(many, "throughput", "Ceph 16.2.9", 0), "2,129");
    assert!(many.notes.iter().any(|note| note.contains("3 clients together")));
}

/// With `--only`, or of a run that ended early.
#[test]
fn the_best_of_all_clients_does_not_stand_beside_the_only_case_of_a_few() {
    let mut report = made_up("ceph-2x-vs-3x", &["Coquina", "Ceph"]);
    report.cases.retain(|case| case.point.scenario == "two copies" && case.point.clients == 2);
    let tables = tables(&report);
    let mix = find(&tables, "two copies", "4k 70/30 read/write");
    assert_eq!(mix.rows.len(), 2, "{:?}", mix.rows);
    let system = "Ceph 12.2, FileStore, 40 NVMe drives";
    assert_eq!(
        (cell(mix, "IOPS", system, 0), cell(mix, "IOPS", system, 1)),
        ("-".to_owned(), "781,000".to_owned())
    );
    assert_eq!(mix.rows[1].keys, ["best"]);
}

#[test]
fn figures_without_a_depth_stand_beside_the_best_point() {
    let report = made_up("ceph-2x-vs-3x", &["Coquina", "Ceph"]);
    let tables = tables(&report);
    let mix = find(&tables, "two copies", "4k 70/30 read/write");
    assert_eq!(mix.keys, ["clients"]);
    let last = mix.rows.len() - 1;
    assert_eq!(mix.rows[last].keys, ["best"]);
    assert_eq!(cell(mix, "IOPS", "Ceph 12.2, FileStore, 40 NVMe drives", last), "781,000");
    assert!(mix.groups.iter().any(|group| group.title == "mean write latency"));
    let jobs = made_up("nvme-scaling", &["nvme0n1"]);
    let tables = super::tables(&jobs);
    let jobs = find(&tables, "one drive, jobs", "4k random read");
    assert_eq!(jobs.keys, ["placement", "jobs"]);
    // What a core gives is no figure of the drive, and stands in the rows of its placement.
    assert_eq!(jobs.notes, ["published, without a depth: one drive, rated: 1,100,000 IOPS"]);
    let row = |placement: &str, jobs_: &str| {
        jobs.rows.iter().position(|row| row.keys == [placement, jobs_]).expect("a row")
    };
    let (whole, siblings) = (row("whole cores", "2"), row("siblings", "2"));
    assert_eq!(cell(jobs, "IOPS per core", "two threads of a core", siblings), "320,000");
    assert_eq!(cell(jobs, "IOPS per core", "two threads of a core", whole), "-");
    assert_eq!(cell(jobs, "IOPS per core", "one thread of a core", whole), "195,000");
    let published = |title: &str| {
        let group = jobs.groups.iter().find(|group| group.title == title).unwrap();
        group.columns.iter().filter(|column| column.kind != ColumnKind::Measured).count()
    };
    assert_eq!(
        (published("IOPS"), published("IOPS per hardware thread"), published("IOPS per core")),
        (0, 0, 2)
    );
    let of_one_core = |text: String| text.split(' ').next().unwrap().replace(',', "").parse::<f64>().unwrap();
    let iops = of_one_core(cell(jobs, "IOPS", "nvme0n1", siblings));
    let per_core = of_one_core(cell(jobs, "IOPS per core", "nvme0n1", siblings));
    assert!((per_core / iops - 1.0).abs() < 0.01, "two jobs on one core: {per_core} of {iops}");
    let drives = find(&tables, "drives", "4k random read");
    assert_eq!(drives.rows[5].keys, ["all"]);
    assert!(drives.groups.iter().all(|group| group.title != "IOPS per core"), "nothing is pinned");
    assert!(drives.notes.iter().any(|note| note.ends_with("64 cores: 270,000 IOPS per core")));
}

#[test]
fn text_fits_the_terminal_and_says_first_that_it_was_interrupted() {
    let mut report = made_up("curve-vs-ceph", &["Coquina 0.9.0", "Ceph 16.2.15"]);
    report.interrupted = Some("Ctrl-C\u{1b}[2J".to_owned());
    for width in [80, 120, 200] {
        let text = text(&report, width);
        assert!(text.starts_with("INTERRUPTED: Ctrl-C [2J"), "{text}");
        assert!(!text.contains('\u{1b}'));
        for wanted in
            ["In short", "Findings", "contradict each other", "101,000", "was not steady at depth 4"]
        {
            assert!(text.contains(wanted), "{wanted} is not in {text}");
        }
        assert!(text.lines().filter(|line| line.contains("---")).count() > 10);
        // The title, and a word that is longer than the terminal, may stick out.
        for line in text.lines().skip(3) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn long_labels_do_not_widen_columns() {
    let path = "plain file (file:/var/lib/somewhere/very/deep/below/a/folder/with/a/long/name/disk)";
    let text = text(&made_up("hdd-tuning", &["Coquina", path]), 100);
    let widest = text.lines().skip(3).map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{text}");
}

#[test]
fn senseless_reports_do_not_panic() {
    assert!(tables(&Report::default()).is_empty());
    assert!(!text(&Report::default(), 0).is_empty());
    let mut report = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    report.targets.clear();
    for case in &mut report.cases {
        case.point.depth = 0;
        for round in case.results.iter_mut().flat_map(|result| &mut result.rounds) {
            round.total.iops = f64::NAN;
            round.total.latency_ns_mean = -1.0;
            round.cpu = Some(CpuFigures { machine_us_per_io: Some(f64::INFINITY), ..CpuFigures::default() });
            round.total.latency_histogram = vec![(0, u64::MAX), (u64::MAX, u64::MAX)];
        }
    }
    report.cases[0].results.clear();
    assert!(!text(&report, 100).is_empty());
}

/// Shows what a person sees: `LOOK=1 cargo test -p coquina-experiments look_at_text -- --ignored --nocapture`.
#[test]
#[ignore = "prints for people"]
fn look_at_text() {
    for (experiment, labels) in [
        ("curve-vs-ceph", ["Coquina 0.9.0", "Ceph 16.2.15"]),
        ("ceph-2x-vs-3x", ["Coquina 0.9.0", "Ceph 16.2.15"]),
    ] {
        println!("{}", text(&made_up(experiment, &labels), 120));
    }
    println!("{}", text(&made_up("nvme-scaling", &["nvme0n1"]), 100));
}

#[test]
fn what_was_offered_stands_beside_what_was_achieved() {
    let mut report = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
    report.cases.truncate(1);
    report.published.clear();
    report.cases[0].point.rate_iops = Some(5000);
    let achieve = |report: &mut crate::report::Report, iops: f64| {
        for round in report.cases[0].results.iter_mut().flat_map(|result| &mut result.rounds) {
            round.total.iops = iops;
        }
    };
    achieve(&mut report, 3120.0);
    let found = &tables(&report)[0];
    assert_eq!(found.keys, ["offered IOPS", "depth"]);
    assert_eq!(found.rows[0].keys, ["5,000", "1"]);
    assert!(cell(found, "achieved IOPS", "Ceph", 0).starts_with("3,120"));
    assert!(
        found
            .notes
            .iter()
            .any(|note| note.starts_with("Ceph did not achieve what was offered at 5,000 IOPS"))
    );
    let page = crate::html::render(&report);
    assert!(page.contains("<th scope=\"row\">offered IOPS</th><td colspan=\"3\">5,000</td>"), "{page}");
    achieve(&mut report, 4999.0);
    assert!(tables(&report)[0].notes.iter().all(|note| !note.contains("offered")));
}
