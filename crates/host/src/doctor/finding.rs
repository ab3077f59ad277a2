//! What one check found, and the change that it asks for.

use serde::{Deserialize, Serialize};

use super::root::HostRoot;
use super::setting::{SettingError, os_setting_at};

/// How bad it is. Ordered from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// A fact without advice.
    Info,
    /// The host does not say.
    Unknown,
    /// Could be faster or safer.
    Advice,
    /// Costs much, or puts something at risk.
    Warning,
    /// Coquina cannot run like this.
    Problem,
}

impl Level {
    /// For people.
    pub fn as_str(self) -> &'static str {
        if self == Level::Unknown { "not known" } else { self.key() }
    }

    /// As in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Info => "info",
            Level::Unknown => "unknown",
            Level::Advice => "advice",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name of the check, such as `IO_SCHEDULER`.
    pub code: String,
    /// How bad it is.
    pub level: Level,
    /// What it is about, such as `drive sda`.
    pub subject: String,
    /// What was found. Begins with `not known` where the host does not say.
    pub is: String,
    /// What would be better, or empty.
    pub should_be: String,
    /// Why, or empty.
    pub why: String,
    /// The command that changes it, or what to do, or empty.
    pub how: String,
    /// The command that puts it back, where that can be done.
    pub undo: Option<String>,
    /// The setting that [`apply`] changes, where there is one that can be put back.
    pub change: Option<Change>,
    /// What [`apply`] did.
    pub applied: Option<Applied>,
}

/// A change of a setting, see [`super::os_setting`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Key of the setting.
    pub key: String,
    /// The value to set.
    pub value: String,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The value before.
    pub before: String,
    /// The value that was read back after.
    pub after: String,
    /// Why it was not done.
    pub error: Option<String>,
}

impl Finding {
    /// A check whose answer is given by the methods below. Good as long as none of them says otherwise.
    pub(super) fn new(code: &str, subject: impl Into<String>) -> Self {
        Finding {
            code: code.to_owned(),
            level: Level::Ok,
            subject: subject.into(),
            is: String::new(),
            should_be: String::new(),
            why: String::new(),
            how: String::new(),
            undo: None,
            change: None,
            applied: None,
        }
    }

    /// A check that the host gives no answer to.
    pub(super) fn unknown(code: &str, subject: impl Into<String>, reason: &str) -> Self {
        let is = if reason.is_empty() { "not known".to_owned() } else { format!("not known: {reason}") };
        Finding { level: Level::Unknown, is, ..Finding::new(code, subject) }
    }

    /// What was found.
    pub(super) fn is(mut self, is: impl Into<String>) -> Self {
        self.is = is.into();
        self
    }

    /// How bad it is.
    pub(super) fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// What would be better.
    pub(super) fn should_be(mut self, level: Level, should_be: impl Into<String>) -> Self {
        self.level = level;
        self.should_be = should_be.into();
        self
    }

    /// Why.
    pub(super) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// How to change it by hand.
    pub(super) fn how(mut self, how: impl Into<String>) -> Self {
        self.how = how.into();
        self
    }

    /// How to put it back by hand.
    pub(super) fn undo(mut self, undo: impl Into<String>) -> Self {
        self.undo = Some(undo.into());
        self
    }

    /// The setting that changes it. Without what puts it back it is not offered.
    pub(super) fn change(mut self, root: &HostRoot, key: &str, value: &str) -> Self {
        let commands = os_setting_at(root, key).and_then(|setting| {
            setting.check(value)?;
            Ok((setting.command(value), setting.undo_command()?))
        });
        if let Ok((how, undo)) = commands {
            (self.how, self.undo) = (how, Some(undo));
            self.change = Some(Change { key: key.to_owned(), value: value.to_owned() });
        }
        self
    }
}

/// Makes the change of a finding and reads it back. Findings without one, and those already as they should be, stay as
/// they are. What happened is in [`Finding::applied`]; the answer says whether anything was tried.
pub fn apply(root: &HostRoot, finding: &mut Finding) -> bool {
    let Some(change) = finding.change.clone().filter(|_| finding.level >= Level::Advice) else {
        return false;
    };
    let mut applied = Applied { before: String::new(), after: String::new(), error: None };
    if let Err(error) = make(root, &change, &mut applied, &mut finding.undo) {
        applied.error = Some(error.to_string());
    }
    finding.applied = Some(applied);
    true
}

fn make(
    root: &HostRoot,
    change: &Change,
    applied: &mut Applied,
    undo: &mut Option<String>,
) -> Result<(), SettingError> {
    let setting = os_setting_at(root, &change.key)?;
    applied.before = setting.read()?;
    // It may have changed since it was looked at, and what is undone is this change.
    *undo = Some(setting.undo_command()?);
    applied.after.clone_from(&applied.before);
    let written = setting.write(&change.value);
    applied.after = setting.read()?;
    written
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    #[test]
    fn a_change_is_made_read_back_and_can_be_undone() {
        let host = TestHost::empty();
        host.file("proc/sys/vm/swappiness", "60\n");
        let root = host.root();
        let mut finding = Finding::new("SWAPPINESS", "host").is("60").should_be(Level::Advice, "1").change(
            &root,
            "swappiness",
            "1",
        );
        assert_eq!(finding.how, "sysctl vm.swappiness=1");
        assert!(apply(&root, &mut finding));
        let applied = finding.applied.clone().unwrap();
        assert_eq!((applied.before.as_str(), applied.after.as_str(), applied.error), ("60", "1", None));
        assert_eq!(finding.undo.as_deref(), Some("sysctl vm.swappiness=60"));
        assert_eq!(host.text("proc/sys/vm/swappiness"), "1");
    }

    #[test]
    fn what_is_good_or_cannot_be_put_back_is_left_alone() {
        let host = TestHost::empty();
        host.file("proc/sys/vm/swappiness", "1\n");
        let root = host.root();
        let mut good = Finding::new("SWAPPINESS", "host").change(&root, "swappiness", "1");
        assert!(!apply(&root, &mut good) && good.applied.is_none());
        let missing = Finding::new("A", "b")
            .should_be(Level::Advice, "x")
            .how("by hand")
            .change(&root, "thp", "madvise");
        assert_eq!((missing.change.as_ref(), missing.how.as_str()), (None, "by hand"));
        let bad = Finding::new("A", "b").should_be(Level::Advice, "x").change(&root, "swappiness", "many");
        assert_eq!(bad.change, None);
    }

    #[test]
    fn a_change_that_fails_says_why() {
        let host = TestHost::empty();
        host.file("proc/sys/vm/swappiness", "60\n");
        let root = host.root();
        let mut finding =
            Finding::new("SWAPPINESS", "host").should_be(Level::Advice, "1").change(&root, "swappiness", "1");
        host.remove("proc/sys/vm/swappiness");
        assert!(apply(&root, &mut finding));
        let error = finding.applied.unwrap().error.unwrap();
        assert!(error.contains("swappiness"), "{error}");
    }

    #[test]
    fn levels_are_ordered_from_good_to_bad() {
        use Level::{Advice, Info, Ok, Problem, Unknown, Warning};
        assert!([Ok, Info, Unknown, Advice, Warning, Problem].is_sorted());
    }
}
