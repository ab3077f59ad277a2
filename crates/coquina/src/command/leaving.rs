//! Waits until the data of a node or drive has moved away, showing how far that is.

use std::time::Duration;

use crate::error::CliError;
use crate::progress::Progress;

/// How often it is asked.
const POLL: Duration = Duration::from_millis(500);

/// What is left on it.
pub enum Left {
    /// So many placement groups.
    Groups(u64),
    /// It is forgotten.
    Gone,
}

/// Waits until it is gone. Ctrl-C ends the waiting, not the removal.
pub fn wait(
    what: &str,
    groups: u64,
    left: &mut dyn FnMut() -> Result<Left, CliError>,
) -> Result<(), CliError> {
    let progress = Progress::new(what);
    loop {
        match left()? {
            Left::Gone => return Ok(()),
            Left::Groups(now) => {
                let done = groups.saturating_sub(now) as f64 / groups.max(1) as f64;
                progress.set("moving data away", done, format!("{now} placement group(s) left"));
            }
        }
        std::thread::sleep(POLL);
    }
}
