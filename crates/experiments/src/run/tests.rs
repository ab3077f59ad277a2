mod careful;
mod hung;
mod interrupted;

use std::cell::Cell;
use std::rc::Rc;

use super::facts::make_labels_unique;
use super::*;
use crate::definition::{Experiment, ModeName};
use crate::generator::{Amount, Command, Load};
use crate::report::{Operation, Point, TargetFacts};

fn settings(toml: &str, targets: &[&str], folder: &std::path::Path) -> Settings {
    let targets = targets.iter().map(|target| (*target).to_owned()).collect();
    Settings { targets, ..settings_of(Experiment::parse(toml, "test").unwrap(), folder) }
}

/// Settings for a quick run of an experiment, without targets.
pub(super) fn settings_of(experiment: Experiment, folder: &std::path::Path) -> Settings {
    let mode = ModeName::Quick;
    Settings {
        limits: experiment.modes.get(mode).clone(),
        experiment,
        mode,
        targets: Vec::new(),
        only: Vec::new(),
        hosts: Vec::new(),
        folder: folder.to_owned(),
        program: PathBuf::from("/nonexistent/coquina"),
        server: Vec::new(),
        store_bytes: 1 << 30,
        volume_bytes: None,
        rate_iops: None,
        destroy: Vec::new(),
        allow_unequal: false,
        fill_stores: false,
        seed: 7,
        command: "coquina bench run test".to_owned(),
        tried: Vec::new(),
    }
}

/// Random writes on so many volumes by so many clients.
pub(super) fn point(volumes: u32, clients: u32) -> crate::report::Point {
    crate::report::Point {
        scenario: "s".to_owned(),
        operation: crate::report::Operation::RandomWrite,
        block_bytes: 4096,
        depth: 32,
        jobs: 1,
        volumes,
        volumes_per_client: None,
        clients,
        drives: None,
        copies: None,
        placement: None,
        rate_iops: None,
    }
}

const EXPERIMENT: &str = r#"
format = 1
name = "small"
title = "A small one"
[modes]
quick = { rounds = 2, runtime_s = 1, warmup_s = 0, volume_bytes_max = "16MiB" }
default = { rounds = 2, runtime_s = 1, warmup_s = 0, volume_bytes_max = "16MiB" }
full = { rounds = 2, runtime_s = 1, warmup_s = 0, volume_bytes_max = "16MiB" }
[[scenario]]
name = "files"
volume_size = "1GiB"
[[scenario.sweep]]
operation = "random_write"
block = "4KiB"
depth = [1, 8]
"#;

fn run_quietly(settings: &Settings, stop_after: usize) -> (Result<Report, RunError>, usize) {
    let partials = std::cell::Cell::new(0);
    let outcome = run(
        settings,
        &Hooks {
            stopped: &|| partials.get() >= stop_after,
            say: &|_| {},
            progress: &|_, _| {},
            partial: &|report| {
                assert!(report.interrupted.is_some());
                partials.set(partials.get() + 1);
            },
        },
    );
    (outcome, partials.get())
}

#[test]
fn points_that_differ_in_their_rates_only_are_one_at_a_given_rate() {
    let folder = tempfile::tempdir().unwrap();
    let toml = EXPERIMENT.replace("depth = [1, 8]", "depth = 8\nrate = [100, 200, 400]");
    let plan = |rate_iops| {
        let settings = Settings { rate_iops, ..settings(&toml, &["plain-file"], folder.path()) };
        settings.plan().remove(0).points.into_iter().map(|planned| planned.id).collect::<Vec<_>>()
    };
    assert_eq!(plan(None).len(), 3);
    assert_eq!(plan(Some(300)), ["files / 4k random write / depth 8 / 300 per second"]);
}

