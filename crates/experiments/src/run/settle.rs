//! Stores that were aged settle under a case's own load before it is measured, the first time under the heaviest one as well.

use crate::definition::{Layout, Mode, PlannedPoint, SETTLE_PASSES_MAX};
use crate::generator::GeneratorError;
use crate::target::TargetError;

use super::measure::{Measured, SETTLING};
use super::{Run, RunError};

/// Rounds that are left may take longer than those before: drives of stores that are full have more to do between them.
const MARGIN: f64 = 1.1;

impl Run<'_> {
    /// Gives a store that was aged so much of the case's own load that its throughput is steady and its servers take no more memory: it does
    /// what it will go on doing then. Before a scenario's first such case it has as much of the heaviest of them. Not where that would undo
    /// its age: sequential writes lay the store out in order again. The rounds tell of whatever else than a hang fails here.
    pub(super) fn settle(&mut self, planned: &PlannedPoint, layout: &Layout) -> Result<(), RunError> {
        if !settles(planned, layout, self.settings.limits.settle_s) {
            return Ok(());
        }
        let cases_after = self.cases_to_settle_after(planned);
        let scenarios = self.settings.plan();
        if let Some(deepest) = scenarios.iter().find_map(|scenario| settled_before(&scenario.points, planned))
        {
            self.settle_under(planned, deepest, layout, cases_after + 1)?;
        }
        self.settle_under(planned, planned, layout, cases_after)
    }

    /// Settles stores under a load, for a case.
    fn settle_under(
        &mut self,
        planned: &PlannedPoint,
        load: &PlannedPoint,
        layout: &Layout,
        loads_after: usize,
    ) -> Result<(), RunError> {
        let settle_s = self.settings.limits.settle_s;
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        self.random.shuffle(&mut order);
        let mut settled = vec![false; self.targets.len()];
        order.retain(|column| {
            let is_skipped =
                self.report.cases.last().is_some_and(|case| case.results[*column].skipped.is_some());
            !is_skipped && !std::mem::replace(&mut settled[self.columns[*column].target], true)
        });
        for (done, column) in order.iter().copied().enumerate() {
            let loads = order.len() - done + loads_after * order.len();
            let passes_max = self.settle_passes_max(planned, loads);
            let limits =
                Mode { runtime_s: settle_s, warmup_s: 0.0, passes_max, ..self.settings.limits.clone() };
            let share = self.runs_done / self.runs_all.max(1.0);
            let label = self.label(column);
            (self.hooks.progress)(share, &format!("{}: {label}, settling", planned.id));
            match self.shoot(load, layout, column, SETTLING, &limits)? {
                Err(GeneratorError::Stopped) => return Err(TargetError::Stopped.into()),
                Err(_) if (self.hooks.stopped)() => return Err(TargetError::Stopped.into()),
                Ok(measured) if load.id == planned.id && measured.round.is_good() => {
                    self.note_settled(planned, column, &measured, passes_max);
                }
                Err(error) if error.is_hang() => {
                    self.load_failed(column, planned, "while it settled: ", &error);
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn note_settled(&mut self, planned: &PlannedPoint, column: usize, measured: &Measured, passes_max: u32) {
        let settled_s = f64::from(measured.round.passes) * self.settings.limits.settle_s;
        // With settings that are tried all columns are one target, which settled for all of them.
        let columns: Vec<usize> = self.columns_of(self.columns[column].target).collect();
        let results = &mut self.last_case().results;
        for column in columns {
            if results[column].skipped.is_none() {
                results[column].settled_s = settled_s;
            }
        }
        if let Some(what) = unsettled(measured.round.is_steady, measured.grown) {
            let text = told_of_unsettled(&self.label(column), &what, settled_s, passes_max);
            self.find("not-settled", &planned.id, &text);
        }
    }

    /// Cases behind one in which stores settle, too.
    fn cases_to_settle_after(&self, planned: &PlannedPoint) -> usize {
        let plan = self.settings.plan();
        let cases = plan.iter().flat_map(|scenario| {
            let layout = &scenario.layout;
            scenario.points.iter().map(move |planned| (planned, layout))
        });
        let behind = cases.skip_while(|(other, _)| other.id != planned.id).skip(1);
        behind.filter(|(other, layout)| settles(other, layout, self.settings.limits.settle_s)).count()
    }

    /// How often a store may settle before a case, if so many loads are left that settle stores, this one included: as often as there is
    /// time beside all rounds that are left, which are reckoned to take as long as those up to now did.
    pub(super) fn settle_passes_max(&self, planned: &PlannedPoint, loads: usize) -> u32 {
        let limits = &self.settings.limits;
        let measuring_s = self.rest_of_measuring_s(planned, limits.rounds) * MARGIN;
        let taken_s = self.began.elapsed().as_secs_f64() + measuring_s;
        passes_within(limits.time_s, taken_s, limits.settle_s + self.load_extra_s(), loads)
    }
}

pub(super) fn settles(planned: &PlannedPoint, layout: &Layout, settle_s: f64) -> bool {
    layout.aged.is_some() && settle_s > 0.0 && planned.point.operation.settles()
}

/// Of the points of a scenario the one with the most operations in flight, if stores settle under it before they do under the first point that
/// has them settle: with few in flight it would take minutes until all of a store has been written as it will be, and until caches are full.
fn settled_before<'a>(points: &'a [PlannedPoint], planned: &PlannedPoint) -> Option<&'a PlannedPoint> {
    let mut settling = points.iter().filter(|other| other.point.operation.settles());
    let first = settling.next().filter(|first| first.id == planned.id)?;
    let in_flight = |planned: &PlannedPoint| {
        let point = &planned.point;
        u64::from(point.depth) * u64::from(point.jobs) * u64::from(point.loaded_volumes())
    };
    settling.filter(|other| in_flight(other) > in_flight(first)).max_by_key(|other| in_flight(other))
}

/// Times that each of so many loads may be given, of `time_s` in all, of which so much is taken by all else: one at least.
fn passes_within(time_s: f64, taken_s: f64, settle_s: f64, loads: usize) -> u32 {
    if time_s <= 0.0 {
        return SETTLE_PASSES_MAX;
    }
    let passes = (time_s - taken_s) / (settle_s * loads.max(1) as f64);
    // Saturates.
    (passes as u32).clamp(1, SETTLE_PASSES_MAX)
}

/// What a store had not come to an end with; none if all.
fn unsettled(is_steady: Option<bool>, grown: Option<f64>) -> Option<String> {
    let not_steady = (is_steady == Some(false)).then(|| "its throughput was still not steady".to_owned());
    let growing = grown.map(|share| {
        format!(
            "its servers still took more memory ({:.0} % more in the last part of it), which takes its time",
            share * 100.0
        )
    });
    let all: Vec<String> = not_steady.into_iter().chain(growing).collect();
    (!all.is_empty()).then(|| all.join(", and "))
}

fn told_of_unsettled(label: &str, what: &str, seconds: f64, passes_max: u32) -> String {
    let why = if passes_max < SETTLE_PASSES_MAX { ", for which there was no more time" } else { "" };
    format!("{label}: {what} after {seconds} s of this load{why}: it may do otherwise in the long run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Operation, Point};

    #[test]
    fn stores_settle_as_often_as_there_is_time_and_once_at_least() {
        assert_eq!(passes_within(0.0, 1e9, 5.0, 6), SETTLE_PASSES_MAX, "no bound");
        assert_eq!(passes_within(570.0, 450.0, 5.0, 6), 4);
        assert_eq!(passes_within(570.0, 500.0, 5.0, 6), 2);
        assert_eq!(passes_within(570.0, 540.0, 5.0, 6), 1);
        assert_eq!(passes_within(570.0, 541.0, 5.0, 6), 1, "once at least");
        assert_eq!(passes_within(570.0, 9000.0, 5.0, 6), 1);
        assert_eq!(passes_within(570.0, 0.0, 5.0, 0), SETTLE_PASSES_MAX);
    }

    #[test]
    fn stores_settle_under_the_heaviest_load_first() {
        let planned = |name: &str, operation: Operation, depth: u32| {
            let point = Point {
                scenario: "aged".to_owned(),
                operation,
                block_bytes: 4096,
                depth,
                jobs: 1,
                volumes: 1,
                volumes_per_client: None,
                clients: 1,
                drives: None,
                copies: Some(3),
                placement: None,
                rate_iops: None,
            };
            PlannedPoint { id: name.to_owned(), point, ladder: None }
        };
        let points = [
            planned("in order", Operation::SequentialWrite, 256),
            planned("one", Operation::RandomWrite, 1),
            planned("many", Operation::RandomWrite, 128),
            planned("few", Operation::RandomWrite, 4),
        ];
        let before = |index: usize, points: &[PlannedPoint]| {
            settled_before(points, &points[index]).map(|deepest| deepest.id.clone())
        };
        assert_eq!(before(1, &points).as_deref(), Some("many"));
        assert_eq!([before(0, &points), before(2, &points), before(3, &points)], [None, None, None]);
        assert_eq!(before(0, &points[2..]), None, "it is the first");
        assert_eq!(before(0, &points[1..2]), None, "there is no other");
    }

    #[test]
    fn what_has_not_settled_says_for_how_long_and_why() {
        assert_eq!(unsettled(Some(true), None), None);
        assert_eq!(unsettled(None, None), None, "too short to be judged");
        let not_steady = unsettled(Some(false), None).unwrap();
        let text = told_of_unsettled("Ceph", &not_steady, 10.0, 2);
        assert!(
            text.starts_with("Ceph: its throughput")
                && text.contains("after 10 s")
                && text.contains("no more time"),
            "{text}"
        );
        assert!(!text.contains("memory"), "{text}");
        let text = told_of_unsettled("Ceph", &not_steady, 20.0, SETTLE_PASSES_MAX);
        assert!(!text.contains("no more time"), "{text}");
        let growing = unsettled(Some(true), Some(0.31)).unwrap();
        assert!(growing.contains("31 % more") && !growing.contains("throughput"), "{growing}");
        let both = unsettled(Some(false), Some(0.31)).unwrap();
        assert!(both.contains("steady, and its servers still took more memory"), "{both}");
    }
}
