//! One case: all its rounds on all targets, in random order, and what is remembered of targets for the cases after it.

use std::time::{Duration, Instant};

use crate::definition::{Layout, Mode, PlannedPoint};
use crate::generator::GeneratorError;
use crate::report::{Case, CaseResult, Finding, Point};
use crate::target::{Target, TargetError};

use super::measure::{Measured, Shot};
use super::{Column, Run, RunError, findings, knees, placement, quiet};

/// Cases in a row in which a target fails before it is given up.
const FAILURES_MAX: u32 = 3;
/// What the note on hosts that made load is about.
const LOAD_HOSTS: &str = "load hosts";

/// Why a target cannot do a point, or this machine not on it.
pub(super) fn refusal_of_point(target: &dyn Target, point: &Point) -> Option<String> {
    target.refuses_point(point).or_else(|| placement::refusal(point, target.drives()))
}

/// Why a target cannot do any of these points, if so: then it needs no volumes for them.
pub(super) fn refusal_of_all(target: &dyn Target, points: &[PlannedPoint]) -> Option<String> {
    let mut refusals = points.iter().map(|planned| refusal_of_point(target, &planned.point));
    let first = refusals.next()??;
    refusals.all(|refusal| refusal.is_some()).then_some(first)
}

impl Run<'_> {
    /// Runs it, and leaves its figures in the report.
    pub(super) fn case(
        &mut self,
        planned: &PlannedPoint,
        layout: &Layout,
        refused: &[Option<String>],
        flat: &mut [Option<(u32, String)>],
    ) -> Result<(), RunError> {
        let count = self.columns.len();
        let mut case = Case { id: planned.id.clone(), point: planned.point.clone(), results: Vec::new() };
        for (column, flat) in flat.iter().enumerate() {
            let on_ladder = flat.as_ref().filter(|(ladder, _)| Some(*ladder) == planned.ladder);
            let index = self.columns[column].target;
            let target = &self.targets[index];
            let skipped = refusal_of_point(target.as_ref(), &planned.point)
                .or_else(|| refused[index].clone())
                .or_else(|| self.why_not_loaded(column))
                .or_else(|| on_ladder.map(|(_, reason)| reason.clone()));
            case.results.push(CaseResult {
                target: self.label(column),
                rounds: Vec::new(),
                skipped,
                settled_s: 0.0,
            });
        }
        self.report.cases.push(case);
        self.seen.push(vec![Vec::new(); count]);
        self.warm_up(planned, layout)?;
        self.settle(planned, layout)?;
        let rounds = self.settings.limits.rounds;
        for round in 1..=rounds {
            let rounds_left = rounds - round + 1;
            if !self.has_time_for(planned, round, rounds_left) {
                self.runs_done += f64::from(rounds_left) * count as f64;
                let time_s = self.settings.limits.time_s;
                let text = format!(
                    "{} rounds instead of {rounds}: with more the run would have taken more than {time_s} s",
                    round - 1
                );
                self.find("note", &planned.id, &text);
                break;
            }
            let mut order: Vec<usize> = (0..count).collect();
            self.random.shuffle(&mut order);
            for column in order {
                self.runs_done += 1.0;
                if self.last_case().results[column].skipped.is_some() {
                    continue;
                }
                let share = self.runs_done / self.runs_all.max(1.0);
                let what = format!("{}: {}, round {round} of {rounds}", planned.id, self.label(column));
                (self.hooks.progress)(share, &what);
                let began = Instant::now();
                self.shot(planned, layout, column, round)?;
                // Others do not take so long, nor does this one again.
                if self.hung[column].reason.is_none() {
                    self.pace.rounds_s += began.elapsed().as_secs_f64();
                    self.pace.rounds += 1;
                }
            }
        }
        self.note_busy_afterwards(planned);
        self.note_failures();
        self.note_ladder(planned, flat);
        Ok(())
    }

    pub(super) fn last_case(&mut self) -> &mut Case {
        self.report.cases.last_mut().expect("a case was pushed before its rounds")
    }

    pub(super) fn shoot(
        &mut self,
        planned: &PlannedPoint,
        layout: &Layout,
        column: usize,
        round: u32,
        limits: &Mode,
    ) -> Result<Result<Measured, GeneratorError>, RunError> {
        let Column { target, tried } = self.columns[column];
        self.tuner.apply(tried, &mut self.targets, &self.context)?;
        let mine = self.targets[target].processes();
        let others: Vec<u32> = self.all_processes().into_iter().filter(|pid| !mine.contains(pid)).collect();
        let quiet_time_max = Duration::from_secs(quiet::wait_s_max(self.settings.mode));
        // A setting that was just made may leave something behind as well.
        let has_waited = tried.is_none() && self.waited_at.take().is_some_and(quiet::is_recent);
        if !has_waited {
            quiet::wait(&self.idle, quiet_time_max, self.hooks.stopped);
        }
        let shot = Shot {
            target: self.targets[target].as_ref(),
            point: &planned.point,
            volume_bytes: layout.volume_bytes,
            limits,
            hosts: &self.settings.hosts,
            fio_options: &self.tuner.fio_options(tried),
            seed: self
                .settings
                .seed
                .wrapping_add(u64::from(round) << 20)
                .wrapping_add(self.random.u64(..1 << 20)),
            round,
            others: &others,
            idle: &self.idle,
            scratch: &self.context.folder,
            extra_time_max: self.waits.ending,
            quiet_time_max,
            stopped: self.hooks.stopped,
        };
        let taken = shot.take();
        self.waited_at = taken.as_ref().ok().and_then(|measured| measured.waited_at);
        Ok(taken)
    }

    fn shot(
        &mut self,
        planned: &PlannedPoint,
        layout: &Layout,
        column: usize,
        round: u32,
    ) -> Result<(), RunError> {
        match self.shoot(planned, layout, column, round, &self.settings.limits.clone())? {
            Ok(measured) => {
                if !measured.round.is_good() {
                    let text = findings::left_out(&self.label(column), &measured);
                    self.find("failed", &planned.id, &text);
                }
                self.note_load_hosts(&measured.hosts);
                self.last_case().results[column].rounds.push(measured.round.clone());
                let last = self.seen.last_mut().expect("pushed with the case");
                last[column].push(measured);
                Ok(())
            }
            Err(GeneratorError::Stopped) => Err(TargetError::Stopped.into()),
            Err(error) if (self.hooks.stopped)() => {
                (self.hooks.say)(&format!("{error}"));
                Err(TargetError::Stopped.into())
            }
            Err(error) => {
                self.load_failed(column, planned, "", &error);
                Ok(())
            }
        }
    }

    /// Hosts that made load now. There is one note, of all that ever did.
    pub(super) fn note_load_hosts(&mut self, hosts: &[String]) {
        for host in hosts {
            if !self.report.hosts.contains(host) {
                self.report.hosts.push(host.clone());
            }
        }
        if !self.report.hosts.is_empty() {
            let text = findings::of_load_hosts(&self.report.hosts);
            let is_it = |finding: &Finding| finding.kind == "note" && finding.subject == LOAD_HOSTS;
            match self.report.findings.iter_mut().find(|finding| is_it(finding)) {
                Some(note) => note.text = text,
                None => self.find("note", LOAD_HOSTS, &text),
            }
        }
    }

    /// Where what loads left to be done went on for longer than it was waited for.
    fn note_busy_afterwards(&mut self, planned: &PlannedPoint) {
        let wait_s = quiet::wait_s_max(self.settings.mode);
        for column in 0..self.columns.len() {
            let rounds = &self.last_case().results[column].rounds;
            let busy = rounds.iter().filter(|round| round.is_quiet_afterwards == Some(false)).count();
            if busy > 0 {
                let text = format!(
                    "{}: the machine was not quiet {wait_s} s after the load in {busy} of {} rounds: what was still done then counts for nobody, \
                     and may have been in the way of the load after it",
                    self.label(column),
                    self.last_case().results[column].rounds.len()
                );
                self.find("note", &planned.id, &text);
            }
        }
    }

    /// A target that fails again and again is not run any more.
    fn note_failures(&mut self) {
        for column in 0..self.columns.len() {
            let label = self.label(column);
            let result = &mut self.last_case().results[column];
            if result.has_failed() && result.skipped.is_none() {
                result.skipped = Some(format!("operations failed in all {} rounds", result.rounds.len()));
            }
            let failed = result.has_failed() || result.rounds.is_empty() && result.skipped.is_some();
            let is_refusal = self.given_up[column].is_some() || !failed;
            self.failures[column] = if failed { self.failures[column] + 1 } else { 0 };
            let many = !is_refusal && self.failures[column] >= FAILURES_MAX;
            if many && self.has_ended(self.columns[column].target) {
                let reason = format!("given up: its processes have ended, and {FAILURES_MAX} cases failed");
                self.find("failed", &label, &reason);
                self.given_up[column] = Some(reason);
            }
        }
    }

    /// Whether a target has processes on this machine, and all are gone.
    fn has_ended(&self, target: usize) -> bool {
        let processes = self.targets[target].processes();
        !processes.is_empty()
            && processes.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    }

    /// Remembers for which targets a ladder of clients or drives has come to its end.
    fn note_ladder(&mut self, planned: &PlannedPoint, flat: &mut [Option<(u32, String)>]) {
        // At a rate throughput does not grow with clients.
        let Some(ladder) = planned.ladder.filter(|_| planned.point.rate_iops.is_none()) else { return };
        for (column, flat) in flat.iter_mut().enumerate() {
            let drives = self.targets[self.columns[column].target].drives();
            let cases = &self.report.cases;
            if let Some(reason) = knees::end_of_ladder(cases, &planned.id, &planned.point, column, drives) {
                *flat = Some((ladder, reason));
            }
        }
    }
}