#[test]
fn targets_are_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, _) = run_quietly(&settings(EXPERIMENT, &["plain-file", "plain-file"], folder.path()), 9);
    assert!(outcome.unwrap_err().to_string().contains("named twice"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_case_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        Settings { only: vec!["depth 9".into()], ..settings(EXPERIMENT, &["plain-file"], folder.path()) };
    let (outcome, _) = run_quietly(&settings, 9);
    assert!(outcome.unwrap_err().to_string().contains("depth 9"));
}

#[test]
fn too_large_volumes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        Settings { volume_bytes: Some(1 << 60), ..settings(EXPERIMENT, &["plain-file"], folder.path()) };
    let (outcome, _) = run_quietly(&settings, 9);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("are needed"), "{error}");
}

#[test]
fn a_target_that_can_do_no_point_needs_no_volumes() {
    let folder = tempfile::tempdir().unwrap();
    let one_drive = crate::target::Opener::new(folder.path()).open("plain-file").unwrap();
    let refused = |drives: &[u32]| {
        let experiment = EXPERIMENT.replace("depth = [1, 8]", &format!("drives = {drives:?}"));
        let planned = settings(&experiment, &["plain-file"], folder.path()).plan();
        case::refusal_of_all(one_drive.as_ref(), &planned[0].points)
    };
    assert_eq!(refused(&[2, 4]).as_deref(), Some("2 drives are needed, the target has 1"));
    assert_eq!(refused(&[1, 4]), None);
    assert_eq!(case::refusal_of_all(one_drive.as_ref(), &[]), None);
}

#[test]
fn two_targets_never_have_one_label() {
    let facts = |label: &str, spec: &str| TargetFacts {
        label: label.to_owned(),
        spec: spec.to_owned(),
        ..TargetFacts::default()
    };
    let mut targets =
        [facts("Coquina", "coquina:a"), facts("Ceph", "ceph-local"), facts("Coquina", "coquina:b")];
    make_labels_unique(&mut targets, false);
    let labels: Vec<&str> = targets.iter().map(|facts| facts.label.as_str()).collect();
    assert_eq!(labels, ["Coquina (coquina:a)", "Ceph", "Coquina (coquina:b)"]);
    let mut tried = [facts("k=1", "t"), facts("k=1", "t"), facts("k=1", "t")];
    make_labels_unique(&mut tried, true);
    let labels: Vec<&str> = tried.iter().map(|facts| facts.label.as_str()).collect();
    assert_eq!(labels, ["k=1 (no. 1)", "k=1 (no. 2)", "k=1 (no. 3)"]);
}

#[test]
fn stores_that_ran_before_are_not_filled_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let aged = EXPERIMENT
        .replace("\"1GiB\"", "\"1GiB\"\naged = { full_percent = 75, overwrites = 1, block = \"64KiB\" }");
    let targets = ["coquina:new", "rbd:pool/new", "coquina-nbd:other", "coquina-local", "ceph-local"];
    let mut settings = settings(&aged, &targets, folder.path());
    let cases = Plan::of(&settings).unwrap().scenarios.remove(0).cases;
    let left_out: Vec<&str> =
        cases[0].left_out.iter().filter_map(|text| text.split(": it would").next()).collect();
    assert_eq!(left_out, &targets[..3]);
    assert!(
        cases[0].left_out[0]
            .ends_with("75 % of what is free in a store that others may use; --fill-stores allows it")
    );
    assert_eq!(cases[0].runs, 2 * 2, "two targets, two rounds");
    settings.fill_stores = true;
    assert_eq!(Plan::of(&settings).unwrap().scenarios[0].cases[0].left_out, [""; 0]);
    let fresh = self::settings(EXPERIMENT, &targets, folder.path());
    assert_eq!(Plan::of(&fresh).unwrap().scenarios[0].cases[0].left_out, [""; 0], "nothing is filled there");
}

