//! `coquina`: starts a server, manages its volumes and drives, measures, and shows itself in a demo.

// Both panic when nobody reads any more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod command;
mod error;
mod output;
mod progress;
mod signal;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use error::CliError;

#[global_allocator]
static ALLOCATOR: coquina_base::HugePages = coquina_base::HugePages;

fn main() -> ExitCode {
    panics_end_the_process();
    let arguments = Arguments::read();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ CliError::Interrupted) => ExitCode::from(error.exit_code()),
        Err(error) => {
            output::tell(format_args!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

/// A release build aborts on a panic. One that unwinds, as the tests' does, must end as well, or a thread would be gone from a program that
/// seems to be whole, and no test would see it.
fn panics_end_the_process() {
    if cfg!(panic = "unwind") {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            usual(panic);
            std::process::abort();
        }));
    }
}

fn run(arguments: &Arguments) -> Result<(), CliError> {
    let global = &arguments.global;
    match &arguments.command {
        Command::Up(up) => command::up::run(global, up),
        Command::Node(node) => command::node::run(global, node),
        Command::Nbd(nbd) => command::nbd::run(global, nbd),
        Command::Pool(pool) => command::pool::run(global, pool),
        Command::Volume(volume) => command::volume::run(global, volume),
        Command::Status(status) => command::status::run(global, status),
        Command::Df => command::df::run(global),
        Command::Drive(drive) => command::drive::run(global, drive),
        Command::Doctor(doctor) => command::doctor::run(global, doctor),
        Command::Bench(bench) => command::bench::run(global, bench),
        Command::Demo(demo) => command::demo::run(global, demo),
        Command::Man { command, folder } => command::man::run(command, folder.as_deref()),
        Command::Completions { shell } => command::completions::run(*shell),
    }
}
