//! Runs an experiment: all its cases, on several targets in turns.
//!
//! Invariants:
//! - each round runs every target once, in random order, before the next round begins;
//! - targets that are compared have volumes of the same size, filled and aged the same way, and the same copies and
//!   durability, or the run is refused;
//! - what was measured is kept: a run that is stopped or that fails later gives its report, marked as such;
//! - nothing that the run made or started outlives it.

mod afterwards;
mod case;
pub(crate) mod comparisons;
mod error;
mod facts;
mod fairness;
mod findings;
mod fio_tried;
mod hung;
mod idle;
mod knees;
mod layout;
mod measure;
mod over_time;
mod placement;
mod plan;
mod problems;
mod quiet;
pub(crate) mod rates;
mod rounds;
mod servers;
mod settings;
mod settings_tried;
mod settle;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coquina_host::Environment;

use crate::definition::{Layout, PlannedScenario};
use crate::leftovers;
use crate::report::{
    ExperimentFacts, Finding, LaidOutFacts, LayoutFacts, REPORT_VERSION, Report, TimingFacts,
};
use crate::target::{
    Context, Opener, Target, TargetError, check_names, check_reach, check_reach_of_objects, check_repeated,
    is_this_host,
};

use measure::Measured;
use settings_tried::Tuner;

pub use error::RunError;
pub use plan::{CasePlan, Plan, PlanScenario};
pub use problems::problems;
pub use settings::{Hooks, Settings};
pub use settings_tried::{Assignment, AssignmentError};

/// Throughput that grew by less has stopped growing, as a share.
const FLAT_GROWTH: f64 = 0.05;
/// Busy time of others before the run above which the report warns, in microseconds per second.
const BUSY_US_PER_S_MAX: f64 = 1e5;

/// Runs an experiment and gives its report. What could not be run is told in it.
pub fn run(settings: &Settings, hooks: &Hooks<'_>) -> Result<Report, RunError> {
    let planned = settings.plan();
    if planned.is_empty() {
        return Err(RunError::Nothing(settings.no_case_text()));
    }
    let folder_error = |source| RunError::Folder { path: settings.folder.clone(), source };
    let of_killed = leftovers::of_killed(&settings.folder);
    let scratch = tempfile::TempDir::with_prefix_in(leftovers::FOLDER_PREFIX, &settings.folder)
        .map_err(folder_error)?;
    let scratch_note = leftovers::note(format!(
        "the folder {}, with drive files of what was made for the run: rm -r {}",
        scratch.path().display(),
        leftovers::quoted(scratch.path())
    ));
    let journal = leftovers::keep_in(scratch.path());
    let context = Context {
        folder: scratch.path().to_owned(),
        program: settings.program.clone(),
        server: settings.server.clone(),
        store_bytes: settings.store_bytes,
        writes: planned
            .iter()
            .any(|scenario| scenario.points.iter().any(|planned| planned.point.operation.writes())),
        volumes_max: planned.iter().map(|scenario| scenario.layout.volumes).max().unwrap_or(1),
        destroy: settings.destroy.clone(),
        stopped: hooks.stopped,
        say: hooks.say,
    };
    let mut opener = Opener::new(scratch.path());
    let opened: Result<Vec<Box<dyn Target>>, TargetError> =
        settings.targets.iter().map(|spec| opener.open(spec)).collect();
    // Shared systems live as long as a target uses them.
    drop(opener);
    let mut run = Run::new(settings, hooks, context, opened?, &planned);
    for left in of_killed {
        let text = format!("an earlier run was killed, and may have left behind {left}");
        (hooks.say)(&text);
        run.find("note", "this machine", &text);
    }
    let outcome = run.all(&planned);
    (hooks.progress)(1.0, "putting settings back");
    for text in run.tuner.notes() {
        run.find("note", "settings", &text);
    }
    let restored = run.tuner.restore(&mut run.targets);
    for failed in restored {
        run.find("failed", "settings", &failed);
        (hooks.say)(&failed);
    }
    for target in &mut run.targets {
        (hooks.progress)(
            1.0,
            &format!("removing what was made for {} and ending what was started", target.spec()),
        );
        target.end();
    }
    (hooks.progress)(1.0, "writing the report");
    let closed = run.close(outcome);
    // The lock on the folder as well, which goes now.
    drop(journal);
    leftovers::remove(scratch, scratch_note);
    closed
}

/// A column of the tables: a target, as it is or with a setting.
#[derive(Clone, Debug)]
struct Column {
    target: usize,
    /// Index of the setting that is tried.
    tried: Option<usize>,
}

