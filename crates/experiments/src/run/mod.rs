//! Runs an experiment: all its cases, on several targets in turns.
//!
//! Invariants:
//! - each round runs every target once, in random order, before the next round begins;
//! - targets that are compared have volumes of the same size, filled and aged the same way, and the same copies and
//!   durability, or the run is refused;
//! - what was measured is kept: a run that is stopped or that fails later gives its report, marked as such;
//! - nothing that the run made or started outlives it.

mod comparisons;
mod fairness;
mod findings;
mod fio_tried;
mod knees;
mod layout;
mod measure;
mod placement;
mod plan;
mod problems;
mod quiet;
pub(crate) mod rates;
mod settings_tried;

use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use coquina_host::Environment;

use crate::definition::{DefinitionError, Experiment, Mode, ModeName, PlannedPoint, PlannedScenario, expand};
use crate::generator::GeneratorError;
use crate::leftovers;
use crate::report::{
    Case, CaseResult, ExperimentFacts, Finding, REPORT_VERSION, Report, TargetFacts, TimingFacts,
};
use crate::target::{
    Context, ENGINE_SETTING, Opener, Target, TargetError, check_reach, check_repeated, is_this_host,
};

use measure::{Measured, Shot};
use settings_tried::Tuner;

pub use plan::{CasePlan, Plan, PlanScenario};
pub use problems::problems;
pub use settings_tried::{Assignment, AssignmentError};

/// Throughput that grew by less has stopped growing, as a share.
const FLAT_GROWTH: f64 = 0.05;
/// Busy time of others before the run above which the report warns, in microseconds per second.
const BUSY_US_PER_S_MAX: f64 = 1e5;
/// Cases in a row in which a target fails before it is given up.
const FAILURES_MAX: u32 = 3;

/// What is run, and on what.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The experiment.
    pub experiment: Experiment,
    /// Its size.
    pub mode: ModeName,
    /// How long and how often: that of the mode, or changed by the user.
    pub limits: Mode,
    /// Targets, as they are named on the command line. `plain-file` and `plain-files:N` are made in the folder.
    pub targets: Vec<String>,
    /// Only cases whose identifier contains one of these; all if there are none.
    pub only: Vec<String>,
    /// Other hosts on which `fio --server` runs. Clients are shared out among them.
    pub hosts: Vec<String>,
    /// Folder for files of targets, on the disk in question.
    pub folder: PathBuf,
    /// This program.
    pub program: PathBuf,
    /// Options that name a Coquina server that runs already.
    pub server: Vec<String>,
    /// Size of each drive of stores that are made for the run.
    pub store_bytes: u64,
    /// Size of each volume, in place of the experiment's.
    pub volume_bytes: Option<u64>,
    /// Operations per second at which load is offered at all points, in place of the experiment's.
    pub rate_iops: Option<u64>,
    /// Names of what may be overwritten.
    pub destroy: Vec<String>,
    /// Compare what is not equal.
    pub allow_unequal: bool,
    /// Order of targets, and offsets.
    pub seed: u64,
    /// The command as it was typed.
    pub command: String,
    /// Settings to try against each other on the only target; none to compare targets as they are.
    pub tried: Vec<Assignment>,
}

impl Settings {
    /// The scenarios that are run, with their points.
    pub fn plan(&self) -> Vec<PlannedScenario> {
        let mut planned = expand(&self.experiment, self.mode);
        for scenario in &mut planned {
            if let Some(rate_iops) = self.rate_iops {
                for planned in &mut scenario.points {
                    planned.point.rate_iops = Some(rate_iops);
                    planned.id = crate::definition::identifier(&planned.point);
                }
            }
            scenario.points.retain(|planned| {
                self.only.is_empty() || self.only.iter().any(|part| planned.id.contains(part.as_str()))
            });
            scenario.layout.volume_bytes = self.volume_bytes.unwrap_or(scenario.layout.volume_bytes);
        }
        planned.retain(|scenario| !scenario.points.is_empty());
        planned
    }
}