#[test]
fn a_plan_counts_runs_of_targets_that_can_do_a_case_and_of_settings() {
    let folder = tempfile::tempdir().unwrap();
    let with_drives = EXPERIMENT.replace("depth = [1, 8]", "drives = [1, 4]");
    let settings = settings(&with_drives, &["plain-file", "plain-files:4"], folder.path());
    let plan = Plan::of(&settings).unwrap();
    let cases = &plan.scenarios[0].cases;
    assert_eq!((cases[0].runs, cases[1].runs, plan.runs), (4, 2, 6));
    assert_eq!(cases[1].left_out, ["plain-file: 4 drives are needed, the target has 1"]);
    assert!((plan.estimated_s - 6.0 * 2.2).abs() < 1e-9, "{}", plan.estimated_s);
    assert_eq!((plan.rounds_min, plan.time_s), (2, None));
    let told = plan.not_counted.join("; ");
    assert!(
        told.contains("writing volumes full") && told.contains("up to 2 s before each of the 6 runs"),
        "{told}"
    );
    assert!(!told.contains("ageing") && !told.contains("passes") && !told.contains("settled"), "{told}");
    let aged = EXPERIMENT
        .replace("warmup_s = 0,", "warmup_s = 0, settle_s = 3,")
        .replace("\"1GiB\"", "\"1GiB\"\naged = { full_percent = 75, overwrites = 1, block = \"64KiB\" }");
    let aged = self::settings(&aged, &["plain-file"], folder.path());
    let told = Plan::of(&aged).unwrap().not_counted.join("; ");
    assert!(
        told.contains(
            "3 to 12 s of load for each case of random writes and target until an aged store is steady, and as much of the heaviest for the first"
        ),
        "{told}"
    );
    let in_order = Experiment::parse(
        &EXPERIMENT
            .replace("warmup_s = 0,", "warmup_s = 0, settle_s = 3,")
            .replace("random_write", "sequential_write")
            .replace("\"1GiB\"", "\"1GiB\"\naged = { full_percent = 75, overwrites = 1, block = \"64KiB\" }"),
        "test",
    );
    assert_eq!(
        settings_of(in_order.unwrap(), folder.path()).settle_s(),
        0.0,
        "sequential writes do not settle"
    );
    assert_eq!(aged.settle_s(), 3.0);
    // One value of a key alone is compared with what was found, too: four columns.
    let tried = ["fio:a=1", "fio:a=2", "fio:b=1"].map(|text| Assignment::parse(text).unwrap());
    let settings = Settings { tried: tried.to_vec(), targets: vec!["plain-file".to_owned()], ..settings };
    let plan = Plan::of(&settings).unwrap();
    assert_eq!(plan.settings, ["fio:a=1", "fio:a=2", "fio:b=1"]);
    assert_eq!(plan.scenarios[0].cases[0].runs, 8, "four columns, two rounds");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_plan_says_that_rounds_may_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |limits: &str| {
        let toml = EXPERIMENT.replace("rounds = 2,", limits);
        let plan = Plan::of(&settings(&toml, &["plain-file"], folder.path())).unwrap();
        (plan.rounds, plan.rounds_min, plan.time_s)
    };
    assert_eq!(plan("rounds = 5, time_s = 570,"), (5, 3, Some(570.0)));
    assert_eq!(plan("rounds = 2, time_s = 570,"), (2, 2, Some(570.0)));
    assert_eq!(plan("rounds = 5,"), (5, 5, None));
}

