//! What is run, and how the run talks to its user.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::definition::{Experiment, Mode, ModeName, PlannedScenario, expand};
use crate::report::Report;

use super::Assignment;

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
    /// Fill stores that ran before the run, too, where a scenario asks for full ones.
    pub fill_stores: bool,
    /// Order of targets, and offsets.
    pub seed: u64,
    /// The command as it was typed.
    pub command: String,
    /// Settings to try against each other on the only target; none to compare targets as they are.
    pub tried: Vec<Assignment>,
}

impl Settings {
    /// How long cases settle on stores that were aged, in seconds; 0 where no such case is run.
    pub fn settle_s(&self) -> f64 {
        let settles = self.plan().iter().any(|scenario| {
            let mut points = scenario.points.iter();
            scenario.layout.aged.is_some() && points.any(|planned| planned.point.operation.settles())
        });
        if settles { self.limits.settle_s } else { 0.0 }
    }

    /// For how long cases that need it are loaded before, where that is longer than for others, in seconds; else 0.
    pub fn warmup_crowd_s(&self) -> f64 {
        let plan = self.plan();
        let points = plan.iter().flat_map(|scenario| &scenario.points);
        let warmups_s = points.map(|planned| self.limits.warmup_s_of(&planned.point));
        let longest_s = warmups_s.fold(0.0, f64::max);
        if longest_s > self.limits.warmup_s { longest_s } else { 0.0 }
    }

    /// The scenarios that are run, with their points.
    pub fn plan(&self) -> Vec<PlannedScenario> {
        let mut planned = expand(&self.experiment, self.mode);
        for scenario in &mut planned {
            if let Some(rate_iops) = self.rate_iops {
                for planned in &mut scenario.points {
                    planned.point.rate_iops = Some(rate_iops);
                    planned.id = crate::definition::identifier(&planned.point);
                }
                // Points that differed in their rates only are one now.
                let mut ids = HashSet::new();
                scenario.points.retain(|planned| ids.insert(planned.id.clone()));
            }
            scenario.points.retain(|planned| {
                self.only.is_empty() || self.only.iter().any(|part| planned.id.contains(part.as_str()))
            });
            scenario.layout.volume_bytes = self.volume_bytes.unwrap_or(scenario.layout.volume_bytes);
            scenario.fit_objects();
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
