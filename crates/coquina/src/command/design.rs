//! `coquina bench design`: the experiments that decided the design.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use coquina_bench::design::{
    CleanerConfig, CleanerPolicy, CopiesConfig, DurableAppendConfig, EXPERIMENTS, MessagePassingConfig,
    cleaner_model, cleaner_table, copies, durable_append, message_passing,
};
use coquina_experiments::leftovers::quoted;
use tempfile::TempDir;

use crate::arguments::{BenchDesign, Global};
use crate::error::CliError;
use crate::output::{print, print_json, tell};
use crate::progress::Progress;
use crate::signal;

/// Live shares that the cleaner's model is run at.
const LIVE_FRACTIONS: [f64; 3] = [0.7, 0.8, 0.9];
/// Segments that the cleaner's model is run with.
const SEGMENTS: [u32; 2] = [256, 1024];
/// What names of folders for files of experiments begin with.
const FOLDER_PREFIX: &str = "coquina-design-";
/// The Ctrl-C that ends the process at once.
const STOPS: u32 = 2;

pub fn run(global: &Global, arguments: &BenchDesign) -> Result<(), CliError> {
    match arguments.name.as_deref() {
        None => list(global),
        Some("durable-append") => durable(global, &arguments.folder),
        Some("cleaner-model") => cleaner(global),
        Some("message-passing") => messages(global),
        Some("copies") => of_copies(global, &arguments.folder),
        Some(other) => {
            let names: Vec<_> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
            Err(CliError::usage(format!("no experiment {other:?}; there are {}", names.join(", "))))
        }
    }
}

fn list(global: &Global) -> Result<(), CliError> {
    if global.json {
        let names: Vec<_> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
        return print_json(&names);
    }
    let lines = EXPERIMENTS.iter().map(|(name, question)| format!("{name:<18}{question}\n"));
    print(&lines.collect::<String>())
}

fn cells(progress: &Progress, done: usize, total: usize) {
    progress.set("design", done as f64 / total.max(1) as f64, format!("{done} of {total}"));
}

/// A folder of its own for the files of an experiment, which goes with it: files of others are left alone, whatever they are called.
fn own_folder(folder: &Path) -> Result<TempDir, CliError> {
    TempDir::with_prefix_in(FOLDER_PREFIX, folder)
        .map_err(|error| CliError::io("make a folder in", folder, &error))
}

/// Set by the first Ctrl-C. At the next one the folder stays, which is told.
fn stop_flag(folder: &Path) -> Result<Arc<AtomicBool>, CliError> {
    let left = left_text(folder);
    signal::stop_flag_with(STOPS, move |number| {
        if number >= STOPS {
            tell(format_args!("\n{left}"));
        }
    })
}

fn left_text(folder: &Path) -> String {
    format!(
        "ended at once, without cleaning up. Left behind: the folder {}, with the experiment's files: rm -r {}",
        folder.display(),
        quoted(folder)
    )
}

fn durable(global: &Global, folder: &Path) -> Result<(), CliError> {
    let folder = own_folder(folder)?;
    let stop = stop_flag(folder.path())?;
    let progress = Progress::new("design");
    let config = DurableAppendConfig::new(folder.path().to_owned());
    let report = durable_append(&config, &stop, &mut |done, total| cells(&progress, done, total));
    drop(progress);
    let report = report?;
    if global.json { print_json(&report) } else { print(&(report.to_table() + "\n")) }
}

fn messages(global: &Global) -> Result<(), CliError> {
    let stop = signal::stop_flag(STOPS, || {})?;
    let progress = Progress::new("design");
    let config = MessagePassingConfig::new();
    let report = message_passing(&config, &stop, &mut |done, total| cells(&progress, done, total));
    drop(progress);
    let report = report?;
    if global.json { print_json(&report) } else { print(&(report.to_table() + "\n")) }
}

fn of_copies(global: &Global, folder: &Path) -> Result<(), CliError> {
    let folder = own_folder(folder)?;
    let stop = stop_flag(folder.path())?;
    let progress = Progress::new("design");
    let config = CopiesConfig::new(folder.path().to_owned());
    let report = copies(&config, &stop, &mut |done, total| cells(&progress, done, total));
    drop(progress);
    let report = report?;
    if global.json { print_json(&report) } else { print(&(report.to_table() + "\n")) }
}

fn cleaner(global: &Global) -> Result<(), CliError> {
    let progress = Progress::new("design");
    let mut configs = Vec::new();
    for policy in [CleanerPolicy::Greedy, CleanerPolicy::CostBenefit] {
        for live_fraction in LIVE_FRACTIONS {
            for segments in SEGMENTS {
                configs.push(CleanerConfig { policy, live_fraction, segments, ..CleanerConfig::new() });
            }
        }
    }
    let mut reports = Vec::new();
    for (done, config) in configs.iter().enumerate() {
        cells(&progress, done, configs.len());
        reports.push(cleaner_model(config)?);
    }
    drop(progress);
    if global.json { print_json(&reports) } else { print(&(cleaner_table(&reports) + "\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_left_alone() {
        let outer = tempfile::tempdir().unwrap();
        // As those of another run of `copies`.
        std::fs::write(outer.path().join("coquina-experiment-copy1"), "theirs").unwrap();
        let folder = own_folder(outer.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let text = left_text(folder.path());
        assert!(text.ends_with(&format!("rm -r {}", folder.path().display())), "{text}");
        drop(folder);
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1);
        let error = own_folder(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent"), "{error}");
    }
}