#[test]
fn stores_settle_as_long_as_rounds_at_their_pace_leave_time_for() {
    let folder = tempfile::tempdir().unwrap();
    let toml = EXPERIMENT
        .replace("rounds = 2, runtime_s = 1,", "rounds = 4, time_s = 100, settle_s = 5, runtime_s = 1,")
        .replace("\"1GiB\"", "\"1GiB\"\naged = { full_percent = 75, overwrites = 1, block = \"64KiB\" }");
    let settings = settings(&toml, &["a", "b"], folder.path());
    let planned = settings.plan();
    let hooks = Hooks { stopped: &|| false, say: &|_| {}, progress: &|_, _| {}, partial: &|_| {} };
    let store = |spec: &str| -> Box<dyn Target> {
        let (spec, loads) = (spec.to_owned(), Rc::default());
        Box::new(Store { spec, copies: 1, laid_out: false, space_bytes: None, loads })
    };
    let mut run = Run::new(&settings, &hooks, context_of(&settings), vec![store("a"), store("b")], &planned);
    let last = &planned[0].points[1];
    let mut passes = |pace_s: f64, seconds: u64| {
        run.began = Instant::now().checked_sub(std::time::Duration::from_secs(seconds)).unwrap();
        run.pace = rounds::Pace { rounds_s: pace_s * 10.0, rounds: 10, ..rounds::Pace::default() };
        run.settle_passes_max(last, 2)
    };
    // Eight rounds of 1.5 s, of which a tenth more is reckoned, leave 86 s; each time that two stores settle takes 11 s.
    assert_eq!([0, 40, 60, 70, 200].map(|seconds| passes(1.5, seconds)), [4, 4, 2, 1, 1]);
    // Of slower rounds less is left: 46 s, of which each takes 20 s.
    assert_eq!([0, 30].map(|seconds| passes(6.0, seconds)), [2, 1]);
}

#[test]
fn all_that_is_read_is_read_once_before() {
    let layout = Layout {
        volumes: 3,
        volume_bytes: 64 << 20,
        copies: None,
        stripe: None,
        fill: true,
        warm_reads: true,
        aged: None,
        is_shared: false,
    };
    let before = |layout: &Layout, point: &Point| {
        let blocks = super::layout::warming(layout, point, 2)?;
        Some((blocks.operation, blocks.amount, blocks.block_bytes, blocks.volumes))
    };
    let of = |operation| Point { operation, block_bytes: 1 << 16, ..point(3, 1) };
    let reads = |volumes: u32| {
        Some((Operation::SequentialRead, Amount::Bytes(u64::from(volumes) << 26), 1 << 20, volumes))
    };
    assert_eq!(before(&layout, &of(Operation::RandomRead)), reads(3));
    assert_eq!(before(&layout, &of(Operation::Mixed70)), reads(3));
    let objects = Some((Operation::ObjectRead, Amount::Bytes(64 << 20), 1 << 16, 3));
    assert_eq!(before(&layout, &of(Operation::ObjectRead)), objects);
    assert_eq!(before(&layout, &of(Operation::RandomWrite)), None);
    // Only what the case loads: the rest would push that out of caches.
    let one_client = Point { volumes_per_client: Some(1), ..of(Operation::RandomRead) };
    assert_eq!(before(&layout, &one_client), reads(1));
    assert_eq!(before(&layout, &Point { clients: 2, ..one_client }), reads(2));
    let drives = |drives| Point { drives: Some(drives), ..of(Operation::RandomRead) };
    assert_eq!(before(&layout, &drives(1)), reads(1));
    assert_eq!(before(&layout, &drives(0)), reads(2), "all that the target has");
    assert_eq!(before(&Layout { warm_reads: false, ..layout }, &of(Operation::RandomRead)), None);
}

/// A store with so many copies, which counts what is written.
struct Store {
    spec: String,
    copies: u32,
    space_bytes: Option<u64>,
    laid_out: bool,
    loads: Rc<Cell<u32>>,
}

impl Target for Store {
    fn spec(&self) -> &str {
        &self.spec
    }
    fn begin(&mut self, _context: &Context<'_>) -> Result<(), TargetError> {
        Ok(())
    }
    fn facts(&self) -> TargetFacts {
        let copies = Some(self.copies).filter(|_| self.laid_out);
        TargetFacts { label: self.spec.clone(), copies, durable: Some(true), ..TargetFacts::default() }
    }
    fn space_bytes(&self, _copies: Option<u32>, _context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        Ok(self.space_bytes)
    }
    fn refuses(&self, _layout: &Layout) -> Option<String> {
        None
    }
    fn lay_out(&mut self, _layout: &Layout, _context: &Context<'_>) -> Result<bool, TargetError> {
        self.laid_out = true;
        Ok(true)
    }
    fn commands(&self, _load: &Load, _volumes: &[u32]) -> Vec<Command> {
        self.loads.set(self.loads.get() + 1);
        Vec::new()
    }
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }
    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    fn end(&mut self) {}
}

