//! `coquina drive scrub`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use coquina_base::{DriveId, NodeId};
use coquina_control::api;

use super::as_server_knows;
use crate::arguments::Global;
use crate::command::connect::client;
use crate::command::status::drives_text;
use crate::error::CliError;
use crate::output::{self, print, print_json};
use crate::progress::Progress;

/// How often a scrub's progress is asked for.
const POLL: Duration = Duration::from_millis(500);
/// So many times in a row a drive may not be seen before its scrub counts as lost.
const LOOKS_UNSEEN_MAX: u32 = 10;
/// What a scrub has found is repaired within this time, or not at all for now.
const REPAIR_WAIT: Duration = Duration::from_secs(5);

pub fn run(global: &Global, drive: Option<String>, no_wait: bool) -> Result<(), CliError> {
    let client = client(global)?;
    let drive = drive.map(|text| as_server_knows(global, &text)).transpose()?;
    let mut scrubs = Scrubs::default();
    if !no_wait {
        scrubs.know(&client.nodes()?.nodes);
    }
    let request = api::ScrubDrives { drive, ..Default::default() };
    let api::ScrubBegun { drives, failed } = client.scrub_drives(&request)?;
    for node in &failed {
        let (name, reason) = (&node.name, &node.reason);
        scrubs.lost.push(format!(
            "drives of node {name} are not scrubbed, since that did not begin: {reason}; bring it back and scrub them"
        ));
    }
    let mut list = api::DriveList { drives };
    let bad_before = bad_blocks(&list.drives);
    if !no_wait {
        let progress = Progress::new("scrub");
        let asked = |node: NodeId| request.drive.is_none() && failed.iter().all(|failed| failed.node != node);
        scrubs.begin(&list.drives, &client.nodes()?.nodes, asked);
        while !scrubs.running.is_empty() {
            let percents = list.drives.iter().filter_map(|drive| drive.scrub_percent);
            if let Some(least) = percents.reduce(f64::min) {
                let running = scrubs.running.len();
                progress.set("scrub", least / 100.0, format!("{running} drive(s), {least:.0} %"));
            }
            std::thread::sleep(POLL);
            list = client.drives()?;
            // Asked after the drives: of a node that was restarted before these were looked at, it is known then.
            scrubs.look(&list.drives, &client.nodes()?.nodes);
        }
        let started = Instant::now();
        while bad_blocks(&list.drives).1 > 0 && started.elapsed() < REPAIR_WAIT {
            std::thread::sleep(POLL);
            list = client.drives()?;
        }
    }
    if global.json {
        print_json(&list)?
    } else {
        print(&(drives_text(&list.drives) + "\n"))?
    }
    let (found, left) = bad_blocks(&list.drives);
    let mut problems = scrubs.lost;
    if left > 0 && !no_wait {
        problems.push(format!(
            "{left} bad block(s), which the log of their node names, and which no other copy in reach could repair: restore \
             their volumes, or bring the nodes with the other copies back; and replace the device"
        ));
    }
    if found > bad_before.0 && left == 0 && !no_wait {
        output::tell("bad blocks were found and repaired from other copies: think of replacing the device");
    }
    if problems.is_empty() { Ok(()) } else { Err(CliError::failed(problems.join("\n"))) }
}

/// Blocks found bad so far, and those that are not repaired.
fn bad_blocks(drives: &[api::Drive]) -> (u64, u64) {
    let sum = |field: fn(&api::Drive) -> u64| drives.iter().map(field).fold(0, u64::saturating_add);
    (sum(|drive| drive.bad_blocks), sum(|drive| drive.bad_blocks_left))
}

/// The scrubs that are waited for. One is done only when its drive says so, by the same process that began it.
#[derive(Default)]
struct Scrubs {
    running: BTreeMap<DriveId, Running>,
    /// How long each node has been up when it answered last.
    uptimes: BTreeMap<NodeId, u64>,
    /// What became of those that nobody knows the end of.
    lost: Vec<String>,
}

struct Running {
    /// The drive, as it is told.
    name: String,
    node: NodeId,
    /// Looks in a row that did not see it.
    unseen: u32,
}

