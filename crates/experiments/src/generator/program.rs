//! Programs of the set-up: they are run to their end, and what they print is read.
//!
//! Invariants:
//! - none is waited for without end: what it speaks to may hang;
//! - when the run is stopped, one that does not end in a moment is ended. What cleans up is not stopped.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command as Process, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::GeneratorError;
use super::ending::{self, GO_TIME_MAX};
use super::process::{end_with_this_process, tail};

/// How long a program of the set-up may take if nothing else is said.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// When the run is stopped: what is nearly done is let end, so that it is known what was made.
const MOMENT: Duration = Duration::from_millis(700);
const POLL: Duration = Duration::from_millis(10);
/// Characters of a command that are shown.
const COMMAND_LENGTH_MAX: usize = 200;

/// How long somebody waits for a program.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// It is ended after this time.
    pub time_max: Duration,
    /// Whether the run is to end.
    pub stopped: &'a dyn Fn() -> bool,
}

impl Patience<'static> {
    /// For what cleans up, or is asked besides: it goes on when the run is stopped.
    pub fn of(time_max: Duration) -> Self {
        Patience { time_max, stopped: &|| false }
    }
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub out: String,
    /// What it said besides.
    pub messages: String,
}

/// Runs a program to its end and gives what it printed; for set-up, not for load.
pub fn output_of(
    program: &str,
    arguments: &[String],
    environment: &[(String, String)],
    patience: Patience<'_>,
) -> Result<String, GeneratorError> {
    let ended = run_to_end(program, arguments, environment, None, patience)?;
    if ended.status.success() {
        return Ok(ended.out);
    }
    Err(GeneratorError::Failed {
        program: format!("{program} {}", arguments.join(" ")),
        status: ended.status.to_string(),
        message: tail(&ended.messages),
    })
}

/// The same in this folder, where it is no error if the program fails.
pub fn run_to_end(
    program: &str,
    arguments: &[String],
    environment: &[(String, String)],
    folder: Option<&Path>,
    patience: Patience<'_>,
) -> Result<Ended, GeneratorError> {
    if (patience.stopped)() {
        return Err(GeneratorError::Stopped);
    }
    let not_started = |source| GeneratorError::Start { program: program.to_owned(), source };
    let mut process = Process::new(program);
    // What it was to make is not made later, when nobody removes it any more.
    end_with_this_process(&mut process, libc::SIGKILL);
    folder.map(|folder| process.current_dir(folder));
    let mut child = process
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(not_started)?;
    let (out, messages) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
    let begin = Instant::now();
    let mut stopped_at = None;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(not_started(error)),
        }
        if stopped_at.is_none() && (patience.stopped)() {
            stopped_at = Some(Instant::now());
        }
        let is_stopped = stopped_at.is_some_and(|at| at.elapsed() > MOMENT);
        if is_stopped || begin.elapsed() > patience.time_max {
            let seconds = begin.elapsed().as_secs();
            ending::end(&mut child, program, Instant::now() + GO_TIME_MAX);
            return Err(match is_stopped {
                true => GeneratorError::Stopped,
                false => GeneratorError::Slow { program: shortened(program, arguments), seconds },
            });
        }
        std::thread::sleep(POLL);
    };
    let text = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(Ended { status, out: text(out), messages: text(messages) })
}

/// A command, without the end of a long one.
fn shortened(program: &str, arguments: &[String]) -> String {
    let whole = format!("{program} {}", arguments.join(" "));
    match whole.char_indices().nth(COMMAND_LENGTH_MAX) {
        Some((at, _)) => format!("{}...", &whole[..at]),
        None => whole,
    }
}

/// Reads what a child prints to its end, beside others. What cannot be read is as good as nothing.
fn read_all(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const MANY: Duration = Duration::from_secs(20);

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        let sleep = |time_max| output_of("sleep", &["30".to_owned()], &[], Patience::of(time_max));
        let error = sleep(Duration::from_millis(50)).unwrap_err().to_string();
        assert!(error.contains("sleep 30 did not answer within 0 s and was ended; look at"), "{error}");
        let words = ["two words".to_owned()];
        assert_eq!(output_of("echo", &words, &[], Patience::of(MANY)).unwrap(), "two words\n");
        let many = ["-c".to_owned(), "seq 100000; seq 100000 >&2".to_owned()];
        assert_eq!(
            output_of("bash", &many, &[], Patience::of(MANY)).unwrap().len(),
            588_895,
            "more than a pipe holds"
        );
    }

    #[test]
    fn a_stop_ends_a_program_in_a_moment_and_lets_one_end_that_is_nearly_done() {
        let begin = Instant::now();
        let stopped_after = |stop: Duration, seconds: &str| {
            let begin = Instant::now();
            let stopped = || begin.elapsed() >= stop;
            let patience = Patience { time_max: MANY, stopped: &stopped };
            output_of("sleep", &[seconds.to_owned()], &[], patience)
        };
        let ms = Duration::from_millis;
        assert!(matches!(stopped_after(ms(100), "30"), Err(GeneratorError::Stopped)));
        assert!(begin.elapsed() < ms(5000), "{:?}", begin.elapsed());
        assert_eq!(stopped_after(ms(100), "0.2").unwrap(), "");
        // The next one is not begun.
        let asked = Cell::new(0);
        let stopped = || {
            asked.set(asked.get() + 1);
            true
        };
        let patience = Patience { time_max: MANY, stopped: &stopped };
        let missing = output_of("a program that is not there", &[], &[], patience);
        assert!(matches!(missing, Err(GeneratorError::Stopped)) && asked.get() == 1, "{missing:?}");
    }

    #[test]
    fn long_commands_are_shortened() {
        let long = shortened("rados", &["\u{e4}".repeat(300)]);
        assert_eq!((long.chars().count(), long.ends_with("...")), (COMMAND_LENGTH_MAX + 3, true));
        assert_eq!(shortened("nbdinfo", &["--size".to_owned()]), "nbdinfo --size");
    }
}
