//! Runs a generator.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command as Process, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tempfile::TempDir;

use super::ending::{self, GO_TIME_MAX};
use super::gate::Gate;
use super::stillness::Stillness;
use super::{Command, Format, GeneratorError, Outcome, coquina, fio};
use crate::leftovers;

/// Stands for the generator's own folder in what fio is given, and must be no part of a name.
pub(super) const FOLDER: &str = "{folder}";

/// How often is looked whether to end it. Each look takes a processor from what is measured.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The same where the kernel (before 5.3) does not wake who waits for an end.
const POLL_FOR_END: Duration = Duration::from_millis(10);
/// Time to end after it was asked to. A load that was stopped is part of no figure, so that nothing is lost with one that does not end; but fio
/// that has other hosts make the load waits for their ends.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);
const STOP_TIME_MAX_OF_HOSTS: Duration = Duration::from_secs(20);
/// So long after its time it is taken to hang, if it has had as much time.
const HUNG_TIME_MAX: Duration = Duration::from_secs(20);
/// Time to end after it was asked to where its figures are of no use, before it is killed: a client of fio tells other hosts that their
/// load is to end, and who has images of Ceph open lets go of them, which would be watched for half a minute else.
const TELL_TIME_MAX: Duration = Duration::from_secs(5);
/// How long the removal of its folder may take.
const FOLDER_TIME_MAX: Duration = Duration::from_secs(20);
/// A measured time may lie so far outside of the time in which its process ran: intervals of logs are rounded.
const CLOCK_SLACK: Duration = Duration::from_millis(600);
/// Characters of its messages that are shown.
const MESSAGE_LENGTH_MAX: usize = 1500;

/// A generator at work. Dropping it ends it.
pub struct Running {
    child: Child,
    /// Can be read when it has ended.
    end: Option<OwnedFd>,
    folder: TempDir,
    format: Format,
    runtime_s: Option<f64>,
    program: String,
    started: Instant,
    started_at: SystemTime,
    is_stopped: bool,
    /// Where its jobs wait until they may begin.
    gate: Option<Gate>,
    /// Other hosts that make its load. They go on with it unless it tells them not to: it must not be killed before it could.
    hosts: Vec<String>,
    /// Ends it when its jobs do nothing any more.
    stillness: Option<Stillness>,
    /// Until when it is waited for when it is dropped, where others are ended at the same time.
    end_by: Option<Instant>,
    /// It was not killed yet when it was to end, but asked.
    is_asked: bool,
}

