//! Which of the processes that serve a target were seen.

use std::path::Path;

/// Which of the processes that serve a target were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// None: they may be elsewhere, hidden, or among the others.
    #[default]
    Unseen,
    /// Some, or all that are known; they may have others work for them.
    Some,
    /// All, or it has none, as a plain drive.
    All,
}

impl Servers {
    /// `known` are the processes of a target, and whether nothing else serves it. `/proc` may hide those of others.
    pub fn of(known: &[u32], are_all: bool, seen: &[u32]) -> Self {
        Servers::of_existing(known, are_all, seen, |pid| Path::new(&format!("/proc/{pid}")).exists())
    }

    /// One that has ended is not missed.
    fn of_existing(known: &[u32], are_all: bool, seen: &[u32], exists: impl Fn(u32) -> bool) -> Self {
        let is_any_seen = known.iter().any(|pid| seen.contains(pid));
        let is_missed = |pid: &&u32| !seen.contains(pid) && exists(**pid);
        match known.iter().find(is_missed) {
            None if are_all && (is_any_seen || known.is_empty()) => Servers::All,
            _ if is_any_seen => Servers::Some,
            _ => Servers::Unseen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_servers_is_not_all() {
        let of =
            |known: &[u32], are_all, seen: &[u32]| Servers::of_existing(known, are_all, seen, |pid| pid < 10);
        assert_eq!(of(&[], true, &[1]), Servers::All, "a plain drive");
        assert_eq!(of(&[1, 2], true, &[1, 2, 3]), Servers::All);
        assert_eq!(of(&[1, 2], true, &[1]), Servers::Some, "the other one is hidden");
        assert_eq!(of(&[1, 20], true, &[1]), Servers::All, "the other one has ended");
        assert_eq!(of(&[20], true, &[1]), Servers::Unseen);
        assert_eq!(of(&[1, 2], true, &[3]), Servers::Unseen);
        assert_eq!(of(&[1], false, &[1]), Servers::Some);
        assert_eq!(of(&[], false, &[1]), Servers::Unseen);
        let me = [std::process::id()];
        assert_eq!(
            (Servers::of(&me, true, &me), Servers::of(&me, true, &[])),
            (Servers::All, Servers::Unseen)
        );
    }
}