/// How long loads that may hang are waited for.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// Beside its time, for one that is measured.
    ending: Duration,
    /// That it does nothing, for one that makes volumes ready.
    still: Duration,
}

/// A run at work.
struct Run<'a> {
    settings: &'a Settings,
    hooks: &'a Hooks<'a>,
    context: Context<'a>,
    targets: Vec<Box<dyn Target>>,
    columns: Vec<Column>,
    tuner: Tuner,
    report: Report,
    random: fastrand::Rng,
    began: Instant,
    idle: idle::Idle,
    /// Why a column is not run any more.
    given_up: Vec<Option<String>>,
    failures: Vec<u32>,
    /// By column.
    hung: Vec<hung::Hung>,
    waits: Waits,
    /// What was seen of each case of the scenario: by target, by round.
    seen: Vec<Vec<Vec<Measured>>>,
    runs_all: f64,
    runs_done: f64,
    pace: rounds::Pace,
    /// When the last wait for the machine to be quiet after a load ended.
    waited_at: Option<Instant>,
}

impl<'a> Run<'a> {
    fn new(
        settings: &'a Settings,
        hooks: &'a Hooks<'a>,
        context: Context<'a>,
        targets: Vec<Box<dyn Target>>,
        planned: &[PlannedScenario],
    ) -> Self {
        let points: usize = planned.iter().map(|scenario| scenario.points.len()).sum();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let experiment = &settings.experiment;
        let report = Report {
            report_version: REPORT_VERSION,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: settings.command.clone(),
            experiment: ExperimentFacts {
                name: experiment.name.clone(),
                title: experiment.title.clone(),
                published_setup: experiment.published_setup.trim().to_owned(),
                published_finding: experiment.published_finding.trim().to_owned(),
            },
            mode: settings.mode.as_str().to_owned(),
            began_unix_s: since_1970.as_secs(),
            seed: settings.seed,
            timing: Some(TimingFacts {
                rounds: settings.limits.rounds,
                runtime_s: settings.limits.runtime_s,
                warmup_s: settings.limits.warmup_s,
                warmup_crowd_s: settings.warmup_crowd_s(),
                settle_s: settings.settle_s(),
                time_s: settings.limits.time_s,
                passes_max: settings.limits.passes_max,
            }),
            environment: Environment::here(Some(&settings.folder)),
            // They were checked when the experiment was read.
            published: experiment.published.rows().unwrap_or_default(),
            ..Report::default()
        };
        let columns: Vec<Column> = if settings.tried.is_empty() {
            (0..targets.len()).map(|target| Column { target, tried: None }).collect()
        } else {
            let tuned = settings_tried::columns(&settings.tried);
            tuned.into_iter().map(|tried| Column { target: 0, tried }).collect()
        };
        Run {
            settings,
            hooks,
            context,
            tuner: Tuner::new(&settings.tried),
            report,
            random: fastrand::Rng::with_seed(settings.seed),
            began: Instant::now(),
            idle: idle::Idle::default(),
            given_up: vec![None; columns.len()],
            failures: vec![0; columns.len()],
            hung: vec![hung::Hung::default(); columns.len()],
            waits: Waits { ending: measure::EXTRA_TIME_MAX, still: layout::STILL_TIME_MAX },
            seen: Vec::new(),
            runs_all: (points * columns.len()) as f64 * f64::from(settings.limits.rounds),
            runs_done: 0.0,
            pace: rounds::Pace::default(),
            waited_at: None,
            targets,
            columns,
        }
    }

    /// Whether a `fio --server` answers where it is to make load: on this host, or on the others.
    fn check_hosts(&self, here: bool) -> Result<(), TargetError> {
        let hosts = self.settings.hosts.iter().filter(|host| is_this_host(host) == here);
        hosts.into_iter().try_for_each(|client| {
            crate::generator::fio::reach(client)
                .map_err(|message| TargetError::Unusable { spec: format!("--client {client}"), message })
        })
    }

    /// What is wrong with the targets together; asked before they begin, and when more is known of them.
    fn check_targets(&self) -> Result<(), RunError> {
        self.check_labels()?;
        check_names(&self.targets, &self.context.folder)?;
        check_repeated(&self.targets)?;
        check_reach(&self.targets, &self.settings.hosts)?;
        Ok(())
    }