impl Running {
    fn new(drive: &api::Drive) -> Running {
        let name = format!("drive {} of node {}", drive.path, drive.node_name);
        Running { name, node: drive.node, unseen: 0 }
    }
}

impl Scrubs {
    /// Takes over how long nodes have been up. Those that were restarted since they answered last.
    fn know(&mut self, nodes: &[api::Node]) -> BTreeSet<NodeId> {
        let mut restarted = BTreeSet::new();
        for (node, uptime_ns) in nodes.iter().filter_map(|node| Some((node.id, node.uptime_ns?))) {
            let before = self.uptimes.insert(node, uptime_ns);
            if before.is_some_and(|before_ns| uptime_ns < before_ns) {
                restarted.insert(node);
            }
        }
        restarted
    }

    /// The first look after scrubs were begun. A drive of a node that has taken the request, and does not answer now, counts as
    /// one that is scrubbed; `asked` says which have, but for the one of a drive that was named.
    fn begin(&mut self, drives: &[api::Drive], nodes: &[api::Node], asked: impl Fn(NodeId) -> bool) {
        let silent = |drive: &api::Drive| {
            let node = nodes.iter().find(|node| node.id == drive.node);
            drive.state != api::DriveState::GivenUp && node.is_none_or(|node| node.uptime_ns.is_none())
        };
        let begun = drives
            .iter()
            .filter(|drive| drive.scrub_percent.is_some() || (asked(drive.node) && silent(drive)));
        self.running = begun.map(|drive| (drive.id, Running::new(drive))).collect();
        self.look(drives, nodes);
    }

