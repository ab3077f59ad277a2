//! What a run would leave behind if its process ended at this moment, in words that say how to clean it up.
//!
//! A run removes everything itself, also after Ctrl-C. Who does not wait for that is told what is left.
//!
//! Invariants:
//! - a note is there as long as what it speaks of; whoever removes that drops the note, and who cannot keeps it;
//! - what is needed to clean up stays, and so do the folders that it lies in;
//! - of a run that is killed nobody drops anything: its notes lie in its folder, and the next run tells them.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tempfile::TempDir;

/// What is said behind the name of something whose making failed.
pub const MADE_ALL_THE_SAME: &str = ", whose making failed, but which is there now";
/// The same where nobody answers any more.
pub const MAY_BE_MADE: &str = ", whose making failed, but which may be there";

struct Notes {
    next: u64,
    texts: Vec<(u64, String)>,
    /// Folders with what is needed to clean up.
    needed: Vec<PathBuf>,
    /// Files that hold all notes.
    files: Vec<PathBuf>,
}

/// Of the whole process, since that is what may end.
static NOTES: Mutex<Notes> =
    Mutex::new(Notes { next: 0, texts: Vec::new(), needed: Vec::new(), files: Vec::new() });

/// Held by who writes the files, so that the last to write them has all notes. [`NOTES`] is not held meanwhile: a drive that hangs must not
/// keep anybody from being told what is left.
static WRITING: Mutex<()> = Mutex::new(());

/// Whether the drive with the files did not take them in time. They are not written until it does, and its folder is hardly waited for.
static HANGS: AtomicBool = AtomicBool::new(false);
/// How long the writing of the files may take.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// In the folder of a run: its notes.
const FILE_NAME: &str = "left-behind";
/// The same while they are written.
const NEW_FILE_NAME: &str = "left-behind.new";
/// What names of folders of runs begin with.
pub const FOLDER_PREFIX: &str = "coquina-bench-";

/// How long the removal of files may take: on a drive that hangs it never ends.
const REMOVE_TIME_MAX: Duration = Duration::from_secs(120);

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
    drop(notes);
    write_files();
    Note { number }
}

/// The folder of a run, in which its notes are, as long as this is held.
#[derive(Debug)]
pub struct Journal {
    file: PathBuf,
    /// Says that the run goes on.
    _lock: Option<File>,
}

/// Keeps the notes in a run's folder, for whoever comes after one that was killed. Without it a run does its work all the same.
pub fn keep_in(folder: &Path) -> Journal {
    let lock = File::open(folder).ok().filter(|folder| folder.try_lock().is_ok());
    let file = folder.join(FILE_NAME);
    if lock.is_some() {
        notes().files.push(file.clone());
        write_files();
    }
    Journal { file, _lock: lock }
}

impl Drop for Journal {
    fn drop(&mut self) {
        notes().files.retain(|file| *file != self.file);
    }
}

fn write_files() {
    if !notes().files.is_empty() {
        write_unless_hung(&HANGS, WRITE_TIME_MAX, write_files_now);
    }
}

/// Does that work and waits for it so long. While it hangs it is not begun again; when it ends after all it is done once more, since what is
/// written may have changed meanwhile.
fn write_unless_hung(hangs: &'static AtomicBool, time_max: Duration, work: impl Fn() + Send + 'static) {
    if hangs.load(Ordering::Relaxed) {
        return;
    }
    let (done, wait) = mpsc::channel();
    // Held by who says that it is done, or that it is late: one of them is the first.
    let is_late = Arc::new(Mutex::new(false));
    let of_waiter = Arc::clone(&is_late);
    std::thread::spawn(move || {
        work();
        let is_late = is_late.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_late {
            // Whoever changes something from now on writes it.
            hangs.store(false, Ordering::Relaxed);
            work();
        } else {
            let _ = done.send(());
        }
    });
    if wait.recv_timeout(time_max).is_err() {
        let mut is_late = of_waiter.lock().unwrap_or_else(PoisonError::into_inner);
        if wait.try_recv().is_err() {
            *is_late = true;
            hangs.store(true, Ordering::Relaxed);
        }
    }
}

