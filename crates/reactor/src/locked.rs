//! How much memory a ring may lock for registered buffers, so that none is missing for the rings of other programs of the same user.

use coquina_base::{SLAB_BYTES, SLABS_MAX};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// What is locked counts for all processes of a user together, rings included: of a limit, so much is left to others.
const SHARE: u64 = 8;

/// Slabs that a ring may have registered: all of them for who is not limited, else those that fit an eighth of `RLIMIT_MEMLOCK`.
pub(crate) fn slabs_allowed() -> u16 {
    match getrlimit(Resource::Memlock).current {
        Some(limit_bytes) if !is_exempt() => within(limit_bytes),
        _ => SLABS_MAX,
    }
}

fn within(limit_bytes: u64) -> u16 {
    (limit_bytes / SHARE / SLAB_BYTES as u64).min(u64::from(SLABS_MAX)) as u16
}

/// Whether the limit is not looked at: for `CAP_IPC_LOCK`, but not for one that counts only inside of a user namespace.
fn is_exempt() -> bool {
    let is_capable = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    is_capable && std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| is_whole(&map))
}

/// Whether a map of user numbers is that of the host: all of them, as they are.
fn is_whole(map: &str) -> bool {
    let mut lines = map.lines();
    let first = lines.next().is_some_and(|line| line.split_whitespace().eq(["0", "0", "4294967295"]));
    first && lines.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_limit_is_left_to_the_rings() {
        assert_eq!((within(0), within(64 << 10), within(8 << 20), within((16 << 20) - 1)), (0, 0, 0, 0));
        assert_eq!((within(16 << 20), within(64 << 20), within(u64::MAX - 1)), (1, 4, SLABS_MAX));
    }

    #[test]
    fn only_the_hosts_map_is_whole() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(!is_whole("         0       1000          1\n"));
        assert!(!is_whole("         0     100000      65536\n"));
        assert!(!is_whole("0 0 4294967295\n1 2 3\n"));
        assert!(!is_whole(""));
    }
}
