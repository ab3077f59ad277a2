use super::style::STYLE;
use super::*;
use crate::report::*;
use crate::view::made_up::made_up;

/// Tags that have no end.
const VOID: [&str; 3] = ["meta", "!DOCTYPE", "wbr"];

/// Checks that tags are closed in the order in which they were opened, and that attributes are quoted.
fn check_tags(text: &str) -> Result<usize, String> {
    let mut open: Vec<&str> = Vec::new();
    let mut count = 0;
    let mut rest = text;
    while let Some(begin) = rest.find('<') {
        let end = begin + rest[begin..].find('>').ok_or("a tag without an end")?;
        let tag = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        count += 1;
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop();
            if last != Some(name) {
                return Err(format!("</{name}> ends {last:?}"));
            }
        } else if name == "style" {
            rest = &rest[rest.find("</style>").ok_or("style without an end")? + 8..];
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        if tag.matches('"').count() % 2 != 0 {
            return Err(format!("quotes of <{tag}> do not match"));
        }
        if tag.contains("NaN") || tag.contains("inf ") {
            return Err(format!("<{tag}> has a place that is no number"));
        }
    }
    if open.is_empty() { Ok(count) } else { Err(format!("not closed: {open:?}")) }
}

fn nothing_from_outside(page: &str) {
    for banned in ["http:", "https:", "src=", "<script", "url(", "@import", "<link", "javascript:"] {
        assert!(!page.contains(banned), "{banned}");
    }
}

#[test]
fn a_machine_s_drives_are_told_with_kind_and_size() {
    let mut report = made_up("nvme-scaling", &["drives"]);
    let virtual_drive = &mut report.drives[1];
    (virtual_drive.name, virtual_drive.model, virtual_drive.rotational) =
        ("vda".to_owned(), String::new(), true);
    virtual_drive.size_bytes = 0;
    let page = render(&report).replace("<wbr>", "");
    let told =
        ["MZQL23T8HCLS-00A07, NVMe, 3.75 TiB, none, write through", "<td>virtual drive, none, write through"];
    for wanted in told {
        assert!(page.contains(wanted), "{wanted}");
    }
}

#[test]
fn a_page_is_well_formed_and_needs_nothing_else() {
    for (experiment, labels) in [
        ("curve-vs-ceph", vec!["Coquina 0.9.0", "Ceph 16.2.15"]),
        ("curve-vs-ceph", vec!["Coquina 0.9.0"]),
        ("ceph-2x-vs-3x", vec!["Coquina 0.9.0", "Ceph 16.2.15", "nvme0n1"]),
        ("nvme-scaling", vec!["nvme0n1"]),
        ("host-drives", vec!["drives", "other drives", "third", "fourth"]),
        ("arm-vs-x86", vec!["Coquina", "Ceph"]),
        ("hdd-tuning", vec!["Coquina", "Ceph"]),
    ] {
        let report = made_up(experiment, &labels);
        let page = render(&report);
        let tags = check_tags(&page).unwrap_or_else(|wrong| panic!("{experiment}: {wrong}"));
        assert!(tags > 500, "{experiment} has {tags} tags");
        nothing_from_outside(&page);
        assert!(page.matches("<title>").count() > 4 && page.contains("<desc>"));
        assert!(page.contains("scope=\"col\"") && page.contains("scope=\"row\""));
        assert!(page.contains("What held it back") && page.contains(">differs<") == (labels.len() > 1));
        // Other processes' time is in no figure where those of the target are seen.
        let of_whom =
            "CPU is the time that the generator, the target's processes and the kernel's threads take";
        assert!(page.contains(of_whom) && !page.contains("CPU time of the machine"), "{experiment}");
        let picture = headline_svg(&report);
        check_tags(&picture).unwrap_or_else(|wrong| panic!("{experiment}: {wrong}"));
        nothing_from_outside(&picture.replace("xmlns=\"http://www.w3.org/2000/svg\"", ""));
    }
}

