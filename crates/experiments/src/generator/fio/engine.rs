//! Which of its engines fio can use here.

use std::path::Path;

use tempfile::TempDir;

use super::super::program::{Ended, Patience, run_to_end};
use super::super::{GeneratorError, process::tail};
use crate::leftovers;

/// Engines for files and devices, the better one first.
const FOR_FILES: [&str; 2] = ["io_uring", "libaio"];
/// Size of the file with which an engine is tried.
const TRY_BYTES: usize = 4096;

/// An engine for files and devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// As fio names it.
    pub name: String,
    /// Why it is not the one that is usual.
    pub note: Option<String>,
}

impl Default for Engine {
    fn default() -> Self {
        Engine { name: FOR_FILES[0].to_owned(), note: None }
    }
}

/// The engine for files and devices: io_uring, or libaio where a read of a small file in `folder` by io_uring fails: the kernel or a
/// container may forbid it, or fio may be without it.
pub fn for_files(program: &str, folder: &Path, patience: Patience<'_>) -> Result<Engine, GeneratorError> {
    let mut failed = Vec::new();
    for name in FOR_FILES {
        match read_once(program, name, folder, patience)? {
            None => {
                let note = failed
                    .first()
                    .map(|why| format!("{name}, because {} cannot be used here: {why}", FOR_FILES[0]));
                return Ok(Engine { name: name.to_owned(), note });
            }
            Some(why) => failed.push(why),
        }
    }
    Err(GeneratorError::Failed {
        program: program.to_owned(),
        status: format!("neither {} can be used", FOR_FILES.join(" nor ")),
        message: failed.join("; "),
    })
}

/// Why reading a small file with this engine failed, if it did.
fn read_once(
    program: &str,
    engine: &str,
    folder: &Path,
    patience: Patience<'_>,
) -> Result<Option<String>, GeneratorError> {
    let at = |source| GeneratorError::File { path: folder.to_owned(), source };
    let scratch = TempDir::with_prefix_in("engine-", folder).map_err(at)?;
    std::fs::write(scratch.path().join("data"), [1; TRY_BYTES]).map_err(at)?;
    let size = format!("--size={TRY_BYTES}");
    let arguments =
        ["--name=try", "--ioengine", engine, "--rw=read", "--bs=4k", &size, "--filename=data", "--thread"];
    let ended = ask_in(scratch, program, &arguments, patience)?;
    Ok((!ended.status.success() || words(&ended).contains("not loadable")).then(|| words(&ended)))
}

/// Asks it in a folder that goes then.
fn ask_in(
    mut scratch: TempDir,
    program: &str,
    arguments: &[&str],
    patience: Patience<'_>,
) -> Result<Ended, GeneratorError> {
    let ended = ask(program, arguments, scratch.path(), patience);
    match &ended {
        // It goes with the run's folder; on a drive that hangs nobody waits for that for ever.
        Err(GeneratorError::Slow { .. } | GeneratorError::Stopped) => scratch.disable_cleanup(true),
        // What cannot be removed goes with it as well.
        Ok(_) | Err(_) => drop(leftovers::removed(move || scratch.close())),
    }
    ended
}

fn ask(
    program: &str,
    arguments: &[&str],
    folder: &Path,
    patience: Patience<'_>,
) -> Result<Ended, GeneratorError> {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    run_to_end(program, &arguments, &[], Some(folder), patience)
}

/// What it said of errors, in one line.
fn words(ended: &Ended) -> String {
    let said = [&ended.messages[..], &ended.out[..]].concat();
    let telling = ["fio:", "error", "Bad option", "Did you mean", "parsing", "suffix"];
    let lines: Vec<&str> =
        said.lines().map(str::trim).filter(|line| telling.iter().any(|word| line.contains(word))).collect();
    if lines.is_empty() {
        format!("fio ended with {}: {}", ended.status, tail(&said))
    } else {
        tail(&lines.join("; "))
    }
}

/// Says what to install if fio was built without this engine.
pub fn need(program: &str, engine: &str, patience: Patience<'_>) -> Result<(), GeneratorError> {
    let ended = ask(program, &["--enghelp"], Path::new("/"), patience)?;
    if ended.out.lines().any(|line| line.trim() == engine) {
        return Ok(());
    }
    Err(GeneratorError::NoEngine { program: program.to_owned(), engine: engine.to_owned() })
}

