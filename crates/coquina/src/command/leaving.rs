//! Waits until the data of a node or drive has moved away, showing how far that is. The server that is asked may go meanwhile.

use std::time::{Duration, Instant};

use coquina_control::{Client, ClientError, HealthCode, HealthEntry};

use super::elsewhere::{Cluster, is_silence};
use crate::error::CliError;
use crate::output::{self, format_duration};
use crate::progress::Progress;
use crate::signal;

/// How often it is asked.
const POLL: Duration = Duration::from_millis(500);
/// When it is first said what is waited for; the pauses after that are twice as long each time.
const TOLD_AFTER: Duration = Duration::from_secs(10);
const TOLD_PAUSE_MAX: Duration = Duration::from_secs(320);
/// Most entries of the health that are told as reasons.
const REASONS_MAX: usize = 4;

/// What may keep data from moving.
const REASONS: [HealthCode; 8] = [
    HealthCode::StoreUnreachable,
    HealthCode::StoreRefusesChanges,
    HealthCode::NoLeader,
    HealthCode::CoordinatorIsolated,
    HealthCode::GroupDown,
    HealthCode::TooFewDomains,
    HealthCode::GroupDegraded,
    HealthCode::NodeDown,
];

/// What is left on it.
pub enum Left {
    /// So many placement groups.
    Groups(u64),
    /// It is forgotten.
    Gone,
    /// It is not to leave any more.
    Stays,
}

/// What is left, and how the cluster is, if that was asked for.
type Seen = (Left, Vec<HealthEntry>);

/// What leaves.
#[derive(Clone, Copy)]
pub struct Leaving {
    /// `drive` or `node`.
    pub what: &'static str,
    /// Placement groups that had a copy there.
    pub groups: u64,
    /// Whether it was given up, so that its copies are made anew from others.
    pub lost: bool,
}

/// Waits until it is gone. Ctrl-C ends the waiting, not the removal.
pub fn wait(
    leaving: Leaving,
    cluster: &mut Cluster,
    left: impl Fn(&Client) -> Result<Left, ClientError>,
) -> Result<(), CliError> {
    let told = format!("\n{}", leaving.goes_on_text());
    signal::stop_flag(1, move || output::tell(&told))?;
    let mut look = |with_reasons: bool| {
        let question = |client: &Client| {
            let left = left(client)?;
            // What is said of it can be less.
            let health = with_reasons.then(|| client.health().ok()).flatten();
            Ok((left, health.map_or(Vec::new(), |health| health.entries)))
        };
        cluster.ask(question).map_err(|error| failed(leaving.what, error))
    };
    wait_with(leaving, POLL, TOLD_AFTER, &mut look)
}

impl Leaving {
    /// That it goes on without this process.
    fn goes_on_text(&self) -> String {
        let what = self.what;
        let back = match self.lost {
            true => "it cannot be taken back".to_owned(),
            false => "the same command with --cancel takes it back".to_owned(),
        };
        format!("the removal of the {what} goes on; `coquina {what} list` shows how far it is, and {back}")
    }

