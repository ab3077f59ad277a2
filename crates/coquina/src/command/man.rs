//! `coquina man [COMMAND]...`

use std::path::Path;

use clap::{Command, CommandFactory};

use crate::arguments::Arguments;
use crate::error::CliError;
use crate::output;

pub fn run(words: &[String], folder: Option<&Path>) -> Result<(), CliError> {
    let mut command = Arguments::command();
    command.build();
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder).map_err(|error| CliError::io("make", folder, &error))?;
        return clap_mangen::generate_to(command, folder)
            .map_err(|error| CliError::io("write pages into", folder, &error));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(find(&command, words)?.clone())
        .render(&mut page)
        .map_err(|error| CliError::failed(format!("cannot make the page: {error}")))?;
    output::print(&String::from_utf8_lossy(&page))
}

fn find<'a>(command: &'a Command, words: &[String]) -> Result<&'a Command, CliError> {
    let mut found = command;
    for word in words {
        found = found.find_subcommand(word).ok_or_else(|| {
            CliError::usage(format!(
                "there is no command `coquina {}`; see `coquina --help`",
                words.join(" ")
            ))
        })?;
    }
    Ok(found)
}
