//! What a script has to notice in a report that was written all the same.

use crate::report::Report;

/// Failures that are told one by one.
const TOLD_MAX: usize = 3;

/// What went wrong: operations and generators that failed, and targets in `asked` without a single figure. Those that an experiment
/// brings along and that cannot do the chosen cases, as plain files do not age, are no problem.
pub fn problems(report: &Report, asked: &[String]) -> Vec<String> {
    let mut problems: Vec<String> = Vec::new();
    for (column, facts) in report.targets.iter().enumerate() {
        let mut results = report.cases.iter().filter_map(|case| case.results.get(column));
        let has_figures = results.clone().any(|result| !result.rounds.is_empty());
        if has_figures || report.cases.is_empty() || !asked.contains(&facts.spec) {
            continue;
        }
        let reason = results.find_map(|result| result.skipped.clone()).unwrap_or_default();
        problems.push(format!("{} has no figures: {reason}", facts.label));
    }
    let failed: Vec<_> = report.findings.iter().filter(|finding| finding.kind == "failed").collect();
    problems
        .extend(failed.iter().take(TOLD_MAX).map(|finding| format!("{}: {}", finding.subject, finding.text)));
    if failed.len() > TOLD_MAX {
        problems.push(format!("{} more failures are in the report", failed.len() - TOLD_MAX));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Finding;
    use crate::view::made_up::made_up;

    #[test]
    fn a_column_without_figures_and_failures_are_problems() {
        let mut report = made_up("host-drives", &["fine", "broken"]);
        report.findings.clear();
        let asked: Vec<String> = report.targets.iter().map(|facts| facts.spec.clone()).collect();
        assert_eq!(problems(&report, &asked), Vec::<String>::new());
        for case in &mut report.cases {
            case.results[1].rounds.clear();
            case.results[1].skipped = Some("it does not age".to_owned());
        }
        assert_eq!(problems(&report, &asked), ["broken has no figures: it does not age"]);
        let others = [asked[0].clone()];
        assert_eq!(problems(&report, &others), Vec::<String>::new(), "nobody asked for it");
        for number in 1..=5 {
            let (subject, text) = (format!("case {number}"), "fine: 7 operation(s) failed".to_owned());
            report.findings.push(Finding { kind: "failed".to_owned(), subject, text });
        }
        let told = problems(&report, &others);
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(
            (told[0].as_str(), told[3].as_str()),
            ("case 1: fine: 7 operation(s) failed", "2 more failures are in the report")
        );
    }
}
