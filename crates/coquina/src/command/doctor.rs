//! `coquina doctor`

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use coquina_host::doctor::{self, Finding, HostRoot, Level, Question};
use serde::Serialize;

use super::drive_argument::absolute;
use crate::arguments::{Doctor, Global};
use crate::error::CliError;
use crate::output::{self, json_text, print_while_read};
use crate::signal;

/// The signal that ends the process at once, even within a change.
const FORCE_AT: u32 = 2;

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    /// The worst level of all findings.
    worst: Level,
    /// How many findings there are of each level.
    counts: BTreeMap<&'static str, usize>,
    findings: Vec<Finding>,
    /// Commands that put back what was changed, in the order to run them.
    undo: Vec<String>,
}

pub fn run(global: &Global, command: &Doctor) -> Result<(), CliError> {
    if global.server.is_some() {
        return Err(CliError::usage(
            "doctor looks at this host only; run it on the other one, without --server",
        ));
    }
    let question = question(command)?;
    if command.apply && !rustix::process::geteuid().is_root() {
        return Err(CliError::failed(
            "--apply needs root: run it with sudo, or without --apply to see the commands; nothing was changed",
        ));
    }
    let root = HostRoot::here();
    for drive in &question.drives {
        doctor::check_drive(&root, drive).map_err(|error| CliError::usage(error.to_string()))?;
    }
    let mut findings = doctor::examine(&root, &question);
    let mut left = 0;
    if command.apply {
        // The first Ctrl-C lets the change that is under way be made, and no other.
        let stop = signal::stop_flag(FORCE_AT, || {})?;
        let is_changed =
            |finding: &&mut Finding| finding.level >= Level::Advice && is_covered(&question, finding);
        let covered = findings.iter_mut().filter(is_changed).collect();
        let apply = |finding: &mut Finding| {
            doctor::apply(&root, finding);
        };
        left = change(covered, &|| stop.load(Ordering::Relaxed), apply, &mut |text| output::tell(text));
    }
    let report = Report::of(findings);
    let shown = if global.json { json_text(&report) } else { Ok(text(&report, &question, command.apply)) };
    let is_read = shown.and_then(|text| print_while_read(&text));
    show_undo_again(is_read, &report.undo, &mut |text| output::tell(text))?;
    if left > 0 {
        return Err(CliError::failed(format!("stopped; {left} change(s) were not made")));
    }
    verdict(&report)
}

/// Makes changes one after another, each after its undo was told: whatever ends this process, it is known then. Returns how many were
/// not made, since somebody asked for a stop.
fn change(
    covered: Vec<&mut Finding>,
    is_stopped: &dyn Fn() -> bool,
    mut apply: impl FnMut(&mut Finding),
    tell: &mut dyn FnMut(&str),
) -> usize {
    let count = covered.len();
    for (made, finding) in covered.into_iter().enumerate() {
        if is_stopped() {
            return count - made;
        }
        if let Some(undo) = &finding.undo {
            tell(&format!("changing {} {}; to undo it, as root: {undo}", finding.subject, finding.code));
        }
        apply(finding);
    }
    0
}

/// Where the report could not be shown, at least the undo is told.
fn show_undo_again(
    is_read: Result<bool, CliError>,
    undo: &[String],
    tell: &mut dyn FnMut(&str),
) -> Result<(), CliError> {
    if !matches!(is_read, Ok(true)) && !undo.is_empty() {
        tell("To undo what was changed, as root:");
        undo.iter().for_each(|command| tell(command));
    }
    is_read.map(drop)
}

fn question(command: &Doctor) -> Result<Question, CliError> {
    let drives = command.drive.iter().map(|path| there(path)).collect::<Result<Vec<_>, _>>()?;
    let folder = command.folder.as_deref().map(there).transpose()?;
    match folder.as_deref().filter(|folder| !folder.is_dir()) {
        Some(file) => Err(CliError::usage(format!("--folder {}: this is no folder", file.display()))),
        None => Ok(Question { drives, folder }),
    }
}

