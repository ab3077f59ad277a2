//! What a run would leave behind if its process ended at this moment, in words that say how to clean it up.
//!
//! A run removes everything itself, also after Ctrl-C. Who does not wait for that is told what is left.
//!
//! Invariants:
//! - a note is there as long as what it speaks of; whoever removes that drops the note, and who cannot keeps it.

use std::ffi::OsStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is said behind the name of something whose making failed.
pub const MADE_ALL_THE_SAME: &str = ", whose making failed, but which is there now";
/// The same where nobody answers any more.
pub const MAY_BE_MADE: &str = ", whose making failed, but which may be there";

struct Notes {
    next: u64,
    texts: Vec<(u64, String)>,
}

/// Of the whole process, since that is what may end.
static NOTES: Mutex<Notes> = Mutex::new(Notes { next: 0, texts: Vec::new() });

/// A note; dropping it takes it back.
#[derive(Debug)]
#[must_use = "the note is taken back at once"]
pub struct Note {
    number: u64,
}

/// Says what is there now, and how it is removed.
pub fn note(text: impl Into<String>) -> Note {
    let mut notes = notes();
    let number = notes.next;
    notes.next += 1;
    notes.texts.push((number, text.into()));
    Note { number }
}

/// All notes, the oldest first.
pub fn all() -> Vec<String> {
    notes().texts.iter().map(|(_, text)| text.clone()).collect()
}

/// A word of a command that is to be pasted into a shell.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref().to_string_lossy();
    let is_plain =
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=:/.,+%@".contains(c));
    if is_plain { word.into_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

impl Note {
    /// For what could not be removed: it stays in [`all`] until the process ends.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        notes().texts.retain(|(number, _)| *number != self.number);
    }
}

fn notes() -> MutexGuard<'static, Notes> {
    // Notes are whole whenever somebody holds the lock.
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_commands_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quoted("/srv/a-1.img"), "/srv/a-1.img");
        assert_eq!(quoted("/srv/my data"), "'/srv/my data'");
        assert_eq!(quoted("a'b"), "'a'\\''b'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_note_is_there_as_long_as_it_is_held() {
        let (first, second) = (note("test note 1"), note("test note 2"));
        let mine = || all().into_iter().filter(|text| text.starts_with("test note")).collect::<Vec<_>>();
        assert_eq!(mine(), ["test note 1", "test note 2"]);
        drop(first);
        assert_eq!(mine(), ["test note 2"]);
        drop(second);
        assert_eq!(mine(), Vec::<String>::new());
    }
}
