//! Whether a cluster is whole, and whether its copies are the same.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_copies::{Answer, ShardCopies};
use coquina_engine::{Action, Failure, Operation, Origin, Outcome, Request, RequestToken, Shard};
use coquina_replication::CopyId;

use super::node::{Host, number_of};
use super::report::Rare;
use super::world::World;
use crate::violation::Violation;

impl World {
    /// Whether all members of all groups are in sync and their primaries serve.
    pub fn is_healed(&self) -> bool {
        (1..=self.plan.groups).all(|group| {
            let config = self.coordinator.config(group);
            let primary = config.primary().and_then(|copy| self.hosts[number_of(copy)].copies.as_ref());
            let known = primary.and_then(|copies| copies.group(group));
            config.others.is_empty()
                && config.in_sync.len() == self.plan.copies.min(self.plan.nodes)
                && self.is_settled(group)
                && known.is_some_and(|known| known.is_serving() && known.config() == config)
        })
    }

    /// Whether a copy may answer a request so now.
    pub fn check_answer(
        &mut self,
        copy: usize,
        copies: &mut ShardCopies,
        operation: u64,
        answer: &Answer,
    ) -> Result<(), Violation> {
        match answer {
            Answer::Read(_) | Answer::Map(_) => self.check_release(copy, copies, operation),
            Answer::Done => self.check_copies(copy, copies, operation),
            Answer::Failed(Failure::BadBlock) => self.check_bad_block(copy, copies, operation),
            _ => Ok(()),
        }
    }

    /// Notes the configurations with which a turn of a copy begins.
    pub fn note_configs(&mut self, copy: usize, copies: &ShardCopies) {
        let known = (1..=self.plan.groups).filter_map(|group| {
            let config = copies.group(group)?.config();
            Some((group, (config.epoch, config.has_enough_copies())))
        });
        let began_with = &mut self.hosts[copy].turn_began_with;
        began_with.clear();
        began_with.extend(known);
    }

    /// What a client hears that is done must be on as many copies as the pool wants, as long as the primary's configuration is the
    /// last one. Where it is a new one since the turn began, the answer may have been decided under the former one.
    fn check_copies(&self, copy: usize, copies: &ShardCopies, operation: u64) -> Result<(), Violation> {
        let Some(operation) = self.operations.get(&operation) else { return Ok(()) };
        let group = operation.group;
        let Some(known) = copies.group(group) else { return Ok(()) };
        let (config, committed) = (known.config(), known.committed());
        if config != self.coordinator.config(group) {
            return Ok(());
        }
        // Of a copy that is down nothing is known.
        let has_it = |other: &&CopyId| {
            let number = number_of(**other);
            let shard = match &self.hosts[number].copies {
                _ if number == copy => copies.shard(),
                Some(copies) => copies.shard(),
                None => return true,
            };
            shard.group(group).is_some_and(|known| known.last >= committed)
        };
        let count = config.in_sync.iter().filter(has_it).count();
        if count >= self.plan.min_copies as usize && count == config.in_sync.len() {
            return Ok(());
        }
        let began_with = self.hosts[copy].turn_began_with.get(&group);
        if began_with.is_some_and(|(epoch, has_enough)| *epoch < config.epoch && *has_enough) {
            return Ok(());
        }
        Err(Violation::Group(format!(
            "copy {copy} answers {operation:?}: of {config:?} {count} have all up to {committed}, {} are wanted",
            self.plan.min_copies
        )))
    }

    /// A client hears of a bad block only if there is one in what it asked for.
    fn check_bad_block(
        &self,
        copy: usize,
        copies: &mut ShardCopies,
        operation: u64,
    ) -> Result<(), Violation> {
        let Some(operation) = self.operations.get(&operation) else { return Ok(()) };
        let is_forgiven = self.rot.as_ref().is_some_and(|rot| rot.is_forgiven);
        let span = operation.span;
        if is_forgiven && self.may_be_bad_there(copy, copies, (span.layer, span.chunk), span.blocks()) {
            return Ok(());
        }
        Err(Violation::Group(format!("copy {copy} finds a bad block, and there is none: {operation:?}")))
    }

    /// Somebody must be nearly full where a client is told so.
    pub fn check_full(&mut self, copy: usize, copies: &ShardCopies) -> Result<(), Violation> {
        let fill = |copies: &ShardCopies| {
            let stats = copies.shard().stats();
            (stats.live_bytes as f64 / stats.capacity_bytes as f64 * 100.0) as u64
        };
        let own = fill(copies);
        let others = self.hosts.iter().filter_map(|host| host.copies.as_ref()).map(fill);
        let most = others.max().unwrap_or(0);
        self.report.saw(if own < 99 && most >= 99 { Rare::FullElsewhere } else { Rare::NoSpace });
        self.say(|| {
            format!("no space at copy {copy}, which is {own} % full; the fullest other one is {most} %")
        });
        if own.max(most) < 80 {
            return Err(Violation::Group(format!(
                "no space at copy {copy}, which is {own} % full: {:?}",
                copies.shard()
            )));
        }
        Ok(())
    }