/// Has fio read a job file without running it; gives what is wrong with it.
pub fn parse(
    program: &str,
    job: &str,
    folder: &Path,
    patience: Patience<'_>,
) -> Result<Option<String>, GeneratorError> {
    let at = |source| GeneratorError::File { path: folder.to_owned(), source };
    let scratch = TempDir::with_prefix_in("parse-", folder).map_err(at)?;
    let job = job.replace("{folder}", &scratch.path().to_string_lossy());
    std::fs::write(scratch.path().join("job.fio"), job).map_err(at)?;
    let ended = ask_in(scratch, program, &["--parse-only", "job.fio"], patience)?;
    // An engine that is not there is no error for it.
    let is_wrong = !ended.status.success() || words(&ended).contains("not loadable");
    Ok(is_wrong.then(|| words(&ended)))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const MANY: Duration = Duration::from_secs(20);

    /// A fio that runs `script`. Another process writes it: a file that is open for writing in a process that another test is just
    /// starting cannot be run.
    fn stand_in(folder: &Path, script: &str) -> String {
        let path = folder.join("fio").to_string_lossy().into_owned();
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod +x \"$0\"";
        let status = std::process::Command::new("sh").args(["-c", write, &path, script]).status().unwrap();
        assert!(status.success());
        path
    }

    #[test]
    fn files_fall_back_to_libaio_where_io_uring_is_forbidden() {
        let folder = tempfile::tempdir().unwrap();
        let tried =
            |script: &str| for_files(&stand_in(folder.path(), script), folder.path(), Patience::of(MANY));
        let forbidden = "case $* in *io_uring*) echo 'fio: pid=7, err=1/file:engines/io_uring.c:1, \
                         func=io_queue_init, error=Operation not permitted' >&2; exit 1 ;; esac";
        let engine = tried(forbidden).unwrap();
        assert_eq!(engine.name, "libaio");
        let note = engine.note.unwrap();
        assert!(
            note.starts_with("libaio, because io_uring cannot") && note.contains("not permitted"),
            "{note}"
        );
        // Without the engine, fio says so and may end well.
        let missing = "case $* in *io_uring*) echo 'fio: engine io_uring not loadable' >&2 ;; esac";
        assert_eq!(tried(missing).unwrap().name, "libaio");
        let usual = tried("exit 0").unwrap();
        assert_eq!(usual, Engine::default());
        let error = tried("exit 1").unwrap_err().to_string();
        assert!(error.contains("neither io_uring nor libaio"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the stand-in is left");
    }

    #[test]
    fn an_engine_that_fio_is_without_is_told_with_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let program = stand_in(folder.path(), "echo 'Available IO engines:'; echo '\tlibaio'; echo '\trbdx'");
        assert!(need(&program, "libaio", Patience::of(MANY)).is_ok());
        let error = need(&program, "rbd", Patience::of(MANY)).unwrap_err().to_string();
        assert!(error.contains("no engine rbd") && error.contains("Debian package fio"), "{error}");
        assert!(error.contains("librbd-dev"), "{error}");
        let missing = need("/nonexistent/fio", "rbd", Patience::of(MANY)).unwrap_err().to_string();
        assert!(missing.contains("install the Debian package fio"), "{missing}");
    }

    #[test]
    fn one_that_says_nothing_is_ended_in_time_and_at_a_stop() {
        let folder = tempfile::tempdir().unwrap();
        let program = stand_in(folder.path(), "exec sleep 60");
        let begin = Instant::now();
        let short = Patience::of(Duration::from_millis(100));
        for asked in [
            for_files(&program, folder.path(), short).map(drop),
            need(&program, "rbd", short),
            parse(&program, "[global]\n", folder.path(), short).map(drop),
        ] {
            let error = asked.unwrap_err().to_string();
            assert!(error.contains("did not answer within 0 s") && error.contains("--folder"), "{error}");
        }
        let begun = Instant::now();
        let stopped = || begun.elapsed() > Duration::from_millis(100);
        let error = need(&program, "rbd", Patience { time_max: MANY, stopped: &stopped }).unwrap_err();
        assert!(matches!(error, GeneratorError::Stopped), "{error}");
        assert!(begin.elapsed() < MANY, "{:?}", begin.elapsed());
    }
}
