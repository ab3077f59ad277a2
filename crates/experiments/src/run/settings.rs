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
                self.only.is_empty() || self.only.iter().any(|text| is_asked_for(&planned.id, text))
            });
            scenario.layout.volume_bytes = self.volume_bytes.unwrap_or(scenario.layout.volume_bytes);
            scenario.fit_objects();
        }
        planned.retain(|scenario| !scenario.points.is_empty());
        planned
    }

    /// What is said where no case is asked for.
    pub fn no_case_text(&self) -> String {
        let one = |text: &String| match text.strip_prefix(WHOLE) {
            Some(name) => format!("is called {name}"),
            None => format!("contains {text}"),
        };
        let asked: Vec<String> = self.only.iter().map(one).collect();
        format!(
            "no case of {} {}; --plan without --only lists them",
            self.experiment.name,
            asked.join(" or ")
        )
    }
}

/// Begins the whole name of a case, where a text could be any part of it.
const WHOLE: char = '=';

/// Whether a case is asked for: by its whole name, or by a text that its name holds. A number at an end of the text is a whole one there:
/// `depth 1` is not in `depth 128`, nor `4k` in `64k`.
fn is_asked_for(id: &str, text: &str) -> bool {
    if let Some(name) = text.strip_prefix(WHOLE) {
        return id == name;
    }
    let is_digit = |found: Option<char>| found.is_some_and(|found| found.is_ascii_digit());
    let splits_number = |before: &str, after: &str| {
        let at_begin = is_digit(before.chars().next_back()) && is_digit(text.chars().next());
        let at_end = is_digit(text.chars().next_back()) && is_digit(after.chars().next());
        at_begin || at_end
    };
    let ends = id.char_indices().map(|(at, _)| at).chain([id.len()]);
    let mut found = ends.filter_map(|at| Some((&id[..at], id[at..].strip_prefix(text)?)));
    found.any(|(before, after)| !splits_number(before, after))
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

#[cfg(test)]
mod tests {
    use super::is_asked_for;

    /// With `depth 1` went `depth 16` and `depth 128`.
    #[test]
    fn cases_are_asked_for_by_whole_numbers_and_names() {
        let ids = [
            "one volume / 4k random write / depth 1",
            "one volume / 4k random write / depth 16",
            "one volume / 64k random write / depth 128",
            "one volume / 4k random write / depth 1 / 2 clients",
        ];
        let asked = |text: &str| -> Vec<usize> {
            (0..ids.len()).filter(|number| is_asked_for(ids[*number], text)).collect()
        };
        assert_eq!(asked("depth 1"), [0, 3]);
        assert_eq!(asked("=one volume / 4k random write / depth 1"), [0]);
        assert_eq!(asked("=depth 1"), [0; 0]);
        assert_eq!((asked("4k random write"), asked("64k")), (vec![0, 1, 3], vec![2]));
        assert_eq!(asked("depth"), [0, 1, 2, 3]);
        assert_eq!(asked("dept"), [0, 1, 2, 3], "words may be parts");
        assert_eq!(asked(""), [0, 1, 2, 3]);
        assert!(is_asked_for("depth 11 / 1 client", "1"), "the second");
    }
}