    /// Looks what is done, and what is lost.
    fn look(&mut self, drives: &[api::Drive], nodes: &[api::Node]) {
        let restarted = self.know(nodes);
        for drive in drives.iter().filter(|drive| drive.scrub_percent.is_some()) {
            self.running.entry(drive.id).or_insert_with(|| Running::new(drive));
        }
        let answers = |node: NodeId| nodes.iter().any(|known| known.id == node && known.uptime_ns.is_some());
        let lost = &mut self.lost;
        self.running.retain(|id, scrub| {
            if restarted.contains(&scrub.node) {
                lost.push(format!("{} was not scrubbed to the end: its node was restarted; scrub it again", scrub.name));
                return false;
            }
            // What a node does not serve has no shards.
            let seen = drives.iter().find(|drive| drive.id == *id && !drive.shards.is_empty());
            match seen.filter(|_| answers(scrub.node)) {
                Some(drive) => {
                    scrub.unseen = 0;
                    drive.scrub_percent.is_some()
                }
                None => {
                    scrub.unseen += 1;
                    if scrub.unseen >= LOOKS_UNSEEN_MAX {
                        lost.push(format!(
                            "{} does not answer any more, so it is not known whether it was scrubbed to the end; bring it \
                             back and scrub it again",
                            scrub.name
                        ));
                    }
                    scrub.unseen < LOOKS_UNSEEN_MAX
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use coquina_base::Id128;

    use super::*;

    /// Drive and node number 1 and 2.
    fn drive(number: u8, answers: bool, scrub_percent: Option<f64>) -> api::Drive {
        api::Drive {
            id: DriveId(Id128([number; 16])),
            node: NodeId(Id128([number; 16])),
            path: format!("/d{number}"),
            node_name: format!("n{number}"),
            scrub_percent,
            shards: vec![api::Shard::default(); usize::from(answers)],
            ..Default::default()
        }
    }

    fn node(number: u8, uptime_ns: Option<u64>) -> api::Node {
        api::Node { id: NodeId(Id128([number; 16])), uptime_ns, ..Default::default() }
    }

    /// Two drives that are scrubbed.
    fn begun() -> Scrubs {
        let mut scrubs = Scrubs::default();
        scrubs.know(&[node(1, Some(10)), node(2, Some(10))]);
        let drives = [drive(1, true, Some(1.0)), drive(2, true, Some(2.0))];
        scrubs.begin(&drives, &[node(1, Some(11)), node(2, Some(11))], |_| true);
        assert_eq!(scrubs.running.len(), 2);
        scrubs
    }

    #[test]
    fn a_scrub_is_done_when_its_drive_says_so() {
        let mut scrubs = begun();
        scrubs.look(
            &[drive(1, true, None), drive(2, true, Some(50.0))],
            &[node(1, Some(12)), node(2, Some(12))],
        );
        assert_eq!(scrubs.running.len(), 1);
        scrubs.look(&[drive(1, true, None), drive(2, true, None)], &[node(1, Some(13)), node(2, Some(13))]);
        assert!(scrubs.running.is_empty() && scrubs.lost.is_empty());
    }

    #[test]
    fn a_drive_that_answers_no_more_is_not_done() {
        let mut scrubs = begun();
        let nodes = [node(1, Some(12)), node(2, None)];
        for _ in 1..LOOKS_UNSEEN_MAX {
            scrubs.look(&[drive(1, true, None), drive(2, false, None)], &nodes);
            assert_eq!((scrubs.running.len(), scrubs.lost.len()), (1, 0));
        }
        // A pause is forgiven.
        scrubs.look(&[drive(2, true, Some(60.0))], &[node(2, Some(20))]);
        for _ in 0..LOOKS_UNSEEN_MAX {
            scrubs.look(&[drive(1, true, None), drive(2, false, None)], &nodes);
        }
        assert!(scrubs.running.is_empty());
        assert!(
            scrubs.lost.len() == 1 && scrubs.lost[0].contains("drive /d2 of node n2"),
            "{:?}",
            scrubs.lost
        );
    }

    #[test]
    fn a_drive_that_fails_while_its_node_goes_on_is_not_done() {
        let mut scrubs = begun();
        for _ in 0..LOOKS_UNSEEN_MAX {
            let nodes = [node(1, Some(12)), node(2, Some(12))];
            scrubs.look(&[drive(1, false, None), drive(2, true, None)], &nodes);
        }
        assert!(scrubs.lost.len() == 1 && scrubs.lost[0].contains("/d1"), "{:?}", scrubs.lost);
    }

    #[test]
    fn a_node_that_was_restarted_has_scrubbed_nothing_to_the_end() {
        let mut scrubs = begun();
        scrubs.look(
            &[drive(1, true, None), drive(2, true, Some(90.0))],
            &[node(1, Some(3)), node(2, Some(12))],
        );
        assert!(scrubs.lost.len() == 1 && scrubs.lost[0].contains("/d1"), "{:?}", scrubs.lost);
        assert_eq!(scrubs.running.len(), 1, "the other one is waited for");
    }

    #[test]
    fn a_node_that_is_down_does_not_matter_to_the_scrub_of_a_drive_elsewhere() {
        let mut scrubs = Scrubs::default();
        scrubs.know(&[node(1, Some(10))]);
        let nodes = [node(1, Some(11)), node(2, None)];
        scrubs.begin(&[drive(1, true, Some(1.0)), drive(2, false, None)], &nodes, |_| false);
        for _ in 0..LOOKS_UNSEEN_MAX {
            scrubs.look(&[drive(1, true, None), drive(2, false, None)], &nodes);
        }
        assert!(scrubs.running.is_empty() && scrubs.lost.is_empty(), "{:?}", scrubs.lost);
    }

    #[test]
    fn a_drive_whose_node_is_silent_from_the_beginning_is_waited_for() {
        let mut scrubs = Scrubs::default();
        scrubs.know(&[node(1, Some(10))]);
        scrubs.begin(&[drive(1, false, None)], &[node(1, None)], |_| true);
        assert_eq!(scrubs.running.len(), 1);
        scrubs.look(&[drive(1, true, None)], &[node(1, Some(1))]);
        assert!(scrubs.lost.len() == 1, "it was restarted");
    }

    #[test]
    fn a_drive_whose_scrub_did_not_begin_is_not_waited_for() {
        let mut scrubs = Scrubs::default();
        let nodes = [node(1, Some(11)), node(2, None)];
        let asked = |node: NodeId| node.0.0[0] != 2;
        scrubs.begin(&[drive(1, true, Some(1.0)), drive(2, false, None)], &nodes, asked);
        assert_eq!(scrubs.running.keys().map(|drive| drive.0.0[0]).collect::<Vec<_>>(), [1]);
    }
}
