//! `coquina bench run`, `tune`, `show` and `compare`.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::CommandFactory;
use coquina_base::{Nearest, format_size_bytes};
use coquina_experiments::definition::{DefinitionError, Experiment, ModeName, ROUNDS_MIN};
use coquina_experiments::html;
use coquina_experiments::leftovers;
use coquina_experiments::report::{REPORT_VERSION, Report};
use coquina_experiments::run::{self, Assignment, AssignmentError, Hooks, Plan, RunError, Settings};
use coquina_experiments::target::{LocalCoquina, Opener};
use coquina_host::doctor;

use crate::arguments::{Arguments, BenchCompare, BenchRun, BenchShow, BenchTune, Global, Measured};
use crate::error::CliError;
use crate::output::{self, format_duration, format_unix_ns, print, print_json};
use crate::progress::Progress;
use crate::signal;

use super::store_size;

/// Rounds from which differences of 10 % can be told on a machine with some noise.
const ROUNDS_TUNE: u32 = 8;
/// The Ctrl-C that ends the process at once.
const STOPS: u32 = 3;
/// Names of files in a report's folder.
const REPORT_FILE: &str = "report.json";
const PAGE_FILE: &str = "report.html";
const LEFT: &str = "not all that was made could be removed, or set back: see above";

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        match &error {
            RunError::Definition(_) | RunError::Nothing(_) => CliError::usage(error.to_string()),
            RunError::Target(target) if target.is_wrong_usage() => CliError::usage(error.to_string()),
            _ => CliError::failed(error.to_string()),
        }
    }
}

impl From<DefinitionError> for CliError {
    fn from(error: DefinitionError) -> Self {
        CliError::usage(error.to_string())
    }
}

/// `coquina bench run`.
pub fn run(global: &Global, arguments: &BenchRun) -> Result<(), CliError> {
    let experiment = Experiment::load(&arguments.experiment)?;
    let mut targets =
        if arguments.targets.is_empty() { experiment.targets.clone() } else { arguments.targets.clone() };
    targets.extend(arguments.peers.iter().cloned());
    if targets.is_empty() {
        return Err(CliError::usage("the experiment names no targets; name one with --target"));
    }
    let mut settings = settings(global, &arguments.what, experiment, targets)?;
    settings.allow_unequal = arguments.allow_unequal;
    check(&settings)?;
    if arguments.plan {
        return plan(global, &settings);
    }
    let folder = OutFolder::make(&arguments.what, &settings.experiment.name)?;
    let report = with_progress(|hooks| run::run(&settings, hooks), &folder)?;
    finish(global, &report, &folder, &[&arguments.targets[..], &arguments.peers[..]].concat())
}

/// `coquina bench tune`.
pub fn tune(global: &Global, arguments: &BenchTune) -> Result<(), CliError> {
    if let Some(rounds) = arguments.what.rounds.filter(|rounds| *rounds < ROUNDS_MIN) {
        return Err(CliError::usage(format!(
            "--rounds {rounds} cannot show a difference between settings, whatever it is: give {ROUNDS_MIN} at least; {ROUNDS_TUNE} \
             show one of 10 % on a machine with some noise"
        )));
    }
    let experiment = Experiment::load(&arguments.experiment)?;
    let mut settings = settings(global, &arguments.what, experiment, vec![arguments.target.clone()])?;
    let tried: Result<Vec<Assignment>, AssignmentError> =
        arguments.settings.iter().map(|text| Assignment::parse(text)).collect();
    settings.tried = tried.map_err(|error| CliError::usage(error.to_string()))?;
    check(&settings)?;
    if arguments.what.rounds.is_none() {
        settings.limits.rounds = settings.limits.rounds.max(ROUNDS_TUNE);
    }
    if arguments.plan {
        return plan(global, &settings);
    }
    let folder = OutFolder::make(&arguments.what, &format!("tune-{}", settings.experiment.name))?;
    let report = with_progress(|hooks| run::run(&settings, hooks), &folder)?;
    finish(global, &report, &folder, std::slice::from_ref(&arguments.target))
}

