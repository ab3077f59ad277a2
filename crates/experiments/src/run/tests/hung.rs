//! Targets whose load does not end.

use super::interrupted::SCRIPT;
use super::*;
use crate::generator::Format;

/// A target some of whose loads do not end. What it is asked for is noted.
struct Hanging {
    spec: &'static str,
    hangs: fn(&Load) -> bool,
    /// It has volumes that must be written full.
    is_new: bool,
    /// Its volumes can be made so often.
    layouts_max: u32,
    layouts: u32,
    loads: Rc<Cell<u32>>,
}

fn target(spec: &'static str, hangs: fn(&Load) -> bool) -> Hanging {
    Hanging { spec, hangs, is_new: false, layouts_max: u32::MAX, layouts: 0, loads: Rc::default() }
}

impl Target for Hanging {
    fn spec(&self) -> &str {
        self.spec
    }
    fn begin(&mut self, _context: &Context<'_>) -> Result<(), TargetError> {
        Ok(())
    }
    fn facts(&self) -> TargetFacts {
        let (label, system) = (self.spec.to_owned(), self.spec.to_owned());
        TargetFacts { label, system, copies: Some(1), durable: Some(true), ..TargetFacts::default() }
    }
    fn space_bytes(&self, _copies: Option<u32>, _context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        Ok(None)
    }
    fn refuses(&self, _layout: &Layout) -> Option<String> {
        None
    }
    fn lay_out(&mut self, _layout: &Layout, context: &Context<'_>) -> Result<bool, TargetError> {
        self.layouts += 1;
        if self.layouts <= self.layouts_max {
            return Ok(self.is_new);
        }
        while !(context.stopped)() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(TargetError::Stopped)
    }
    fn commands(&self, load: &Load, _volumes: &[u32]) -> Vec<Command> {
        self.loads.set(self.loads.get() + 1);
        let is_measured = load.amount.runtime_s().is_some();
        let (script, format) = match (self.hangs)(load) {
            // Of fio it is seen that it does nothing.
            true if is_measured => ("exec sleep 1000", Format::Coquina),
            true => ("exec sleep 1000", Format::Fio),
            false => (SCRIPT, Format::Coquina),
        };
        vec![Command {
            program: "bash".into(),
            arguments: ["-c", script, "load"].map(str::to_owned).into(),
            environment: Vec::new(),
            files: Vec::new(),
            format,
            processors: None,
            runtime_s: load.amount.runtime_s(),
        }]
    }
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }
    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    fn ailment(&self, _context: &Context<'_>) -> Option<String> {
        (self.spec == "sick").then(|| "Ceph says: 3 full osd(s)".to_owned())
    }
    fn end(&mut self) {}
}