impl Running {
    /// Starts it, with a folder of its own in `scratch`. The thread that does so must live until its end.
    pub fn start(command: &Command, scratch: &Path) -> Result<Running, GeneratorError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| GeneratorError::File { path, source }
        };
        let folder = TempDir::with_prefix_in("load-", scratch).map_err(at(scratch))?;
        // `coquina bench io` needs no files, and takes names as they are.
        let in_folder = |text: &str| match command.format {
            Format::Fio => text.replace(FOLDER, &folder.path().to_string_lossy()),
            Format::Coquina => text.to_owned(),
        };
        for (name, content) in &command.files {
            let path = folder.path().join(name);
            if command.format == Format::Fio {
                fio::check_job(content).map_err(GeneratorError::Name)?;
            }
            std::fs::write(&path, in_folder(content)).map_err(at(&path))?;
        }
        let gate = Gate::close(command, folder.path()).map_err(at(folder.path()))?;
        let out = File::create(folder.path().join("stdout")).map_err(at(folder.path()))?;
        let messages = File::create(folder.path().join("stderr")).map_err(at(folder.path()))?;
        let program = command.program.to_string_lossy().into_owned();
        let mut process = Process::new(&command.program);
        let hosts: Vec<String> = command.hosts().map(str::to_owned).collect();
        end_with_this_process(&mut process, if hosts.is_empty() { libc::SIGKILL } else { libc::SIGINT });
        if let Some(processors) = &command.processors {
            keep_on(&mut process, processors);
        }
        let child = process
            .args(command.arguments.iter().map(|argument| in_folder(argument)))
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(messages)
            // Ctrl-C goes to the whole foreground group.
            .process_group(0)
            .spawn()
            .map_err(|source| GeneratorError::Start { program: program.clone(), source })?;
        let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Running {
            end: number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok()),
            child,
            folder,
            format: command.format,
            runtime_s: command.runtime_s,
            program,
            started: Instant::now(),
            started_at: SystemTime::now(),
            is_stopped: false,
            gate,
            hosts,
            stillness: None,
            end_by: None,
            is_asked: false,
        })
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Gives it up when its jobs, which must be [marked](super::mark), have done nothing for so long.
    pub fn end_when_still(&mut self, time_max: Duration) {
        self.stillness = Some(Stillness::new(self.child.id(), time_max));
    }

    /// Where its jobs wait, until it is opened.
    pub(super) fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref()
    }

    /// Lets its jobs begin.
    pub(super) fn open_gate(&mut self) {
        self.gate = None;
    }

    /// Whether it has ended.
    pub fn is_done(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end; what it has measured up to then can still be read.
    pub fn stop(&mut self) {
        if !self.is_stopped {
            self.is_stopped = true;
            signal(&self.child, libc::SIGINT);
        }
    }

    /// Waits for its end and reads its figures. `stopped` is asked all the time; `time_max` from its start on ends it.
    pub fn finish(
        mut self,
        time_max: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Outcome, GeneratorError> {
        let status = self.wait(time_max, stopped)?;
        let read = |name: &str| -> Result<String, GeneratorError> {
            let path = self.folder.path().join(name);
            let mut bytes = Vec::new();
            File::open(&path)
                .and_then(|mut file| file.read_to_end(&mut bytes))
                .map_err(|source| GeneratorError::File { path, source })?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let out = read("stdout")?;
        let parsed = match self.format {
            Format::Fio => fio::read(&out, &self.series(), self.runtime_s),
            Format::Coquina => coquina::read(&out),
        };
        let parsed = parsed.and_then(|outcome| match outcome.is_empty() && !status.success() {
            true => Err("it did nothing".to_owned()),
            false => Ok(outcome),
        });
        match parsed {
            Ok(mut outcome) => {
                outcome.is_stopped = self.is_stopped;
                if !self.is_within(&outcome, SystemTime::now()) {
                    outcome.began_unix_ms = None;
                }
                Ok(outcome)
            }
            Err(_) if self.is_stopped => Err(GeneratorError::Stopped),
            Err(message) if status.success() => {
                Err(GeneratorError::Unreadable { program: self.program.clone(), message })
            }
            Err(_) => {
                let said = tail(&format!("{}\n{}", read("stderr")?.trim(), words_before_json(&out)));
                let message = if said.is_empty() { self.silence() } else { said };
                Err(GeneratorError::Failed {
                    program: self.program.clone(),
                    status: status.to_string(),
                    message,
                })
            }
        }
    }

    /// Waits for the end of all of them, as [`Running::finish`] does. If one fails, the others are ended at once and together.
    pub fn finish_all(
        running: Vec<Running>,
        time_max: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Vec<Outcome>, GeneratorError> {
        let mut rest = running.into_iter();
        let mut outcomes = Vec::new();
        while let Some(one) = rest.next() {
            match one.finish(time_max, stopped) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => {
                    let now = Instant::now();
                    rest.as_mut_slice().iter_mut().for_each(|other| other.begin_end(now));
                    return Err(error);
                }
            }
        }
        Ok(outcomes)
    }

    /// Ends it, without waiting for that yet.
    fn begin_end(&mut self, now: Instant) {
        if self.end_by.is_none() && !ending::Process::is_gone(&mut self.child) {
            // Who did not hear it before will not hear it now; other hosts are told again.
            self.is_asked = !self.is_stopped || !self.hosts.is_empty();
            match self.is_asked {
                true => signal(&self.child, libc::SIGINT),
                false => ending::Process::kill(&mut self.child),
            }
        }
        let time_max = if self.is_asked { TELL_TIME_MAX } else { GO_TIME_MAX };
        self.end_by.get_or_insert(now + time_max);
    }

    /// What may be the reason if it said nothing: where a disk is full, messages do not fit on it either.
    fn silence(&self) -> String {
        let folder = self.folder.path();
        match crate::target::free_bytes(folder) {
            Ok(free_bytes) => format!(
                "it said nothing; {} are free where its messages would be, in {}",
                coquina_base::format_size_bytes(free_bytes),
                folder.display()
            ),
            Err(error) => format!("it said nothing; {} cannot be looked at: {error}", folder.display()),
        }
    }

    /// All of fio's logs of operations per second, one behind the other.
    fn series(&self) -> String {
        let Ok(entries) = std::fs::read_dir(self.folder.path()) else { return String::new() };
        let logs = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(fio::SERIES_PREFIX))
        });
        // One that cannot be read is as good as none: steadiness is then not judged.
        let texts = logs.map(|path| std::fs::read_to_string(path).unwrap_or_default() + "\n");
        texts.collect()
    }

    /// Whether the measured time lies between start and end of this process. Another host's clock may say otherwise.
    fn is_within(&self, outcome: &Outcome, now: SystemTime) -> bool {
        let Some(began_unix_ms) = outcome.began_unix_ms else { return true };
        let unix_ms = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3;
        let (began_ms, measured_ms) = (began_unix_ms as f64, outcome.measured_s * 1e3);
        let slack_ms = CLOCK_SLACK.as_secs_f64() * 1e3;
        began_ms + slack_ms >= unix_ms(self.started_at) && began_ms + measured_ms <= unix_ms(now) + slack_ms
    }

    /// How long it may take to end when it was asked to.
    fn stop_time_max(&self) -> Duration {
        if self.hosts.is_empty() { STOP_TIME_MAX } else { STOP_TIME_MAX_OF_HOSTS }
    }

    fn wait(&mut self, time_max: Duration, stopped: &dyn Fn() -> bool) -> Result<ExitStatus, GeneratorError> {
        let mut stop_at = None;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(status);
            }
            let now = Instant::now();
            if stop_at.is_none() && stopped() {
                self.stop();
                stop_at = Some(now);
            }
            if stop_at.is_some_and(|at| now > at + self.stop_time_max()) {
                return Err(GeneratorError::Stopped);
            }
            if let Some(still) = self.stillness.as_mut().and_then(Stillness::is_over) {
                return Err(GeneratorError::Still {
                    program: self.program.clone(),
                    seconds: still.as_secs(),
                });
            }
            if now > self.started + time_max + HUNG_TIME_MAX.min(time_max) {
                return Err(GeneratorError::Hung {
                    program: self.program.clone(),
                    seconds: HUNG_TIME_MAX.min(time_max).as_secs(),
                });
            }
            self.sleep_until_end();
        }
    }

    /// Waits until it has ended, or it is time to look whether to end it.
    fn sleep_until_end(&self) {
        match &self.end {
            Some(end) => {
                // A signal ends the wait early, which is as good as its time.
                let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&POLL));
            }
            None => std::thread::sleep(POLL_FOR_END),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If it has not ended yet, its figures are of no use any more.
        let now = Instant::now();
        self.begin_end(now);
        let mut end_by = self.end_by.unwrap_or(now);
        if self.is_asked && !ending::is_gone_by(&mut self.child, end_by) {
            if !self.hosts.is_empty() {
                leftovers::note(format!(
                    "load that may go on at {}, since fio here did not end when it was asked to: end `fio --server` and its children there",
                    self.hosts.join(", ")
                ))
                .keep();
            }
            end_by = Instant::now() + GO_TIME_MAX;
        }
        let is_gone = ending::end(&mut self.child, &self.program, end_by);
        // If it is not removed here, it goes with the run's folder. For neither anybody waits for ever: the drive may hang.
        self.folder.disable_cleanup(true);
        let path = self.folder.path().to_owned();
        if is_gone {
            let _ = leftovers::removed_within(FOLDER_TIME_MAX, move || std::fs::remove_dir_all(path));
        }
    }
}