fn write_files_now() {
    let _turn = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let files = notes().files.clone();
    let lines: String = all().iter().map(|text| text.replace('\n', " ") + "\n").collect();
    for file in files {
        // Who is not killed has no need of it. Without room the older notes stay, which are better than none.
        if replace(&file, &lines).is_err() {
            let _ = std::fs::remove_file(file.with_file_name(NEW_FILE_NAME));
        }
    }
}

/// Replaces a file by one that holds all of this text.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let new = file.with_file_name(NEW_FILE_NAME);
    std::fs::write(&new, text)?;
    std::fs::rename(new, file)
}

/// What runs that were killed left behind, of those whose folders are in this one.
pub fn of_killed(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_of_run = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FOLDER_PREFIX))
    };
    let mut paths: Vec<PathBuf> = names.filter(is_of_run).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let Ok(text) = std::fs::read_to_string(path.join(FILE_NAME)) else { continue };
        // A run that goes on holds the lock. Where there are no locks, nobody knows.
        let is_over = File::open(&path).is_ok_and(|folder| match folder.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
        });
        if is_over {
            found.extend(text.lines().map(str::to_owned));
        }
    }
    found
}

/// All notes, the oldest first.
pub fn all() -> Vec<String> {
    notes().texts.iter().map(|(_, text)| text.clone()).collect()
}

/// Leaves a folder where it is: what a note says is done with what lies in it.
pub fn leave(mut folder: TempDir) {
    folder.disable_cleanup(true);
    notes().needed.push(folder.path().to_owned());
}

/// Removes a folder of which a note speaks, unless what is needed to clean up lies in it. What cannot be removed is told.
pub fn remove(folder: TempDir, note: Note) {
    let path = folder.path().to_owned();
    let is_needed = notes().needed.iter().any(|needed| needed.starts_with(&path));
    if is_needed {
        leave(folder);
        // In the place of the other one, which would come before what must be done first.
        drop(note);
        self::note(format!("after that, the folder {}: rm -r {}", path.display(), quoted(&path))).keep();
    } else {
        let time_max = if HANGS.load(Ordering::Relaxed) { WRITE_TIME_MAX } else { REMOVE_TIME_MAX };
        if within(time_max, move || folder.close().is_ok()) != Some(true) {
            note.keep();
        }
    }
}

/// Removes files, or makes them empty, and says whether that could be done. `None`: not in time. It is not waited for longer, since
/// the kernel keeps who wants something of a drive that hangs.
pub fn removed(work: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> Option<bool> {
    removed_within(REMOVE_TIME_MAX, work)
}

/// The same of files that are small, and few.
pub fn removed_within(
    time_max: Duration,
    work: impl FnOnce() -> std::io::Result<()> + Send + 'static,
) -> Option<bool> {
    within(time_max, move || work().is_ok())
}

fn within(time_max: Duration, work: impl FnOnce() -> bool + Send + 'static) -> Option<bool> {
    let (done, wait) = mpsc::channel();
    // Nobody listens any more if it took too long.
    std::thread::spawn(move || {
        let _ = done.send(work());
    });
    wait.recv_timeout(time_max).ok()
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
        write_files();
    }
}

