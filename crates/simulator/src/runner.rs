//! Drives the shards of one virtual drive step by step: requests in, I/O through the drive, answers checked.
//!
//! Invariants:
//! - the model knows of a request before a shard does, and of an answer before the next request;
//! - a cut may come between any two actions or completions;
//! - whatever happens goes into the trace.

mod answers;
mod groups;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

use coquina_engine::{Action, Event, Outcome, ShardStats};

use crate::counters::Counters;
use crate::drive::{CutSummary, VirtualDrive};
use crate::model::{Model, Span, Ticket};
use crate::plan::{Plan, SMALL_DRIVE_SEGMENT_BYTES};
use crate::random::Random;
use crate::subject::Subject;
use crate::trace::TraceHash;
use crate::violation::Violation;
use crate::workload::{Kind, Phase};

/// Turns of the loop without any progress after which it counts as hanging.
const IDLE_TURNS_MAX: u32 = 20_000;

/// Steps in which a deleted layer's space may still be on its way back.
const DELETE_STEPS: u64 = 5000;

/// Turns of the loop without an answer after which requests count as forgotten, whatever else goes on.
const ANSWER_STEPS_MAX: u64 = 200_000;

/// Large frames in flight together that count as several.
const LARGE_FRAMES: u64 = 3;

/// Trims of this length come from making layers shorter only.
const LONG_BYTES: u32 = 1 << 20;

/// What a run forgives, because it ordered the fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    /// Reads and writes may fail with `BadBlock` or `Device`, and events may say so.
    pub bad_blocks: bool,
    /// Changes may fail with `ReadOnly` or `Device`.
    pub read_only: bool,
    /// Start-up may report damage.
    pub damage: bool,
    /// Reads may give what was there before: any data that was once written to the place, but no other.
    pub stale: bool,
}

/// Signs of faults that the shards gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Signs {
    /// Events of damage.
    pub damage: u64,
    /// Events of bad blocks, and reads that failed with `BadBlock`.
    pub bad_blocks: u64,
    /// Blocks that a scrub found bad.
    pub scrub_bad: u64,
    /// Events of poisoning.
    pub poisoned: u64,
    /// Changes refused with `ReadOnly` or `Device`.
    pub changes_refused: u64,
    /// Changes acknowledged after a shard was poisoned.
    pub changes_after_poison: u64,
}

/// Why a stretch of a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Everything was done.
    Done,
    /// The fuse burnt down: now the cut comes.
    Cut,
    /// Only stalled writes are left to wait for.
    Stalled,
}

/// How a start went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opened {
    /// The shards run.
    Running,
    /// The power failed in the middle.
    PowerFailed,
}

#[derive(Debug)]
struct Outstanding {
    shard: usize,
    layer: u64,
    kind: Kind,
    tickets: Vec<Ticket>,
    /// Blocks that it may need.
    blocks: u64,
    /// Most blocks that may have been in use at one time since it was submitted.
    peak_used_blocks: u64,
    /// Whether the engine promised the space.
    promised: bool,
    /// Whether its layer's deletion was answered before it was submitted.
    layer_gone: bool,
    /// What it asks for, to ask again.
    retry: Option<Retry>,
}

/// A change that a client sends again, with its old number, when a cut left it without an answer.
#[derive(Clone, Copy, Debug)]
struct Retry {
    /// Its number in the session.
    number: u64,
    /// Whether it has been sent before.
    is_again: bool,
    kind: Kind,
    span: Span,
    version: u32,
}