/// Refuses what could not be run, before a plan of it is shown or a folder for the report is made.
fn check(settings: &Settings) -> Result<(), CliError> {
    if settings.plan().is_empty() {
        return Err(CliError::usage(settings.no_case_text()));
    }
    for (index, target) in settings.targets.iter().enumerate() {
        if settings.targets[..index].contains(target) {
            return Err(CliError::usage(format!("the target {target} is named twice; once is enough")));
        }
    }
    let mut opener = Opener::new(&settings.folder);
    let opened: Result<Vec<_>, _> = settings.targets.iter().map(|spec| opener.open(spec)).collect();
    opened.map_err(RunError::from)?;
    settings.tried.iter().try_for_each(|assignment| check_setting(&settings.targets, assignment))
}

/// Refuses a setting of the operating system that this host does not have, or not with this value, and of Coquina that `coquina up` does
/// not know.
fn check_setting(targets: &[String], assignment: &Assignment) -> Result<(), CliError> {
    let wrong = |error: &dyn std::fmt::Display| CliError::usage(format!("--set {assignment}: {error}"));
    match assignment.key.split_once(':') {
        Some(("os", _)) => {
            let setting = doctor::os_setting(assignment.bare_key());
            setting.and_then(|setting| setting.check(&assignment.value)).map_err(|error| {
                match error.is_wrong_usage() {
                    true => wrong(&error),
                    false => CliError::failed(format!("--set {assignment}: {error}")),
                }
            })
        }
        Some(("coquina", name)) if targets.iter().any(|target| target.starts_with("coquina-local")) => {
            LocalCoquina::check_option(&targets.join(", "), name).map_err(RunError::from)?;
            let arguments = Arguments::command();
            let up = arguments.find_subcommand("up");
            let known: Vec<&str> = up
                .into_iter()
                .flat_map(|up| up.get_arguments())
                .filter_map(|known| known.get_long())
                .collect();
            if !known.contains(&name) {
                let nearest = Nearest::of(name, known);
                return Err(wrong(&format!(
                    "`coquina up` has no option --{name}{nearest}; see `coquina up --help`"
                )));
            }
            let tried = ["coquina", "up", &format!("--{name}={}", assignment.value)];
            let parsed = Arguments::command().try_get_matches_from(tried);
            parsed.map(drop).map_err(|error| wrong(&said_by_clap(&error.to_string())))
        }
        _ => Ok(()),
    }
}