fn notes() -> MutexGuard<'static, Notes> {
    // Notes are whole whenever somebody holds the lock.
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn words_of_commands_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quoted("/srv/a-1.img"), "/srv/a-1.img");
        assert_eq!(quoted("/srv/my data"), "'/srv/my data'");
        assert_eq!(quoted("a'b"), "'a'\\''b'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_folder_with_what_is_needed_to_clean_up_stays() {
        let told = |path: &Path| {
            let of_it: Vec<String> =
                all().into_iter().filter(|text| text.contains(&*path.to_string_lossy())).collect();
            (path.exists(), of_it)
        };
        for is_needed in [false, true] {
            let outer = tempfile::tempdir().unwrap();
            let inner = TempDir::with_prefix_in("inner-", outer.path()).unwrap();
            let path = outer.path().to_owned();
            let note = note(format!("the folder {}", path.display()));
            match is_needed {
                true => leave(inner),
                false => drop(inner),
            }
            remove(outer, note);
            let after_that = format!("after that, the folder {0}: rm -r {0}", path.display());
            let wanted = if is_needed { (true, vec![after_that]) } else { (false, Vec::new()) };
            assert_eq!(told(&path), wanted);
            // Only of one that was left something is still there.
            let _ = std::fs::remove_dir_all(&path);
        }
    }

    #[test]
    fn who_waits_for_a_drive_that_hangs_is_not_waited_for() {
        let (wake, hangs) = mpsc::channel::<()>();
        let begin = std::time::Instant::now();
        assert_eq!(within(Duration::from_millis(100), move || hangs.recv().is_err()), None);
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        drop(wake);
        assert_eq!(removed(|| Ok(())), Some(true));
        assert_eq!(removed(|| Err(std::io::ErrorKind::NotFound.into())), Some(false));
    }

    #[test]
    fn notes_of_a_run_that_was_killed_are_told_by_the_next_one() {
        let outer = tempfile::tempdir().unwrap();
        let killed = outer.path().join("coquina-bench-killed");
        std::fs::create_dir(&killed).unwrap();
        let told = || of_killed(outer.path()).into_iter().filter(|text| text.starts_with("journal test"));
        let journal = keep_in(&killed);
        let (first, second) = (note("journal test: a\nb"), note("journal test: c"));
        assert_eq!(told().count(), 0, "it goes on");
        drop(second);
        // As the kernel ends it: nobody takes anything back, and the lock is gone.
        drop(journal);
        drop(first);
        assert_eq!(told().collect::<Vec<_>>(), ["journal test: a b"]);
        std::fs::remove_dir_all(&killed).unwrap();
        std::fs::create_dir_all(outer.path().join("coquina-bench-report")).unwrap();
        assert_eq!(told().count(), 0, "a folder without notes is none of a run");
    }

    #[test]
    fn notes_that_cannot_be_written_leave_the_older_ones() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE_NAME);
        let read = || std::fs::read_to_string(&file).unwrap();
        replace(&file, "older\n").unwrap();
        assert_eq!(read(), "older\n");
        // As a drive without room takes no new file.
        let new = folder.path().join(NEW_FILE_NAME);
        std::fs::create_dir(&new).unwrap();
        replace(&file, "newer\n").unwrap_err();
        assert_eq!(read(), "older\n");
        std::fs::remove_dir(&new).unwrap();
        replace(&file, "newer\n").unwrap();
        assert!(read() == "newer\n" && !new.exists());
    }

    #[test]
    fn notes_are_written_again_when_a_drive_that_hung_goes_on() {
        static HANGS: AtomicBool = AtomicBool::new(false);
        let (begun, works) = mpsc::channel::<()>();
        let (go_on, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        let write = |time_max: Duration| {
            let (begun, waits) = (begun.clone(), Arc::clone(&waits));
            write_unless_hung(&HANGS, time_max, move || {
                begun.send(()).unwrap();
                waits.lock().unwrap().recv().unwrap();
            });
        };
        let long = Duration::from_secs(20);
        go_on.send(()).unwrap();
        write(long);
        assert!(!HANGS.load(Ordering::Relaxed), "it was in time");
        write(Duration::from_millis(50));
        assert!(HANGS.load(Ordering::Relaxed));
        write(long);
        assert_eq!(works.try_iter().count(), 2, "the third was not begun");
        go_on.send(()).unwrap();
        works.recv_timeout(long).expect("it is done again");
        assert!(!HANGS.load(Ordering::Relaxed));
        go_on.send(()).unwrap();
        go_on.send(()).unwrap();
        write(long);
        assert_eq!(works.try_iter().count(), 1);
        assert!(!HANGS.load(Ordering::Relaxed));
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