    /// What is waited for, for how long, why if nothing moves, and what to do.
    fn waiting_text(&self, waited: Duration, stuck: Duration, now: u64, health: &[HealthEntry]) -> String {
        let doing = match self.lost {
            true => "be made anew elsewhere",
            false => "be moved away",
        };
        let duration = |time: Duration| format_duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let (waited, groups, what) = (duration(waited), self.groups.max(now), self.what);
        let mut text = match now {
            0 => format!(
                "waiting for {waited}: all {groups} placement group(s) of the {what} are elsewhere, and the leader has still to take it out \
                 of the map"
            ),
            now => format!(
                "waiting for {waited}: {now} of {groups} placement group(s) of the {what} have still to {doing}"
            ),
        };
        if stuck < TOLD_AFTER {
            return text + "; Ctrl-C ends the waiting, not the removal";
        }
        text += &format!(", as many as {} ago", duration(stuck));
        let reasons = health.iter().filter(|entry| REASONS.contains(&entry.code));
        for entry in reasons.take(REASONS_MAX) {
            text += &format!("\n  {}: {}\n    to do: {}", entry.subject, entry.message, entry.advice);
        }
        if self.lost {
            text += "\n  of `coquina up --nodes N` with a node that has no drive any more: stop it, and start it once with --drive NEW:SIZE";
        }
        text + &format!("\n  Ctrl-C ends the waiting; {}", self.goes_on_text())
    }
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

/// `look` says what is left, and how the cluster is if that is asked for.
fn wait_with(
    leaving: Leaving,
    poll: Duration,
    told_after: Duration,
    look: &mut dyn FnMut(bool) -> Result<Option<Seen>, CliError>,
) -> Result<(), CliError> {
    let progress = Progress::new(leaving.what);
    let (begun, mut moved_at, mut before) = (Instant::now(), Instant::now(), None);
    let (mut told_at, mut pause) = (begun, told_after);
    loop {
        let is_due = told_at.elapsed() >= pause;
        match look(is_due)? {
            None => {}
            Some((Left::Gone, _)) => return Ok(()),
            Some((Left::Stays, _)) => {
                return Err(CliError::failed(format!(
                    "the {} stays: somebody took its removal back meanwhile",
                    leaving.what
                )));
            }
            Some((Left::Groups(now), health)) => {
                if before.replace(now) != Some(now) {
                    moved_at = Instant::now();
                }
                let stuck = moved_at.elapsed();
                let done = leaving.groups.saturating_sub(now) as f64 / leaving.groups.max(1) as f64;
                let mut message = format!("{now} placement group(s) left");
                if stuck >= told_after {
                    message += &format!(", none has gone for {} s", stuck.as_secs());
                }
                progress.set("moving data away", done, message);
                if is_due {
                    progress.line(&leaving.waiting_text(begun.elapsed(), stuck, now, &health));
                    told_at = Instant::now();
                    pause = (pause * 2).min(TOLD_PAUSE_MAX);
                }
            }
        }
        std::thread::sleep(poll);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: Leaving = Leaving { what: "drive", groups: 3, lost: false };

    fn wait_for(looks: Vec<Option<Left>>) -> (Result<(), CliError>, Vec<bool>) {
        let (mut looks, mut asked) = (looks.into_iter(), Vec::new());
        let mut look = |with_reasons| {
            asked.push(with_reasons);
            Ok(looks.next().expect("one more").map(|left| (left, Vec::new())))
        };
        let waited = wait_with(DRIVE, Duration::from_millis(10), Duration::from_millis(15), &mut look);
        (waited, asked)
    }

    #[test]
    fn what_is_not_to_leave_any_more_is_not_waited_for() {
        let looks = vec![Some(Left::Groups(3)), None, Some(Left::Stays)];
        let error = wait_for(looks).0.expect_err("it stays").to_string();
        assert!(error.contains("the drive stays"), "{error}");
        wait_for(vec![Some(Left::Gone)]).0.expect("it is gone");
    }

    #[test]
    fn who_waits_for_long_is_told_why() {
        let looks = (0..12).map(|_| Some(Left::Groups(3))).chain([Some(Left::Gone)]).collect();
        let asked = wait_for(looks).1;
        let times = asked.iter().filter(|asked| **asked).count();
        assert!(!asked[0] && times >= 2, "first after a while, then again: {asked:?}");
    }

    /// With the last failure domain lost, a removal waited for ever without a word.
    #[test]
    fn what_keeps_data_from_moving_is_told_with_a_way_out() {
        let entry = |code| HealthEntry::usual(code, "pool p", "lacks copies");
        let health = [entry(HealthCode::GroupDegraded), entry(HealthCode::DriveNearlyFull)];
        let (long, short) = (Duration::from_secs(40), Duration::from_secs(2));
        let text = DRIVE.waiting_text(long, short, 2, &health);
        assert_eq!(
            text,
            "waiting for 40 s: 2 of 3 placement group(s) of the drive have still to be moved away; Ctrl-C ends the waiting, not the \
             removal"
        );
        let text = DRIVE.waiting_text(long, short, 0, &[]);
        assert!(text.contains("all 3 placement group(s) of the drive are elsewhere"), "{text}");
        let text = DRIVE.waiting_text(long, Duration::from_secs(20), 3, &health);
        for part in [
            "as many as 20 s ago",
            "pool p: lacks copies\n    to do: nothing, copies",
            "with --cancel takes it back",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("volumes") && !text.contains("--drive NEW"), "{text}");
        let text = Leaving { lost: true, ..DRIVE }.waiting_text(long, long, 3, &[]);
        for part in [
            "have still to be made anew elsewhere",
            "start it once with --drive NEW:SIZE",
            "cannot be taken back",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_removal_is_not_said_to_have_failed_since_nobody_answers() {
        let error = ClientError::Unreachable { address: "a:1".to_owned(), reason: "refused".to_owned() };
        let text = failed("node", error).to_string();
        assert!(text.contains("the node is being removed, and that goes on"), "{text}");
        assert!(text.contains("`coquina node list --server HOST:PORT`"), "{text}");
    }
}
