//! A child process of `coquina up`: this program with `node`, with its log told apart from the others'.
//!
//! Invariants:
//! - it never outlives the supervisor: its input ends when that does, however it ends;
//! - Ctrl-C on the terminal does not reach it, since it is in a process group of its own: the supervisor stops it;
//! - it is signalled only while it has not been waited for, so its number cannot be another process's.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use coquina_control::running_server;
use rustix::process::{Pid, Signal, kill_process};

use super::output::Output;
use crate::command::processors;
use crate::error::CliError;

/// What the supervisor waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody asked for a stop.
    Stop,
    /// The output of the child with this number has ended, and most likely the child itself.
    OutputEnded(usize),
}

/// What a child is made of.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// Its name, before each line that it writes.
    pub name: String,
    /// Its folder, where it says where it listens.
    pub folder: PathBuf,
    /// What it is started with.
    pub arguments: Vec<OsString>,
}

/// Formats drives whatever they hold.
pub const FORCE: &str = "--force";

/// A child, running or not.
pub struct Child {
    spec: ChildSpec,
    process: Option<Process>,
    /// Of the process that was started last.
    output: Arc<Output>,
}

impl Child {
    /// A child that is not started yet.
    pub fn new(spec: ChildSpec) -> Child {
        let output = Arc::new(Output::new(&spec.name, false));
        Child { spec, process: None, output }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its process, while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// What the process says that was started last.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Starts it. `events` is told when its output ends, with `number`. With `is_held` what it says is held back until its
    /// [`output`](Self::output) is released.
    pub fn start(&mut self, number: usize, events: Sender<Event>, is_held: bool) -> Result<(), CliError> {
        assert!(self.process.is_none(), "it was waited for before");
        let program = std::env::current_exe()
            .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
        let mut command = Command::new(&program);
        command.args(self.spec.arguments.iter().map(|argument| match argument.to_str() {
            Some(text) if text.starts_with(processors::OPTION) => processors::still_allowed(text).into(),
            _ => argument.clone(),
        }));
        command.env_remove("COQUINA_DIR").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(|error| CliError::io("start", &program, &error))?;
        let output = process.stderr.take();
        self.process = Some(process);
        // Said once by a person. A drive that has become unreadable by the time of another start is not to be erased by it.
        self.spec.arguments.retain(|argument| argument != FORCE);
        self.output = Arc::new(Output::new(&self.spec.name, is_held));
        let taker = self.output.clone();
        let pass_on = move || {
            if let Some(output) = output {
                taker.take(output);
            }
            // A supervisor that is gone needs to know nothing.
            let _ = events.send(Event::OutputEnded(number));
        };
        let thread = std::thread::Builder::new().name(format!("log {}", self.spec.name)).spawn(pass_on);
        thread.map(drop).map_err(|error| CliError::failed(format!("cannot start a thread: {error}")))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, CliError> {
        let Some(process) = &mut self.process else { return Ok(None) };
        let ended = process
            .try_wait()
            .map_err(|error| CliError::failed(format!("cannot ask how {} is: {error}", self.spec.name)))?;
        if ended.is_some() {
            self.process = None;
        }
        Ok(ended)
    }

    /// Whether it serves.
    pub fn is_ready(&self) -> bool {
        let server = running_server(&self.spec.folder);
        server.is_ok_and(|server| Some(server.process) == self.process_id())
    }

    /// Asks it to stop cleanly: its input ends, and it gets a signal.
    pub fn ask_to_stop(&mut self) {
        let Some(process) = &mut self.process else { return };
        drop(process.stdin.take());
        if let Some(number) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
            // One that has just ended needs no signal.
            let _ = kill_process(number, Signal::TERM);
        }
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // One that has just ended is fine.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a process holds the folder: a child of an earlier supervisor may still be stopping.
pub fn is_taken(folder: &Path) -> bool {
    !matches!(running_server(folder), Err(coquina_control::FolderError::NotRunning { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_formatted_by_force_at_one_start_only() {
        let arguments = ["--list", FORCE, "--quiet"].map(OsString::from).to_vec();
        let spec = ChildSpec { name: "n".to_owned(), folder: PathBuf::from("/nonexistent"), arguments };
        let mut child = Child::new(spec);
        let (events, _) = std::sync::mpsc::channel();
        child.start(0, events, false).expect("this program can be started");
        child.kill();
        assert_eq!(child.spec.arguments, ["--list", "--quiet"], "of the starts that follow");
    }
}