/// How the run talks to its user.
pub struct Hooks<'a> {
    /// Set when the run is to end.
    pub stopped: &'a dyn Fn() -> bool,
    /// A line that stays.
    pub say: &'a dyn Fn(&str),
    /// Where the run is: the share that is done, and what is being done.
    pub progress: &'a dyn Fn(f64, &str),
    /// The report so far, after each case.
    pub partial: &'a dyn Fn(&Report),
}

/// Why a run did not begin, or gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The experiment cannot be used.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A target cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A generator failed while volumes were written full.
    #[error("{spec}: {source}")]
    Generator {
        /// The target.
        spec: String,
        /// What happened.
        source: GeneratorError,
    },
    /// The targets are not equal.
    #[error(
        "these are not equal, and figures of them would not compare:\n{0}\nchange them, or add --allow-unequal"
    )]
    Unequal(String),
    /// Nothing is left to do.
    #[error("{0}")]
    Nothing(String),
    /// The folder for files cannot be used.
    #[error("cannot use the folder {path}: {source}; name another with --folder")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl RunError {
    /// Whether the user stopped the run.
    pub fn is_stop(&self) -> bool {
        matches!(
            self,
            RunError::Target(TargetError::Stopped)
                | RunError::Generator { source: GeneratorError::Stopped, .. }
                | RunError::Target(TargetError::Program { source: GeneratorError::Stopped, .. })
        )
    }
}