pub(crate) fn context_of(settings: &Settings) -> Context<'static> {
    Context {
        folder: settings.folder.clone(),
        program: settings.program.clone(),
        server: Vec::new(),
        store_bytes: 1 << 30,
        writes: true,
        volumes_max: 1,
        destroy: Vec::new(),
        stopped: &|| false,
        say: &|_| {},
    }
}

#[test]
fn hosts_that_made_no_load_are_not_said_to_have_made_any() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = ["a", "b", "c"].map(str::to_owned);
    let settings = Settings { hosts: hosts.to_vec(), ..settings(EXPERIMENT, &["plain-file"], folder.path()) };
    let hooks = Hooks { stopped: &|| false, say: &|_| {}, progress: &|_, _| {}, partial: &|_| {} };
    let mut run = Run::new(&settings, &hooks, context_of(&settings), Vec::new(), &[]);
    let told = |run: &mut Run<'_>, hosts: &[String]| {
        run.note_load_hosts(hosts);
        let notes = run.report.findings.iter().map(|note| note.text.split(':').next().unwrap().to_owned());
        notes.collect::<Vec<String>>()
    };
    assert_eq!(told(&mut run, &[]), Vec::<String>::new());
    assert_eq!(told(&mut run, &hosts[..1]), ["load was made by fio --server on a"]);
    assert_eq!(told(&mut run, &hosts[..2]), ["load was made by fio --server on a, b"]);
    assert_eq!(told(&mut run, &hosts[..1]), ["load was made by fio --server on a, b"]);
}

#[test]
fn unequal_stores_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(EXPERIMENT, &["a", "b"], folder.path());
    let planned = settings.plan();
    let hooks = Hooks { stopped: &|| false, say: &|_| {}, progress: &|_, _| {}, partial: &|_| {} };
    let context = context_of(&settings);
    let loads = Rc::new(Cell::new(0));
    let store = |spec: &str, copies| -> Box<dyn Target> {
        Box::new(Store {
            spec: spec.to_owned(),
            copies,
            laid_out: false,
            space_bytes: None,
            loads: loads.clone(),
        })
    };
    let mut run = Run::new(&settings, &hooks, context, vec![store("a", 2), store("b", 3)], &planned);
    let error = run.scenario(&planned[0]).unwrap_err().to_string();
    assert!(error.contains("a keeps 2 copies, b 3 copies"), "{error}");
    assert_eq!(loads.get(), 0);
    run.targets[1] = store("b", 2);
    let equal = run.scenario(&planned[0]);
    assert!(
        !matches!(equal, Err(RunError::Unequal(_))) && loads.get() > 0,
        "equal ones are filled: {equal:?}"
    );
}

