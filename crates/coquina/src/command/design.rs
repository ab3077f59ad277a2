//! `coquina bench design`: the experiments that decided the design.

use std::path::PathBuf;

use coquina_bench::design::{
    CleanerConfig, CleanerPolicy, CopiesConfig, DurableAppendConfig, EXPERIMENTS, MessagePassingConfig,
    cleaner_model, cleaner_table, copies, durable_append, message_passing,
};

use crate::arguments::{BenchDesign, Global};
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::signal;

/// Live shares that the cleaner's model is run at.
const LIVE_FRACTIONS: [f64; 3] = [0.7, 0.8, 0.9];
/// Segments that the cleaner's model is run with.
const SEGMENTS: [u32; 2] = [256, 1024];

pub fn run(global: &Global, arguments: &BenchDesign) -> Result<(), CliError> {
    match arguments.name.as_deref() {
        None => list(global),
        Some("durable-append") => durable(global, arguments.folder.clone()),
        Some("cleaner-model") => cleaner(global),
        Some("message-passing") => messages(global),
        Some("copies") => of_copies(global, arguments.folder.clone()),
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

fn durable(global: &Global, folder: PathBuf) -> Result<(), CliError> {
    let stop = signal::stop_flag(2, || {})?;
    let progress = Progress::new("design");
    let config = DurableAppendConfig::new(folder);
    let report = durable_append(&config, &stop, &mut |done, total| cells(&progress, done, total));
    drop(progress);
    let report = report?;
    if global.json { print_json(&report) } else { print(&(report.to_table() + "\n")) }
}

fn messages(global: &Global) -> Result<(), CliError> {
    let stop = signal::stop_flag(2, || {})?;
    let progress = Progress::new("design");
    let config = MessagePassingConfig::new();
    let report = message_passing(&config, &stop, &mut |done, total| cells(&progress, done, total));
    drop(progress);
    let report = report?;
    if global.json { print_json(&report) } else { print(&(report.to_table() + "\n")) }
}

fn of_copies(global: &Global, folder: PathBuf) -> Result<(), CliError> {
    let stop = signal::stop_flag(2, || {})?;
    let progress = Progress::new("design");
    let config = CopiesConfig::new(folder);
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
