//! Settings that are tried against each other, and put back.
//!
//! Invariants:
//! - before a setting is changed for the first time, its value is kept;
//! - what was changed is put back when the run ends, however it ends, short of being killed; what could not be is told;
//! - a change that failed may have been made all the same, and is put back as well;
//! - what the kernel changes along with a setting is as it was found before each value, so that all turns of a column are alike;
//! - each setting has one key: two ways to write it would put each other's values back;
//! - if a setting takes effect at a start only, the target is started again before every turn, so that all turns begin alike;
//! - a setting that cannot be tried is refused before anything is changed.

use std::fmt;
use std::time::Instant;

use coquina_host::doctor::{self, OsSetting, SettingError};

use crate::leftovers::{self, Note};
use crate::target::{self, Context, Effect, Target, TargetError};

/// Label of a target with which nothing was changed.
pub const AS_FOUND: &str = "as found";
/// Characters of a value from which labels leave out what all values of the key have in common.
const VALUE_LENGTH_LONG: usize = 40;
/// Stands for what is left out.
const LEFT_OUT: &str = "...";

/// `KEY=VALUE` of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Where it is set.
    kind: Kind,
    /// As it was written, without the value.
    pub key: String,
    /// What is set.
    pub value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By the target.
    Target,
    /// By the operating system.
    System,
    /// In fio's jobs.
    Fio,
}

/// Why an assignment is not understood.
#[derive(Debug, thiserror::Error)]
#[error("--set {0:?} is not KEY=VALUE, such as osd:debug_ms=0 or os:scheduler:sdb=none")]
pub struct AssignmentError(String);

impl Assignment {
    /// Reads `KEY=VALUE`. The value may contain `=`.
    pub fn parse(text: &str) -> Result<Self, AssignmentError> {
        let (key, value) = text.split_once('=').ok_or_else(|| AssignmentError(text.to_owned()))?;
        let kind = match key.split_once(':') {
            Some(("os", rest)) if !rest.is_empty() => Kind::System,
            Some(("fio", rest)) if !rest.is_empty() => Kind::Fio,
            Some((section, rest)) if section.is_empty() || rest.is_empty() => {
                return Err(AssignmentError(text.to_owned()));
            }
            _ if key.is_empty() => return Err(AssignmentError(text.to_owned())),
            _ => Kind::Target,
        };
        if value.contains(['\n', '\r']) || key.contains(['\n', '\r']) {
            return Err(AssignmentError(text.to_owned()));
        }
        Ok(Assignment { kind, key: key.to_owned(), value: value.to_owned() })
    }

    /// Whether it is an option of fio's jobs.
    pub fn is_of_fio(&self) -> bool {
        self.kind == Kind::Fio
    }

    /// The key without `os:` or `fio:`.
    pub fn bare_key(&self) -> &str {
        match self.kind {
            Kind::Target => &self.key,
            Kind::System | Kind::Fio => self.key.split_once(':').map_or(self.key.as_str(), |(_, key)| key),
        }
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.key, self.value)
    }
}

/// Labels of assignments: `KEY=VALUE`. Of long lists such as RocksDB's options only what differs is shown.
pub fn labels(tried: &[Assignment]) -> Vec<String> {
    let shown = |assignment: &Assignment| {
        let values =
            tried.iter().filter(|other| other.key == assignment.key).map(|other| other.value.as_str());
        format!("{}={}", assignment.key, differing(&assignment.value, &values.collect::<Vec<_>>()))
    };
    tried.iter().map(shown).collect()
}

/// The words of a long list that not all lists have.
fn differing(value: &str, all: &[&str]) -> String {
    let words = |list: &str| -> Vec<String> { list.split(',').map(str::to_owned).collect() };
    let lists: Vec<Vec<String>> = all.iter().map(|list| words(list)).collect();
    if value.chars().count() < VALUE_LENGTH_LONG || lists.len() < 2 {
        return value.to_owned();
    }
    let own: Vec<String> =
        words(value).into_iter().filter(|word| !lists.iter().all(|list| list.contains(word))).collect();
    let is_whole = own.len() == words(value).len();
    if is_whole { value.to_owned() } else { [own, vec![LEFT_OUT.to_owned()]].concat().join(",") }
}

/// Columns of a run that tries settings: each assignment, and before them the target as it was found if some key has one
/// value only.
pub fn columns(tried: &[Assignment]) -> Vec<Option<usize>> {
    let is_alone =
        |assignment: &Assignment| tried.iter().filter(|other| other.key == assignment.key).count() == 1;
    let found = tried.iter().any(is_alone).then_some(None);
    found.into_iter().chain((0..tried.len()).map(Some)).collect()
}

