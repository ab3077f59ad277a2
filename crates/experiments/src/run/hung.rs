//! Targets whose load does not end.
//!
//! A load on a target that hangs takes a minute and a half until it is given up. Its volumes are the same for all cases of a scenario, so that
//! the next case would take as long, and tell as little.
//!
//! Invariants:
//! - a target that hung is not loaded any more in that scenario, neither measured, nor to settle or to be read before;
//! - it is tried once more in the next scenario that it can do, and given up when it hangs in that one, too;
//! - each time it is told once, with what the target says of itself.

use crate::definition::PlannedPoint;
use crate::generator::GeneratorError;
use crate::target::{Context, TargetError};

use super::{Run, RunError};

/// Scenarios in which a target hangs before it is given up.
const SCENARIOS_MAX: u32 = 2;

/// What is remembered of a column whose load did not end.
#[derive(Clone, Debug, Default)]
pub(super) struct Hung {
    /// Why it is not loaded any more in this scenario, if it is not.
    pub reason: Option<String>,
    /// Scenarios in which it hung.
    scenarios: u32,
}

impl Run<'_> {
    /// The next scenario has other volumes.
    pub(super) fn forget_hung(&mut self) {
        self.hung.iter_mut().for_each(|hung| hung.reason = None);
    }

    /// Why a column is not loaded any more.
    pub(super) fn why_not_loaded(&self, column: usize) -> Option<String> {
        self.given_up[column].clone().or_else(|| self.hung[column].reason.clone())
    }

    /// Why a target, that is all of its columns, is not run any more.
    pub(super) fn why_given_up(&self, target: usize) -> Option<String> {
        let mut reasons = self.columns_of(target).map(|column| self.given_up[column].clone());
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    }

    /// A target's columns: several where settings are tried.
    pub(super) fn columns_of(&self, target: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.columns.len()).filter(move |column| self.columns[*column].target == target)
    }

    /// Whether it hung in a scenario before, and is tried once more.
    pub(super) fn has_hung(&self, target: usize) -> bool {
        self.columns_of(target).any(|column| self.hung[column].scenarios > 0)
    }

    /// What failed, and what the target says of itself where that may be the reason.
    fn with_ailment(&self, target: usize, text: &str) -> String {
        match self.targets[target].ailment(&self.context) {
            Some(ailment) if text.ends_with('?') => format!("{text} {ailment}"),
            Some(ailment) => format!("{text}; {ailment}"),
            None => text.to_owned(),
        }
    }

    /// A load on a column failed: tells it, and leaves the rest of its case out. If it hung, the rest of its scenario as well. `when` is empty
    /// where it was measured.
    pub(super) fn load_failed(
        &mut self,
        column: usize,
        planned: &PlannedPoint,
        when: &str,
        error: &GeneratorError,
    ) {
        let target = self.columns[column].target;
        let mut text = format!("{when}{error}");
        if error.may_be_of_the_target() {
            text = self.with_ailment(target, &text);
        }
        let label = self.label(column);
        let then = if error.is_hang() { self.hung(&[column], &planned.id, &text) } else { String::new() };
        (self.hooks.say)(&format!("{label}: {text}{then}"));
        self.find("failed", &planned.id, &format!("{label}: {text}{then}"));
        self.last_case().results[column].skipped = Some(text);
    }

    /// A load that makes volumes ready has failed. If it hung, and others can go on, its target is left out of the scenario, for the reason
    /// that is given; otherwise the run ends with it.
    pub(super) fn preparing_failed(
        &mut self,
        target: usize,
        subject: &str,
        error: RunError,
        others_go_on: bool,
    ) -> Result<String, RunError> {
        let RunError::Generator { spec, source } = error else { return Err(error) };
        if !source.is_hang() {
            return Err(RunError::Generator { spec, source });
        }
        let text = self.with_ailment(target, &source.to_string());
        match others_go_on {
            true => Ok(self.leave_out(target, subject, &text)),
            false => Err(RunError::Target(TargetError::Unusable { spec, message: text })),
        }
    }

    /// Makes the volumes of a target that has hung in a scenario before: nobody waits for that as long as for others, and it is left out if
    /// that fails. Says whether they must be written full and aged, or why it is left out.
    pub(super) fn make_volumes_once_more(
        &mut self,
        target: usize,
        scenario: &str,
        make: impl FnOnce(&mut Self, &Context<'_>) -> Result<bool, TargetError>,
    ) -> Result<Result<bool, String>, TargetError> {
        let began = std::time::Instant::now();
        let (is_stopped, time_max) = (self.hooks.stopped, self.waits.still);
        let stopped = move || is_stopped() || began.elapsed() > time_max;
        let context = Context { stopped: &stopped, ..self.context.clone() };
        let error = match make(self, &context) {
            Ok(made) => return Ok(Ok(made)),
            Err(error) if is_stopped() => return Err(error),
            Err(error) => error,
        };
        let why = match error.is_stop() {
            true => format!("it did not get its volumes within {} s", time_max.as_secs()),
            false => error.to_string(),
        };
        let text = self.with_ailment(target, &format!("it hung before, and now {why}"));
        Ok(Err(self.leave_out(target, scenario, &text)))
    }

    /// Leaves all columns of a target out of the rest of the scenario, and tells it. Gives the reason.
    pub(super) fn leave_out(&mut self, target: usize, subject: &str, text: &str) -> String {
        let columns: Vec<usize> = self.columns_of(target).collect();
        let then = self.hung(&columns, subject, text);
        let spec = self.targets[target].spec().to_owned();
        (self.hooks.say)(&format!("{spec}: {text}{then}"));
        self.find("failed", subject, &format!("{spec}: {text}{then}"));
        columns.first().and_then(|column| self.why_not_loaded(*column)).unwrap_or_default()
    }

    /// Remembers that these columns, of one target, hung, and gives what follows from it, in words.
    fn hung(&mut self, columns: &[usize], subject: &str, text: &str) -> String {
        let mut is_given_up = false;
        for column in columns {
            let hung = &mut self.hung[*column];
            hung.scenarios += u32::from(hung.reason.is_none());
            hung.reason =
                Some(format!("it hung before, at {subject}, and has the same volumes here: {text}"));
            if hung.scenarios >= SCENARIOS_MAX {
                is_given_up = true;
                self.given_up[*column] = Some(format!(
                    "given up: it hung in {SCENARIOS_MAX} scenarios, at last at {subject}: {text}"
                ));
            }
        }
        match is_given_up {
            true => format!(". It hung in {SCENARIOS_MAX} scenarios, and is given up"),
            false => ". It is not loaded any more in this scenario".to_owned(),
        }
    }
}
