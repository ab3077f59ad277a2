//! `coquina bench list`

use coquina_base::Nearest;
use coquina_experiments::definition::{Experiment, built_in, built_in_names};
use serde::Serialize;

use crate::arguments::{BenchList, Global};
use crate::error::CliError;
use crate::output::{print, print_json, table};

/// An experiment that is built in, and the text to be changed and run if it is asked for.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    title: String,
    targets: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    toml: Option<&'static str>,
}

impl Listed {
    fn of(name: &'static str, toml: Option<&'static str>) -> Result<Self, CliError> {
        let Experiment { title, targets, .. } = Experiment::load(name)?;
        Ok(Listed { name, title, targets, toml })
    }
}

pub fn run(global: &Global, arguments: &BenchList) -> Result<(), CliError> {
    if let Some(name) = &arguments.experiment {
        let found = built_in(name).ok_or_else(|| {
            CliError::usage(format!(
                "no experiment {name:?} is built in{}; there are {}",
                Nearest::of(name, built_in_names()),
                built_in_names().join(", ")
            ))
        })?;
        return match global.json {
            true => print_json(&Listed::of(found.name, Some(found.toml))?),
            false => print(found.toml),
        };
    }
    let listed: Result<Vec<Listed>, CliError> =
        built_in_names().into_iter().map(|name| Listed::of(name, None)).collect();
    let listed = listed?;
    if global.json {
        return print_json(&listed);
    }
    let mut rows = table(&["EXPERIMENT", "WHAT IT SHOWS"], 2);
    for experiment in &listed {
        rows.add_row([experiment.name, experiment.title.as_str()]);
    }
    print(&format!("{rows}\n"))
}
