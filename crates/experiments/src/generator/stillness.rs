//! Whether the jobs of a generator still do something.
//!
//! fio waits for ever for a drive or server that does not answer. A thread that waits is not woken and uses no processor, so that
//! neither its time nor the count of its switches grows; one that gets an answer, however late, is. fio's first thread and those of
//! Ceph's libraries wake all the time, whatever becomes of the load, and tell nothing. So jobs that are looked at have another nice
//! value than the first thread.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Command, Format, fio};

/// By how much nicer jobs are.
const JOB_NICE: i64 = 1;
/// They are looked at this often, and more often where little time is allowed.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);
const LOOKS_MIN: u32 = 10;

/// Has jobs be told apart. Says whether what they do can be seen: not if other hosts make the load. `coquina bench io` gives up by
/// itself.
pub fn mark(command: &mut Command) -> bool {
    let is_seen = command.format == Format::Fio && command.hosts().next().is_none();
    if is_seen {
        fio::add_options(command, &[("nice".to_owned(), JOB_NICE.to_string())]);
    }
    is_seen
}

/// For how long the jobs of a process have done nothing.
#[derive(Debug)]
pub struct Stillness {
    process: u32,
    time_max: Duration,
    interval: Duration,
    looked: Instant,
    still: Duration,
    work: Option<Vec<Work>>,
}

impl Stillness {
    /// Of this process, which may do nothing for so long.
    pub fn new(process: u32, time_max: Duration) -> Self {
        let interval = LOOK_INTERVAL_MAX.min(time_max / LOOKS_MIN);
        let (looked, still) = (Instant::now(), Duration::ZERO);
        Stillness { process, time_max, interval, looked, still, work: work_of(process) }
    }

    /// The time that is allowed, if they have done nothing for longer than that.
    pub fn is_over(&mut self) -> Option<Duration> {
        let since = self.looked.elapsed();
        if since < self.interval {
            return None;
        }
        self.looked = Instant::now();
        let work = work_of(self.process);
        if work.is_none() || work != self.work {
            (self.work, self.still) = (work, Duration::ZERO);
        } else {
            // Where this process, or the whole machine, stood still, the generator may have as well.
            self.still += since.min(self.interval * 2);
        }
        (self.still > self.time_max).then_some(self.time_max)
    }
}

/// What a thread has done up to now.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Work {
    thread: u32,
    ticks: u64,
    switches: u64,
}

/// What the jobs of a process have done; the first thread, if there are none: it reads and makes what they need. `None` where that
/// cannot be seen.
fn work_of(process: u32) -> Option<Vec<Work>> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let threads = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let seen: Vec<(i64, Work)> = threads.filter_map(|thread| look(process, thread)).collect();
    let nice_of_first = seen.iter().find(|(_, work)| work.thread == process)?.0;
    let (jobs, others): (Vec<_>, Vec<_>) =
        seen.into_iter().partition(|(nice, _)| *nice == nice_of_first + JOB_NICE);
    let counted = match jobs.is_empty() {
        true => others.into_iter().filter(|(_, work)| work.thread == process).collect(),
        false => jobs,
    };
    let mut work: Vec<Work> = counted.into_iter().map(|(_, work)| work).collect();
    work.sort_unstable();
    Some(work)
}

/// The nice value of a thread, and what it has done.
fn look(process: u32, thread: u32) -> Option<(i64, Work)> {
    let folder = format!("/proc/{process}/task/{thread}");
    let read = |name: &str| std::fs::read_to_string(Path::new(&folder).join(name)).ok();
    let (stat, status) = (read("stat")?, read("status")?);
    // Behind the name, which may hold blanks and brackets: the third field is the first.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    let (ticks_user, ticks_kernel, nice) = (number(14)?, number(15)?, number(19)?);
    let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    let switches = counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum();
    let ticks = u64::try_from(ticks_user + ticks_kernel).ok()?;
    Some((nice, Work { thread, ticks, switches }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::of_fio;
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_other_threads_do_is_no_work_of_jobs() {
        let (wake, woken) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel::<u32>();
        let job = std::thread::spawn(move || {
            let me = std::fs::read_link("/proc/thread-self").unwrap();
            tell.send(me.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            while woken.recv().is_ok() {}
        });
        let thread = told.recv().unwrap();
        let process = std::process::id();
        let nice = look(process, process).unwrap().0 + JOB_NICE;
        let arguments = ["-n", &nice.to_string(), "-p", &thread.to_string()];
        let reniced = std::process::Command::new("renice").args(arguments).output().unwrap();
        assert!(reniced.status.success(), "{reniced:?}");
        // It has gone to sleep by then; this thread wakes all the time, and others of this process work.
        std::thread::sleep(Duration::from_millis(300));
        let seen = |what: &str| {
            let work = work_of(process).expect(what);
            assert_eq!(work.iter().map(|work| work.thread).collect::<Vec<_>>(), [thread], "{what}");
            work
        };
        let before = seen("before");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(seen("while it waits"), before);
        wake.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_ne!(seen("when it was woken"), before);
        drop(wake);
        job.join().unwrap();
    }

    #[test]
    fn only_jobs_of_fio_on_this_host_are_looked_at() {
        let job = "[global]\nrw=write\n[volume0]\nfilename=/srv/a\n";
        let mut command = of_fio(job);
        let mut of_coquina = Command { format: Format::Coquina, ..command.clone() };
        let mut elsewhere = Command { arguments: vec!["--client=host".to_owned()], ..command.clone() };
        assert!(mark(&mut command) && !mark(&mut of_coquina) && !mark(&mut elsewhere));
        assert_eq!(command.files[0].1, job.replace("[volume0]", "nice=1\n[volume0]"));
        assert_eq!((of_coquina.files[0].1.as_str(), elsewhere.files[0].1.as_str()), (job, job));
    }
}