/// Runs an experiment and gives its report. What could not be run is told in it.
pub fn run(settings: &Settings, hooks: &Hooks<'_>) -> Result<Report, RunError> {
    let planned = settings.plan();
    if planned.is_empty() {
        let message =
            format!("no case of {} contains {}", settings.experiment.name, settings.only.join(" or "));
        return Err(RunError::Nothing(message));
    }
    let folder_error = |source| RunError::Folder { path: settings.folder.clone(), source };
    let scratch =
        tempfile::TempDir::with_prefix_in("coquina-bench-", &settings.folder).map_err(folder_error)?;
    let _scratch_note = leftovers::note(format!(
        "the folder {path}, with drive files of what was made for the run: rm -r {path}",
        path = scratch.path().display()
    ));
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
    let outcome = run.all(&planned);
    (hooks.progress)(1.0, "putting settings back");
    for text in run.tuner.notes() {
        run.find("note", "settings", &text);
    }
    let restored = run.tuner.restore(&mut run.targets);
    for failed in restored {
        run.find("note", "settings", &failed);
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
    run.close(outcome)
}

/// A column of the tables: a target, as it is or with a setting.
#[derive(Clone, Debug)]
struct Column {
    target: usize,
    /// Index of the setting that is tried.
    tried: Option<usize>,
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
    idle: measure::Idle,
    /// Why a target is not run any more.
    given_up: Vec<Option<String>>,
    failures: Vec<u32>,
    /// What was seen of each case of the scenario: by target, by round.
    seen: Vec<Vec<Vec<Measured>>>,
    runs_all: f64,
    runs_done: f64,
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
            idle: measure::Idle::default(),
            given_up: vec![None; columns.len()],
            failures: vec![0; columns.len()],
            seen: Vec::new(),
            runs_all: (points * columns.len()) as f64 * f64::from(settings.limits.rounds),
            runs_done: 0.0,
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
        check_repeated(&self.targets)?;
        check_reach(&self.targets, &self.settings.hosts)?;
        Ok(())
    }

    fn all(&mut self, planned: &[PlannedScenario]) -> Result<(), RunError> {
        self.check_targets()?;
        rates::check(self.settings, planned, &self.targets)?;
        // Which targets others cannot reach is known of some when they have begun: then the hosts need not be asked.
        self.check_hosts(true)?;
        fio_tried::need_engines(&self.targets)?;
        fio_tried::check(&self.settings.tried, &self.targets, planned, &self.context.folder)?;
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
        self.idle = measure::Idle::look(&self.places(), &self.all_processes(), self.hooks.stopped)?;
        if self.idle.outside_us_per_s > BUSY_US_PER_S_MAX {
            let text = format!(
                "{:.1} cores were busy with something else before the run, most of it {}: figures are lower and less sure than on \
                 a quiet machine",
                self.idle.outside_us_per_s / 1e6,
                self.idle.busiest
            );
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

    /// What the machine is, and how it is set.
    fn environment(&mut self) {
        let drives = measure::drives_under(&self.places());
        self.report.drives = drives.iter().filter_map(|path| Environment::here(Some(path)).drive).collect();
        self.report.drives.sort_by(|a, b| a.name.cmp(&b.name));
        self.report.drives.dedup_by(|a, b| a.name == b.name);
        for key in findings::setting_keys(&self.report.drives) {
            if let Some(value) = findings::setting(&key) {
                self.report.settings.insert(key, value);
            }
        }
        if let Ok(version) = crate::generator::output_of("fio", &["--version".to_owned()], &[]) {
            self.report
                .versions
                .insert("fio".to_owned(), version.trim().trim_start_matches("fio-").to_owned());
        }
    }

    /// Facts of the targets as they are now; labels are made unique.
    fn look_at_targets(&mut self, has_rate: bool) {
        let mut all: Vec<TargetFacts> = Vec::new();
        let labels = settings_tried::labels(&self.settings.tried);
        for column in &self.columns {
            let target = &self.targets[column.target];
            let mut facts = target.facts();
            if let Some(tried) = column.tried {
                let assignment = &self.settings.tried[tried];
                facts = target.facts_with(&assignment.key, &assignment.value);
                facts.label = labels[tried].clone();
                facts.settings.insert(assignment.key.clone(), assignment.value.clone());
                if assignment.key == fio_tried::ENGINE_KEY {
                    facts.generator = format!("fio {}", assignment.value);
                }
            } else if !self.settings.tried.is_empty() {
                facts.label = settings_tried::AS_FOUND.to_owned();
            }
            if has_rate {
                facts.generator = rates::generator(&facts.generator, target.open_loop());
            }
            facts.server_processes = target
                .processes()
                .into_iter()
                .map(|pid| format!("{} {pid}", coquina_host::process_name(pid)))
                .collect();
            facts.drives = measure::drive_names(&target.places());
            all.push(facts);
        }
        make_labels_unique(&mut all, !self.settings.tried.is_empty());
        for facts in &all {
            if let Some(note) = facts.settings.get(ENGINE_SETTING) {
                self.find("note", &facts.label, &format!("fio uses {note}"));
            }
        }
        self.report.targets = all;
    }

    fn label(&self, column: usize) -> String {
        self.report.targets.get(column).map_or_else(String::new, |facts| facts.label.clone())
    }

    fn scenario(&mut self, scenario: &PlannedScenario) -> Result<(), RunError> {
        let mut refused: Vec<Option<String>> =
            self.targets.iter().map(|target| target.refuses(&scenario.layout)).collect();
        for (column, given_up) in self.columns.iter().zip(&self.given_up) {
            if given_up.is_some() {
                refused[column.target].clone_from(given_up);
            }
        }
        // Volumes are made, and facts taken, with nothing changed.
        self.tuner.set_as_found(&mut self.targets)?;
        let layout = self.lay_out(scenario, &refused)?;
        self.report.layouts.push(layout.facts(&scenario.name));
        self.look_at_targets(scenario.points.iter().any(|planned| planned.point.rate_iops.is_some()));
        for (subject, text) in fairness::notes(&self.report.targets, &refused, &self.columns) {
            self.find("note", &subject, &text);
        }
        let unequal = match self.settings.tried.is_empty() {
            true => fairness::differences(&self.targets, &self.report.targets, &refused),
            false => Vec::new(),
        };
        if !unequal.is_empty() {
            if !self.settings.allow_unequal {
                return Err(RunError::Unequal(unequal.join("\n")));
            }
            for text in unequal {
                self.find("unequal", &scenario.name, &text);
            }
        }
        self.seen.clear();
        let first_case = self.report.cases.len();
        let mut flat: Vec<Option<(u32, String)>> = vec![None; self.columns.len()];
        for planned in &scenario.points {
            self.case(planned, &layout, &refused, &mut flat)?;
            findings::name_limits(&mut self.report.cases[first_case..], &self.seen);
            self.report.elapsed_s = self.began.elapsed().as_secs_f64();
            let mut partial = self.report.clone();
            partial.interrupted = Some("the run is not finished".to_owned());
            (self.hooks.partial)(&partial);
        }
        let drives: Vec<u32> =
            self.columns.iter().map(|column| self.targets[column.target].drives()).collect();
        let found = findings::of_scenario(&self.report.cases[first_case..], &self.settings.limits, &drives);
        self.report.findings.extend(found);
        Ok(())
    }

    fn case(
        &mut self,
        planned: &PlannedPoint,
        layout: &crate::definition::Layout,
        refused: &[Option<String>],
        flat: &mut [Option<(u32, String)>],
    ) -> Result<(), RunError> {
        let count = self.columns.len();
        let mut case = Case { id: planned.id.clone(), point: planned.point.clone(), results: Vec::new() };
        for (column, flat) in flat.iter().enumerate() {
            let on_ladder = flat.as_ref().filter(|(ladder, _)| Some(*ladder) == planned.ladder);
            let index = self.columns[column].target;
            let target = &self.targets[index];
            let skipped = refused[index]
                .clone()
                .or_else(|| target.refuses_point(&planned.point))
                .or_else(|| placement::refusal(&planned.point, target.drives()))
                .or_else(|| on_ladder.map(|(_, reason)| reason.clone()));
            case.results.push(CaseResult { target: self.label(column), rounds: Vec::new(), skipped });
        }
        self.report.cases.push(case);
        self.seen.push(vec![Vec::new(); count]);
        self.warm_up(layout)?;
        let rounds = self.settings.limits.rounds;
        for round in 1..=rounds {
            let mut order: Vec<usize> = (0..count).collect();
            self.random.shuffle(&mut order);
            for column in order {
                self.runs_done += 1.0;
                if self.last_case().results[column].skipped.is_some() {
                    continue;
                }
                let share = self.runs_done / self.runs_all.max(1.0);
                let what = format!("{}: {}, round {round} of {rounds}", planned.id, self.label(column));
                (self.hooks.progress)(share, &what);
                self.shot(planned, layout, column, round)?;
            }
        }
        self.note_failures();
        self.note_ladder(planned, flat);
        Ok(())
    }

    fn last_case(&mut self) -> &mut Case {
        self.report.cases.last_mut().expect("a case was pushed before its rounds")
    }

    fn shot(
        &mut self,
        planned: &PlannedPoint,
        layout: &crate::definition::Layout,
        column: usize,
        round: u32,
    ) -> Result<(), RunError> {
        let Column { target, tried } = self.columns[column];
        self.tuner.apply(tried, &mut self.targets, &self.context)?;
        let mine = self.targets[target].processes();
        let others: Vec<u32> = self.all_processes().into_iter().filter(|pid| !mine.contains(pid)).collect();
        quiet::wait(&self.idle, self.settings.mode, self.hooks.stopped);
        let shot = Shot {
            target: self.targets[target].as_ref(),
            point: &planned.point,
            volume_bytes: layout.volume_bytes,
            limits: &self.settings.limits,
            hosts: &self.settings.hosts,
            fio_options: &self.tuner.fio_options(tried),
            seed: self
                .settings
                .seed
                .wrapping_add(u64::from(round) << 20)
                .wrapping_add(self.random.u64(..1 << 20)),
            round,
            others: &others,
            idle: &self.idle,
            scratch: &self.context.folder,
            stopped: self.hooks.stopped,
        };
        match shot.take() {
            Ok(measured) => {
                if !measured.round.is_good() {
                    let text = findings::left_out(&self.label(column), &measured);
                    self.find("failed", &planned.id, &text);
                }
                for host in &measured.hosts {
                    if !self.report.hosts.contains(host) {
                        self.report.hosts.push(host.clone());
                    }
                }
                self.last_case().results[column].rounds.push(measured.round.clone());
                let last = self.seen.last_mut().expect("pushed with the case");
                last[column].push(measured);
                Ok(())
            }
            Err(GeneratorError::Stopped) => Err(TargetError::Stopped.into()),
            Err(error) if (self.hooks.stopped)() => {
                (self.hooks.say)(&format!("{error}"));
                Err(TargetError::Stopped.into())
            }
            Err(error) => {
                let label = self.label(column);
                (self.hooks.say)(&format!("{label}: {error}"));
                self.find("failed", &planned.id, &format!("{label}: {error}"));
                self.last_case().results[column].skipped = Some(error.to_string());
                Ok(())
            }
        }
    }

    /// A target that fails again and again is not run any more.
    fn note_failures(&mut self) {
        for column in 0..self.columns.len() {
            let label = self.label(column);
            let result = &mut self.last_case().results[column];
            if result.has_failed() && result.skipped.is_none() {
                result.skipped = Some(format!("operations failed in all {} rounds", result.rounds.len()));
            }
            let failed = result.has_failed() || result.rounds.is_empty() && result.skipped.is_some();
            let is_refusal = self.given_up[column].is_some() || !failed;
            self.failures[column] = if failed { self.failures[column] + 1 } else { 0 };
            let many = !is_refusal && self.failures[column] >= FAILURES_MAX;
            if many && self.has_ended(self.columns[column].target) {
                let reason = format!("given up: its processes have ended, and {FAILURES_MAX} cases failed");
                self.find("failed", &label, &reason);
                self.given_up[column] = Some(reason);
            }
        }
    }

    /// Whether a target has processes on this machine, and all are gone.
    fn has_ended(&self, target: usize) -> bool {
        let processes = self.targets[target].processes();
        !processes.is_empty()
            && processes.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    }

    /// Remembers for which targets a ladder of clients or drives has come to its end.
    fn note_ladder(&mut self, planned: &PlannedPoint, flat: &mut [Option<(u32, String)>]) {
        // At a rate throughput does not grow with clients.
        let Some(ladder) = planned.ladder.filter(|_| planned.point.rate_iops.is_none()) else { return };
        for (column, flat) in flat.iter_mut().enumerate() {
            let drives = self.targets[self.columns[column].target].drives();
            let cases = &self.report.cases;
            if let Some(reason) = knees::end_of_ladder(cases, &planned.id, &planned.point, column, drives) {
                *flat = Some((ladder, reason));
            }
        }
    }

    fn find(&mut self, kind: &str, subject: &str, text: &str) {
        let finding = Finding { kind: kind.to_owned(), subject: subject.to_owned(), text: text.to_owned() };
        if !self.report.findings.contains(&finding) {
            self.report.findings.push(finding);
        }
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
        let tried: Vec<Option<usize>> = self.columns.iter().map(|column| column.tried).collect();
        let columns: Vec<(&str, bool)> = self
            .columns
            .iter()
            .zip(&self.report.targets)
            .map(|(column, facts)| (facts.system.as_str(), self.targets[column.target].is_baseline()))
            .collect();
        let references = match self.settings.tried.is_empty() {
            true => comparisons::references_of_targets(&columns),
            false => settings_tried::references(&self.settings.tried, &tried),
        };
        self.report.comparisons = comparisons::of(&self.report, &references);
        let mut found = findings::of_report(&self.report);
        if !self.settings.tried.is_empty() {
            found.splice(0..0, comparisons::verdicts(&self.report));
        }
        // What was asked for comes first.
        found.append(&mut self.report.findings);
        self.report.findings = found;
        Ok(self.report)
    }
}

/// Targets of one label are told apart by how they were named, and settings that are tried again by their numbers.
fn make_labels_unique(targets: &mut [TargetFacts], are_settings: bool) {
    let labels: Vec<String> = targets.iter().map(|facts| facts.label.clone()).collect();
    for (place, facts) in targets.iter_mut().enumerate() {
        let same = |range: &[String]| range.iter().filter(|label| **label == labels[place]).count();
        if same(&labels) > 1 {
            let more =
                if are_settings { format!("no. {}", same(&labels[..=place])) } else { facts.spec.clone() };
            facts.label = format!("{} ({more})", facts.label);
        }
    }
}

#[cfg(test)]
mod tests;