#[test]
fn who_takes_the_cpu_is_shown_in_each_group_and_beside_the_tables() {
    let mut report = made_up("hdd-tuning", &["Coquina", "Ceph"]);
    let groups = crate::view::View::of(&report).groups.len();
    for round in report.cases.iter_mut().flat_map(|case| &mut case.results[1].rounds) {
        let cpu = round.cpu.as_mut().unwrap();
        (cpu.client_us_per_io, cpu.servers_us_per_io, cpu.kernel_threads_us_per_io) = (4.0, None, Some(0.25));
        cpu.afterwards_us_per_io = Some(0.125);
        cpu.processes.truncate(1);
        cpu.processes[0].us_per_io = 4.0;
    }
    let page = render(&report);
    check_tags(&page).unwrap();
    assert_eq!(page.matches("<caption>CPU by who takes it, us/IO</caption>").count(), groups);
    let head = ["Ceph: client", "servers", "kernel threads", "of these after the load"];
    assert!(page.contains(&head.join("</th><th scope=\"col\">")));
    assert!(page.contains("<td>4.00</td><td>-</td><td>0.250</td><td>0.125</td></tr>"), "{page}");
    assert!(page.contains("; Ceph: fio 4.00</p>") && page.contains("ceph-osd (2) "));
    let text = crate::table::text(&report, 200);
    assert_eq!(
        text.matches("Ceph: client 4.00, kernel threads 0.250, of these after the load 0.125").count(),
        groups,
        "{text}"
    );
    report
        .cases
        .iter_mut()
        .flat_map(|case| &mut case.results)
        .flat_map(|result| &mut result.rounds)
        .for_each(|round| round.cpu = None);
    assert!(!render(&report).contains("CPU by who") && !crate::table::text(&report, 200).contains("CPU at "));
}

#[test]
fn the_network_is_shown_and_what_is_shaded_is_told_where_it_is() {
    let mut report = made_up("hdd-tuning", &["Coquina", "Ceph"]);
    let page = render(&report);
    assert!(page.contains(
        "<figcaption>Network, both ways on the busiest interface but loopback, MiB/s</figcaption>"
    ));
    assert!(page.contains("MiB/s against seconds. Coquina: 953.674 to 953.674."), "1e9 bytes per second");
    assert!(page.contains("What is shaded is load before") && page.contains("class=\"shade\""));
    // Printed, what is folded is empty.
    assert!(page.contains("<details open>") && !page.contains("<details>"));
    for round in
        report.cases.iter_mut().flat_map(|case| &mut case.results).flat_map(|result| &mut result.rounds)
    {
        round.utilisation.retain(|sample| sample.at_ms >= 0);
        round.utilisation.iter_mut().for_each(|sample| sample.network_bytes_per_s = 0.0);
    }
    let page = render(&report);
    assert!(!page.contains("<figcaption>Network") && page.contains("so is loopback"));
    assert!(!page.contains("What is shaded"), "there was no warm-up");
}

#[test]
fn drives_have_the_straight_line_beside_them() {
    let mut report = made_up("nvme-scaling", &["drives"]);
    report.targets[0].drive_count = Some(16);
    let page = render(&report);
    // One in the legend and one in the plot of throughput; none of latency or CPU, and none over jobs.
    assert_eq!(page.matches("<g class=\"s0 straight\">").count(), 2);
    assert!(page.contains("</svg>in proportion to the fewest drives</li>"));
    // It ends at 16 times the first step.
    let iops = |drives| {
        let case = report.cases.iter().find(|case| case.point.drives == Some(drives)).unwrap();
        crate::view::estimate(&case.results[0], crate::view::Metric::Iops).unwrap().mean
    };
    let short = |iops: f64| crate::view::format::short(iops);
    let told = format!("drives, in proportion: {} to {}.", short(iops(1)), short(16.0 * iops(1)));
    assert!(page.contains(&told), "{told}");
}