    /// What a former primary has released it must not read under.
    fn check_release(&self, copy: usize, copies: &ShardCopies, operation: u64) -> Result<(), Violation> {
        let group = self.operations.get(&operation).map(|operation| operation.group);
        let Some(group) = group else { return Ok(()) };
        let epoch = copies.group(group).map_or(0, |group| group.config().epoch);
        let below = self.hosts[copy].released_below.get(&group).copied().unwrap_or(0);
        if epoch >= below {
            return Ok(());
        }
        Err(Violation::Group(format!(
            "copy {copy} reads from group {group} under epoch {epoch}, and has released all below {below}"
        )))
    }

    /// What a person needs to see who waits for whom.
    pub fn describe_hang(&self) -> String {
        let mut story = format!("{} requests wait", self.operations.len());
        for (id, operation) in self.operations.iter().take(4) {
            story += &format!("\n  request {id}: {operation:?}");
        }
        for group in 1..=self.plan.groups {
            let config = self.coordinator.config(group);
            story += &format!("\n  group {group}: {config:?}");
            for copy in config.in_sync.iter().chain(&config.others) {
                let host = self.hosts[number_of(*copy)].copies.as_ref();
                story += &match host.and_then(|copies| copies.group(group).map(|known| (copies, known))) {
                    Some((copies, known)) => {
                        format!("\n    {copy:?}, {:?}: {known:?}", copies.shard().group(group))
                    }
                    None => format!("\n    {copy:?} is down"),
                };
            }
        }
        story
    }

    /// Stops all processes and reads each block of each copy.
    pub fn compare_copies(&mut self) -> Result<(), Violation> {
        let nodes = self.plan.nodes;
        for copy in 0..self.hosts.len() {
            self.hosts[copy].copies = None;
            self.hosts[copy].drive.process_crash();
        }
        (0..nodes).for_each(|node| self.nodes[node].up = false);
        let plan = self.plan.clone();
        let mut shards = Vec::new();
        for copy in 0..self.hosts.len() {
            shards.push(self.hosts[copy].open(copy, &plan, 7)?);
        }
        for group in 1..=self.plan.groups {
            let members: Vec<usize> =
                self.coordinator.config(group).in_sync.iter().map(|copy| number_of(*copy)).collect();
            for range in self.chunks_of(group) {
                let mut first: Option<(usize, Vec<u8>)> = None;
                for &copy in &members {
                    let bytes = read_blocks(
                        &mut self.hosts[copy],
                        &mut shards[copy],
                        range.layer,
                        range.chunk,
                        plan.blocks,
                    )?;
                    match &first {
                        None => first = Some((copy, bytes)),
                        Some((other, expected)) if *expected != bytes => {
                            let differs = |block: &usize| {
                                let at = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
                                expected[at.clone()] != bytes[at]
                            };
                            let block = (0..plan.blocks as usize).find(differs);
                            return Err(Violation::Group(format!(
                                "copies {other} and {copy} of group {group} differ in {range:?}, block {block:?}"
                            )));
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads the first blocks of a chunk from one drive, as they are applied.
fn read_blocks(
    host: &mut Host,
    shard: &mut Shard,
    layer: LayerId,
    chunk: u32,
    blocks: u32,
) -> Result<Vec<u8>, Violation> {
    let token = RequestToken(u64::MAX);
    shard.submit(Request {
        token,
        layer,
        chunk,
        offset_bytes: 0,
        length_bytes: blocks * BLOCK_BYTES as u32,
        origin: Origin::default(),
        operation: Operation::Read,
    });
    let mut now_ns = 1 << 50;
    for _ in 0..100_000 {
        shard.turn(now_ns);
        while let Some(action) = shard.next_action() {
            match action {
                Action::Done { token: done, outcome } if done == token => {
                    return match outcome {
                        Outcome::Read(data) => Ok(data.to_bytes()),
                        other => Err(Violation::WrongAnswer(format!("{other:?} to the last read"))),
                    };
                }
                action => drop(host.drive.submit(now_ns, 0, action)),
            }
        }
        now_ns = host.drive.next_completion_ns().unwrap_or(now_ns + 1_000_000);
        if let Some(done) = host.drive.complete_next(now_ns) {
            shard.io_done(done.io, done.buffer, done.result);
        }
    }
    Err(Violation::Hang(String::from("the last read of a copy")))
}