/// One run.
pub struct Runner<S> {
    /// What the seed decided.
    pub plan: Plan,
    /// The drive.
    pub drive: VirtualDrive,
    /// What everything should be.
    pub model: Model,
    /// What happened.
    pub counters: Counters,
    /// What is forgiven.
    pub tolerance: Tolerance,
    /// Signs of faults since the last start.
    pub signs: Signs,
    /// Blocks said to be bad since then: layer, chunk, block.
    pub bad_blocks: BTreeSet<(u64, u32, u32)>,
    /// What was asked for and failed with a bad block since then.
    pub bad_spans: Vec<Span>,
    shards: Vec<S>,
    /// Layers in use: id and chunks.
    layers: Vec<(u64, u32)>,
    /// Layers deleted, that must stay zeros, and whether their deletion was answered.
    dead_layers: Vec<(u64, bool)>,
    next_layer: u64,
    outstanding: BTreeMap<u64, Outstanding>,
    /// Changes that a cut left without an answer.
    unanswered: Vec<Retry>,
    pub(crate) numbers: groups::GroupNumbers,
    /// The shard that is to persist a configuration, as soon as all entries before it have been counted.
    config_due: Option<usize>,
    next_token: u64,
    next_version: u32,
    now_ns: u64,
    /// Actions and completions until the cut.
    fuse: u64,
    random: Random,
    trace: TraceHash,
    payload: Vec<u8>,
    checksums: Vec<u8>,
    progress: u64,
    no_space_answers: u64,
    steps: u64,
    /// When a request was last answered, or submitted while no other was outstanding.
    answered_step: u64,
    /// When the shards were started.
    started_step: u64,
    /// When a layer was last deleted, in any life of the shards.
    deleted_step: Option<u64>,
    last: LastSeen,
}

/// When things were last seen, in steps; for counting what a cut interrupted.
#[derive(Clone, Debug, Default)]
struct LastSeen {
    no_space: Option<u64>,
    trim_after_full: bool,
    delete: Option<u64>,
    cleaner: Option<u64>,
    cleaner_bytes: u64,
    checkpoint_ordered: bool,
    scrub_ordered: bool,
}

impl<S: Subject> Runner<S> {
    /// A run of this seed on a plan, before formatting.
    pub fn new(plan: Plan, mut random: Random) -> Self {
        let drive = VirtualDrive::new(plan.drive_bytes, plan.latency, random.fork());
        let layers: Vec<_> =
            plan.layer_chunks.iter().enumerate().map(|(index, chunks)| (index as u64 + 1, *chunks)).collect();
        Runner {
            drive,
            model: Model::default(),
            counters: Counters::default(),
            tolerance: Tolerance::default(),
            signs: Signs::default(),
            bad_blocks: BTreeSet::new(),
            bad_spans: Vec::new(),
            shards: Vec::new(),
            next_layer: layers.len() as u64 + 1,
            layers,
            dead_layers: Vec::new(),
            outstanding: BTreeMap::new(),
            unanswered: Vec::new(),
            numbers: groups::GroupNumbers::default(),
            config_due: None,
            next_token: 1,
            next_version: 1,
            now_ns: 1_000_000_000,
            fuse: u64::MAX,
            random,
            trace: TraceHash::default(),
            payload: Vec::new(),
            checksums: Vec::new(),
            progress: 0,
            no_space_answers: 0,
            steps: 0,
            answered_step: 0,
            started_step: 0,
            deleted_step: None,
            last: LastSeen::default(),
            plan,
        }
    }

    /// Formats the drive. `cut_after` orders a power cut at that operation.
    pub fn format(&mut self, cut_after: Option<u64>) -> Result<Opened, Violation> {
        if let Some(operations) = cut_after {
            self.drive.arm_cut(operations);
        }
        let result = S::format(&mut self.drive, &self.plan.format);
        if self.drive.disarm_cut() {
            self.counters.cuts_in_format += 1;
            self.drive.power_cut();
            return Ok(Opened::PowerFailed);
        }
        result.map_err(Violation::Format)?;
        Ok(Opened::Running)
    }