    fn all(&mut self, planned: &[PlannedScenario]) -> Result<(), RunError> {
        self.check_targets()?;
        if planned.iter().any(PlannedScenario::is_of_objects) {
            check_reach_of_objects(&self.targets, &self.settings.hosts)?;
        }
        rates::check(self.settings, planned, &self.targets)?;
        // Which targets others cannot reach is known of some when they have begun: then the hosts need not be asked.
        self.check_hosts(true)?;
        fio_tried::need_engines(&self.targets, planned, &self.context)?;
        fio_tried::check(&self.settings.tried, &self.targets, planned, &self.context)?;
        for target in &mut self.targets {
            (self.hooks.progress)(0.0, &format!("starting {}", target.spec()));
            target.begin(&self.context)?;
        }
        self.check_targets()?;
        self.check_hosts(false)?;
        self.environment();
        for line in self.tuner.begin(&mut self.targets, &self.context)? {
            (self.hooks.say)(&line);
        }
        if self.settings.experiment.advice {
            let found = findings::advice(&measure::drives_under(&self.places()));
            self.report.findings.extend(found);
        }
        (self.hooks.progress)(0.0, "looking at the idle machine");
        self.idle = idle::Idle::look(&self.places(), &self.all_processes(), self.hooks.stopped)?;
        if self.idle.outside_us_per_s > BUSY_US_PER_S_MAX {
            let text = self.idle.text(self.targets.iter().all(|target| target.are_processes_all()));
            (self.hooks.say)(&text);
            self.find("note", "this machine", &text);
        }
        for scenario in planned {
            self.scenario(scenario)?;
        }
        Ok(())
    }

    /// Two targets with the same label could not be told apart in tables.
    fn check_labels(&self) -> Result<(), RunError> {
        for (index, target) in self.targets.iter().enumerate() {
            if self.targets[..index].iter().any(|other| other.spec() == target.spec()) {
                return Err(RunError::Nothing(format!(
                    "the target {} is named twice; once is enough",
                    target.spec()
                )));
            }
        }
        Ok(())
    }

    fn places(&self) -> Vec<PathBuf> {
        self.targets.iter().flat_map(|target| target.places()).chain([self.context.folder.clone()]).collect()
    }

    fn all_processes(&self) -> Vec<u32> {
        self.targets.iter().flat_map(|target| target.processes()).collect()
    }

    fn label(&self, column: usize) -> String {
        self.report.targets.get(column).map_or_else(String::new, |facts| facts.label.clone())
    }

    fn scenario(&mut self, scenario: &PlannedScenario) -> Result<(), RunError> {
        let mut refused: Vec<Option<String>> = self
            .targets
            .iter()
            .map(|target| {
                let refusal = target.refuses(&scenario.layout);
                let refusal =
                    refusal.or_else(|| refusal_to_fill(target.as_ref(), &scenario.layout, self.settings));
                refusal.or_else(|| case::refusal_of_all(target.as_ref(), &scenario.points))
            })
            .collect();
        self.forget_hung();
        for (target, refused) in refused.iter_mut().enumerate() {
            if let Some(given_up) = self.why_given_up(target) {
                *refused = Some(given_up);
            }
        }
        // Volumes are made, and facts taken, with nothing changed.
        self.tuner.set_as_found(&mut self.targets, &self.context)?;
        let began = Instant::now();
        let refused_before = refused.iter().flatten().count();
        let layout = self.lay_out(scenario, &mut refused)?;
        // One that hung says nothing of how long others take.
        let took_s =
            (refused.iter().flatten().count() == refused_before).then(|| began.elapsed().as_secs_f64());
        self.note_laid_out(scenario, &layout, took_s);
        self.look_at_targets(scenario);
        self.report.layouts.push(self.layout_facts(scenario, &layout, &refused));
        for (subject, text) in fairness::notes(&self.report.targets, &refused, &self.columns) {
            self.find("note", &subject, &text);
        }
        let memory_bytes = self.report.environment.memory_bytes;
        if let Some(text) = fairness::cached_objects(scenario, layout.volume_bytes, memory_bytes) {
            self.find("note", &scenario.name, &text);
        }
        for text in self.refuse_unequal(&refused)? {
            self.find("unequal", &scenario.name, &text);
        }
        if self.settings.tried.is_empty()
            && let Some(text) = fairness::unequal_cpu(&self.targets, &self.report.targets, &refused)
        {
            self.find("unequal", "CPU per operation", &text);
        }
        self.seen.clear();
        let drives: Vec<u32> =
            self.columns.iter().map(|column| self.targets[column.target].drives()).collect();
        let first_case = self.report.cases.len();
        let mut flat: Vec<Option<(u32, String)>> = vec![None; self.columns.len()];
        for planned in &scenario.points {
            let outcome = self.case(planned, &layout, &refused, &mut flat);
            // Also of a case that was interrupted: what it has measured is in the report.
            findings::name_limits(&mut self.report.cases[first_case..], &self.seen, &drives);
            outcome?;
            self.report.elapsed_s = self.began.elapsed().as_secs_f64();
            let mut partial = self.report.clone();
            partial.interrupted = Some("the run is not finished".to_owned());
            partial.comparisons = comparisons::of(&partial, &self.references());
            (self.hooks.partial)(&partial);
        }
        let found = findings::of_scenario(&self.report.cases[first_case..], &self.settings.limits, &drives);
        self.report.findings.extend(found);
        Ok(())
    }

