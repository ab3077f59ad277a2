//! Drives whose logs were found damaged at the start are used again once no group counts on their copies.
//!
//! Until then they count as failed: the coordinator takes their copies out of sync where others are in sync. What is left
//! of such a log is an earlier state of every copy, so each is compared with its primary as a whole, and gets what it lacks.
//! Where no other copy is in sync the drive is left as it is. One whose new place the store of the map does not take is tried again
//! with the next map.

use std::sync::Arc;

use coquina_cluster::MapView;

use crate::node::Node;

/// Takes up the drives that may be used again by this map, on a thread of its own: opening one takes a while.
pub(crate) fn rejoin_damaged(node: &Arc<Node>, map: &MapView) {
    for damaged in node.damaged_and_out(map) {
        let node = node.clone();
        let work = move || match node.rejoin(&damaged) {
            Ok(()) => {}
            Err(error) if error.is_passing() => tracing::warn!(
                drive = %damaged.id, path = %damaged.path.display(), %error,
                "a drive with a damaged log is not used again yet: tried again when the cluster map changes"
            ),
            Err(error) => tracing::error!(
                drive = %damaged.id, path = %damaged.path.display(), %error,
                "a drive with a damaged log cannot be used again: remove or replace it"
            ),
        };
        if let Err(error) = std::thread::Builder::new().name("rejoin".to_owned()).spawn(work) {
            tracing::warn!(%error, "a drive with a damaged log is not used again yet: no thread");
        }
    }
}
