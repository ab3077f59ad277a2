//! `coquina completions SHELL`

use clap::CommandFactory;

use crate::arguments::Arguments;
use crate::error::CliError;
use crate::output;

pub fn run(shell: clap_complete::Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "coquina", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
