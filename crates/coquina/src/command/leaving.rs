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
    /// It is not to leave any more.
    Stays,
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
            Left::Stays => {
                return Err(CliError::failed(format!(
                    "the {what} stays: somebody took its removal back meanwhile"
                )));
            }
            Left::Groups(now) => {
                let done = groups.saturating_sub(now) as f64 / groups.max(1) as f64;
                progress.set("moving data away", done, format!("{now} placement group(s) left"));
            }
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_to_leave_any_more_is_not_waited_for() {
        let mut looks = [Left::Groups(3), Left::Stays].into_iter();
        let error = wait("drive", 3, &mut || Ok(looks.next().unwrap())).unwrap_err().to_string();
        assert!(error.contains("the drive stays"), "{error}");
        wait("drive", 3, &mut || Ok(Left::Gone)).unwrap();
    }
}