/// Of what the parser says of one option only that: neither how the command is used, nor where help is.
fn said_by_clap(text: &str) -> String {
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more information").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// `coquina bench show`.
pub fn show(global: &Global, arguments: &BenchShow) -> Result<(), CliError> {
    let report = read_report(&arguments.report)?;
    let write = |path: &Option<PathBuf>, text: String| match path {
        Some(path) => std::fs::write(path, text).map_err(|error| CliError::io("write", path, &error)),
        None => Ok(()),
    };
    write(&arguments.html, html::render(&report))?;
    write(&arguments.svg, html::headline_svg(&report))?;
    if global.json { print_json(&report) } else { print(&text_of(&report)) }
}

/// `coquina bench compare`.
pub fn compare(global: &Global, arguments: &BenchCompare) -> Result<(), CliError> {
    let (a, b) = (read_report(&arguments.a)?, read_report(&arguments.b)?);
    let found =
        coquina_experiments::compare::compare(&a, &b).map_err(|error| CliError::failed(error.to_string()))?;
    if global.json { print_json(&found) } else { print(&found.to_text(output::width())) }
}

fn settings(
    global: &Global,
    what: &Measured,
    experiment: Experiment,
    targets: Vec<String>,
) -> Result<Settings, CliError> {
    let mode = match (what.quick, what.full) {
        (true, _) => ModeName::Quick,
        (_, true) => ModeName::Full,
        _ => ModeName::Default,
    };
    let mut limits = experiment.modes.get(mode).clone();
    limits.rounds = what.rounds.unwrap_or(limits.rounds);
    limits.runtime_s = what.runtime.unwrap_or(limits.runtime_s);
    limits.warmup_s = what.warmup.unwrap_or(limits.warmup_s);
    limits.warmup_crowd_s = what.warmup.unwrap_or(limits.warmup_crowd_s);
    limits.settle_s = what.settle.unwrap_or(limits.settle_s);
    if limits.runtime_s < 0.5 {
        return Err(CliError::usage("--runtime must be at least 0.5 seconds"));
    }
    let program = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("cannot find this program's own file: {error}")))?;
    let server = match &global.server {
        Some(address) => vec!["--server".to_owned(), address.clone()],
        None => vec!["--dir".to_owned(), text_of_path("--dir", &absolute(&global.dir)?)?],
    };
    let folder = absolute(&what.folder)?;
    text_of_path("--folder", &folder)?;
    if !folder.is_dir() {
        return Err(CliError::failed(format!("the folder {} does not exist; make it", folder.display())));
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut settings = Settings {
        experiment,
        mode,
        limits,
        targets,
        only: what.only.clone(),
        hosts: what.hosts.clone(),
        folder,
        program,
        server,
        store_bytes: 0,
        volume_bytes: what.volume_size,
        rate_iops: what.rate,
        destroy: what.destroy.clone(),
        allow_unequal: false,
        fill_stores: what.fill_stores,
        seed: what.seed.unwrap_or(clock.as_secs()),
        command: command_line(),
        tried: Vec::new(),
    };
    settings.store_bytes = what.store_size.unwrap_or_else(|| store_size::default_bytes(&settings));
    Ok(settings)
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|error| CliError::io("find", path, &error))
}

/// A path as what is run is told it: jobs of fio and URIs are texts, and another path could be used in its place.
fn text_of_path(option: &str, path: &Path) -> Result<String, CliError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        let path = path.display();
        CliError::usage(format!("{option} {path}: its name is not text in UTF-8; name it by a link"))
    })
}

