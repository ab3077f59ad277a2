//! Progress of long work, on standard error and only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

const STEPS: u64 = 1000;

/// A bar with a message; shows nothing off a terminal.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar at its start.
    pub fn new(title: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{prefix:<24} [{bar:24}] {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(title.to_owned());
        Progress { bar }
    }

    /// Sets title, part done (0 to 1) and message.
    pub fn set(&self, title: &str, fraction: f64, message: String) {
        self.bar.set_prefix(title.to_owned());
        self.bar.set_position((fraction.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.bar.set_message(message);
    }

    /// Prints a line that stays, on standard error, whether that is a terminal or not.
    pub fn line(&self, line: &str) {
        self.bar.suspend(|| output::tell(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
