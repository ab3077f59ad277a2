//! `coquina man [COMMAND]...`

use std::path::Path;

use clap::{Command, CommandFactory};

use crate::arguments::Arguments;
use crate::error::CliError;
use crate::output;

pub fn run(words: &[String], folder: Option<&Path>) -> Result<(), CliError> {
    let mut command = without_help(Arguments::command());
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

/// `coquina help COMMAND` has no page of its own.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_no_other_one() {
        let folder = tempfile::tempdir().unwrap();
        run(&[], Some(folder.path())).unwrap();
        let pages: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(pages.iter().any(|name| name == "coquina-volume-create.1"), "{pages:?}");
        assert!(!pages.iter().any(|name| name.contains("help")), "{pages:?}");
    }
}
