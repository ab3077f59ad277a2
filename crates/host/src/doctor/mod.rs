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
mod network;
mod place;
mod processor;
mod root;
mod setting;
#[cfg(test)]
mod test_host;

use std::path::PathBuf;

pub use finding::{Applied, Change, Finding, Level, apply};
pub use root::HostRoot;
pub use setting::{OsSetting, SETTING_KEYS, SettingError, os_setting, os_setting_at};

/// What to look at besides the host itself.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Files or block devices that hold data, or will. Without any, all drives of the host are looked at.
    pub drives: Vec<PathBuf>,
    /// A folder in which drive files are, or will be.
    pub folder: Option<PathBuf>,
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
