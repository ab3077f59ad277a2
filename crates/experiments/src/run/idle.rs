//! The machine before load is made: what takes processors all the time, and what a report says of one that is busy with something else.

use std::path::PathBuf;
use std::time::Duration;

use coquina_host::{DriveCounter, Role};

use crate::target::TargetError;

use super::measure::{drives_of, drives_to_sample, sampler};

/// The idle machine is looked at for so long.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// What the machine does while no load is made: not what targets do for themselves, which counts for them.
#[derive(Clone, Debug, Default)]
pub struct Idle {
    /// Busy time without that of targets.
    pub us_per_s: f64,
    /// Busy time of the kernel's threads and of interrupts.
    pub kernel_us_per_s: f64,
    /// Busy time of processes that have nothing to do with the run, and the busiest of them.
    pub outside_us_per_s: f64,
    /// Its name; empty where no process was seen to take any, as of time in which a virtual machine stood still.
    pub busiest: String,
    /// What it took.
    pub busiest_us_per_s: f64,
    /// Busy time of all.
    pub all_us_per_s: f64,
    /// Drives that hold targets.
    pub drives: Vec<DriveCounter>,
}

impl Idle {
    /// Looks for some seconds. `servers` are the processes of all targets.
    pub fn look(
        places: &[PathBuf],
        servers: &[u32],
        stopped: &dyn Fn() -> bool,
    ) -> Result<Self, TargetError> {
        let mut idle = Idle { drives: drives_of(places), ..Idle::default() };
        let processes = servers.iter().map(|pid| (*pid, Role::Target)).collect();
        let sampled = drives_to_sample(places, true);
        let Ok(sampler) = sampler(IDLE_TIME.as_secs_f64(), sampled, processes) else { return Ok(idle) };
        let from = sampler.mark();
        while from.elapsed() < IDLE_TIME {
            if stopped() {
                return Err(TargetError::Stopped);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let to = sampler.mark();
        if let Some(seen) = sampler.window(from, to) {
            idle.all_us_per_s = seen.busy_cores * 1e6;
            idle.us_per_s = (seen.busy_cores - seen.role_cores(Role::Target)).max(0.0) * 1e6;
            idle.kernel_us_per_s = seen.role_cores(Role::Kernel) * 1e6;
            idle.outside_us_per_s = seen.role_cores(Role::Outside) * 1e6;
            if let Some(one) = seen.processes.iter().find(|process| process.role == Role::Outside) {
                idle.busiest = format!("{} (pid {})", one.name, one.pid);
                idle.busiest_us_per_s = seen.process_cores(one) * 1e6;
            }
        }
        sampler.stop();
        Ok(idle)
    }

    /// What is said of a machine that was busy before the run.
    pub fn text(&self, are_servers_known: bool) -> String {
        let cores = self.outside_us_per_s / 1e6;
        if self.busiest.is_empty() {
            return format!(
                "{cores:.1} cores were busy before the run, with what no process was seen to do: short ones may have done it, or the whole \
                 machine stood still. Figures are lower and less sure than on a quiet machine"
            );
        }
        let is_most = self.busiest_us_per_s * 2.0 >= self.outside_us_per_s;
        let which = if is_most { "most of it" } else { "by several processes, the busiest" };
        let who = format!("{which} {}", self.busiest);
        match are_servers_known {
            true => format!(
                "{cores:.1} cores were busy with something else before the run, {who}: figures are lower and less sure than on a quiet \
                 machine"
            ),
            false => format!(
                "{cores:.1} cores were busy before the run, {who}, which may serve a target: not all that does is known here. If it is \
                 something else, figures are lower and less sure than on a quiet machine"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_serve_a_target_is_not_something_else() {
        let busiest = "ceph-osd (pid 7)".to_owned();
        let mut idle = Idle { outside_us_per_s: 4e5, busiest, busiest_us_per_s: 3e5, ..Idle::default() };
        assert!(
            idle.text(true)
                .starts_with("0.4 cores were busy with something else before the run, most of it ceph-osd")
        );
        let told = idle.text(false);
        assert!(told.contains("ceph-osd (pid 7), which may serve a target"), "{told}");
        idle.busiest_us_per_s = 1e5;
        assert!(idle.text(true).contains("run, by several processes, the busiest ceph-osd (pid 7): figures"));
        idle.busiest.clear();
        for are_known in [true, false] {
            let told = idle.text(are_known);
            assert!(
                told.starts_with("0.4 cores were busy before the run, with what no process was seen to do"),
                "{told}"
            );
        }
    }
}
