//! Who looks at hundreds of processes lets those go first that stand in line for the same processor.
//!
//! A thread that looks for events and gives its processor away in between is never woken, so the scheduler does not move it to an idle
//! processor: behind a look of 2 ms it waits for all of that, and what is measured with it.

use std::time::{Duration, Instant};

/// So long a look goes on at a time.
const STRETCH: Duration = Duration::from_micros(100);
/// Where those in line take longer than this, they are at work without a pause: to wait for them again would pull apart what belongs together.
const LINE_MAX: Duration = Duration::from_millis(1);

/// Of one look.
#[derive(Debug)]
pub(super) struct Way {
    since: Instant,
    is_given: bool,
}

impl Way {
    /// A look begins.
    pub(super) fn new() -> Way {
        Way { since: Instant::now(), is_given: true }
    }

    /// Between two parts of a look: lets others go first if it has gone on for long enough.
    pub(super) fn give(&mut self) {
        let began = Instant::now();
        if !self.is_given || began.duration_since(self.since) < STRETCH {
            return;
        }
        std::thread::yield_now();
        self.since = Instant::now();
        self.is_given = self.since.duration_since(began) <= LINE_MAX;
    }
}
