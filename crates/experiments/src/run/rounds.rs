//! How many rounds of a case there is time for, where a run has only so much.

use crate::definition::{Layout, PlannedPoint, PlannedScenario, ROUNDS_MIN, VOLUME_BYTES_MIN};

use super::Run;
use super::plan::LOAD_EXTRA_S;
use super::settle::settles;

/// What a run has seen of its own pace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Time that rounds took with all that belongs to them, in seconds.
    pub rounds_s: f64,
    /// How many these were: one for each target.
    pub rounds: u32,
    /// Time to write a byte to the volumes of all targets, in seconds. It is the last scenario's.
    pub s_per_byte: f64,
    /// Bytes that the scenarios behind the present one write to the volumes of each target before their first case, as if to a fresh store.
    pub bytes_ahead: f64,
}

impl Run<'_> {
    /// Whether a case has time for so many more rounds, of which the next one is `round`.
    pub(super) fn has_time_for(&self, planned: &PlannedPoint, round: u32, rounds_left: u32) -> bool {
        let time_s = self.settings.limits.time_s;
        if round <= ROUNDS_MIN || time_s <= 0.0 {
            return true;
        }
        self.began.elapsed().as_secs_f64() + self.rest_s(planned, rounds_left) <= time_s
    }

    /// What a run still needs at least, if a case has so many more rounds: all rounds of the cases behind it, settling once, and writing
    /// volumes as fast as the last ones were written. In seconds.
    fn rest_s(&self, planned: &PlannedPoint, rounds_left: u32) -> f64 {
        self.rest_of_measuring_s(planned, rounds_left) + self.settling_behind_s(planned)
    }

    /// The part of it that is not settling.
    pub(super) fn rest_of_measuring_s(&self, planned: &PlannedPoint, rounds_left: u32) -> f64 {
        let limits = &self.settings.limits;
        let round_s = limits.runtime_s + limits.warmup_s + self.load_extra_s();
        let mut rest_s = self.pace.s_per_byte * self.pace.bytes_ahead;
        let mut is_behind = false;
        for scenario in self.settings.plan() {
            let is_here = scenario.points.iter().any(|other| other.id == planned.id);
            let columns = self.columns_that_take(&scenario.layout, is_here) as f64;
            for other in &scenario.points {
                if is_behind {
                    rest_s += columns * f64::from(limits.rounds) * round_s;
                }
                if other.id == planned.id {
                    rest_s += columns * f64::from(rounds_left) * round_s;
                    is_behind = true;
                }
            }
        }
        rest_s
    }

    /// Settling once before each of the cases behind one.
    fn settling_behind_s(&self, planned: &PlannedPoint) -> f64 {
        let limits = &self.settings.limits;
        let mut rest_s = 0.0;
        let mut is_behind = false;
        for scenario in self.settings.plan() {
            let begins_behind = is_behind;
            let mut settling = 0_u32;
            for other in &scenario.points {
                settling += u32::from(is_behind && settles(other, &scenario.layout, limits.settle_s));
                is_behind |= other.id == planned.id;
            }
            // The heaviest load comes before the first case.
            let loads = settling + u32::from(begins_behind && settling > 0);
            let is_here = scenario.points.iter().any(|other| other.id == planned.id);
            rest_s +=
                self.columns_that_take(&scenario.layout, is_here) as f64 * f64::from(loads) * limits.settle_s;
        }
        rest_s
    }

    /// Time that a load takes besides its own: that of the rounds up to now, which is less than what is reckoned before.
    pub(super) fn load_extra_s(&self) -> f64 {
        let limits = &self.settings.limits;
        match self.pace.rounds {
            0 => LOAD_EXTRA_S,
            rounds => (self.pace.rounds_s / f64::from(rounds) - limits.runtime_s - limits.warmup_s).max(0.0),
        }
    }

    /// Columns that a scenario loads; `is_here` if it is at work.
    pub(super) fn columns_that_take(&self, layout: &Layout, is_here: bool) -> usize {
        let takes = |column: &usize| {
            self.given_up[*column].is_none()
                && !(is_here && self.hung[*column].reason.is_some())
                && self.targets[self.columns[*column].target].refuses(layout).is_none()
        };
        (0..self.columns.len()).filter(takes).count()
    }

    /// Notes how long it took to lay a scenario out, if that is what it takes, and how much those behind it will write.
    pub(super) fn note_laid_out(&mut self, scenario: &PlannedScenario, layout: &Layout, took_s: Option<f64>) {
        if self.settings.limits.time_s <= 0.0 {
            return;
        }
        let written_bytes = bytes_written(layout, layout.volume_bytes);
        if let Some(took_s) = took_s.filter(|_| written_bytes > 0.0) {
            self.pace.s_per_byte = took_s / written_bytes;
        }
        let plan = self.settings.plan();
        let behind = plan.iter().skip_while(|other| other.name != scenario.name).skip(1);
        let refused = vec![None; self.targets.len()];
        let bytes = behind.map(|other| {
            let layout = &other.layout;
            let volume_bytes = self.volume_bytes(layout, &refused, VOLUME_BYTES_MIN);
            bytes_written(layout, volume_bytes.unwrap_or(layout.volume_bytes))
        });
        self.pace.bytes_ahead = bytes.sum();
    }
}

/// What overwriting a store that is nearly full costs, in writes to a fresh one: it has to move about as much as is written. (145 s were taken for
/// 2.7 GiB where 0.5 GiB of other volumes had taken 13 s.)
const OVERWRITE_COST: u32 = 2;

/// Bytes that are written to the volumes of a target before the first case, as if to a fresh store.
fn bytes_written(layout: &Layout, volume_bytes: u64) -> f64 {
    let passes = u32::from(layout.fill) + OVERWRITE_COST * layout.aged.map_or(0, |aged| aged.overwrites);
    volume_bytes as f64 * f64::from(layout.volumes.max(1)) * f64::from(passes)
}
