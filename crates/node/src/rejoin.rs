//! Drives whose logs were found damaged at the start are used again once no group counts on their copies.
//!
//! Until then they count as failed: the coordinator takes their copies out of sync where others are in sync. What is left
//! of such a log is an earlier state of every copy, so each is compared with its primary as a whole, and gets what it lacks.
//! Where no other copy is in sync the drive is left as it is. One whose new place the store of the map does not take is tried again
//! with the next map, and without one after a pause that grows up to [`PAUSE_MAX`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use coquina_cluster::MapView;

use crate::node::Node;
use crate::open::DamagedDrive;

/// The first pause before a drive is tried again. Each of the next is twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest one: each attempt replays the drive's log.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Takes up the drives that may be used again by this map, on a thread of its own: opening one takes a while.
pub(crate) fn rejoin_damaged(node: &Arc<Node>, map: &MapView) {
    for damaged in node.damaged_and_out(map) {
        let node = Arc::downgrade(node);
        let work = move || rejoin(&node, damaged);
        if let Err(error) = std::thread::Builder::new().name("rejoin".to_owned()).spawn(work) {
            tracing::warn!(%error, "a drive with a damaged log is not used again yet: no thread");
        }
    }
}

/// Tries it until the drive is used again or never will be, or somebody else tries.
fn rejoin(node: &Weak<Node>, mut damaged: DamagedDrive) {
    loop {
        // Not held during the pause: a node that nobody else holds is to end.
        let Some(node) = node.upgrade() else { return };
        let Err(error) = node.rejoin(&damaged) else { return };
        if node.is_stopping() {
            return;
        }
        if !error.is_passing() {
            return tracing::error!(
                drive = %damaged.id, path = %damaged.path.display(), %error,
                "a drive with a damaged log cannot be used again: remove or replace it"
            );
        }
        let pause = pause_after(damaged.tries);
        tracing::warn!(
            drive = %damaged.id, path = %damaged.path.display(), %error,
            "a drive with a damaged log is not used again yet: tried again in {} s, or when the cluster map changes",
            pause.as_secs()
        );
        drop(node);
        std::thread::sleep(pause);
        damaged.tries += 1;
    }
}

/// How long is waited after so many attempts before the one that failed.
fn pause_after(tries: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << tries.min(16)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let pauses = [0, 1, 4, 5, 1000, u32::MAX].map(|tries| pause_after(tries).as_secs());
        assert_eq!(pauses, [1, 2, 16, 30, 30, 30]);
    }
}