/// Pairs (column, its reference): each value against the first of its key, or against the target as it was found.
pub fn references(tried: &[Assignment], columns: &[Option<usize>]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (column, index) in columns.iter().enumerate() {
        let Some(index) = index else { continue };
        let key = &tried[*index].key;
        let first = tried.iter().position(|other| other.key == *key).unwrap_or(*index);
        let count = tried.iter().filter(|other| other.key == *key).count();
        let reference = if count == 1 {
            columns.iter().position(Option::is_none)
        } else {
            columns.iter().position(|other| *other == Some(first))
        };
        if let Some(reference) = reference
            && reference != column
        {
            pairs.push((column, reference));
        }
    }
    pairs
}

/// A setting that was changed, and how to put it back.
enum Former {
    /// By its key. `None`: it was not set. No note of what goes with the run.
    Target(String, Option<String>, Option<Note>),
    /// By its key without `os:`: keys and values that put it back in this order.
    System(String, Vec<(String, String)>, Note),
}

/// Writes a value of a setting of the operating system, by its key without `os:`.
type Write = fn(&str, &str) -> Result<(), SettingError>;

/// Changes settings and puts them back.
pub struct Tuner<W = Write> {
    tried: Vec<Assignment>,
    former: Vec<Former>,
    /// Value that is set now, by key; a key that is not here is as it was found.
    now: Vec<(String, String)>,
    /// Keys that take effect at a start only.
    at_start: Vec<String>,
    /// Keys of which nobody says when they take effect.
    unsure: Vec<String>,
    /// The target was started with a value that is tried, last.
    is_started_with_tried: bool,
    restarts: u32,
    restarts_s: f64,
    write: W,
}

impl Tuner {
    /// Changes nothing yet.
    pub fn new(tried: &[Assignment]) -> Self {
        Tuner::with(tried, write_system)
    }
}

impl<W: Fn(&str, &str) -> Result<(), SettingError>> Tuner<W> {
    fn with(tried: &[Assignment], write: W) -> Self {
        Tuner {
            tried: tried.to_vec(),
            former: Vec::new(),
            now: Vec::new(),
            at_start: Vec::new(),
            unsure: Vec::new(),
            is_started_with_tried: false,
            restarts: 0,
            restarts_s: 0.0,
            write,
        }
    }

    /// Keeps the values of all settings, says what they are, and tries each one that is asked for.
    pub fn begin(
        &mut self,
        targets: &mut [Box<dyn Target>],
        context: &Context<'_>,
    ) -> Result<Vec<String>, TargetError> {
        self.check_names()?;
        self.check_values()?;
        self.look_at_effects(targets, context)?;
        let mut said = Vec::new();
        for assignment in self.first_of_each_key() {
            let unusable =
                |message: String| TargetError::Unusable { spec: format!("--set {assignment}"), message };
            match assignment.kind {
                Kind::System => {
                    let setting = os_setting(&assignment)?;
                    let saved = setting.save().map_err(|error| unusable(error.to_string()))?;
                    let values: Vec<String> =
                        saved.iter().map(|(key, value)| format!("{key} = {value}")).collect();
                    said.push(format!("now {}; put back at the end", values.join(", ")));
                    let note = leftovers::note(format!(
                        "settings of the operating system, which were {}: write these back",
                        values.join(", ")
                    ));
                    self.former.push(Former::System(assignment.bare_key().to_owned(), saved, note));
                }
                Kind::Target => {
                    let target =
                        targets.first_mut().ok_or_else(|| unusable("there is no target".to_owned()))?;
                    let spec = target.spec().to_owned();
                    let former = target.setting(&assignment.key, context)?;
                    let text = former.clone().unwrap_or_else(|| "not set".to_owned());
                    said.push(format!("{} was {text}; put back at the end", assignment.key));
                    let note = (!target::is_made_for_the_run(&spec)).then(|| {
                        leftovers::note(format!(
                            "the setting {} of {spec}, which was {text}: set it back (`ceph config set`, or `ceph config rm`)",
                            assignment.key
                        ))
                    });
                    // Before it is changed: that may fail, and be done all the same.
                    self.former.push(Former::Target(assignment.key.clone(), former, note));
                    target.set(&assignment.key, Some(&assignment.value))?;
                    self.now.push((assignment.key.clone(), assignment.value.clone()));
                }
                Kind::Fio => {}
            }
        }
        // Each value is tried now, so that a wrong one is told before anything is measured.
        for index in 0..self.tried.len() {
            self.assign(Some(index), targets)?;
            if self.at_start.contains(&self.tried[index].key) {
                (context.say)(&format!("starting the target again with {}", labels(&self.tried)[index]));
                self.restart(targets, context)?;
            }
        }
        said.extend(self.notes());
        Ok(said)
    }