#[test]
fn where_the_time_gets_short_cases_have_three_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let toml = EXPERIMENT.replace("rounds = 2,", "rounds = 4, time_s = 100,");
    let settings = settings(&toml, &["a", "b"], folder.path());
    let planned = settings.plan();
    let hooks = Hooks { stopped: &|| false, say: &|_| {}, progress: &|_, _| {}, partial: &|_| {} };
    let store = |spec: &str| -> Box<dyn Target> {
        Box::new(Store {
            spec: spec.to_owned(),
            copies: 1,
            laid_out: false,
            space_bytes: None,
            loads: Rc::default(),
        })
    };
    let mut run = Run::new(&settings, &hooks, context_of(&settings), vec![store("a"), store("b")], &planned);
    let ago = |seconds: u64| Instant::now().checked_sub(std::time::Duration::from_secs(seconds)).unwrap();
    run.pace = rounds::Pace { rounds_s: 20.0, rounds: 10, ..rounds::Pace::default() };
    let (first, last) = (&planned[0].points[0], &planned[0].points[1]);
    // One more round of 2 s on two targets, and for the first case four of the other one.
    for (point, rest_s) in [(first, 20), (last, 4)] {
        run.began = ago(100 - rest_s - 1);
        assert!(run.has_time_for(point, 4, 1), "{rest_s} s");
        run.began = ago(100 - rest_s + 1);
        assert!(!run.has_time_for(point, 4, 1), "{rest_s} s");
        assert!(run.has_time_for(point, 3, 2), "three rounds whatever the time");
    }
    run.began = ago(90);
    assert!(run.has_time_for(last, 4, 1));
    (run.pace.s_per_byte, run.pace.bytes_ahead) = (1e-6, 7e6);
    assert!(!run.has_time_for(last, 4, 1), "volumes behind it are still to be written");
    run.note_laid_out(&planned[0], &planned[0].layout, Some(16.0 * f64::from(1 << 20)));
    assert!((run.pace.s_per_byte - 1.0).abs() < 1e-9 && run.pace.bytes_ahead == 0.0, "{:?}", run.pace);
    // Nothing is run: the targets refuse the scenario.
    run.began = Instant::now();
    let refused = vec![Some("not here".to_owned()); 2];
    let mut flat = vec![None; 2];
    run.case(first, &planned[0].layout, &refused, &mut flat).unwrap();
    assert!(run.report.findings.is_empty() && run.runs_done == 8.0, "{:?}", run.report.findings);
    run.began = ago(1000);
    run.case(last, &planned[0].layout, &refused, &mut flat).unwrap();
    let told = "3 rounds instead of 4: with more the run would have taken more than 100 s";
    assert_eq!(run.report.findings.iter().map(|found| found.text.as_str()).collect::<Vec<_>>(), [told]);
    assert_eq!(run.runs_done, 16.0, "progress counts what is left out");
}

#[test]
fn what_volumes_of_later_scenarios_take_goes_by_the_room_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let more = r#"
[[scenario]]
name = "many"
volumes = 6
volume_size = "1GiB"
[[scenario.sweep]]
operation = "random_write"
block = "4KiB"
depth = [8]
[[scenario]]
name = "aged"
volume_size = "1GiB"
aged = { full_percent = 75, overwrites = 3, block = "64KiB" }
[[scenario.sweep]]
operation = "random_write"
block = "4KiB"
depth = [8]
"#;
    let toml =
        EXPERIMENT.replace("rounds = 2,", "rounds = 4, time_s = 100,").replace("16MiB", "256MiB") + more;
    let settings = settings(&toml, &["a"], folder.path());
    let planned = settings.plan();
    let hooks = Hooks { stopped: &|| false, say: &|_| {}, progress: &|_, _| {}, partial: &|_| {} };
    let spec = "a".to_owned();
    let space_bytes = Some(1 << 30);
    let store = Store { spec, copies: 1, space_bytes, laid_out: false, loads: Rc::default() };
    let mut run = Run::new(&settings, &hooks, context_of(&settings), vec![Box::new(store)], &planned);
    let mut ahead_mib = |scenario: usize| {
        run.note_laid_out(&planned[scenario], &planned[scenario].layout, Some(1.0));
        run.pace.bytes_ahead / f64::from(1 << 20)
    };
    // Three fifths of 1 GiB are room for six volumes of 96 MiB; three quarters of it are 752 MiB, written full and three times more,
    // each of which moves as much again.
    assert_eq!(ahead_mib(0), f64::from(6 * 96 + 7 * 752));
    assert_eq!(ahead_mib(1), f64::from(7 * 752));
    assert_eq!(ahead_mib(2), 0.0);
}
