//! Volumes of a scenario: the same size on all targets, written full, aged.

use std::time::Duration;

use crate::definition::{
    Aged, Layout, PREPARE_DEPTH, PlannedPoint, PlannedScenario, VOLUME_BYTES_MIN, object_set_bytes,
};
use crate::generator::{Amount, Command, GeneratorError, Load, Outcome, Running, mark};
use crate::report::{Operation, Point};
use crate::target::{CAREFUL_FREE_PERCENT, CAREFUL_FULL_PERCENT, Context, Target, TargetError};

use super::{Run, RunError};

/// Part of a store that volumes take where nothing is said: the rest is for what a store needs besides.
const SPACE_PERCENT: u64 = 60;
/// Volumes end at a multiple of this.
const ROUND_BYTES: u64 = 16 << 20;
/// Longest time to write a volume full or age a store.
const FILL_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Who fills a volume, ages a store or reads it once may do nothing for so long: a drive that tries a bad place again takes a minute.
pub(super) const STILL_TIME_MAX: Duration = Duration::from_secs(120);
/// Size of the writes that fill a volume.
const FILL_BLOCK_BYTES: u32 = 1 << 20;

/// What is said of the room in a store that others use.
fn careful_rule() -> String {
    format!(
        "others may use that store, of which no more is taken unasked than until it is {CAREFUL_FULL_PERCENT} % full, or {CAREFUL_FREE_PERCENT} % \
         of what is free where that is not told; --fill-stores allows more"
    )
}

/// The size of each volume.
struct Size {
    volume_bytes: u64,
    /// The target that would have room for larger ones, in a store that others may use.
    careful: Option<String>,
}

impl Size {
    /// What is said where volumes are smaller than they would have been.
    fn careful_text(&self, wanted_bytes: u64) -> Option<String> {
        let spec =
            self.careful.as_ref().filter(|_| self.volume_bytes < wanted_bytes / ROUND_BYTES * ROUND_BYTES)?;
        let size = coquina_base::format_size_bytes;
        let (given, wanted) = (size(self.volume_bytes), size(wanted_bytes));
        Some(format!(
            "volumes are of {given} each in place of {wanted}, for the room in {spec}: {}",
            careful_rule()
        ))
    }
}

