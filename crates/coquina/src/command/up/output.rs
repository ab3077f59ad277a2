//! What a child says, passed on with its name before each line, and why it ended.
//!
//! Invariants:
//! - what a child says is passed on in order;
//! - lines are held back only while it is not known whether a start that is tried again says anything new, and not without bound.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a program of ours says why it ends.
const ERROR: &str = "error: ";
/// More lines than these are passed on at once.
const LINES_HELD_MAX: usize = 100;
/// As much of a reason is kept.
const REASON_BYTES_MAX: usize = 4000;

/// What one process says.
pub struct Output {
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Lines that are not passed on yet; `None` if each is at once.
    held: Option<Vec<String>>,
    /// Its last error, and what followed it.
    reason: String,
}

impl Output {
    /// Of a child with that name. With `is_held` nothing is passed on until [`release`](Self::release).
    pub fn new(name: &str, is_held: bool) -> Output {
        let state = State { held: is_held.then(Vec::new), reason: String::new() };
        Output { name: name.to_owned(), state: Mutex::new(state) }
    }

    /// Takes all that it says until it ends.
    pub fn take(&self, output: impl Read) {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => self.take_line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r'])),
            }
        }
    }

    fn take_line(&self, line: &str) {
        let mut state = self.state();
        if let Some(reason) = line.strip_prefix(ERROR) {
            state.reason = reason.to_owned();
        } else if !state.reason.is_empty() && state.reason.len() < REASON_BYTES_MAX {
            state.reason += " ";
            state.reason += line.trim_start();
        }
        let whole = format!("{}: {line}\n", self.name);
        match &mut state.held {
            Some(held) if held.len() < LINES_HELD_MAX => held.push(whole),
            held => {
                held.take().iter().flatten().for_each(|line| pass_on(line));
                pass_on(&whole);
            }
        }
    }

    /// Its last error, with what followed it, in one line; empty if it said none.
    pub fn reason(&self) -> String {
        self.state().reason.clone()
    }

    /// Passes on what was held back, and all that comes at once.
    pub fn release(&self) {
        self.state().held.take().iter().flatten().for_each(|line| pass_on(line));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody may be reading any more; the child must not be stopped by that.
fn pass_on(line: &str) {
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_the_reason() {
        let output = Output::new("node2", true);
        assert_eq!(output.reason(), "");
        output.take(&b"2026 INFO starts\nerror: first\nerror: no drive:\n  d1: gone\nbring it back\r\n"[..]);
        assert_eq!(output.reason(), "no drive: d1: gone bring it back");
        let held = output.state().held.clone().unwrap();
        assert_eq!((held.len(), held[4].as_str()), (5, "node2: bring it back\n"));
        output.release();
        output.take(&b"more\n"[..]);
        assert!(output.state().held.is_none());
    }

    #[test]
    fn not_more_is_held_back_than_fits() {
        let output = Output::new("node2", true);
        output.take("x\n".repeat(LINES_HELD_MAX).as_bytes());
        assert_eq!(output.state().held.as_ref().map(Vec::len), Some(LINES_HELD_MAX));
        output.take(&b"x\n"[..]);
        assert!(output.state().held.is_none());
    }
}
