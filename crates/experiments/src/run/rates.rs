//! Load at a rate: what makes it, whether that can be done, and what came of it.

use crate::definition::PlannedScenario;
use crate::generator::Format;
use crate::report::{Case, CaseResult, Finding};
use crate::target::{OpenLoop, Target};

use super::findings::{finding, mean_iops};
use super::{RunError, Settings};

/// A rate of which less was served was not reached, as a share.
pub(crate) const REACHED: f64 = 0.97;

/// Refuses what a rate cannot be combined with.
pub(super) fn check(
    settings: &Settings,
    planned: &[PlannedScenario],
    targets: &[Box<dyn Target>],
) -> Result<(), RunError> {
    let rated: Vec<bool> = planned
        .iter()
        .flat_map(|scenario| &scenario.points)
        .filter(|planned| planned.point.rate_iops.is_some())
        .map(|planned| planned.point.operation.is_of_objects())
        .collect();
    let is_replaced = |target: &dyn Target| {
        let open_loop = |of_objects: &bool| match *of_objects {
            true => target.open_loop_of_objects(),
            false => target.open_loop(),
        };
        rated.iter().map(open_loop).any(|made_by| made_by == OpenLoop::InPlaceOfFio)
    };
    let replaced = targets.iter().find(|target| is_replaced(target.as_ref()));
    let Some(target) = replaced else { return Ok(()) };
    let spec = target.spec();
    let own = Format::Coquina.generator();
    if !settings.hosts.is_empty() {
        return Err(RunError::Nothing(format!(
            "{spec}: load at a rate is made by `{own}` on this host, since fio does not count latency from when an \
             operation was due; leave --client out, or leave the rate out"
        )));
    }
    if let Some(tried) = settings.tried.iter().find(|tried| tried.key.starts_with("fio:")) {
        return Err(RunError::Nothing(format!(
            "{spec}: load at a rate is made by `{own}`, which takes no option of fio ({}); leave the rate out",
            tried.key
        )));
    }
    Ok(())
}

/// The generator of a target as its facts name it, in a scenario with a rate.
pub(super) fn generator(of_closed_loops: &str, open_loop: OpenLoop) -> String {
    match open_loop {
        OpenLoop::Native => of_closed_loops.to_owned(),
        OpenLoop::InPlaceOfFio => format!("{of_closed_loops}; at a rate {}", Format::Coquina.generator()),
    }
}

/// Operations per second that were served, if they are fewer than what was offered.
pub(crate) fn missed_iops(case: &Case, result: &CaseResult) -> Option<(u64, f64)> {
    let offered = case.point.rate_iops?;
    let achieved = mean_iops(result)?;
    (achieved < offered as f64 * REACHED).then_some((offered, achieved))
}

/// What the rates of a scenario came to.
pub(super) fn of_scenario(cases: &[Case]) -> Vec<Finding> {
    let results = cases.iter().flat_map(|case| case.results.iter().map(move |result| (case, result)));
    results.filter_map(|(case, result)| not_reached(case, result)).collect()
}

fn not_reached(case: &Case, result: &CaseResult) -> Option<Finding> {
    let (offered, achieved) = missed_iops(case, result)?;
    let text = format!(
        "offered {offered}/s, achieved {achieved:.0}/s ({:.0} %): what was due and not done piled up, so that latency grows with \
         the length of the run (what was never started counts with how long it had waited); it tells how long the run was, not \
         how long the target takes",
        achieved / offered as f64 * 100.0
    );
    Some(finding("rate-not-reached", &format!("{}: {}", case.id, result.target), &text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Experiment;
    use crate::report::{Figures, Point, Round};

    fn case(rate_iops: Option<u64>, achieved: f64, generator: &str) -> Case {
        let point = Point { depth: 8, rate_iops, ..crate::run::tests::point(1, 1) };
        let round = Round {
            total: Figures { iops: achieved, ..Figures::default() },
            generator: generator.to_owned(),
            ..Round::default()
        };
        let result =
            CaseResult { target: "disk".to_owned(), rounds: vec![round], skipped: None, settled_s: 0.0 };
        Case { id: crate::definition::identifier(&point), point, results: vec![result] }
    }

    #[test]
    fn a_rate_that_was_not_reached_is_told() {
        let found = of_scenario(&[case(Some(5000), 3120.0, "coquina bench io")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, "rate-not-reached");
        assert!(found[0].text.starts_with("offered 5000/s, achieved 3120/s (62 %)"), "{found:?}");
        assert!(found[0].subject.ends_with("/ 5000 per second: disk"), "{found:?}");
        assert_eq!(of_scenario(&[case(Some(5000), 4870.0, "coquina bench io")]), []);
        assert_eq!(of_scenario(&[case(None, 10.0, "fio")]), []);
    }

    #[test]
    fn a_rate_goes_neither_with_other_hosts_nor_with_options_of_fio() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment::load("hdd-tuning").unwrap();
        let mut settings =
            Settings { rate_iops: Some(100), ..crate::run::tests::settings_of(experiment, folder.path()) };
        let open = |spec: &str| vec![crate::target::Opener::new(folder.path()).open(spec).unwrap()];
        assert!(check(&settings, &settings.plan(), &open("plain-file")).is_ok());
        settings.hosts = vec!["other".to_owned()];
        let refused = |settings: &Settings, spec: &str| match check(settings, &settings.plan(), &open(spec)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        assert!(refused(&settings, "plain-file").contains("leave --client out"));
        assert_eq!(refused(&settings, "rados:pool"), "", "fio makes none of its load");
        let objects = Experiment::load("arm-vs-x86").unwrap();
        let of_objects = Settings { experiment: objects, ..settings.clone() };
        assert_eq!(refused(&of_objects, "ceph-local"), "", "fio makes no whole objects of Ceph");
        assert!(refused(&of_objects, "plain-file").contains("leave --client out"));
        assert!(refused(&settings, "ceph-local").contains("leave --client out"));
        settings.hosts.clear();
        settings.tried = vec![crate::run::Assignment::parse("fio:iodepth=1").unwrap()];
        assert!(refused(&settings, "plain-file").contains("fio:iodepth"));
        assert_eq!(refused(&Settings { rate_iops: None, ..settings.clone() }, "plain-file"), "");
    }
}