impl Run<'_> {
    /// Makes, fills and ages the volumes of a scenario on all targets that do not refuse it. Stores have their volumes before anything is
    /// written: what copies they have and whether their writes are durable is known then, and a run of unequal ones is refused at once.
    pub(super) fn lay_out(
        &mut self,
        scenario: &PlannedScenario,
        refused: &mut [Option<String>],
    ) -> Result<Layout, RunError> {
        let mut layout = scenario.layout.clone();
        // Not all of its points need be run.
        layout.is_shared = scenario.shares_volumes();
        let is_object = scenario.is_of_objects();
        let steps: Vec<u32> = scenario.points.iter().filter_map(|planned| planned.point.drives).collect();
        let there = self.targets.iter().map(|target| target.drives()).max().unwrap_or(1);
        layout.volumes = volumes_of_steps(&steps, there, layout.volumes);
        let least_bytes = scenario.objects_in_flight_bytes().max(VOLUME_BYTES_MIN);
        let size = self.fitting(&layout, refused, least_bytes)?;
        if let Some(text) = size.careful_text(layout.volume_bytes) {
            (self.hooks.say)(&format!("{}: {text}", scenario.name));
            self.find("note", &scenario.name, &text);
        }
        layout.volume_bytes = size.volume_bytes;
        self.targets.iter_mut().for_each(|target| target.forget_layout());
        let mut are_new = vec![false; refused.len()];
        for index in 0..refused.len() {
            if refused[index].is_none() && !self.targets[index].is_baseline() {
                are_new[index] = self.make_volumes(index, scenario, &layout, refused)?;
            }
        }
        self.look_at_targets(scenario);
        self.refuse_unequal(refused)?;
        for index in 0..refused.len() {
            // How much room there is for a plain file is known when stores are full.
            if refused[index].is_none() && self.targets[index].is_baseline() {
                are_new[index] = self.make_volumes(index, scenario, &layout, refused)?;
            }
            if refused[index].is_some() || !are_new[index] || is_object {
                continue;
            }
            if let Err(error) = self.fill(self.targets[index].as_ref(), &layout) {
                self.leave_out_if_hung(index, scenario, error, refused)?;
                self.leave_out_sharers(index, scenario, &are_new, refused);
            }
        }
        self.fill_objects(scenario, &layout, refused)?;
        Ok(layout)
    }

    /// Writes new volumes full and ages them.
    fn fill(&self, target: &dyn Target, layout: &Layout) -> Result<(), RunError> {
        if layout.fill {
            let blocks = Blocks {
                operation: Operation::SequentialWrite,
                amount: Amount::Fill,
                block_bytes: FILL_BLOCK_BYTES,
                volumes: layout.volumes,
            };
            self.load_blocks(target, layout, "writing it full", blocks)?;
        }
        layout.aged.map_or(Ok(()), |aged| self.age(target, layout, aged))
    }

    /// Leaves a target out whose volumes could not be made ready, since it hangs, if others are left.
    fn leave_out_if_hung(
        &mut self,
        index: usize,
        scenario: &PlannedScenario,
        error: RunError,
        refused: &mut [Option<String>],
    ) -> Result<(), RunError> {
        let others_go_on = (0..refused.len()).any(|other| other != index && refused[other].is_none());
        refused[index] = Some(self.preparing_failed(index, &scenario.name, error, others_go_on)?);
        Ok(())
    }

    /// Leaves those out, too, which use the same volumes in another way, and would have found them full.
    fn leave_out_sharers(
        &mut self,
        index: usize,
        scenario: &PlannedScenario,
        are_new: &[bool],
        refused: &mut [Option<String>],
    ) {
        let system = |target: &dyn Target| target.facts().system;
        for other in index + 1..refused.len() {
            let is_sharer = refused[other].is_none()
                && !are_new[other]
                && !self.targets[other].is_baseline()
                && system(self.targets[other].as_ref()) == system(self.targets[index].as_ref());
            if is_sharer {
                let text = format!("its volumes are those of {}, which hung", self.targets[index].spec());
                refused[other] = Some(self.leave_out(other, &scenario.name, &text));
            }
        }
    }

    /// Says whether they must be written full and aged.
    fn make_volumes(
        &mut self,
        index: usize,
        scenario: &PlannedScenario,
        layout: &Layout,
        refused: &mut [Option<String>],
    ) -> Result<bool, TargetError> {
        let spec = self.targets[index].spec().to_owned();
        (self.hooks.progress)(
            self.runs_done / self.runs_all.max(1.0),
            &format!("{}: making volumes of {spec}", scenario.name),
        );
        if !self.has_hung(index) {
            return self.targets[index].lay_out(layout, &self.context);
        }
        let make = |run: &mut Self, context: &Context<'_>| run.targets[index].lay_out(layout, context);
        match self.make_volumes_once_more(index, &scenario.name, make)? {
            Ok(are_new) => Ok(are_new),
            Err(reason) => {
                refused[index] = Some(reason);
                Ok(false)
            }
        }
    }

    /// Objects of each size are written before they are read.
    fn fill_objects(
        &mut self,
        scenario: &PlannedScenario,
        layout: &Layout,
        refused: &mut [Option<String>],
    ) -> Result<(), RunError> {
        let objects = scenario.points.iter().filter(|planned| planned.point.operation.is_of_objects());
        let mut sizes: Vec<u32> = objects.map(|planned| planned.point.block_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for block_bytes in sizes {
            for index in 0..refused.len() {
                let target = self.targets[index].as_ref();
                if refused[index].is_none() && !target.keeps_its_data() {
                    let what = format!("writing objects of {}", crate::report::format_block(block_bytes));
                    let blocks = Blocks {
                        operation: Operation::ObjectWrite,
                        amount: Amount::Fill,
                        block_bytes,
                        volumes: layout.volumes,
                    };
                    if let Err(error) = self.load_blocks(target, layout, &what, blocks) {
                        self.leave_out_if_hung(index, scenario, error, refused)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The size that all targets can give; `least_bytes` or more.
    pub(super) fn volume_bytes(
        &self,
        layout: &Layout,
        refused: &[Option<String>],
        least_bytes: u64,
    ) -> Result<u64, RunError> {
        Ok(self.fitting(layout, refused, least_bytes)?.volume_bytes)
    }

    fn fitting(
        &self,
        layout: &Layout,
        refused: &[Option<String>],
        least_bytes: u64,
    ) -> Result<Size, RunError> {
        let volumes = u64::from(layout.volumes.max(1));
        let mut smallest: Option<(u64, &str)> = None;
        // The least of what may be taken of stores that others use.
        let mut careful: Option<(u64, &str)> = None;
        for (index, target) in self.targets.iter().enumerate() {
            if refused[index].is_some() {
                continue;
            }
            if let Some(space_bytes) = target.space_bytes(layout.copies, &self.context)?
                && let space_bytes = usable_bytes(space_bytes, target.drive_bytes(), volumes)
                && smallest.is_none_or(|(other, _)| space_bytes < other)
                && !(target.is_baseline() && layout.aged.is_some())
            {
                smallest = Some((space_bytes, target.spec()));
            }
            if target.is_store_shared()
                && !self.settings.fill_stores
                && let Some(bytes) = target.careful_bytes(layout.copies, &self.context)?
                && careful.is_none_or(|(other, _)| bytes < other)
            {
                careful = Some((bytes, target.spec()));
            }
        }
        let Some((space_bytes, spec)) = smallest else {
            return Ok(Size { volume_bytes: layout.volume_bytes, careful: None });
        };
        let fits_bytes = match layout.aged {
            // A store that is aged is as full as was asked for, whatever the volume's size would have been.
            Some(aged) => space_bytes / 100 * u64::from(aged.full_percent),
            None => space_bytes / 100 * SPACE_PERCENT,
        };
        let careful = careful.filter(|(bytes, _)| *bytes < fits_bytes);
        let wanted = layout.volume_bytes;
        let fits = careful.map_or(fits_bytes, |(bytes, _)| bytes) / volumes;
        let fits = if layout.aged.is_some() { fits } else { fits.min(wanted) };
        let fits = fits / ROUND_BYTES * ROUND_BYTES;
        let no_space = |volume_bytes: u64| {
            let size = coquina_base::format_size_bytes;
            let wanted = size(volume_bytes.saturating_mul(volumes));
            let (spec, free) = match careful {
                Some((bytes, spec)) => (spec, format!("{} ({})", size(bytes), careful_rule())),
                None => (spec, format!("{} ({SPACE_PERCENT} % of it for volumes)", size(space_bytes))),
            };
            let wanted = format!("{wanted} for {volumes} volume(s)");
            RunError::Target(TargetError::NoSpace { spec: spec.to_owned(), wanted, free })
        };
        if fits < least_bytes {
            return Err(no_space(least_bytes));
        }
        if self.settings.volume_bytes.is_some()
            && layout.aged.is_none()
            && fits < wanted / ROUND_BYTES * ROUND_BYTES
        {
            return Err(no_space(wanted));
        }
        Ok(Size { volume_bytes: fits, careful: careful.map(|(_, spec)| spec.to_owned()) })
    }

    fn age(&self, target: &dyn Target, layout: &Layout, aged: Aged) -> Result<(), RunError> {
        if aged.overwrites == 0 {
            return Ok(());
        }
        let held_bytes = layout.volume_bytes.saturating_mul(layout.volumes.into());
        let bytes = held_bytes.saturating_mul(aged.overwrites.into());
        let what = format!("overwriting it {} times", aged.overwrites);
        let blocks = Blocks {
            operation: Operation::RandomWrite,
            amount: Amount::Bytes(bytes),
            block_bytes: u32::try_from(aged.block).unwrap_or(1 << 16),
            volumes: layout.volumes,
        };
        self.load_blocks(target, layout, &what, blocks)
    }

    /// Reads the volumes, or objects, that the last case loads once on all its targets, so that all begin it alike.
    pub(super) fn warm_up(&mut self, planned: &PlannedPoint, layout: &Layout) -> Result<(), RunError> {
        let mut warm = vec![false; self.targets.len()];
        for column in 0..self.columns.len() {
            let index = self.columns[column].target;
            let target = self.targets[index].as_ref();
            if self.is_skipped(column) || target.is_baseline() || std::mem::replace(&mut warm[index], true) {
                continue;
            }
            let Some(blocks) = warming(layout, &planned.point, target.drives()) else { continue };
            let Err(error) = self.load_blocks(target, layout, "reading it once", blocks) else { continue };
            let others_go_on = (0..self.columns.len())
                .any(|other| self.columns[other].target != index && !self.is_skipped(other));
            let reason = self.preparing_failed(index, &planned.id, error, others_go_on)?;
            for column in 0..self.columns.len() {
                if self.columns[column].target == index {
                    self.last_case().results[column].skipped.get_or_insert_with(|| reason.clone());
                }
            }
        }
        Ok(())
    }

    /// Whether the last case leaves a column out.
    fn is_skipped(&self, column: usize) -> bool {
        self.report.cases.last().is_none_or(|case| case.results[column].skipped.is_some())
    }

    fn load_blocks(
        &self,
        target: &dyn Target,
        layout: &Layout,
        what: &str,
        blocks: Blocks,
    ) -> Result<(), RunError> {
        let Blocks { operation, amount, block_bytes, volumes } = blocks;
        let keeps = operation.writes() && target.keeps_its_data();
        assert!(!keeps, "{} was not given up, and {what} would write to it", target.spec());
        let share = self.runs_done / self.runs_all.max(1.0);
        (self.hooks.progress)(share, &format!("{}: {what}", target.spec()));
        let volumes: Vec<u32> = (0..volumes).collect();
        let load = Load {
            operation,
            block_bytes,
            depth: PREPARE_DEPTH,
            jobs: 1,
            amount,
            size_bytes: match operation.is_of_objects() {
                true => object_set_bytes(layout.volume_bytes, block_bytes),
                false => layout.volume_bytes,
            },
            rate_iops: None,
            seed: self.settings.seed,
            processors: None,
        };
        let failed = |source| RunError::Generator { spec: target.spec().to_owned(), source };
        let outcome = run_commands(
            target.commands(&load, &volumes),
            &self.context.folder,
            self.waits.still,
            self.hooks.stopped,
        )
        .map_err(failed)?;
        if let Some(error) = outcome.first_error {
            let message = format!("{} failure(s) while {what}: {error}", outcome.errors);
            return Err(RunError::Target(TargetError::Unusable { spec: target.spec().to_owned(), message }));
        }
        Ok(())
    }
}

/// What is written or read besides what is measured.
#[derive(Debug, PartialEq)]
pub(super) struct Blocks {
    pub operation: Operation,
    pub amount: Amount,
    pub block_bytes: u32,
    /// The first ones of the layout.
    pub volumes: u32,
}

/// What is read before a point on a target that has so many drives.
pub(super) fn warming(layout: &Layout, point: &Point, drives: u32) -> Option<Blocks> {
    if !layout.warm_reads || !point.operation.reads() {
        return None;
    }
    // What the case does not load would only push what it loads out of caches.
    let volumes = point.volumes_on(drives).min(layout.volumes);
    let (operation, bytes, block_bytes) = match point.operation.is_of_objects() {
        true => {
            let bytes = object_set_bytes(layout.volume_bytes, point.block_bytes);
            (Operation::ObjectRead, bytes, point.block_bytes)
        }
        false => {
            let bytes = layout.volume_bytes.saturating_mul(volumes.into());
            (Operation::SequentialRead, bytes, FILL_BLOCK_BYTES)
        }
    };
    Some(Blocks { operation, amount: Amount::Bytes(bytes), block_bytes, volumes })
}

/// Volumes of a scenario whose points add so many drives, each a volume of its own, where `there` are. 0 stands for all.
fn volumes_of_steps(steps: &[u32], there: u32, volumes: u32) -> u32 {
    let most = steps.iter().map(|step| if *step == 0 { there } else { there.min(*step) }).max();
    most.map_or(volumes, |most| most.max(volumes.min(there)))
}

/// What so many volumes may take of a target's space: none is larger than the drive on which it lies.
fn usable_bytes(space_bytes: u64, drive_bytes: Option<u64>, volumes: u64) -> u64 {
    drive_bytes.map_or(space_bytes, |drive_bytes| space_bytes.min(drive_bytes.saturating_mul(volumes)))
}

fn run_commands(
    commands: Vec<Command>,
    scratch: &std::path::Path,
    still_max: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Outcome, GeneratorError> {
    let start = |mut command: Command| {
        let is_seen = mark(&mut command);
        let mut running = Running::start(&command, scratch)?;
        if is_seen {
            running.end_when_still(still_max);
        }
        Ok(running)
    };
    let started: Result<Vec<Running>, GeneratorError> = commands.into_iter().map(start).collect();
    // Each by itself first: one that did nothing has failed, whatever the others did.
    let outcomes = Running::finish_all(started?, FILL_TIME_MAX, stopped)?;
    let outcome = Outcome::merge(outcomes.into_iter().map(|one| Outcome::merge(vec![one])).collect());
    // A part of a fill is no fill.
    if outcome.is_stopped { Err(GeneratorError::Stopped) } else { Ok(outcome) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script in the place of a fio that may do nothing for a second.
    fn run_script(script: &str) -> GeneratorError {
        let scratch = tempfile::tempdir().unwrap();
        let command = Command {
            program: "bash".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: Vec::new(),
            files: Vec::new(),
            format: crate::generator::Format::Fio,
            processors: None,
            runtime_s: None,
        };
        run_commands(vec![command], scratch.path(), Duration::from_secs(1), &|| false).unwrap_err()
    }

    #[test]
    fn a_fill_of_what_does_not_answer_is_given_up() {
        let begin = std::time::Instant::now();
        let error = run_script("exec sleep 1000");
        assert!(matches!(error, GeneratorError::Still { seconds: 1, .. }), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        let slow = run_script("for turn in 1 2 3 4 5; do sleep 0.5; done; exit 3");
        assert!(slow.to_string().contains("exit status: 3"), "{slow}");
    }

    #[test]
    fn all_drives_are_written_full_where_one_step_loads_all() {
        assert_eq!(volumes_of_steps(&[1, 2, 3, 4, 8, 16, 0], 20, 1), 20);
        assert_eq!(volumes_of_steps(&[1, 2, 3, 4, 8, 16, 0], 4, 1), 4);
        assert_eq!(volumes_of_steps(&[1, 2], 20, 1), 2);
        assert_eq!(volumes_of_steps(&[1, 2], 20, 3), 3);
        assert_eq!(volumes_of_steps(&[], 1, 15), 15);
    }

    #[test]
    fn a_volume_is_no_larger_than_the_drive_that_it_lies_on() {
        assert_eq!(usable_bytes(2 << 30, Some(1 << 30), 1), 1 << 30);
        assert_eq!(usable_bytes(2 << 30, Some(1 << 30), 2), 2 << 30);
        assert_eq!(usable_bytes(2 << 30, None, 1), 2 << 30);
    }
}