/// The command as it was typed, with the program's name without its folder.
fn command_line() -> String {
    // Those that are no text would end the process.
    let words = std::env::args_os().skip(1).map(leftovers::quoted);
    std::iter::once("coquina".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Where a report goes.
struct OutFolder {
    path: PathBuf,
    /// It was not there before.
    is_new: bool,
    /// Keeps other runs out as long as this process lives.
    _lock: Option<File>,
}

impl OutFolder {
    fn make(what: &Measured, name: &str) -> Result<Self, CliError> {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = what.out.clone().unwrap_or_else(|| {
            // 2026-11-21 20:34:00 UTC
            let digits = format_unix_ns(u64::try_from(clock.as_nanos()).unwrap_or(0));
            let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
            let (day, time) = digits.split_at(digits.len().min(8));
            PathBuf::from(format!("coquina-bench-{name}-{day}-{time}"))
        });
        Self::claim(path, what.out.is_none())
    }

    /// Makes the folder and keeps other runs out of it. Where its name was chosen here, and another run of the same second has it, the next
    /// one is called `NAME-2`.
    fn claim(path: PathBuf, may_rename: bool) -> Result<Self, CliError> {
        let mut found = path.clone();
        for number in 2..100 {
            let is_new = !found.exists();
            std::fs::create_dir_all(&found).map_err(|error| CliError::io("make", &found, &error))?;
            let folder = File::open(&found).map_err(|error| CliError::io("open", &found, &error))?;
            let is_free = match folder.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                // Some file systems have no locks.
                Err(TryLockError::Error(_)) => true,
            };
            let has_report = found.join(REPORT_FILE).exists() || found.join(PAGE_FILE).exists();
            if is_free && !has_report {
                let out = OutFolder { path: found, is_new, _lock: Some(folder) };
                // Now, and not when hours of figures are to be written.
                out.try_to_write().inspect_err(|_| out.remove_if_empty())?;
                return Ok(out);
            }
            if !may_rename {
                let why =
                    if is_free { "holds a report already" } else { "is where another run writes its report" };
                return Err(CliError::failed(format!(
                    "{} {why}; name another folder with --out",
                    found.display()
                )));
            }
            found = PathBuf::from(format!("{}-{number}", path.display()));
        }
        Err(CliError::failed(format!("{} and 98 more are taken; name a folder with --out", path.display())))
    }

    /// Where the report is written before it is in its place.
    fn beside(&self) -> PathBuf {
        self.path.join(".report.json")
    }

    /// Whether the folder takes a file.
    fn try_to_write(&self) -> Result<(), CliError> {
        let beside = self.beside();
        let written = File::create(&beside).and_then(|_| std::fs::remove_file(&beside));
        written.map_err(|error| CliError::io("write", &beside, &error))
    }

    /// Writes the report beside its place first, so that an interrupted write leaves the one before.
    fn write(&self, report: &Report) -> Result<(), CliError> {
        let (file, beside) = (self.path.join(REPORT_FILE), self.beside());
        let text = serde_json::to_string(report)
            .map_err(|error| CliError::failed(format!("cannot write JSON: {error}")))?;
        std::fs::write(&beside, text).map_err(|error| CliError::io("write", &beside, &error))?;
        std::fs::rename(&beside, &file).map_err(|error| CliError::io("write", &file, &error))
    }

    /// A new folder in which nothing was written is of no use.
    fn remove_if_empty(&self) {
        if self.is_new {
            // It holds something.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

fn with_progress(
    work: impl FnOnce(&Hooks<'_>) -> Result<Report, RunError>,
    folder: &OutFolder,
) -> Result<Report, CliError> {
    let doing = Arc::new(Mutex::new("the start".to_owned()));
    let (waited_for, out, is_new) = (doing.clone(), folder.path.clone(), folder.is_new);
    let stop = signal::stop_flag_with(STOPS, move |number| {
        let doing = waited_for.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let kept = out.join(REPORT_FILE).exists().then_some(out.as_path());
        output::tell(format_args!("\n{}", stop_message(number, &doing, &leftovers::all(), kept)));
        if number >= STOPS && is_new {
            // Of no use where nothing was written; else it holds something.
            let _ = std::fs::remove_dir(&out);
        }
    })?;
    tell_leftovers_of_panics();
    let progress = Progress::new("bench");
    let failed_write = AtomicBool::new(false);
    let outcome = work(&Hooks {
        stopped: &|| stop.load(Ordering::Relaxed),
        say: &|line| progress.line(line),
        progress: &|share, what| {
            what.clone_into(&mut doing.lock().unwrap_or_else(PoisonError::into_inner));
            progress.set("bench", share, what.to_owned());
        },
        partial: &|report| {
            if let Err(error) = folder.write(report)
                && !failed_write.swap(true, Ordering::Relaxed)
            {
                progress.line(&error.to_string());
            }
        },
    });
    drop(progress);
    outcome.map_err(|error| {
        folder.remove_if_empty();
        if !leftovers::all().is_empty() {
            output::tell(left_message(&leftovers::all()));
        }
        if error.is_stop() { CliError::failed("stopped before anything was measured") } else { error.into() }
    })
}

/// A panic ends the process at once where that was built in.
fn tell_leftovers_of_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        let left = leftovers::all();
        if !left.is_empty() {
            output::tell(format_args!("if this process has ended, this is left behind:{}", listed(&left)));
        }
    }));
}

/// What the user is told at each Ctrl-C: what happens, what it waits for, and at the last what is left to be cleaned up. `kept` is the folder
/// of the report, if something of it has been written.
fn stop_message(number: u32, doing: &str, left: &[String], kept: Option<&Path>) -> String {
    let list = listed(left);
    match number {
        1 => "stopping: what was measured is kept, and what was started is ended; this may take some seconds"
            .to_owned(),
        number if number < STOPS => format!(
            "still cleaning up, waiting for: {doing}\nCtrl-C once more ends this at once, and leaves behind:{}",
            if list.is_empty() { " nothing" } else { &list }
        ),
        _ => {
            let list = if list.is_empty() { " nothing".to_owned() } else { list };
            let report = kept.map_or_else(
                || "Nothing of the report had been written".to_owned(),
                |out| {
                    format!("{} holds what was written of the report, marked as not finished", out.display())
                },
            );
            format!(
                "ended at once, without cleaning up. The load ends with this process. Left behind:{list}\n{report}"
            )
        }
    }
}

/// What could not be removed, and how it is.
fn left_message(left: &[String]) -> String {
    format!("could not be removed or set back, and is left behind:{}", listed(left))
}

fn listed(left: &[String]) -> String {
    left.iter().map(|text| format!("\n  {text}")).collect()
}

/// `asked` are the targets that the user named.
fn finish(global: &Global, report: &Report, folder: &OutFolder, asked: &[String]) -> Result<(), CliError> {
    let left = leftovers::all();
    let left = (!left.is_empty()).then(|| left_message(&left));
    // First: what follows may fail.
    left.iter().for_each(output::tell);
    let print_it = || if global.json { print_json(report) } else { print(&text_of(report)) };
    let delivered = deliver(report, folder, print_it);
    if delivered.is_ok() {
        output::tell(format_args!("report: {}", folder.path.join(PAGE_FILE).display()));
    }
    let mut problems = run::problems(report, asked);
    problems.extend(left.map(|_| LEFT.to_owned()));
    verdict(delivered, report, &problems)
}

/// All that went wrong. Where a report could not be written, nobody else tells of operations that failed.
fn verdict(delivered: Result<(), CliError>, report: &Report, problems: &[String]) -> Result<(), CliError> {
    let listed = problems.join("\n  ");
    match (delivered, &report.interrupted) {
        (Err(error), _) if problems.is_empty() => Err(error),
        (Err(error), _) => Err(CliError::failed(format!("{error}\nBesides, not all is well:\n  {listed}"))),
        (Ok(()), Some(reason)) => {
            let early = format!("the run ended early: {reason}; what was measured is kept");
            let besides = if problems.is_empty() {
                String::new()
            } else {
                format!("\nBesides, not all is well:\n  {listed}")
            };
            Err(CliError::failed(early + &besides))
        }
        (Ok(()), None) if problems.is_empty() => Ok(()),
        (Ok(()), None) => {
            Err(CliError::failed(format!("the report is written, but not all is well:\n  {listed}")))
        }
    }
}

/// Writes the report and its page and prints the tables, each of them also where another cannot be: figures that took hours are not
/// lost with a full disk. The errors come last.
fn deliver(
    report: &Report,
    folder: &OutFolder,
    print: impl FnOnce() -> Result<(), CliError>,
) -> Result<(), CliError> {
    let page = folder.path.join(PAGE_FILE);
    let written = folder.write(report);
    let page_written =
        std::fs::write(&page, html::render(report)).map_err(|error| CliError::io("write", &page, &error));
    let printed = print();
    let failed = [written, page_written, printed].into_iter().filter_map(Result::err);
    let mut failed: Vec<String> = failed.map(|error| error.to_string()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    failed.extend(report.interrupted.iter().map(|reason| format!("the run ended early: {reason}")));
    Err(CliError::failed(failed.join("\n")))
}

fn text_of(report: &Report) -> String {
    coquina_experiments::table::text(report, output::width())
}

/// Reads a report, or the one in a folder.
fn read_report(path: &Path) -> Result<Report, CliError> {
    let file = if path.is_dir() { path.join(REPORT_FILE) } else { path.to_owned() };
    let text = std::fs::read_to_string(&file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CliError::failed(format!(
            "there is no {}; name the folder that a `coquina bench run` said its report is in",
            file.display()
        )),
        _ => CliError::io("read", &file, &error),
    })?;
    #[derive(serde::Deserialize)]
    struct Version {
        report_version: u32,
    }
    let not_one = |error: serde_json::Error| {
        CliError::failed(format!("{} is not a report of `coquina bench run`: {error}", file.display()))
    };
    let version: Version = serde_json::from_str(&text).map_err(not_one)?;
    if version.report_version != REPORT_VERSION {
        return Err(CliError::failed(format!(
            "{} is a report of version {}; this program reads version {REPORT_VERSION}",
            file.display(),
            version.report_version
        )));
    }
    serde_json::from_str(&text).map_err(not_one)
}

fn plan(global: &Global, settings: &Settings) -> Result<(), CliError> {
    let plan = Plan::of(settings).map_err(RunError::from)?;
    if global.json { print_json(&plan) } else { print(&plan_text(&plan)) }
}

fn plan_text(plan: &Plan) -> String {
    let cases: usize = plan.scenarios.iter().map(|scenario| scenario.cases.len()).sum();
    let with = match plan.settings.as_slice() {
        [] => String::new(),
        settings => format!(" with {} in turns", settings.join(", ")),
    };
    let mut text = format!(
        "{} ({}): {} cases on {}{with}, {} rounds of {} s after {} s: {} runs\n",
        plan.experiment,
        plan.mode,
        cases,
        plan.targets.join(", "),
        plan.rounds,
        plan.runtime_s,
        plan.warmup_s,
        plan.runs
    );
    for scenario in &plan.scenarios {
        let copies = scenario.copies.map(|copies| format!(", {copies} copies")).unwrap_or_default();
        text += &format!(
            "\n{}: {} volume(s) of at most {}{copies}\n  {}\n",
            scenario.name,
            scenario.volumes,
            format_size_bytes(scenario.volume_bytes_max),
            scenario.note
        );
        for case in &scenario.cases {
            text += &format!("    {}: {} runs\n", case.id, case.runs);
            case.left_out.iter().for_each(|reason| text += &format!("      not on {reason}\n"));
        }
    }
    text += &format!(
        "\nabout {} of load. Not counted: {}. What a target turns out to refuse, and steps after throughput has stopped growing, are \
         left out, which saves time.\n",
        format_duration((plan.estimated_s * 1e9) as u64),
        plan.not_counted.join("; ")
    );
    if let Some(time_s) = plan.time_s.filter(|_| plan.rounds_min < plan.rounds) {
        text += &format!(
            "If the whole run would take more than {time_s} s, rounds after the {}rd are left out of cases, whose names the report has.\n",
            plan.rounds_min
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_cannot_be_written_is_printed() {
        let report = Report { interrupted: Some("stopped".to_owned()), ..Report::default() };
        let deliver_to = |path: &Path, works: bool| {
            let folder = OutFolder { path: path.to_owned(), is_new: false, _lock: None };
            let mut printed = 0;
            let print = || {
                printed += 1;
                if works { Ok(()) } else { Err(CliError::failed("cannot print")) }
            };
            let error = deliver(&report, &folder, print).err();
            assert_eq!(printed, 1);
            error.map(|error| (error.exit_code(), error.to_string()))
        };
        let folder = tempfile::tempdir().unwrap();
        // A folder in the place of one file must not keep the other from being written.
        std::fs::create_dir(folder.path().join(".report.json")).unwrap();
        let (code, error) = deliver_to(folder.path(), false).unwrap();
        assert!(error.contains("report.json") && error.contains("cannot print"), "{error}");
        assert!(code == 1 && error.ends_with("the run ended early: stopped"), "{error}");
        assert!(folder.path().join(PAGE_FILE).exists());
        std::fs::remove_dir(folder.path().join(".report.json")).unwrap();
        assert_eq!(deliver_to(folder.path(), true), None);
        let (_, error) = deliver_to(&folder.path().join("gone"), true).unwrap();
        assert!(error.contains(REPORT_FILE) && error.contains(PAGE_FILE), "{error}");
    }

    #[test]
    fn failed_operations_are_told_also_where_the_report_cannot_be_written() {
        let mut report = Report::default();
        let problems = ["case 1: 7 operation(s) failed".to_owned(), LEFT.to_owned()];
        let full = || Err(CliError::failed("cannot write report.json: no space left"));
        let told = |delivered, report: &Report, problems: &[String]| {
            verdict(delivered, report, problems).map_err(|error| error.to_string())
        };
        let error = told(full(), &report, &problems).unwrap_err();
        for part in ["no space left\n", "\n  case 1: 7 operation(s) failed\n", LEFT] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("is written"), "{error}");
        assert_eq!(told(full(), &report, &[]).unwrap_err(), "cannot write report.json: no space left");
        let error = told(Ok(()), &report, &problems).unwrap_err();
        assert!(error.starts_with("the report is written, but not all is well:\n  case 1: "), "{error}");
        assert_eq!(told(Ok(()), &report, &[]), Ok(()));
        report.interrupted = Some("stopped by its user".to_owned());
        let error = told(Ok(()), &report, &problems).unwrap_err();
        assert!(error.contains("stopped by its user") && error.contains("\n  case 1: 7 "), "{error}");
        assert!(!told(Ok(()), &report, &[]).unwrap_err().contains("Besides"));
    }

    #[test]
    fn two_runs_of_one_second_have_folders_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let claim =
            |may_rename| OutFolder::claim(path.clone(), may_rename).map_err(|error| error.to_string());
        let first = claim(true).unwrap();
        assert!(first.path == path && first.is_new);
        let second = claim(true).unwrap();
        assert_eq!(second.path, folder.path().join("out-2"));
        let error = claim(false).err().unwrap();
        assert!(error.contains("another run writes its report; name another folder with --out"), "{error}");
        first.write(&Report::default()).unwrap();
        drop((first, second));
        let error = claim(false).err().unwrap();
        assert!(error.contains("holds a report already"), "{error}");
        let again = claim(true).unwrap();
        assert!(again.path == folder.path().join("out-2") && !again.is_new);
    }

    #[test]
    fn a_folder_that_takes_no_report_is_told_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        // Whoever runs this may write to any folder, but not to a folder in the place of a file.
        std::fs::create_dir_all(path.join(".report.json")).unwrap();
        let error = OutFolder::claim(path.clone(), false).err().unwrap().to_string();
        assert!(error.contains("cannot write") && error.contains(".report.json"), "{error}");
        std::fs::remove_dir(path.join(".report.json")).unwrap();
        let claimed = OutFolder::claim(path.clone(), false).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "nothing is left of the try");
        drop(claimed);
    }

    #[test]
    fn each_ctrl_c_says_what_happens() {
        let left = ["the image rbd/x: rbd rm rbd/x".to_owned()];
        let message =
            |number, left: &[String]| stop_message(number, "removing rbd/x", left, Some(Path::new("out")));
        assert!(message(1, &left).contains("what was measured is kept"));
        let second = message(2, &left);
        assert!(
            second.contains("waiting for: removing rbd/x") && second.contains("rbd rm rbd/x"),
            "{second}"
        );
        let third = message(3, &left);
        assert!(third.contains("Left behind:\n  the image") && third.contains("out holds"), "{third}");
        assert!(message(3, &[]).contains("Left behind: nothing"));
        let early = stop_message(3, "the start", &[], None);
        assert!(early.ends_with("Nothing of the report had been written"), "{early}");
        assert_eq!(
            left_message(&left),
            "could not be removed or set back, and is left behind:\n  the image rbd/x: rbd rm rbd/x"
        );
    }
}