#[test]
fn what_comes_from_outside_is_escaped() {
    let evil = "<script>alert('x')</script>\"&\u{1}";
    let mut report = made_up("curve-vs-ceph", &[evil, "Ceph"]);
    report.interrupted = Some(evil.to_owned());
    for text in
        [&mut report.command, &mut report.mode, &mut report.experiment.title, &mut report.experiment.name]
    {
        *text = evil.to_owned();
    }
    report.settings.insert(evil.to_owned(), evil.to_owned());
    report.targets[0].settings.insert(evil.to_owned(), evil.to_owned());
    report.targets[0].cache = evil.to_owned();
    report.findings.push(Finding { kind: evil.to_owned(), subject: evil.to_owned(), text: evil.to_owned() });
    for row in &mut report.published {
        row.system += evil;
    }
    for case in &mut report.cases {
        case.id += evil;
        case.point.scenario += evil;
        case.point.placement = Some(evil.to_owned());
        for round in case.results.iter_mut().flat_map(|result| &mut result.rounds) {
            round.limit.kind = evil.to_owned();
            round.limit.text = evil.to_owned();
            round.limit.evidence.push(evil.to_owned());
            round.contradictions.push(evil.to_owned());
        }
        case.results[0].skipped = Some(evil.to_owned());
    }
    let page = render(&report);
    nothing_from_outside(&page);
    check_tags(&page).unwrap();
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp; "));
    assert!(page.find("Interrupted: ").unwrap() < page.find("id=\"short\"").unwrap());
    let picture = headline_svg(&report);
    check_tags(&picture).unwrap();
    assert!(!picture.contains("<script"));
}

#[test]
fn evidence_is_whole_and_words_are_broken_only_where_they_are_too_long() {
    let path = "plain file (file:/var/lib/somewhere/very/deep/disk)";
    let mut report = made_up("hdd-tuning", &["Coquina", path]);
    let evidence: Vec<String> =
        (0..40).map(|number| format!("drive {number} is busy 1 % of the time")).collect();
    for round in
        report.cases.iter_mut().flat_map(|case| &mut case.results).flat_map(|result| &mut result.rounds)
    {
        round.limit.evidence.clone_from(&evidence);
    }
    let page = render(&report);
    let begin = page.find("<section id=\"limits\">").unwrap();
    let section = &page[begin..begin + page[begin..].find("</section>").unwrap()];
    assert!(section.contains(&format!("<td>{}</td>", evidence.join("; "))), "{section}");
    assert!(!section.contains('…'), "{section}");
    // A column is as wide as its longest word, and long ones have places where they may be broken.
    assert!(section.contains("<table class=\"words limits\">") && section.contains("<td>Coquina</td>"));
    assert!(section.contains("(file:/var/lib/som<wbr>ewhere/very/deep/d<wbr>isk)"), "{section}");
    let rule = STYLE.lines().find(|line| line.contains("table.words th,table.words td{")).unwrap();
    assert!(rule.contains("overflow-wrap:break-word") && !rule.contains("anywhere"), "{rule}");
    for column in 1..4 {
        assert!(STYLE.contains(&format!("table.limits th:nth-child({column}){{width:")), "{column}");
    }
}

#[test]
fn a_thousand_cases_stay_below_five_megabytes() {
    let mut report = made_up("curve-vs-ceph", &["Coquina 0.9.0", "Ceph 16.2.15"]);
    let some = report.cases.clone();
    report.cases = (0..1000)
        .map(|number| {
            let mut case = some[number % some.len()].clone();
            case.point.scenario += &format!(" {}", number / some.len());
            case.id += &format!(" {number}");
            case
        })
        .collect();
    let page = render(&report);
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    check_tags(&page).unwrap();
    // The same in one scenario of long curves.
    for (number, case) in report.cases.iter_mut().enumerate() {
        case.point.scenario = "one".to_owned();
        case.point.depth = number as u32 + 1;
    }
    let page = render(&report);
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
}

#[test]
fn senseless_reports_do_not_panic() {
    check_tags(&render(&Report::default())).unwrap();
    check_tags(&headline_svg(&Report::default())).unwrap();
    let mut report = made_up("host-drives", &["Coquina", "Ceph"]);
    for (number, case) in report.cases.iter_mut().enumerate() {
        case.point.depth = 0;
        case.point.drives = (!number.is_multiple_of(3)).then_some(u32::MAX);
        for round in case.results.iter_mut().flat_map(|result| &mut result.rounds) {
            round.total.iops = [f64::NAN, 0.0, 1e300][number % 3];
            round.total.latency_ns_mean = [-1.0, 0.0, f64::INFINITY][number % 3];
            let machine_us_per_io = [Some(f64::MAX), Some(0.0), Some(f64::NAN)][number % 3];
            round.cpu = Some(CpuFigures { machine_us_per_io, ..CpuFigures::default() });
            round.total.latency_histogram = vec![(0, u64::MAX), (u64::MAX, u64::MAX)];
            round.utilisation.iter_mut().for_each(|sample| sample.busy_cores = f64::NAN);
        }
    }
    report.elapsed_s = f64::NAN;
    check_tags(&render(&report)).unwrap();
    check_tags(&headline_svg(&report)).unwrap();
}

