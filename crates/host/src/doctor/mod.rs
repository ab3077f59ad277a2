//! Checks a host against the advice for storage: what is set, what should be, why, and how to change it.
//!
//! Invariants:
//! - looking changes nothing: only [`apply`] and [`OsSetting::write`] do;
//! - what cannot be read is said to be not known, and is never guessed;
//! - only a setting that can be put back is ever changed, and what puts it back is part of the finding.

mod drives;
mod etcd;
mod finding;
mod folder;
mod interrupts;
mod kernel;
mod memory;
mod named;
mod network;
mod place;
mod processor;
mod root;
mod setting;
#[cfg(test)]
pub(crate) mod test_host;

use std::path::PathBuf;

pub use finding::{Applied, Change, Finding, Level, apply};
pub use named::{NoDrive, check_drive};
pub(crate) use place::{drives_named, drives_under, mount_of, whole_drive};
pub use root::HostRoot;
pub use setting::{OsSetting, SETTING_KEYS, SettingError, os_setting, os_setting_at};

/// What to look at besides the host itself.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Block devices, or files and folders on drives, that hold data, or will. Without any, all drives of the host are
    /// looked at.
    pub drives: Vec<PathBuf>,
    /// A folder in which drive files are, or will be.
    pub folder: Option<PathBuf>,
}

impl Question {
    /// Whether the change of a finding is one of what was asked about: where drives are named, of these only, and not of
    /// the rest of the host.
    pub fn covers(&self, change: &Change) -> bool {
        // Only settings of drives and interfaces have a part, and drives that are not named are not looked at.
        self.drives.is_empty() || change.key.contains(':')
    }
}

/// Looks at a host. The findings of one subject follow each other.
pub fn examine(root: &HostRoot, question: &Question) -> Vec<Finding> {
    let mut findings = kernel::check(root);
    findings.extend(processor::check(root));
    findings.extend(memory::check(root));
    let drives = drives::choose(root, &question.drives);
    findings.extend(drives::check(root, &drives));
    findings.extend(folder::check(root, question));
    findings.extend(etcd::check(root, &question.drives));
    findings.extend(interrupts::check(root));
    findings.extend(network::check(root));
    findings
}

#[cfg(test)]
mod tests {
    use super::test_host::TestHost;
    use super::*;

    #[test]
    fn where_nothing_can_be_read_nothing_is_guessed() {
        let host = TestHost::empty();
        let question = Question { drives: vec!["/srv/drive".into()], folder: Some("/srv".into()) };
        let findings = examine(&host.root(), &question);
        assert!(findings.len() >= 10, "{findings:#?}");
        for finding in &findings {
            assert_eq!(finding.level, Level::Unknown, "{finding:#?}");
            assert!(finding.is.starts_with("not known"), "{finding:#?}");
            assert!(finding.change.is_none() && finding.undo.is_none(), "{finding:#?}");
        }
    }

    #[test]
    fn where_a_drive_is_named_its_settings_alone_are_to_be_changed() {
        let host = TestHost::empty();
        host.hdd("sda", "8:0");
        host.hdd("sdb", "8:16");
        host.file("proc/swaps", "Filename Type Size Used Priority\n/swap file 100 0 -2\n");
        host.file("proc/meminfo", "SwapTotal: 100 kB\nSwapFree: 100 kB\n");
        host.file("proc/sys/vm/swappiness", "60\n");
        let keys = |question: &Question| -> Vec<String> {
            let changes = examine(&host.root(), question).into_iter().filter_map(|finding| finding.change);
            changes.filter(|change| question.covers(change)).map(|change| change.key).collect()
        };
        let named = Question { drives: vec!["/dev/sdb".into()], folder: None };
        assert_eq!(keys(&named), ["scheduler:sdb", "read_ahead_kb:sdb"]);
        assert_eq!(keys(&Question::default()).len(), 5, "swappiness, and two of each drive");
    }

    #[test]
    fn this_host_can_be_examined_and_every_finding_is_whole() {
        for finding in examine(&HostRoot::here(), &Question::default()) {
            assert!(!finding.code.is_empty() && !finding.subject.is_empty(), "{finding:#?}");
            assert!(!finding.is.is_empty(), "{finding:#?}");
            if finding.level >= Level::Advice {
                assert!(!finding.should_be.is_empty(), "{finding:#?}");
                assert!(!finding.why.is_empty() && !finding.how.is_empty(), "{finding:#?}");
            }
            if finding.change.is_some() {
                assert!(finding.undo.is_some(), "{finding:#?}");
            }
        }
    }
}