    /// What is unequal between targets and was allowed to be.
    fn refuse_unequal(&self, refused: &[Option<String>]) -> Result<Vec<String>, RunError> {
        let unequal = match self.settings.tried.is_empty() {
            true => fairness::differences(&self.targets, &self.report.targets, refused),
            false => Vec::new(),
        };
        match unequal.is_empty() || self.settings.allow_unequal {
            true => Ok(unequal),
            false => Err(RunError::Unequal(unequal.join("\n"))),
        }
    }

    /// How volumes of a scenario were laid out.
    fn layout_facts(
        &self,
        scenario: &PlannedScenario,
        layout: &Layout,
        refused: &[Option<String>],
    ) -> LayoutFacts {
        let keeps = |column: &Column| {
            refused[column.target].is_none() && self.targets[column.target].keeps_its_data()
        };
        let columns = self.columns.iter().zip(&self.report.targets);
        let takes_part = columns.clone().filter(|(column, _)| refused[column.target].is_none());
        LayoutFacts {
            targets: takes_part.map(|(_, facts)| LaidOutFacts::from(facts)).collect(),
            fill: layout.fill && !scenario.is_of_objects(),
            objects: scenario.is_of_objects(),
            kept: columns.filter(|(column, _)| keeps(column)).map(|(_, facts)| facts.label.clone()).collect(),
            ..layout.facts(&scenario.name)
        }
    }

    fn find(&mut self, kind: &str, subject: &str, text: &str) {
        let finding = Finding { kind: kind.to_owned(), subject: subject.to_owned(), text: text.to_owned() };
        if !self.report.findings.contains(&finding) {
            self.report.findings.push(finding);
        }
    }

    /// Which columns are compared with which.
    fn references(&self) -> Vec<(usize, usize)> {
        if !self.settings.tried.is_empty() {
            let tried: Vec<Option<usize>> = self.columns.iter().map(|column| column.tried).collect();
            return settings_tried::references(&self.settings.tried, &tried);
        }
        let columns = self.columns.iter().zip(&self.report.targets);
        let columns: Vec<(&str, bool)> = columns
            .map(|(column, facts)| (facts.system.as_str(), self.targets[column.target].is_baseline()))
            .collect();
        comparisons::references_of_targets(&columns)
    }

    /// The report, or why there is none.
    fn close(mut self, outcome: Result<(), RunError>) -> Result<Report, RunError> {
        self.report.elapsed_s = self.began.elapsed().as_secs_f64();
        let has_figures =
            self.report.cases.iter().any(|case| case.results.iter().any(|result| !result.rounds.is_empty()));
        match outcome {
            Ok(()) => {}
            Err(error) if has_figures => {
                let reason =
                    if error.is_stop() { "stopped by its user".to_owned() } else { error.to_string() };
                self.report.interrupted = Some(reason);
            }
            Err(error) => return Err(error),
        }
        self.report.comparisons = comparisons::of(&self.report, &self.references());
        let mut found = findings::of_report(&self.report, &self.settings.experiment);
        if !self.settings.tried.is_empty() {
            found.splice(0..0, comparisons::verdicts(&self.report));
        }
        // What was asked for comes first.
        found.append(&mut self.report.findings);
        self.report.findings = found;
        Ok(self.report)
    }
}

/// Why a scenario is not run on a store that ran before: it would fill it up, and nobody said that it may.
fn refusal_to_fill(target: &dyn Target, layout: &Layout, settings: &Settings) -> Option<String> {
    let aged = layout.aged.filter(|_| target.is_store_shared() && !settings.fill_stores)?;
    Some(format!(
        "it would take {} % of what is free in a store that others may use; --fill-stores allows it",
        aged.full_percent
    ))
}

#[cfg(test)]
mod tests;