/// Has the kernel send a child this signal when the thread that starts it ends, so that no load goes on after a run that was killed.
pub fn end_with_this_process(process: &mut Process, number: i32) {
    let ask = move || {
        // SAFETY: this call takes numbers only, and may be made between fork and exec.
        #[allow(unsafe_code)]
        let failed = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number) };
        if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure neither allocates nor takes locks.
    #[allow(unsafe_code)]
    unsafe {
        process.pre_exec(ask);
    }
}

/// Has a child run on these processors only.
fn keep_on(process: &mut Process, processors: &[u32]) {
    // SAFETY: all-zero is an empty set.
    #[allow(unsafe_code)]
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for processor in processors.iter().filter(|processor| **processor < libc::CPU_SETSIZE as u32) {
        // SAFETY: the number is within the set.
        #[allow(unsafe_code)]
        unsafe {
            libc::CPU_SET(*processor as usize, &mut set);
        }
    }
    let ask = move || {
        // SAFETY: the set lives in the closure; this call may be made between fork and exec.
        #[allow(unsafe_code)]
        let failed = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
        if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure neither allocates nor takes locks.
    #[allow(unsafe_code)]
    unsafe {
        process.pre_exec(ask);
    }
}

/// Of our child, which has not been waited for, so that the number is its own.
fn signal(child: &Child, number: i32) {
    ending::signal(child.id(), number);
}

/// fio puts warnings in front of its JSON.
fn words_before_json(out: &str) -> &str {
    out.split_once('{').map_or(out, |(before, _)| before).trim()
}

pub(super) fn tail(text: &str) -> String {
    let text = text.trim();
    let skipped = text.chars().count().saturating_sub(MESSAGE_LENGTH_MAX);
    text.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script in place of fio, which leaves `began + 500` in two logs, as `fio --client=HOST` does.
    fn outcome_of(began_unix_ms: u64) -> Outcome {
        let scratch = tempfile::tempdir().unwrap();
        let json = include_str!("fio/one_client.json");
        let script = format!(
            "echo '{}, 10, 1, 0, 0' >series_iops.1.log.host; cp series_iops.1.log.host series_iops.2.log.host; \
             echo lat >series_lat.1.log; sleep 0.6; cat out.json",
            began_unix_ms + 500
        );
        let command = Command {
            program: "bash".into(),
            arguments: vec!["-c".to_owned(), script],
            environment: Vec::new(),
            files: vec![("out.json".to_owned(), json.to_owned())],
            format: Format::Fio,
            processors: None,
            runtime_s: None,
        };
        let running = Running::start(&command, scratch.path()).unwrap();
        running.finish(Duration::from_secs(20), &|| false).unwrap()
    }

    #[test]
    fn logs_of_all_jobs_of_another_host_are_one_series() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now_ms = u64::try_from(now.as_millis()).unwrap();
        let outcome = outcome_of(now_ms);
        assert_eq!(outcome.series, [20.0]);
        assert_eq!(outcome.began_unix_ms, Some(now_ms));
        // Another host's clock may be wrong: then nobody knows when its load began.
        for wrong_ms in [now_ms - 60_000, now_ms + 60_000] {
            let outcome = outcome_of(wrong_ms);
            assert_eq!((outcome.series.as_slice(), outcome.began_unix_ms), ([20.0].as_slice(), None));
        }
    }

    #[test]
    fn one_that_gives_up_was_not_stopped_by_its_user() {
        let scratch = tempfile::tempdir().unwrap();
        let json = r#"{"measured_began_unix_ms": 7000, "measured_s": 0.0, "total": {"operations": 0, "iops": 0.0, "bytes_per_s": 0.0,
            "latency_ns_mean": 0.0, "latency_ns_max": 0, "latency_histogram": []}, "operations_by_500_ms": [], "errors": 0,
            "interrupted": "the connection broke"}"#;
        let command = Command {
            program: "bash".into(),
            arguments: vec!["-c".to_owned(), "cat out.json; exit 1".to_owned()],
            environment: Vec::new(),
            files: vec![("out.json".to_owned(), json.to_owned())],
            format: Format::Coquina,
            processors: None,
            runtime_s: None,
        };
        let running = Running::start(&command, scratch.path()).unwrap();
        let outcome = running.finish(Duration::from_secs(20), &|| false).unwrap();
        assert_eq!((outcome.is_stopped, outcome.errors), (false, 1));
        assert_eq!(outcome.first_error.as_deref(), Some("the connection broke"));
    }

    /// A script in the place of a fio whose load other hosts make.
    fn client(host: &str, script: &str) -> Command {
        let host = format!("--client={host}");
        // Who starts the tests in the background of a shell hands a SIGINT on that is ignored, and no shell takes that back.
        let arguments = ["--default-signal=INT", "bash", "-c", script, &host];
        Command {
            program: "env".into(),
            arguments: arguments.map(str::to_owned).to_vec(),
            environment: Vec::new(),
            files: Vec::new(),
            format: Format::Fio,
            processors: None,
            runtime_s: None,
        }
    }

    fn wait_for_file(path: &Path) {
        let begin = Instant::now();
        while !path.exists() {
            assert!(begin.elapsed() < Duration::from_secs(20), "there is no {}", path.display());
            std::thread::sleep(POLL_FOR_END);
        }
    }

    #[test]
    fn who_has_other_hosts_make_load_can_tell_them_that_it_ends() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let start = |name: &str| {
            let (begun, told) = (path(&format!("{name}-begun")), path(&format!("{name}-told")));
            let script = format!(
                "trap 'touch {}; exit' INT; touch {}; while :; do sleep 0.05; done",
                told.display(),
                begun.display()
            );
            let running = Running::start(&client("a", &script), scratch.path()).unwrap();
            wait_for_file(&begun);
            running
        };
        drop(start("dropped"));
        assert!(path("dropped-told").exists());
        // The thread that started it ends like a process that is killed: nobody drops anything.
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(start("forgotten")));
        });
        wait_for_file(&path("forgotten-told"));
    }

    #[test]
    fn one_that_hangs_is_ended_soon_when_the_run_is_stopped() {
        let scratch = tempfile::tempdir().unwrap();
        let begun = scratch.path().join("begun");
        let deaf = format!("trap '' INT; touch {}; exec sleep 60", begun.display());
        let mut command = client("a", &deaf);
        command.arguments.pop();
        let running = Running::start(&command, scratch.path()).unwrap();
        wait_for_file(&begun);
        let (begin, process) = (Instant::now(), running.process());
        let stopped = running.finish(Duration::from_secs(60), &|| true);
        assert!(matches!(stopped, Err(GeneratorError::Stopped)), "{stopped:?}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        assert!(!Path::new(&format!("/proc/{process}")).exists());
        // Other hosts have to be told.
        let of_hosts = Running::start(&client("a", "exit 0"), scratch.path()).unwrap();
        assert_eq!(of_hosts.stop_time_max(), Duration::from_secs(20));
    }

    #[test]
    fn load_of_other_hosts_that_may_go_on_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let begun = scratch.path().join("begun");
        let deaf = format!("trap '' INT; touch {}; exec sleep 60", begun.display());
        let running = Running::start(&client("host-of-a-test", &deaf), scratch.path()).unwrap();
        wait_for_file(&begun);
        let process = running.process();
        drop(running);
        assert!(!Path::new(&format!("/proc/{process}")).exists());
        let told = leftovers::all();
        assert!(told.iter().any(|text| text.contains("may go on at host-of-a-test, ")), "{told:?}");
    }

    #[test]
    fn one_that_fails_without_a_word_is_told_with_the_room_that_it_had() {
        let scratch = tempfile::tempdir().unwrap();
        let command = Command {
            program: "false".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            files: Vec::new(),
            format: Format::Fio,
            processors: None,
            runtime_s: None,
        };
        let running = Running::start(&command, scratch.path()).unwrap();
        let error = running.finish(Duration::from_secs(20), &|| false).unwrap_err().to_string();
        assert!(error.contains("it said nothing; ") && error.contains("are free where"), "{error}");
    }

    #[test]
    fn a_job_that_would_use_another_name_is_not_run() {
        let scratch = tempfile::tempdir().unwrap();
        let command = Command {
            program: "touch".into(),
            arguments: vec![format!("{}/ran", scratch.path().display())],
            environment: Vec::new(),
            files: vec![("job.fio".to_owned(), "[global]\nx=$a\n[volume0]\nfilename=/srv/a#b\n".to_owned())],
            format: Format::Fio,
            processors: None,
            runtime_s: None,
        };
        let Err(error) = Running::start(&command, scratch.path()) else { panic!("it was started") };
        assert!(error.to_string().contains("\"/srv/a#b\" holds '#'"), "{error}");
        assert!(!scratch.path().join("ran").exists());
    }

    #[test]
    fn the_word_for_the_folder_is_no_part_of_a_name() {
        for name in ["/srv/{folder}/x", "{folder}"] {
            assert!(fio::check_name(name).unwrap_err().contains("would use something else"), "{name}");
        }
        assert_eq!(fio::check_name("/srv/{a}/folder"), Ok(()));
        let scratch = tempfile::tempdir().unwrap();
        let out = scratch.path().join("out");
        let command = |format, job: &str| Command {
            program: "bash".into(),
            arguments: ["-c", "echo \"$1\" >\"$0\"", &out.to_string_lossy(), "/srv/{folder}"]
                .map(str::to_owned)
                .into(),
            environment: Vec::new(),
            files: vec![("job.fio".to_owned(), job.to_owned())],
            format,
            processors: None,
            runtime_s: None,
        };
        let job = "[global]\nwrite_iops_log={folder}/series\n[volume0]\nfilename=/srv/{folder}/x\n";
        let Err(error) = Running::start(&command(Format::Fio, job), scratch.path()) else {
            panic!("it was started")
        };
        assert!(error.to_string().contains("{folder}"), "{error}");
        assert!(!out.exists());
        // What makes no use of it takes the name as it is.
        let mut running = Running::start(&command(Format::Coquina, ""), scratch.path()).unwrap();
        running.wait(Duration::from_secs(20), &|| false).unwrap();
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "/srv/{folder}\n");
    }

    #[test]
    fn a_program_runs_on_the_processors_that_it_is_given() {
        let mut process = Process::new("nproc");
        keep_on(&mut process, &[0]);
        let printed = process.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&printed.stdout).trim(), "1");
    }
}
