//! Waits until what a target was left to do is done: writing back, cleaning, compacting. Otherwise the next one would pay for it, and
//! nobody would count it.

use std::time::{Duration, Instant};

use coquina_host::{DriveCounter, MachineCpu};

use crate::definition::ModeName;

use super::idle::Idle;

const LOOK: Duration = Duration::from_millis(100);
/// Busy cores above those of the idle machine.
const BUSY_CORES_MAX: f64 = 0.15;
/// Bytes written to drives per second.
const WRITTEN_BYTES_PER_S_MAX: f64 = 8e6;
/// A wait that ended so short a time ago need not be repeated.
const RECENT: Duration = Duration::from_millis(50);

/// Longest wait before and after a turn, in seconds.
pub fn wait_s_max(mode: ModeName) -> u64 {
    match mode {
        ModeName::Quick => 2,
        ModeName::Default => 15,
        ModeName::Full => 60,
    }
}

/// Whether a wait that ended at that moment need not be repeated.
pub fn is_recent(waited_at: Instant) -> bool {
    waited_at.elapsed() < RECENT
}

/// Waits until the machine is nearly as quiet as it was before the run, but not for ever: a store may always have something
/// to do. Says whether it is.
pub fn wait(idle: &Idle, time_max: Duration, stopped: &dyn Fn() -> bool) -> bool {
    let begin = Instant::now();
    let written = || idle.drives.iter().filter_map(DriveCounter::written_bytes).sum::<u64>();
    let Ok(mut last) = MachineCpu::now() else { return false };
    let mut last_written = written();
    while begin.elapsed() < time_max && !stopped() {
        std::thread::sleep(LOOK);
        let Ok(now) = MachineCpu::now() else { return false };
        let now_written = written();
        let seconds = now.seconds_since(&last).max(1e-3);
        let busy_us_per_s = now.busy_us_since(&last) as f64 / seconds;
        let written_per_s = now_written.saturating_sub(last_written) as f64 / seconds;
        if busy_us_per_s < idle.all_us_per_s + BUSY_CORES_MAX * 1e6 && written_per_s < WRITTEN_BYTES_PER_S_MAX
        {
            return true;
        }
        (last, last_written) = (now, now_written);
    }
    false
}
