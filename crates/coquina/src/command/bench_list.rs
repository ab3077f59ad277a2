//! `coquina bench list`

use coquina_experiments::definition::{Experiment, built_in};
use serde::Serialize;

use super::experiment;
use crate::arguments::{BenchList, Global};
use crate::error::CliError;
use crate::output::print_json;

/// One experiment with its file: what the list says of it, and the text to be changed and run.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    title: &'a str,
    targets: &'a [String],
    toml: &'a str,
}

pub fn run(global: &Global, arguments: &BenchList) -> Result<(), CliError> {
    let found = arguments.experiment.as_deref().filter(|_| global.json).and_then(built_in);
    let Some(found) = found else { return experiment::list(global, arguments) };
    let Experiment { title, targets, .. } = &Experiment::load(found.name)?;
    print_json(&Listed { name: found.name, title, targets, toml: found.toml })
}
