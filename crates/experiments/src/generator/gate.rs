//! A gate at which jobs of fio wait for each other before they begin.
//!
//! Each job of fio begins as soon as it is ready. With an engine that connects to a cluster that takes longer for one than for another,
//! and on a busy machine longer than a short round: what is added up then was not measured at the same time. fio runs a program of the
//! user before a job's warm-up (`exec_prerun`), when its engine is ready. This one says so, and waits for a lock that is held here until
//! all have said it.

use std::fs::File;
use std::io::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::process::Running;
use super::{Command, Format, GeneratorError};

/// Jobs that are not ready after this time begin later than the others.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(3);
/// Time of jobs to go on when the gate is open.
const MOMENT: Duration = Duration::from_millis(200);
/// The program that jobs run, the file that it locks, and the one to which each job adds a byte. All are in the generator's folder, which
/// is where it runs: a path could hold what fio would not take as it is.
const PROGRAM: &str = "gate.sh";
const LOCK: &str = "gate";
const READY: &str = "ready";

/// Has the jobs of these commands wait for each other, if there are several. Those of other hosts would wait for ever.
pub fn put(commands: &mut [Command]) {
    let can_wait = |command: &Command| command.format == Format::Fio && command.hosts().next().is_none();
    let all: u64 = commands.iter().filter(|command| can_wait(command)).map(jobs).sum();
    if all < 2 {
        return;
    }
    for command in commands.iter_mut().filter(|command| can_wait(command)) {
        if command.files.iter().any(|(_, job)| job.contains("\nexec_prerun=")) {
            // Its user has something else for it to do.
            continue;
        }
        super::fio::add_options(command, &[("exec_prerun".to_owned(), format!("sh {PROGRAM}"))]);
        // fio gives a job up whose program fails. The lock is let go of when its holder ends, however it does.
        let wait_max_s = WAIT_MAX.as_secs() * 2;
        let program =
            format!("printf . >>{READY}\nflock --shared --timeout {wait_max_s} {LOCK} true\nexit 0\n");
        command.files.push((PROGRAM.to_owned(), program));
    }
}

/// Jobs of a command: each section is one, or so many as it says.
fn jobs(command: &Command) -> u64 {
    let of_file = |job: &str| {
        let each = job.lines().find_map(|line| line.strip_prefix("numjobs=")?.parse().ok()).unwrap_or(1);
        job.matches("\n[volume").count() as u64 * each
    };
    command.files.iter().map(|(_, job)| of_file(job)).sum()
}

/// The gate of one generator.
#[derive(Debug)]
pub struct Gate {
    /// Holds the lock while the gate is closed.
    _lock: File,
    ready: PathBuf,
    jobs: u64,
}

impl Gate {
    /// Closes the gate of a command whose files lie in this folder; `None` if it has none.
    pub fn close(command: &Command, folder: &Path) -> Result<Option<Gate>, Error> {
        if !command.files.iter().any(|(name, _)| name == PROGRAM) {
            return Ok(None);
        }
        let lock = File::create(folder.join(LOCK))?;
        lock.lock()?;
        Ok(Some(Gate { _lock: lock, ready: folder.join(READY), jobs: jobs(command) }))
    }

    /// Whether all its jobs wait.
    fn is_ready(&self) -> bool {
        std::fs::metadata(&self.ready).is_ok_and(|ready| ready.len() >= self.jobs)
    }
}

/// Opens the gates of generators when all their jobs are ready, one has ended, or too much time has gone by. Says when that was, if there
/// is a gate.
pub fn open_together(
    running: &mut [Running],
    stopped: &dyn Fn() -> bool,
) -> Result<Option<Instant>, GeneratorError> {
    let begin = Instant::now();
    let waits = |one: &mut Running| one.gate().is_some_and(|gate| !gate.is_ready());
    while running.iter_mut().any(waits)
        && begin.elapsed() < WAIT_MAX
        && !running.iter_mut().any(Running::is_done)
    {
        if stopped() {
            // fio does not hear of it while it waits (`system` has SIGINT ignored meanwhile). When it waits no more it lets go of what it
            // has open as soon as it is asked to: dropping does so, and kills who does not hear.
            running.iter_mut().for_each(Running::open_gate);
            std::thread::sleep(MOMENT);
            return Err(GeneratorError::Stopped);
        }
        std::thread::sleep(POLL);
    }
    let has_gate = running.iter().any(|one| one.gate().is_some());
    running.iter_mut().for_each(Running::open_gate);
    Ok(has_gate.then(Instant::now))
}