    /// Refuses settings that are named in two ways.
    fn check_names(&self) -> Result<(), TargetError> {
        let mut known: Vec<(String, Assignment)> = Vec::new();
        for assignment in self.first_of_each_key() {
            let meant = match assignment.kind {
                // Ceph's options are those of OSDs where no section is named.
                Kind::Target => assignment.key.strip_prefix("osd:").unwrap_or(&assignment.key).to_owned(),
                // What puts them back is the same.
                Kind::System => os_setting(&assignment)?.undo_command().map_err(|error| {
                    TargetError::Unusable { spec: format!("--set {assignment}"), message: error.to_string() }
                })?,
                Kind::Fio => assignment.key.clone(),
            };
            let same = known.iter().find(|(other, known)| *other == meant && known.kind == assignment.kind);
            if let Some((_, other)) = same {
                let message = format!("{} is the same setting; write both in one way", other.key);
                return Err(TargetError::Wrong { spec: format!("--set {assignment}"), message });
            }
            known.push((meant, assignment));
        }
        Ok(())
    }

    /// Refuses values that settings of the operating system cannot have.
    fn check_values(&self) -> Result<(), TargetError> {
        let of_system = self.tried.iter().filter(|assignment| assignment.kind == Kind::System);
        of_system.into_iter().try_for_each(|assignment| {
            let refused = |error| refused(assignment, &error);
            os_setting(assignment)?.check(&assignment.value).map_err(refused)
        })
    }

    fn look_at_effects(
        &mut self,
        targets: &[Box<dyn Target>],
        context: &Context<'_>,
    ) -> Result<(), TargetError> {
        let Some(target) = targets.first() else { return Ok(()) };
        for assignment in self.first_of_each_key() {
            if assignment.kind != Kind::Target {
                continue;
            }
            match target.effect(&assignment.key, context)? {
                Effect::AtOnce => {}
                Effect::Unsure => self.unsure.push(assignment.key),
                Effect::AtStart => self.at_start.push(assignment.key),
            }
        }
        Ok(())
    }