/// Runs so many scenarios of two cases like those of [`EXPERIMENT`] on these targets; `layout` is how their volumes are, besides.
fn run_on(targets: Vec<Hanging>, scenarios: usize, layout: &str, check: impl Fn(&Run<'_>, &Report)) {
    run_with(targets, &[], scenarios, layout, check);
}

/// The same with these settings, which are tried.
fn run_with(
    targets: Vec<Hanging>,
    tried: &[&str],
    scenarios: usize,
    layout: &str,
    check: impl Fn(&Run<'_>, &Report),
) {
    let folder = tempfile::tempdir().unwrap();
    let (head, scenario) = EXPERIMENT.split_once("[[scenario]]").unwrap();
    let scenario = scenario.replace("\"1GiB\"", &format!("\"1GiB\"\n{layout}"));
    let named = |number: usize| format!("[[scenario]]{}", scenario.replace("files", &format!("no{number}")));
    let toml = head.replace("warmup_s = 0,", "warmup_s = 0, settle_s = 0.2,")
        + &(1..=scenarios).map(named).collect::<String>();
    let mut settings = settings(&toml, &["a"], folder.path());
    settings.limits.runtime_s = 0.2;
    settings.tried = tried.iter().map(|text| Assignment::parse(text).unwrap()).collect();
    let planned = settings.plan();
    let hooks = Hooks { stopped: &|| false, say: &|_| {}, progress: &|_, _| {}, partial: &|_| {} };
    let targets = targets.into_iter().map(|target| -> Box<dyn Target> { Box::new(target) }).collect();
    let mut run = Run::new(&settings, &hooks, context_of(&settings), targets, &planned);
    // It need not get quiet before each turn.
    run.idle.all_us_per_s = 1e9;
    run.waits = Waits { ending: Duration::from_millis(1800), still: Duration::from_secs(1) };
    let outcome = planned.iter().try_for_each(|scenario| run.scenario(scenario));
    if let Err(error) = outcome {
        run.find("error", "the run", &error.to_string());
    }
    let report = run.report.clone();
    check(&run, &report);
}

fn told(report: &Report, kind: &str) -> Vec<String> {
    let findings = report.findings.iter().filter(|finding| finding.kind == kind);
    findings.map(|finding| format!("{}: {}", finding.subject, finding.text)).collect()
}

/// Rounds of a target in each case.
fn rounds(report: &Report, target: usize) -> Vec<usize> {
    report.cases.iter().map(|case| case.results[target].rounds.len()).collect()
}

fn skipped(report: &Report, case: usize, target: usize) -> &str {
    report.cases[case].results[target].skipped.as_deref().unwrap_or_default()
}

const HUNG: &str =
    "bash was still running 2 s after its time; it was ended. Is the target hung? Ceph says: 3 full osd(s)";

#[test]
fn a_target_that_hung_is_tried_once_more_in_the_next_scenario_and_then_given_up() {
    let sick = target("sick", |_| true);
    let loads = sick.loads.clone();
    run_on(vec![target("well", |_| false), sick], 3, "", |run, report| {
        assert_eq!(rounds(report, 0), [2; 6], "others go on: {:?}", report.findings);
        assert_eq!((rounds(report, 1), loads.get()), (vec![0; 6], 2));
        let first = "no1 / 4k random write / depth 1";
        assert_eq!(
            told(report, "failed"),
            [
                format!("{first}: sick: {HUNG}. It is not loaded any more in this scenario"),
                format!(
                    "no2 / 4k random write / depth 1: sick: {HUNG}. It hung in 2 scenarios, and is given up"
                ),
            ]
        );
        assert_eq!(skipped(report, 0, 1), HUNG);
        assert_eq!(
            skipped(report, 1, 1),
            format!("it hung before, at {first}, and has the same volumes here: {HUNG}")
        );
        assert_eq!(skipped(report, 2, 1), HUNG, "the next scenario has others");
        for case in 3..6 {
            let reason = skipped(report, case, 1);
            assert!(reason.starts_with("given up: it hung in 2 scenarios, at last at no2 / "), "{reason}");
            assert!(reason.ends_with(HUNG), "{reason}");
        }
        assert_eq!(run.pace.rounds, 12, "what hung says nothing of how long others take");
        assert_eq!(run.columns_that_take(&run.settings.plan()[2].layout, false), 1);
    });
}

#[test]
fn a_target_that_hangs_while_it_settles_is_not_measured() {
    let sick = target("sick", |_| true);
    let loads = sick.loads.clone();
    let aged = "aged = { full_percent = 75, overwrites = 1, block = \"64KiB\" }";
    run_on(vec![sick, target("well", |_| false)], 1, aged, |_, report| {
        assert_eq!((rounds(report, 0), rounds(report, 1), loads.get()), (vec![0; 2], vec![2; 2], 1));
        let failed = told(report, "failed");
        assert!(failed.len() == 1 && failed[0].contains(": sick: while it settled: bash was"), "{failed:?}");
        assert_eq!(skipped(report, 0, 0), format!("while it settled: {HUNG}"));
        assert!(skipped(report, 1, 0).starts_with("it hung before, at no1 / "), "{report:?}");
    });
}

/// One of the two columns had settled for no time, and `bench compare` told that as a difference.
#[test]
fn a_target_settles_for_all_settings_that_are_tried_on_it() {
    let tried = ["fio:nice=1", "fio:nice=2"];
    let aged = "aged = { full_percent = 75, overwrites = 1, block = \"64KiB\" }";
    run_with(vec![target("well", |_| false)], &tried, 1, aged, |run, report| {
        assert_eq!((run.columns.len(), report.cases.len()), (2, 2));
        assert_eq!((rounds(report, 0), rounds(report, 1)), (vec![2; 2], vec![2; 2]), "{:?}", report.findings);
        for case in &report.cases {
            let settled_s: Vec<f64> = case.results.iter().map(|result| result.settled_s).collect();
            assert!(settled_s[0] > 0.0 && settled_s[0] == settled_s[1], "{}: {settled_s:?}", case.id);
        }
    });
}

#[test]
fn a_target_that_hangs_while_it_is_written_full_leaves_others_to_go_on_if_there_are_any() {
    let still = "bash has done nothing for 1 s";
    let full = |spec, hangs| Hanging { is_new: true, ..target(spec, hangs) };
    let hangs = |load: &Load| load.amount == Amount::Fill;
    run_on(vec![full("sick", hangs), full("well", |_| false)], 1, "", |_, report| {
        assert_eq!((rounds(report, 0), rounds(report, 1)), (vec![0; 2], vec![2; 2]), "{:?}", report.findings);
        let failed = told(report, "failed");
        assert!(failed.len() == 1 && failed[0].starts_with(&format!("no1: sick: {still}")), "{failed:?}");
        assert!(failed[0].contains("; Ceph says: 3 full osd(s). It is not"), "{failed:?}");
        assert!(skipped(report, 1, 0).contains(still), "{report:?}");
        assert_eq!(report.layouts[0].targets.len(), 1);
    });
    run_on(vec![full("sick", hangs)], 1, "", |_, report| {
        let error = told(report, "error");
        assert!(report.cases.is_empty() && error[0].contains(still), "{report:?}");
        assert!(error[0].ends_with("; Ceph says: 3 full osd(s)"), "{error:?}");
    });
}

#[test]
fn a_target_that_hangs_while_it_is_read_once_is_not_measured() {
    let reads = |load: &Load| matches!(load.amount, Amount::Bytes(_));
    let toml =
        "warm_reads = true\n[[scenario.sweep]]\noperation = \"random_read\"\nblock = \"4KiB\"\ndepth = 4";
    run_on(vec![target("sick", reads), target("well", |_| false)], 1, toml, |_, report| {
        assert_eq!((rounds(report, 0), rounds(report, 1)), (vec![0; 3], vec![2; 3]), "{:?}", report.findings);
        assert!(told(report, "failed")[0].contains("; Ceph says: 3 full osd(s). It is not"));
        assert!((0..3).all(|case| skipped(report, case, 0).contains("has done nothing")), "{report:?}");
    });
}

#[test]
fn volumes_of_a_target_that_hung_are_not_waited_for_without_end() {
    let sick = Hanging { layouts_max: 1, ..target("sick", |_| true) };
    let loads = sick.loads.clone();
    run_on(vec![sick, target("well", |_| false)], 2, "", |_, report| {
        assert_eq!((rounds(report, 0), rounds(report, 1), loads.get()), (vec![0; 4], vec![2; 4], 1));
        let failed = told(report, "failed");
        let wanted = "no2: sick: it hung before, and now it did not get its volumes within 1 s; Ceph says: 3 full osd(s). It hung in 2";
        assert!(failed.len() == 2 && failed[1].starts_with(wanted), "{failed:?}");
        assert!(skipped(report, 3, 0).starts_with("given up: it hung in 2 scenarios"), "{report:?}");
    });
}
