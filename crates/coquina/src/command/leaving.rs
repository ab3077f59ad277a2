//! Waits until the data of a node or drive has moved away, showing how far that is. The server that is asked may go meanwhile.

use std::time::Duration;

use coquina_control::{Client, ClientError};

use super::elsewhere::{Cluster, is_silence};
use crate::error::CliError;
use crate::output;
use crate::progress::Progress;
use crate::signal;

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
    cluster: &mut Cluster,
    left: impl Fn(&Client) -> Result<Left, ClientError>,
) -> Result<(), CliError> {
    let told = goes_on_text(what);
    signal::stop_flag(1, move || output::tell(&told))?;
    wait_with(what, groups, &mut || cluster.ask(&left).map_err(|error| failed(what, error)))
}

/// What is told at Ctrl-C.
fn goes_on_text(what: &str) -> String {
    format!(
        "\nthe removal of the {what} goes on; `coquina {what} list` shows how far it is, and the same command with --cancel takes it back"
    )
}

/// That nobody answers does not end the removal.
fn failed(what: &str, error: ClientError) -> CliError {
    if !is_silence(&error) {
        return error.into();
    }
    CliError::failed(format!(
        "the {what} is being removed, and that goes on, but nobody of the cluster answers here any more: {error}; `coquina \
         {what} list --server HOST:PORT`, with the HTTP address of a node that stays, shows whether it is gone"
    ))
}

fn wait_with(
    what: &str,
    groups: u64,
    left: &mut dyn FnMut() -> Result<Option<Left>, CliError>,
) -> Result<(), CliError> {
    let progress = Progress::new(what);
    loop {
        match left()? {
            None => {}
            Some(Left::Gone) => return Ok(()),
            Some(Left::Stays) => {
                return Err(CliError::failed(format!(
                    "the {what} stays: somebody took its removal back meanwhile"
                )));
            }
            Some(Left::Groups(now)) => {
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
        let mut looks = [Some(Left::Groups(3)), None, Some(Left::Stays)].into_iter();
        let error = wait_with("drive", 3, &mut || Ok(looks.next().unwrap())).unwrap_err().to_string();
        assert!(error.contains("the drive stays"), "{error}");
        wait_with("drive", 3, &mut || Ok(Some(Left::Gone))).unwrap();
    }

    #[test]
    fn a_removal_is_not_said_to_have_failed_since_nobody_answers() {
        let error = ClientError::Unreachable { address: "a:1".to_owned(), reason: "refused".to_owned() };
        let text = failed("node", error).to_string();
        assert!(text.contains("the node is being removed, and that goes on"), "{text}");
        assert!(text.contains("`coquina node list --server HOST:PORT`"), "{text}");
    }
}