    fn restart(&mut self, targets: &mut [Box<dyn Target>], context: &Context<'_>) -> Result<(), TargetError> {
        let Some(target) = targets.first_mut() else { return Ok(()) };
        let begin = Instant::now();
        target.restart(context)?;
        self.is_started_with_tried = self.now.iter().any(|(key, _)| self.at_start.contains(key));
        self.restarts += 1;
        self.restarts_s += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// What the report has to say of when settings took effect.
    pub fn notes(&self) -> Vec<String> {
        let restarts = (self.restarts > 0).then(|| {
            format!(
                "{}: not surely read while the target runs, so it is started again before each turn ({} times, {:.1} s each, not \
                 measured) and begins with empty caches",
                self.at_start.join(", "),
                self.restarts,
                self.restarts_s / f64::from(self.restarts)
            )
        });
        let unsure = (!self.unsure.is_empty()).then(|| {
            format!(
                "{}: may be read at a start only, and the target was not started again: if no difference is shown, that may be why",
                self.unsure.join(", ")
            )
        });
        restarts.into_iter().chain(unsure).collect()
    }

    fn first_of_each_key(&self) -> Vec<Assignment> {
        let mut firsts: Vec<Assignment> = Vec::new();
        for assignment in &self.tried {
            if firsts.iter().all(|first| first.key != assignment.key) {
                firsts.push(assignment.clone());
            }
        }
        firsts
    }

    /// Brings one assignment into effect; all other keys are as they were found.
    pub fn apply(
        &mut self,
        tried: Option<usize>,
        targets: &mut [Box<dyn Target>],
        context: &Context<'_>,
    ) -> Result<(), TargetError> {
        self.assign(tried, targets)?;
        // Also if nothing has changed: a turn with warm caches and one with empty ones do not compare.
        if self.at_start.is_empty() { Ok(()) } else { self.restart(targets, context) }
    }

    /// Puts all settings back to what they were found as, until the next turn.
    pub fn set_as_found(
        &mut self,
        targets: &mut [Box<dyn Target>],
        context: &Context<'_>,
    ) -> Result<(), TargetError> {
        self.assign(None, targets)?;
        if self.is_started_with_tried { self.restart(targets, context) } else { Ok(()) }
    }

    fn assign(&mut self, tried: Option<usize>, targets: &mut [Box<dyn Target>]) -> Result<(), TargetError> {
        let wanted = tried.and_then(|index| self.tried.get(index)).cloned();
        let is_wanted = |first: &Assignment| wanted.as_ref().is_some_and(|wanted| wanted.key == first.key);
        let mut firsts = self.first_of_each_key();
        // What is put back first: with a scheduler the kernel sets more than that.
        firsts.sort_by_key(is_wanted);
        for first in firsts {
            let value = wanted.as_ref().filter(|_| is_wanted(&first)).map(|wanted| wanted.value.clone());
            let now = self.now.iter().find(|(key, _)| *key == first.key).map(|(_, value)| value.clone());
            if now != value && first.kind != Kind::Fio {
                self.change(&first, value.as_deref(), targets)?;
            }
        }
        Ok(())
    }

    fn change(
        &mut self,
        setting: &Assignment,
        value: Option<&str>,
        targets: &mut [Box<dyn Target>],
    ) -> Result<(), TargetError> {
        let failed =
            |message: String| TargetError::Unusable { spec: format!("--set {}", setting.key), message };
        match setting.kind {
            Kind::Target => {
                let found = self.former.iter().find_map(|former| match former {
                    Former::Target(key, found, _) if *key == setting.key => Some(found.clone()),
                    _ => None,
                });
                if let Some(target) = targets.first_mut() {
                    target.set(&setting.key, value.map(str::to_owned).or(found.flatten()).as_deref())?;
                }
            }
            Kind::System => {
                let saved = self.former.iter().find_map(|former| match former {
                    Former::System(key, saved, _) if key == setting.bare_key() => Some(saved.as_slice()),
                    _ => None,
                });
                let saved = saved.unwrap_or_default();
                // What the kernel changed along with another value would stay with this one, or go where it was as found.
                let has_others = saved.len() > 1 && self.now.iter().any(|(key, _)| *key == setting.key);
                if value.is_none() || has_others {
                    let errors = self.restore_system(saved);
                    if let Some(error) = errors.into_iter().next() {
                        return Err(failed(error));
                    }
                }
                if let Some(value) = value {
                    (self.write)(setting.bare_key(), value).map_err(|error| failed(error.to_string()))?;
                }
            }
            Kind::Fio => {}
        }
        self.now.retain(|(key, _)| *key != setting.key);
        if let Some(value) = value {
            self.now.push((setting.key.clone(), value.to_owned()));
        }
        Ok(())
    }

    /// Options of fio's jobs that an assignment sets.
    pub fn fio_options(&self, tried: Option<usize>) -> Vec<(String, String)> {
        let assignment =
            tried.and_then(|index| self.tried.get(index)).filter(|tried| tried.kind == Kind::Fio);
        assignment.map(|tried| (tried.bare_key().to_owned(), tried.value.clone())).into_iter().collect()
    }

    /// Puts back what was changed, and says what could not be. Nothing is started again: only a target that goes with the run is.
    pub fn restore(&mut self, targets: &mut [Box<dyn Target>]) -> Vec<String> {
        let (mut failed, mut again) = (Vec::new(), Vec::new());
        // The last that was changed first.
        for former in std::mem::take(&mut self.former).into_iter().rev() {
            match former {
                Former::System(_, saved, note) => {
                    if !self.restore_system(&saved).is_empty() {
                        again.push((saved, note));
                    }
                }
                Former::Target(key, found, note) => {
                    let Some(target) = targets.first_mut() else { continue };
                    let Err(error) = target.set(&key, found.as_deref()) else { continue };
                    let value = found.unwrap_or_else(|| "not set".to_owned());
                    failed.push(format!("{key} could not be put back ({value}): {error}"));
                    note.into_iter().for_each(Note::keep);
                }
            }
        }
        // A drive that has its scheduler again takes requests that it refused with another one.
        for (saved, note) in again {
            let errors = self.restore_system(&saved);
            if !errors.is_empty() {
                note.keep();
            }
            failed.extend(errors);
        }
        self.now.clear();
        failed
    }

    /// Writes values of the operating system back, in this order. Gives what could not be.
    fn restore_system(&self, saved: &[(String, String)]) -> Vec<String> {
        let written = saved.iter().map(|(key, value)| (key, value, (self.write)(key, value)));
        let failed = written.filter_map(|(key, value, written)| {
            let error = written.err()?;
            Some(format!("{key} could not be put back to {value}: {error}"))
        });
        failed.collect()
    }
}

/// The setting that an assignment names.
fn os_setting(assignment: &Assignment) -> Result<OsSetting, TargetError> {
    doctor::os_setting(assignment.bare_key()).map_err(|error| refused(assignment, &error))
}

fn refused(assignment: &Assignment, error: &SettingError) -> TargetError {
    let (spec, message) = (format!("--set {assignment}"), error.to_string());
    match error.is_wrong_usage() {
        true => TargetError::Wrong { spec, message },
        false => TargetError::Unusable { spec, message },
    }
}

fn write_system(key: &str, value: &str) -> Result<(), SettingError> {
    doctor::os_setting(key)?.write(value)
}

#[cfg(test)]
mod tests;