/// Writes pages of made-up reports into the folder that `COQUINA_LOOK_DIR` names, to be looked at in a browser; and that of
/// the report which `COQUINA_LOOK_REPORT` names.
#[test]
#[ignore = "writes files for people"]
fn look_at_pages() {
    let Ok(folder) = std::env::var("COQUINA_LOOK_DIR") else { return };
    if let Ok(path) = std::env::var("COQUINA_LOOK_REPORT") {
        let report: Report = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        std::fs::write(format!("{folder}/real.html"), render(&report)).unwrap();
        std::fs::write(format!("{folder}/real.svg"), headline_svg(&report)).unwrap();
        std::fs::write(format!("{folder}/real.txt"), crate::table::text(&report, 120)).unwrap();
    }
    let mut report = made_up("curve-vs-ceph", &["Coquina 0.9.0", "Ceph 16.2.15"]);
    std::fs::write(format!("{folder}/curve.html"), render(&report)).unwrap();
    std::fs::write(format!("{folder}/curve.svg"), headline_svg(&report)).unwrap();
    report.interrupted = Some("Ctrl-C after 31 of 56 cases".to_owned());
    report.cases.truncate(7);
    std::fs::write(format!("{folder}/interrupted.html"), render(&report)).unwrap();
    let long = "plain file (file:/var/lib/somewhere/very/deep/below/a/folder/with/a/long/name/disk)";
    for (name, labels) in [
        ("arm-vs-x86", vec!["Coquina 0.9.0", "Coquina 0.9.0, NBD", long]),
        ("ceph-2x-vs-3x", vec!["Coquina 0.9.0", "Ceph 16.2.15", "nvme3n1"]),
        ("nvme-scaling", vec!["nvme0n1"]),
        ("host-drives", vec!["drives"]),
        ("hdd-tuning", vec!["Coquina 0.9.0", "Ceph 16.2.15"]),
    ] {
        std::fs::write(format!("{folder}/{name}.html"), render(&made_up(name, &labels))).unwrap();
    }
}

#[test]
fn what_differs_by_scenario_is_told_by_scenario() {
    let mut report = made_up("ceph-2x-vs-3x", &["Coquina", "Ceph"]);
    let scenarios: Vec<String> = report.layouts.iter().map(|layout| layout.scenario.clone()).collect();
    assert_eq!(scenarios.len(), 2, "{scenarios:?}");
    for (layout, copies) in report.layouts.iter_mut().zip([2, 3]) {
        layout.targets = report.targets.iter().map(LaidOutFacts::from).collect();
        layout.targets.iter_mut().for_each(|facts| facts.copies = Some(copies));
    }
    let [ours, theirs] = &mut report.layouts[0].targets[..] else { panic!("two targets") };
    ours.settings.insert("striping".to_owned(), "64 KiB x 64".to_owned());
    theirs.settings.insert("striping".to_owned(), "64 KiB x 16".to_owned());
    theirs.settings.insert("pool of two".to_owned(), "bench2".to_owned());
    let text = |html: &str| html.replace("<wbr>", "");
    let page = text(&render(&report));
    let (two, three) = (&scenarios[0], &scenarios[1]);
    for wanted in [
        format!("<td>2 ({two}); 3 ({three})</td>"),
        format!("<td>64 KiB x 64 ({two}); - ({three})</td>"),
        format!("bench2 ({two}); - ({three})"),
    ] {
        assert!(page.contains(&wanted), "{wanted}");
    }
    assert!(!headline_svg(&report).contains(" copies; "), "no number stands for all");
    // A report of an older program has what its targets were in the end.
    let mut older = serde_json::to_value(&report).unwrap();
    for layout in older["layouts"].as_array_mut().unwrap() {
        layout.as_object_mut().unwrap().remove("targets");
    }
    let older: Report = serde_json::from_value(older).unwrap();
    assert!(text(&render(&older)).contains("<td>3</td><td>3</td>"));
    assert!(headline_svg(&older).contains(", 3 copies; "));
}