#[cfg(test)]
mod tests {
    use super::super::tests::of_fio;
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn only_jobs_that_have_others_to_wait_for_wait() {
        let single = "[global]\nrw=read\n[volume0]\nfilename=/srv/a\n";
        let several =
            "[global]\nrw=read\nnumjobs=3\n[volume0]\nfilename=/srv/a\n[volume1]\nfilename=/srv/b\n";
        assert_eq!((jobs(&of_fio(single)), jobs(&of_fio(several))), (1, 6));
        let has_gate = |commands: &[Command]| -> Vec<bool> {
            commands
                .iter()
                .map(|command| command.files[0].1.contains("exec_prerun=sh gate.sh\n[volume0]"))
                .collect()
        };
        let after = |mut commands: Vec<Command>| {
            put(&mut commands);
            has_gate(&commands)
        };
        assert_eq!(after(vec![of_fio(single)]), [false]);
        assert_eq!(after(vec![of_fio(several)]), [true]);
        assert_eq!(after(vec![of_fio(single), of_fio(single)]), [true, true]);
        let mut elsewhere = of_fio(single);
        elsewhere.arguments.push("--client=host".to_owned());
        assert_eq!(after(vec![of_fio(single), elsewhere]), [false, false]);
        let other = Command { format: Format::Coquina, ..of_fio(several) };
        assert_eq!(after(vec![other]), [false]);
        let own = several.replace("rw=read", "exec_prerun=true");
        assert_eq!(after(vec![of_fio(&own)]), [false]);
    }

    #[test]
    fn jobs_begin_when_the_slowest_is_ready() {
        let scratch = tempfile::tempdir().unwrap();
        let mut commands = [0.0, 0.7].map(|ready_after_s| {
            let job = format!("[global]\nrw=read\n[volume0]\nfilename=/srv/{ready_after_s}\n");
            let script = format!("sleep {ready_after_s}; sh gate.sh; date +%s%N; exit 3");
            Command { arguments: vec!["-c".to_owned(), script], ..of_fio(&job) }
        });
        put(&mut commands);
        let (start, began) = (SystemTime::now(), Instant::now());
        let mut running: Vec<Running> =
            commands.iter().map(|command| Running::start(command, scratch.path()).unwrap()).collect();
        let opened = open_together(&mut running, &|| false).unwrap().unwrap();
        assert!(opened.duration_since(began) >= Duration::from_millis(700), "what is told is when it was");
        assert_eq!(open_together(&mut running, &|| false).unwrap(), None, "there is no gate any more");
        for one in running {
            let said = one.finish(WAIT_MAX, &|| false).unwrap_err().to_string();
            let began_ns: u64 = said
                .split_whitespace()
                .find_map(|word| word.parse().ok().filter(|ns| *ns > 1 << 40))
                .expect(&said);
            let began = SystemTime::UNIX_EPOCH + Duration::from_nanos(began_ns);
            assert!(began.duration_since(start).unwrap() >= Duration::from_millis(700), "{said}");
        }
    }

    #[test]
    fn nobody_waits_for_one_that_has_ended_or_for_a_run_that_is_stopped() {
        let scratch = tempfile::tempdir().unwrap();
        let job = "[global]\n[volume0]\nfilename=/srv/a\n";
        let script =
            |text: &str| Command { arguments: vec!["-c".to_owned(), text.to_owned()], ..of_fio(job) };
        let mut commands = [script("exit 1"), script("sh gate.sh")];
        put(&mut commands);
        let start_all = |commands: &[Command]| -> Vec<Running> {
            commands.iter().map(|command| Running::start(command, scratch.path()).unwrap()).collect()
        };
        let begin = Instant::now();
        let mut running = start_all(&commands);
        open_together(&mut running, &|| false).unwrap();
        running.into_iter().for_each(|one| drop(one.finish(WAIT_MAX, &|| false)));
        let mut commands = [script("sleep 30"), script("sh gate.sh")];
        put(&mut commands);
        let mut running = start_all(&commands);
        let stopped = open_together(&mut running, &|| begin.elapsed() > Duration::from_millis(100));
        assert!(matches!(stopped, Err(GeneratorError::Stopped)), "{stopped:?}");
        drop(running);
        assert!(begin.elapsed() < WAIT_MAX, "{:?}", begin.elapsed());
    }

    /// As fio hears nothing while `system` runs the program of its jobs.
    #[test]
    fn one_that_waits_when_the_run_is_stopped_can_let_go_of_what_it_has_open() {
        let scratch = tempfile::tempdir().unwrap();
        let closed = scratch.path().join("closed");
        let job = "[global]\n[volume0]\nfilename=/srv/a\n[volume1]\nfilename=/srv/b\n";
        let text = format!(
            "trap '' INT; printf . >>ready; sh gate.sh; trap 'touch {}; exit' INT; while :; do sleep 0.05; done",
            closed.display()
        );
        // Who starts the tests in the background of a shell hands a SIGINT on that is ignored, and no shell takes that back.
        let arguments = ["--default-signal=INT", "sh", "-c", &text].map(str::to_owned).to_vec();
        let mut commands = [Command { program: "env".into(), arguments, ..of_fio(job) }];
        put(&mut commands);
        let mut running = vec![Running::start(&commands[0], scratch.path()).unwrap()];
        let gate = running[0].gate().unwrap();
        let begin = Instant::now();
        while !gate.is_ready() {
            assert!(begin.elapsed() < WAIT_MAX);
            std::thread::sleep(POLL);
        }
        std::fs::write(&gate.ready, "").unwrap();
        assert!(matches!(open_together(&mut running, &|| true), Err(GeneratorError::Stopped)));
        drop(running);
        assert!(closed.exists());
    }
}