fn there(path: &Path) -> Result<PathBuf, CliError> {
    let path = absolute(path)?;
    match std::fs::metadata(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(CliError::usage(format!(
            "cannot look at {}: {error}; name a block device, or a file or folder on the drive",
            path.display()
        ))),
    }
}

/// An error where something has to be done before Coquina can run, or where a change failed.
fn verdict(report: &Report) -> Result<(), CliError> {
    let problems = report.findings.iter().filter(|finding| finding.level == Level::Problem);
    let codes: Vec<&str> = problems.map(|finding| finding.code.as_str()).collect();
    if !codes.is_empty() {
        let codes = codes.join(", ");
        return Err(CliError::failed(format!("Coquina cannot run like this; change first: {codes}")));
    }
    let errors = report.findings.iter().filter_map(|finding| finding.applied.as_ref()?.error.as_deref());
    let errors: Vec<&str> = errors.collect();
    if errors.is_empty() { Ok(()) } else { Err(CliError::failed(errors.join("; "))) }
}

impl Report {
    fn of(findings: Vec<Finding>) -> Self {
        let mut counts = BTreeMap::new();
        for finding in &findings {
            *counts.entry(finding.level.key()).or_insert(0) += 1;
        }
        let changed = findings.iter().filter(|finding| is_changed(finding));
        Report {
            worst: findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok),
            counts,
            undo: changed.filter_map(|finding| finding.undo.clone()).collect(),
            findings,
        }
    }
}

/// Whether `--apply` may change what a finding is about.
fn is_covered(question: &Question, finding: &Finding) -> bool {
    finding.change.as_ref().is_some_and(|change| question.covers(change))
}

fn is_changed(finding: &Finding) -> bool {
    finding.applied.as_ref().is_some_and(|applied| applied.before != applied.after)
}

fn text(report: &Report, question: &Question, apply: bool) -> String {
    let mut findings: Vec<&Finding> = report.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let mut table = output::table(&["LEVEL", "SUBJECT", "CHECK", "IS", "SHOULD BE"], 5);
    for finding in &findings {
        let Finding { level, subject, code, is, should_be, .. } = finding;
        table.add_row([level.as_str(), subject, code, is, should_be]);
    }
    let mut text = table.trim_fmt() + "\n";
    let to_change: Vec<&&Finding> =
        findings.iter().filter(|finding| finding.level >= Level::Advice).collect();
    if to_change.is_empty() {
        let _ = writeln!(text, "\nNothing to change.");
    }
    for finding in &to_change {
        let _ = writeln!(
            text,
            "\n{} {}: {}, better {}",
            finding.subject, finding.code, finding.is, finding.should_be
        );
        wrapped(&mut text, "why", &finding.why);
        let _ = writeln!(text, "  how   {}", finding.how);
        if let Some(undo) = &finding.undo {
            let _ = writeln!(text, "  undo  {undo}");
        }
        match finding.applied.as_ref().map(|applied| (applied, &applied.error)) {
            Some((_, Some(error))) => wrapped(&mut text, "FAILED", error),
            Some((applied, None)) => {
                let _ = writeln!(text, "  done  it was {} and is {}", applied.before, applied.after);
            }
            // What may be changed is left only where somebody asked for a stop.
            None if apply && is_covered(question, finding) => {
                let _ = writeln!(text, "  not done: stopped");
            }
            None if apply && finding.change.is_some() => {
                let _ = writeln!(
                    text,
                    "  not done: with --drive only settings of these drives are changed; without it, this one is, too"
                );
            }
            None if apply => {
                let _ = writeln!(text, "  not done: this is for you to decide");
            }
            None => {}
        }
    }
    let is_fact = |finding: &&&Finding| matches!(finding.level, Level::Info | Level::Unknown);
    let facts = findings.iter().filter(is_fact).filter(|finding| !finding.why.is_empty());
    for (index, finding) in facts.enumerate() {
        if index == 0 {
            let _ = writeln!(text, "\nGood to know");
        }
        wrapped(&mut text, "", &format!("{} {}: {}", finding.subject, finding.code, finding.why));
    }
    let can_apply = to_change.iter().filter(|finding| is_covered(question, finding)).count();
    if apply && report.undo.is_empty() {
        let _ = writeln!(text, "\nNothing was changed.");
    } else if apply {
        let _ = writeln!(text, "\nTo undo what was changed, as root:");
        for command in &report.undo {
            let _ = writeln!(text, "{command}");
        }
    } else if can_apply > 0 {
        let named: String =
            question.drives.iter().map(|drive| format!(" --drive {}", drive.display())).collect();
        let _ =
            writeln!(text, "\nCommands need root. `coquina doctor{named} --apply` runs {can_apply} of them.");
    }
    text
}

