//! Programs of the set-up: they are run to their end, and what they print is read.
//!
//! Invariants:
//! - none is waited for without end: what it speaks to may hang, and so may what it has started, which holds its output open;
//! - when the run is stopped, one that does not end in a moment is ended. What cleans up is not stopped.

use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command as Process, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::GeneratorError;
use super::ending::{self, GO_TIME_MAX};
use super::process::{end_with_this_process, tail};

/// How long a program of the set-up may take if nothing else is said.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// When the run is stopped: what is nearly done is let end, so that it is known what was made.
const MOMENT: Duration = Duration::from_millis(700);
const POLL: Duration = Duration::from_millis(10);
/// What a program that has ended has said is waited for no longer: another one that it started may hold its output open.
const REST_TIME_MAX: Duration = Duration::from_secs(3);
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
    said_by(run_to_end(program, arguments, environment, None, patience)?, program, arguments)
}

/// The same of a program that says how far it is: it has as much time again whenever it says something.
pub fn output_while_it_moves(
    program: &str,
    arguments: &[String],
    environment: &[(String, String)],
    patience: Patience<'_>,
) -> Result<String, GeneratorError> {
    said_by(run_while(program, arguments, environment, None, patience, true)?, program, arguments)
}

fn said_by(ended: Ended, program: &str, arguments: &[String]) -> Result<String, GeneratorError> {
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
    run_while(program, arguments, environment, folder, patience, false)
}

/// The same, where patience may begin anew whenever the program says something.
fn run_while(
    program: &str,
    arguments: &[String],
    environment: &[(String, String)],
    folder: Option<&Path>,
    patience: Patience<'_>,
    it_tells: bool,
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
    let (mut out, mut messages) = (Said::of(child.stdout.take()), Said::of(child.stderr.take()));
    let mut begin = Instant::now();
    let mut stopped_at = None;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(not_started(error)),
        }
        if [out.look(), messages.look()].contains(&true) && it_tells {
            begin = Instant::now();
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
    let rest_by = Instant::now() + REST_TIME_MAX;
    Ok(Ended { status, out: out.text_by(rest_by), messages: messages.text_by(rest_by) })
}

/// A command, without the end of a long one.
fn shortened(program: &str, arguments: &[String]) -> String {
    let whole = format!("{program} {}", arguments.join(" "));
    match whole.char_indices().nth(COMMAND_LENGTH_MAX) {
        Some((at, _)) => format!("{}...", &whole[..at]),
        None => whole,
    }
}

/// What a child has printed so far. A thread reads it, beside others; what cannot be read is as good as nothing.
struct Said {
    bytes: Vec<u8>,
    more: Receiver<Vec<u8>>,
}

impl Said {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let (send, more) = mpsc::channel();
        std::thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let mut part = vec![0; 1 << 16];
            loop {
                match pipe.read(&mut part) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => return,
                    // Nobody listens any more if the child was given up.
                    Ok(bytes) if send.send(part[..bytes].to_vec()).is_err() => return,
                    Ok(_) => {}
                }
            }
        });
        Said { bytes: Vec::new(), more }
    }

    /// Takes what has been printed since, and says whether that was anything.
    fn look(&mut self) -> bool {
        let before = self.bytes.len();
        self.more.try_iter().for_each(|part| self.bytes.extend(part));
        self.bytes.len() > before
    }

    /// All that was printed, or what is there by then.
    fn text_by(mut self, by: Instant) -> String {
        let left = || by.checked_duration_since(Instant::now());
        while let Some(part) = left().and_then(|left| self.more.recv_timeout(left).ok()) {
            self.bytes.extend(part);
        }
        self.look();
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
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
    fn what_a_program_started_and_left_is_not_waited_for() {
        let begin = Instant::now();
        let script = "sleep 30 & echo $!; echo said >&2; exit 3";
        let words = ["-c".to_owned(), script.to_owned()];
        let ended = run_to_end("bash", &words, &[], None, Patience::of(MANY)).unwrap();
        assert!(begin.elapsed() < MANY, "{:?}", begin.elapsed());
        assert_eq!((ended.status.code(), ended.messages.as_str()), (Some(3), "said\n"));
        ending::signal(ended.out.trim().parse().unwrap(), libc::SIGKILL);
    }

    #[test]
    fn a_program_that_says_how_far_it_is_has_time_as_long_as_it_moves() {
        let words = |pause: &str| {
            [
                "-c".to_owned(),
                format!("for part in 1 2 3 4 5; do printf '\\r%s' $part >&2; sleep {pause}; done; echo done"),
            ]
        };
        let second = Patience::of(Duration::from_secs(1));
        assert_eq!(output_while_it_moves("bash", &words("0.3"), &[], second).unwrap(), "done\n");
        let still = output_while_it_moves("bash", &words("30"), &[], second);
        assert!(matches!(still, Err(GeneratorError::Slow { seconds: 1, .. })), "{still:?}");
        let silent = output_of("bash", &words("0.3"), &[], second);
        assert!(matches!(silent, Err(GeneratorError::Slow { .. })), "{silent:?}");
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
