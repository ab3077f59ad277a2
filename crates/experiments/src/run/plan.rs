//! What a run would do, as far as that is known before it has begun.

use serde::Serialize;

use crate::definition::{PlannedScenario, ROUNDS_MIN, SETTLE_PASSES_MAX};
use crate::target::{Opener, Target, TargetError, check_reach, check_reach_of_objects, check_repeated};

use super::{Settings, placement, quiet, settings_tried};

/// Time that starting and ending one load takes besides its own time, in seconds.
pub(super) const LOAD_EXTRA_S: f64 = 1.2;

/// What would be run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The experiment.
    pub experiment: String,
    /// Its size.
    pub mode: String,
    /// On what.
    pub targets: Vec<String>,
    /// Settings that take turns on the only target.
    pub settings: Vec<String>,
    /// Times that each case is run on each target, or with each setting.
    pub rounds: u32,
    /// Rounds that each case has at least: fewer than `rounds` where some are left out when the run would take more than `time_s`.
    pub rounds_min: u32,
    /// How long the whole run should take, in seconds; `None` where that is not bounded.
    pub time_s: Option<f64>,
    /// Measured time of each run, in seconds.
    pub runtime_s: f64,
    /// Load before that, in seconds.
    pub warmup_s: f64,
    /// Runs of all cases together.
    pub runs: u64,
    /// Time of load of all runs, in seconds: no set-up, no waits, and one pass each.
    pub estimated_s: f64,
    /// What takes time besides.
    pub not_counted: Vec<String>,
    /// What is run.
    pub scenarios: Vec<PlanScenario>,
}

/// A scenario that would be run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanScenario {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub note: String,
    /// Volumes.
    pub volumes: u32,
    /// Size of each, if there is room.
    pub volume_bytes_max: u64,
    /// Copies that are asked of targets.
    pub copies: Option<u32>,
    /// Its cases.
    pub cases: Vec<CasePlan>,
}

/// A case that would be run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CasePlan {
    /// Its identifier.
    pub id: String,
    /// Runs of it, on all targets or with all settings.
    pub runs: u64,
    /// Targets that are left out, and why.
    pub left_out: Vec<String>,
}

impl Plan {
    /// What these settings would run. Nothing is looked for, started or changed.
    pub fn of(settings: &Settings) -> Result<Plan, TargetError> {
        let mut opener = Opener::new(&settings.folder);
        let opened: Result<Vec<Box<dyn Target>>, TargetError> =
            settings.targets.iter().map(|spec| opener.open(spec)).collect();
        let targets = opened?;
        check_repeated(&targets)?;
        check_reach(&targets, &settings.hosts)?;
        let all = settings.plan();
        if all.iter().any(PlannedScenario::is_of_objects) {
            check_reach_of_objects(&targets, &settings.hosts)?;
        }
        let limits = &settings.limits;
        // Of a target that is tuned there is a column for each setting.
        let columns = match settings.tried.is_empty() {
            true => 1,
            false => settings_tried::columns(&settings.tried).len() as u64,
        };
        let mut seconds = 0.0;
        let mut case = |planned: &crate::definition::PlannedPoint, layout: &crate::definition::Layout| {
            let (mut runs, mut left_out) = (0, Vec::new());
            for target in &targets {
                let refused = target.refuses_point(&planned.point);
                let refused = refused.or_else(|| placement::refusal(&planned.point, target.drives()));
                // What others refuse is known when they have begun.
                let refused =
                    refused.or_else(|| target.is_baseline().then(|| target.refuses(layout)).flatten());
                let refused = refused.or_else(|| super::refusal_to_fill(target.as_ref(), layout, settings));
                match refused {
                    Some(reason) => left_out.push(format!("{}: {reason}", target.spec())),
                    None => runs += columns * u64::from(limits.rounds),
                }
            }
            seconds += runs as f64 * (limits.runtime_s + limits.warmup_s_of(&planned.point) + LOAD_EXTRA_S);
            CasePlan { id: planned.id.clone(), runs, left_out }
        };
        let scenarios: Vec<PlanScenario> = settings
            .plan()
            .into_iter()
            .map(|scenario| PlanScenario {
                cases: scenario.points.iter().map(|planned| case(planned, &scenario.layout)).collect(),
                name: scenario.name,
                note: scenario.note,
                volumes: scenario.layout.volumes,
                volume_bytes_max: scenario.layout.volume_bytes,
                copies: scenario.layout.copies,
            })
            .collect();
        let runs = scenarios.iter().flat_map(|scenario| &scenario.cases).map(|case| case.runs).sum();
        Ok(Plan {
            experiment: settings.experiment.name.clone(),
            mode: settings.mode.as_str().to_owned(),
            targets: settings.targets.clone(),
            settings: settings_tried::labels(&settings.tried),
            rounds: limits.rounds,
            rounds_min: if limits.time_s > 0.0 { limits.rounds.min(ROUNDS_MIN) } else { limits.rounds },
            time_s: (limits.time_s > 0.0).then_some(limits.time_s),
            runtime_s: limits.runtime_s,
            warmup_s: limits.warmup_s,
            runs,
            estimated_s: seconds,
            not_counted: not_counted(settings, runs),
            scenarios,
        })
    }
}

/// What takes time besides load.
fn not_counted(settings: &Settings, runs: u64) -> Vec<String> {
    let planned = settings.plan();
    let mut parts = vec!["starting targets and making volumes".to_owned()];
    if planned.iter().any(|scenario| scenario.layout.fill) {
        parts.push("writing volumes full".to_owned());
    }
    if planned.iter().any(|scenario| scenario.layout.aged.is_some()) {
        parts.push("ageing stores (filling and overwriting them)".to_owned());
        let settle_s = settings.settle_s();
        if settle_s > 0.0 {
            parts.push(format!(
                "{settle_s} to {} s of load for each case of random writes and target until an aged store is steady, and as much of the heaviest for the first{}",
                settle_s * f64::from(SETTLE_PASSES_MAX),
                match settings.limits.time_s {
                    0.0 => String::new(),
                    time_s => format!(", less if the run would take more than {time_s} s"),
                }
            ));
        }
    }
    if planned.iter().any(|scenario| scenario.layout.warm_reads) {
        parts.push("reading volumes once before cases that read".to_owned());
    }
    let wait_s = quiet::wait_s_max(settings.mode);
    parts.push(format!(
        "waits until drives are quiet (up to {wait_s} s before each of the {runs} runs, and after it)"
    ));
    if settings.limits.passes_max > 1 {
        parts.push(format!(
            "more passes of runs that are not steady (up to {} in place of one)",
            settings.limits.passes_max
        ));
    }
    if !settings.tried.is_empty() {
        parts.push("starting targets again for settings that are read at a start only".to_owned());
    }
    parts
}