/// Adds a text in lines of a length that can be read, with a word before the first.
fn wrapped(text: &mut String, name: &str, sentence: &str) {
    const COLUMNS: usize = 100;
    let (first, rest) = if name.is_empty() {
        ("  ".to_owned(), "    ".to_owned())
    } else {
        (format!("  {name:<5} "), " ".repeat(8))
    };
    let mut line = first;
    let mut is_empty = true;
    for word in sentence.split(' ') {
        if !is_empty && line.len() + word.len() + 1 > COLUMNS {
            let _ = writeln!(text, "{}", line.trim_end());
            line.clone_from(&rest);
        }
        line.push_str(word);
        line.push(' ');
        is_empty = false;
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use coquina_host::doctor::{Applied, Change};

    use super::*;

    fn finding(level: Level, code: &str) -> Finding {
        Finding {
            code: code.to_owned(),
            level,
            subject: "drive sda".to_owned(),
            is: "none".to_owned(),
            should_be: "mq-deadline".to_owned(),
            why: "Because of seeks.".to_owned(),
            how: "echo mq-deadline".to_owned(),
            undo: Some("echo none".to_owned()),
            change: Some(Change { key: "scheduler:sda".to_owned(), value: "mq-deadline".to_owned() }),
            applied: None,
        }
    }

    #[test]
    fn what_is_worst_comes_first_with_why_how_and_undo() {
        let report = Report::of(vec![finding(Level::Ok, "GOOD"), finding(Level::Warning, "IO_SCHEDULER")]);
        assert_eq!(report.worst, Level::Warning);
        assert_eq!(report.counts, BTreeMap::from([("ok", 1), ("warning", 1)]));
        let shown = text(&report, &Question::default(), false);
        assert!(shown.find("IO_SCHEDULER").unwrap() < shown.find("GOOD").unwrap(), "{shown}");
        for part in ["  why   Because", "  how   echo mq", "  undo  echo none", "--apply` runs 1 of them"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(verdict(&report).is_ok());
        assert!(
            text(&Report::of(vec![finding(Level::Ok, "GOOD")]), &Question::default(), false)
                .contains("Nothing to change.")
        );
    }

    #[test]
    fn what_was_changed_is_shown_with_its_undo_and_what_failed_ends_with_an_error() {
        let applied = |after: &str, error: Option<&str>| {
            let applied =
                Applied { before: "none".into(), after: after.into(), error: error.map(str::to_owned) };
            Report::of(vec![Finding { applied: Some(applied), ..finding(Level::Warning, "IO_SCHEDULER") }])
        };
        let done = applied("mq-deadline", None);
        assert_eq!(done.undo, ["echo none"]);
        let shown = text(&done, &Question::default(), true);
        assert!(shown.contains("it was none and is mq-deadline"), "{shown}");
        assert!(shown.ends_with("To undo what was changed, as root:\necho none\n"), "{shown}");
        assert!(verdict(&done).is_ok());
        let failed = applied("none", Some("/sys is read-only"));
        assert!(failed.undo.is_empty());
        assert!(text(&failed, &Question::default(), true).contains("Nothing was changed."));
        assert!(verdict(&failed).unwrap_err().to_string().contains("/sys is read-only"));
    }

    /// All was changed first and all was told after, which a stop or a full disk under the output kept anybody from seeing.
    #[test]
    fn each_undo_is_told_before_its_change_and_again_where_the_report_is_not_shown() {
        let mut findings = ["FIRST", "SECOND", "THIRD"]
            .map(|code| Finding { undo: Some(format!("undo {code}")), ..finding(Level::Warning, code) });
        let log = std::cell::RefCell::new(Vec::new());
        let apply = |finding: &mut Finding| {
            log.borrow_mut().push(finding.code.clone());
            let applied = Applied { before: "a".to_owned(), after: "b".to_owned(), error: None };
            finding.applied = Some(applied);
        };
        let mut tell = |text: &str| {
            let undo = text.rsplit(": ").next().unwrap_or_default();
            log.borrow_mut().push(undo.to_owned());
        };
        let is_stopped = || log.borrow().iter().any(|line| line == "SECOND");
        assert_eq!(change(findings.iter_mut().collect(), &is_stopped, apply, &mut tell), 1);
        assert_eq!(*log.borrow(), ["undo FIRST", "FIRST", "undo SECOND", "SECOND"]);

        let report = Report::of(findings.to_vec());
        for (is_read, fails, told) in [
            (Err(CliError::failed("no space left")), true, true),
            (Ok(false), false, true),
            (Ok(true), false, false),
        ] {
            let mut lines = Vec::new();
            let shown = show_undo_again(is_read, &report.undo, &mut |text| lines.push(text.to_owned()));
            assert_eq!(shown.is_err(), fails);
            let expected: &[&str] = if told { &["undo FIRST", "undo SECOND"] } else { &[] };
            assert!(lines.iter().skip(1).eq(expected), "{lines:?}");
        }
    }

    #[test]
    fn where_a_drive_is_named_the_rest_of_the_host_is_left_alone_and_that_is_told() {
        let change = Some(Change { key: "swappiness".to_owned(), value: "1".to_owned() });
        let report = Report::of(vec![
            finding(Level::Warning, "IO_SCHEDULER"),
            Finding { change, ..finding(Level::Advice, "SWAPPINESS") },
        ]);
        let named = Question { drives: vec!["/dev/sda".into()], folder: None };
        let covered: Vec<&str> = report
            .findings
            .iter()
            .filter(|finding| is_covered(&named, finding))
            .map(|finding| finding.code.as_str())
            .collect();
        assert_eq!(covered, ["IO_SCHEDULER"]);
        let shown = text(&report, &named, false);
        assert!(shown.contains("`coquina doctor --drive /dev/sda --apply` runs 1 of them"), "{shown}");
        let shown = text(&report, &named, true);
        assert!(shown.contains("not done: with --drive only settings of these drives"), "{shown}");
    }

    #[test]
    fn what_a_stop_left_undone_is_told_as_such() {
        let mut findings = [finding(Level::Warning, "FIRST"), finding(Level::Warning, "SECOND")];
        let apply = |finding: &mut Finding| {
            let applied = Applied { before: "a".to_owned(), after: "b".to_owned(), error: None };
            finding.applied = Some(applied);
        };
        let asked = std::cell::Cell::new(0);
        let is_stopped = || asked.replace(asked.get() + 1) > 0;
        assert_eq!(change(findings.iter_mut().collect(), &is_stopped, apply, &mut |_| {}), 1);
        let decide = Finding { change: None, ..finding(Level::Advice, "DECIDE") };
        let report = Report::of(findings.into_iter().chain([decide]).collect());
        for drives in [vec![], vec!["/dev/sda".into()]] {
            let shown = text(&report, &Question { drives, folder: None }, true);
            assert_eq!(shown.matches("  not done: stopped\n").count(), 1, "{shown}");
            assert!(
                shown.contains("this is for you to decide") && !shown.contains("with --drive"),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_problem_is_an_error_and_what_is_not_known_is_none() {
        let problem = Report::of(vec![finding(Level::Problem, "IO_URING")]);
        let error = verdict(&problem).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("IO_URING"));
        assert!(verdict(&Report::of(vec![finding(Level::Unknown, "MTU")])).is_ok());
    }

    #[test]
    fn long_texts_are_wrapped() {
        let mut text = String::new();
        wrapped(&mut text, "why", &"word ".repeat(50));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 100), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("        word"));
    }
}