    /// Starts all shards. `cut_after` orders a power cut at that operation of the start.
    pub fn open(&mut self, cut_after: Option<u64>) -> Result<Opened, Violation> {
        assert!(self.shards.is_empty(), "the shards run already");
        if let Some(operations) = cut_after {
            self.drive.arm_cut(operations);
        }
        let mut failed = None;
        for shard in 0..self.plan.format.shards {
            let entropy = self.random.next_u64();
            match S::open(&mut self.drive, shard, entropy, &self.plan.config) {
                Ok(subject) => self.shards.push(subject),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if self.drive.disarm_cut() {
            self.counters.cuts_in_recovery += 1;
            self.shards.clear();
            self.drive.power_cut();
            return Ok(Opened::PowerFailed);
        }
        if let Some(error) = failed {
            self.shards.clear();
            return Err(Violation::Open(error));
        }
        self.open_groups()?;
        self.counters.starts += 1;
        let large = self.plan.format.segment_bytes >= SMALL_DRIVE_SEGMENT_BYTES;
        self.counters.starts_with_large_segments += u64::from(large);
        let replayed: u64 = self.shards.iter().map(|shard| shard.stats().replayed_entries).sum();
        self.counters.replayed_entries += replayed;
        self.counters.starts_with_replay += u64::from(replayed > 0);
        self.last = LastSeen::default();
        self.started_step = self.steps;
        self.signs = Signs::default();
        self.bad_blocks.clear();
        self.bad_spans.clear();
        self.trace.add(&[100, replayed]);
        Ok(Opened::Running)
    }

    /// Runs a phase to its end or to the cut.
    pub fn run_phase(&mut self, phase: &mut Phase) -> Result<Ended, Violation> {
        self.delete_unanswered();
        let no_space_limit = self.no_space_answers + 5;
        loop {
            let full = phase.until_full && self.no_space_answers >= no_space_limit;
            if full {
                phase.is_full(&mut self.random);
            }
            while phase.requests > 0 && self.outstanding.len() < phase.depth {
                phase.requests -= 1;
                self.submit_next(phase);
                if self.random.chance(1, 4) {
                    break;
                }
            }
            if phase.requests == 0 && self.outstanding.is_empty() {
                return Ok(Ended::Done);
            }
            self.disturb();
            match self.step(false)? {
                Ended::Done => {}
                other => return Ok(other),
            }
        }
    }

    /// Waits for every outstanding request.
    pub fn drain_requests(&mut self) -> Result<Ended, Violation> {
        while !self.outstanding.is_empty() {
            match self.step(false)? {
                Ended::Done => {}
                other => return Ok(other),
            }
        }
        Ok(Ended::Done)
    }

    /// One turn of each shard without letting time pass: events of the start come out.
    pub fn pump(&mut self) -> Result<(), Violation> {
        for shard in 0..self.shards.len() {
            self.shards[shard].turn(self.now_ns);
            self.drain(shard)?;
        }
        Ok(())
    }

    /// Whether only changes are outstanding.
    pub fn only_changes_wait(&self) -> bool {
        self.outstanding.values().all(|request| request.kind.is_change())
    }

    /// Lets the shards do what they want in the background for some turns.
    pub fn idle(&mut self, turns: u32) -> Result<Ended, Violation> {
        for _ in 0..turns {
            if !self.drive.is_busy() && self.next_wake_ns().is_none() {
                break;
            }
            match self.step(false)? {
                Ended::Done => {}
                other => return Ok(other),
            }
        }
        Ok(Ended::Done)
    }

    /// Stops all shards cleanly.
    pub fn close(&mut self) -> Result<Ended, Violation> {
        self.shards.iter_mut().for_each(S::close);
        while self.drive.is_busy() || self.shards.iter().any(|shard| !shard.is_closed()) {
            match self.step(true)? {
                Ended::Done => {}
                Ended::Cut => {
                    self.counters.cuts_in_close += 1;
                    return Ok(Ended::Cut);
                }
                Ended::Stalled => return Ok(Ended::Stalled),
            }
        }
        assert!(self.outstanding.is_empty(), "requests are outstanding at a clean stop");
        self.collect_stats();
        self.counters.clean_stops += 1;
        self.shards.clear();
        Ok(Ended::Done)
    }

    /// Sets how many actions and completions from now on the next cut comes.
    pub fn set_fuse(&mut self, actions: u64) {
        self.fuse = actions;
    }

    /// Whether a cut is to come.
    pub fn is_armed(&self) -> bool {
        self.fuse < u64::MAX / 2
    }

    /// Ends everything under way: the power fails, or only the process dies.
    pub fn cut(&mut self, power: bool) -> CutSummary {
        self.count_interrupted();
        self.collect_stats();
        self.shards.clear();
        let outstanding = std::mem::take(&mut self.outstanding);
        let retries = outstanding.into_values().filter_map(|request| request.retry);
        self.unanswered.extend(retries.filter(|retry| retry.kind.is_change()));
        self.cut_groups();
        self.config_due = None;
        self.model.crash();
        let summary = if power { self.drive.power_cut() } else { self.drive.process_crash() };
        let counters = &mut self.counters;
        *(if power { &mut counters.power_cuts } else { &mut counters.process_crashes }) += 1;
        counters.writes_lost += summary.lost;
        counters.writes_applied += summary.applied;
        counters.writes_torn += summary.torn;
        counters.cuts_reordered += u64::from(summary.reordered);
        counters.blocks_taken_back += summary.taken_back;
        counters.cuts_in_large_frames += u64::from(summary.large >= LARGE_FRAMES);
        self.trace.add(&[101, self.now_ns, summary.lost, summary.applied, summary.torn]);
        summary
    }

    /// The shards, to be asked or told something.
    pub fn shards_mut(&mut self) -> &mut [S] {
        &mut self.shards
    }

    /// Bytes of all layers in use.
    pub fn space_bytes(&self) -> u64 {
        self.layers.iter().map(|(_, chunks)| u64::from(*chunks) * coquina_base::CHUNK_BYTES).sum()
    }

    /// Lets stalled writes go on.
    pub fn release_stalled(&mut self) {
        self.drive.release_stalled(self.now_ns);
    }

    /// Hash of everything that happened so far.
    pub fn trace(&self) -> u64 {
        let mut trace = self.trace;
        trace.add(&[self.drive.trace().value()]);
        trace.value()
    }

    /// Writes acknowledged, refused or failed so far and other signs of progress.
    pub fn progress(&self) -> u64 {
        self.progress
    }

    /// Requests that were not answered yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// One turn of the loop. `Done` means that it can go on.
    fn step(&mut self, closing: bool) -> Result<Ended, Violation> {
        let before = self.progress;
        let forgotten = !self.outstanding.is_empty() && self.steps > self.answered_step + ANSWER_STEPS_MAX;
        if forgotten {
            return Err(self.hang(&format!("{ANSWER_STEPS_MAX} turns brought no answer")));
        }
        for turn in 0..IDLE_TURNS_MAX {
            self.steps += 1;
            self.commit_some();
            for shard in 0..self.shards.len() {
                if self.drain(shard)? {
                    return Ok(Ended::Cut);
                }
                if self.config_due == Some(shard) && !closing {
                    self.config_due = None;
                    self.submit_config(shard);
                }
                self.shards[shard].turn(self.now_ns);
                if self.drain(shard)? {
                    return Ok(Ended::Cut);
                }
            }
            let closed = closing && !self.drive.is_busy() && self.shards.iter().all(S::is_closed);
            if self.progress != before || closed {
                return Ok(Ended::Done);
            }
            if turn == 0 || !self.drive.is_busy() {
                self.watch_background()?;
            }
            match self.advance(closing)? {
                Ended::Done if self.progress != before => return Ok(Ended::Done),
                Ended::Done => {}
                other => return Ok(other),
            }
        }
        if self.drive.is_stalled() {
            self.answered_step = self.steps;
            return Ok(Ended::Stalled);
        }
        Err(self.hang(&format!("{IDLE_TURNS_MAX} turns brought no progress")))
    }

    fn hang(&self, what: &str) -> Violation {
        let first = self.outstanding.iter().take(3);
        let first: Vec<_> = first
            .map(|(token, request)| {
                format!("{token} {} {:?}", request.kind.name(), request.tickets.first().map(Ticket::span))
            })
            .collect();
        let state = self.shards.iter().map(Subject::describe).collect::<Vec<_>>().join("; ");
        Violation::Hang(format!(
            "{what}; {} requests wait: {}; {state}",
            self.outstanding.len(),
            first.join(", ")
        ))
    }

    /// Lets time pass to the next completion or wake.
    fn advance(&mut self, closing: bool) -> Result<Ended, Violation> {
        let wake_ns = self.next_wake_ns();
        let completion_ns = self.drive.next_completion_ns();
        let next_ns = match (wake_ns, completion_ns) {
            // First: a read of what is durable and not committed waits for no drive.
            (None, None) if !self.outstanding.is_empty() && self.commit_all() => {
                self.progress += 1;
                return Ok(Ended::Done);
            }
            (None, None) if self.drive.is_busy() => return Ok(Ended::Stalled),
            (None, None) if self.outstanding.is_empty() && !closing => {
                self.progress += 1;
                return Ok(Ended::Done);
            }
            (None, None) => {
                let what = if closing { "the stop does not end" } else { "requests wait" };
                return Err(self.hang(&format!("{what}, no I/O and no wake is due")));
            }
            (wake_ns, completion_ns) => wake_ns.unwrap_or(u64::MAX).min(completion_ns.unwrap_or(u64::MAX)),
        };
        self.now_ns = next_ns.max(self.now_ns + 1);
        // Several completions reach a busy driver in one turn.
        let batch = self.random.pick(&[1, 1, 2, 8]);
        for _ in 0..batch {
            let Some(done) = self.drive.complete_next(self.now_ns) else { break };
            self.progress += 1;
            if self.burn() {
                return Ok(Ended::Cut);
            }
            let shard = done.shard as usize;
            self.shards[shard].io_done(done.io, done.buffer, done.result);
            if self.random.chance(1, 2) && self.drain(shard)? {
                return Ok(Ended::Cut);
            }
            if let Some(next_ns) = self.drive.next_completion_ns() {
                let lag_ns = self.random.below(self.plan.latency.least_ns);
                self.now_ns =
                    if batch > 2 { self.now_ns.max(next_ns.min(self.now_ns + lag_ns)) } else { self.now_ns };
            }
        }
        Ok(Ended::Done)
    }

    /// Does what a shard wants done. Gives whether the cut came.
    fn drain(&mut self, shard: usize) -> Result<bool, Violation> {
        while let Some(action) = self.shards[shard].next_action() {
            if self.burn() {
                return Ok(true);
            }
            let Some(other) = self.drive.submit(self.now_ns, shard as u32, action) else { continue };
            match other {
                Action::Done { token, outcome } if self.entry_read(token.0, &outcome)? => {
                    if let Outcome::Read(data) = outcome {
                        self.shards[shard].recycle(data);
                    }
                }
                Action::Durable { group, records } => self.durable(shard, group, records)?,
                Action::Done { token, outcome } => {
                    self.note_answer(token.0, matches!(outcome, Outcome::Changed));
                    self.answer(shard, token, outcome)?;
                }
                Action::Appended(entry) => self.appended(shard, &entry)?,
                Action::Event(event) => self.event(event)?,
                _ => panic!("the drive refused an I/O"),
            }
        }
        Ok(false)
    }

    fn event(&mut self, event: Event) -> Result<(), Violation> {
        self.progress += 1;
        match event {
            Event::Checkpoint { number } => {
                self.counters.checkpoints += 1;
                self.last.checkpoint_ordered = false;
                self.trace.add(&[102, number]);
            }
            Event::ScrubDone { bad: 0, .. } => {
                self.counters.scrubs += 1;
                self.last.scrub_ordered = false;
            }
            Event::ScrubDone { bad, .. } if self.tolerance.bad_blocks => {
                self.signs.scrub_bad += bad;
                self.last.scrub_ordered = false;
            }
            Event::BadBlock { layer, chunk, block, .. } if self.tolerance.bad_blocks => {
                self.signs.bad_blocks += 1;
                self.bad_blocks.insert((layer.0, chunk, block));
            }
            Event::Damage { .. } if self.tolerance.damage => self.signs.damage += 1,
            Event::Poisoned { .. } if self.tolerance.read_only => self.signs.poisoned += 1,
            other => return Err(Violation::UnexpectedEvent(other)),
        }
        Ok(())
    }

    /// Whether a deleted layer's space may still be on its way back.
    fn is_deleting(&self) -> bool {
        self.deleted_step.is_some_and(|step| step + DELETE_STEPS > self.steps)
    }

    fn burn(&mut self) -> bool {
        self.fuse = self.fuse.saturating_sub(1);
        self.fuse == 0
    }

    fn next_wake_ns(&self) -> Option<u64> {
        self.shards.iter().filter_map(S::next_wake_ns).min()
    }

    fn watch_background(&mut self) -> Result<(), Violation> {
        if !self.steps.is_multiple_of(8) {
            return Ok(());
        }
        // A start finds the blocks of layers that were deleted before it again, and frees them again.
        let settled = !self.is_deleting() && self.steps > self.started_step + DELETE_STEPS;
        let mut cleaner_bytes = 0;
        for shard in &self.shards {
            let ShardStats { live_bytes, capacity_bytes, cleaner_bytes: cleaned_bytes, .. } = shard.stats();
            if settled && capacity_bytes > 0 && live_bytes > capacity_bytes {
                return Err(Violation::OverCommitted { live_bytes, capacity_bytes });
            }
            cleaner_bytes += cleaned_bytes;
        }
        if cleaner_bytes > self.last.cleaner_bytes {
            self.last.cleaner = Some(self.steps);
            self.last.cleaner_bytes = cleaner_bytes;
        }
        Ok(())
    }

    fn count_interrupted(&mut self) {
        let recently = |step: Option<u64>| u64::from(step.is_some_and(|step| step + 60 > self.steps));
        let deleting = self.outstanding.values().any(|request| request.kind == Kind::Delete);
        let long_trim = |request: &Outstanding| {
            request.kind == Kind::Trim
                && request.tickets.iter().any(|ticket| ticket.span().length_bytes >= LONG_BYTES)
        };
        let shrinking = self.outstanding.values().any(long_trim);
        self.counters.cuts_when_full += recently(self.last.no_space);
        self.counters.cuts_in_cleaning += recently(self.last.cleaner);
        self.counters.cuts_in_delete += u64::from(deleting) | recently(self.last.delete);
        self.counters.cuts_in_checkpoint += u64::from(self.last.checkpoint_ordered);
        self.counters.cuts_in_shrink += u64::from(shrinking);
        self.counters.cuts_in_scrub += u64::from(self.last.scrub_ordered);
    }

    fn collect_stats(&mut self) {
        for shard in &self.shards {
            let stats = shard.stats();
            self.counters.cleaner_segments += stats.cleaner_segments;
            self.counters.page_evictions += stats.index_page_evictions;
            self.counters.page_reads += stats.index_page_reads;
            self.counters.cache_hits += stats.cache_hits;
            self.counters.cache_misses += stats.cache_misses;
            self.counters.reads_behind_commits += stats.reads_behind_commits;
            self.counters.prewrite_bytes += stats.prewrite_bytes;
        }
    }
}
