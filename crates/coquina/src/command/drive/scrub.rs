//! `coquina drive scrub`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use coquina_base::{DriveId, NodeId, format_size_bytes};
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
    let mut before = BTreeMap::new();
    if !no_wait {
        scrubs.know(&client.nodes()?.nodes);
        before = client.drives()?.drives.iter().map(|drive| (drive.id, ended(drive))).collect();
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
        let (mut started, mut left) = (Instant::now(), left_blocks(&list.drives, &before));
        while left > 0 && started.elapsed() < REPAIR_WAIT {
            std::thread::sleep(POLL);
            list = client.drives()?;
            let left_now = left_blocks(&list.drives, &before);
            if left_now < left {
                started = Instant::now();
            }
            left = left_now;
        }
    }
    let results: Vec<String> =
        scrubbed(&list.drives, &before).map(|(drive, scrub)| result_text(drive, scrub)).collect();
    if global.json {
        print_json(&list)?
    } else {
        print(&(drives_text(&list.drives) + "\n" + &results.concat()))?
    }
    let (found, left) = (bad_blocks(&list.drives), left_blocks(&list.drives, &before));
    let mut problems = scrubs.lost;
    if left > 0 && !no_wait {
        // Of more nobody has asked the other copies.
        let kept =
            list.drives.iter().map(|drive| drive.bad_blocks_left).fold(0, u64::saturating_add).min(left);
        if kept > 0 {
            problems.push(format!(
                "{kept} bad block(s), which the log of their node names, and which no other copy in reach could repair: restore \
                 their volumes, or bring the nodes with the other copies back; and replace the device"
            ));
        }
        if left > kept {
            let more = left - kept;
            problems.push(format!(
                "{more} bad block(s) more than their nodes keep in mind at a time: scrub again to have those repaired"
            ));
        }
    }
    if found > bad_before && left == 0 && !no_wait {
        output::tell("bad blocks were found and repaired from other copies: think of replacing the device");
    }
    if problems.is_empty() { Ok(()) } else { Err(CliError::failed(problems.join("\n"))) }
}

/// Blocks found bad so far.
fn bad_blocks(drives: &[api::Drive]) -> u64 {
    drives.iter().map(|drive| drive.bad_blocks).fold(0, u64::saturating_add)
}

/// When the last scrub of each drive had ended.
type Ended = BTreeMap<DriveId, Option<u64>>;

fn ended(drive: &api::Drive) -> Option<u64> {
    drive.last_scrub.and_then(|scrub| scrub.ended_unix_ms)
}

/// Drives whose scrub has ended since, with what it has found.
fn scrubbed<'a>(
    drives: &'a [api::Drive],
    before: &Ended,
) -> impl Iterator<Item = (&'a api::Drive, api::Scrub)> {
    let is_new = |drive: &&api::Drive| before.get(&drive.id).is_some_and(|before| *before != ended(drive));
    drives.iter().filter(is_new).filter_map(|drive| Some((drive, drive.last_scrub?)))
}

/// Blocks that are bad and not repaired. A scrub may find more of them than a node keeps in mind.
fn left_blocks(drives: &[api::Drive], before: &Ended) -> u64 {
    let kept = |drive: &api::Drive| drive.bad_blocks_left;
    let more = |(drive, scrub): (&api::Drive, api::Scrub)| scrub.bad_blocks_left.saturating_sub(kept(drive));
    let kept = drives.iter().map(kept).fold(0, u64::saturating_add);
    scrubbed(drives, before).map(more).fold(kept, u64::saturating_add)
}

/// What a scrub has found, as a line.
fn result_text(drive: &api::Drive, scrub: api::Scrub) -> String {
    let mut text = format!(
        "drive {} of node {}: {} read, ",
        drive.path,
        drive.node_name,
        format_size_bytes(scrub.read_bytes)
    );
    let api::Scrub { bad_blocks, repaired_blocks, bad_blocks_left, skipped_bytes, .. } = scrub;
    text += &match bad_blocks {
        0 => "no bad blocks".to_owned(),
        _ => format!(
            "{bad_blocks} bad block(s), of which {repaired_blocks} repaired and {bad_blocks_left} left"
        ),
    };
    if skipped_bytes > 0 {
        let skipped = format_size_bytes(skipped_bytes);
        text += &format!("; {skipped} passed over, since their part of the index cannot be read");
    }
    text + "\n"
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

    #[test]
    fn what_a_scrub_found_is_told_of_the_drives_that_were_scrubbed() {
        let scrub = |ended, left| api::Scrub {
            ended_unix_ms: Some(ended),
            read_bytes: 3 << 30,
            bad_blocks: 5,
            repaired_blocks: 3,
            bad_blocks_left: left,
            ..Default::default()
        };
        let with = |number, scrub, kept| api::Drive {
            last_scrub: scrub,
            bad_blocks_left: kept,
            ..drive(number, true, None)
        };
        let earlier = [with(1, None, 0), with(2, Some(scrub(10, 9)), 0), with(3, Some(scrub(10, 0)), 2)];
        let before: Ended = earlier.iter().map(|drive| (drive.id, ended(drive))).collect();
        assert_eq!(scrubbed(&earlier, &before).count(), 0);
        // More than the two that are kept in mind; what was told of another one before is no result of this scrub.
        let now = [with(1, Some(scrub(20, 4)), 2), earlier[1].clone(), earlier[2].clone()];
        let texts: Vec<String> =
            scrubbed(&now, &before).map(|(drive, scrub)| result_text(drive, scrub)).collect();
        assert_eq!(
            texts,
            ["drive /d1 of node n1: 3 GiB read, 5 bad block(s), of which 3 repaired and 4 left\n"]
        );
        assert_eq!(left_blocks(&now, &before), 4 + 2);
    }
}
