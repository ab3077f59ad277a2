//! Deletes what the map no longer needs from the drives of this node: layers of removed volumes; and lets go of drives that left.
//!
//! No delete of a volume goes through its groups. Each node finds by itself what may go: it lists what its shards hold, then
//! reads the map with a read that begins after that. A layer that was listed belonged to a volume of the map before it had
//! data, so if that map has no active volume with it, the volume was removed. Numbers of layers are never used again.
//!
//! A layer that the map has not given out belongs to a volume that was lost when the map was put back to an older state. It is
//! kept and told, since a newer state may still be found, until an operator gives it up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use coquina_base::{DriveId, LayerId};
use coquina_cluster::{DriveCondition, MapView, VolumeState};

use crate::heartbeat::Shared;

/// Pause between two looks at the map.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between rounds while there is something to delete.
const ROUND_INTERVAL: Duration = Duration::from_secs(3);
/// Rounds without a find before it counts as clean: what was under way when a volume was removed may land later.
const ROUNDS_CLEAN: u32 = 2;
/// A round without a reason.
const ROUND_INTERVAL_MAX: Duration = Duration::from_secs(600);

/// Pause before a drive is let go of that could not be.
const RELEASE_INTERVAL: Duration = Duration::from_secs(5);

/// Runs until it is told to stop.
pub(crate) fn run(shared: &Shared) {
    let mut seen: Option<(u64, BTreeSet<LayerId>)> = None;
    let mut known: BTreeMap<DriveId, bool> = BTreeMap::new();
    let (mut clean, mut last) = (0, Instant::now());
    let mut held_at: Option<Instant> = None;
    while !shared.stop.sleep(LOOK_INTERVAL) {
        let map = shared.map.map();
        if seen.as_ref().is_none_or(|(revision, _)| *revision != map.revision()) {
            let active = active_layers(&map);
            let has_lost = !shared.map.state().lost_layers.is_empty();
            if has_lost || seen.as_ref().is_none_or(|(_, before)| !before.is_subset(&active)) {
                clean = 0;
            }
            seen = Some((map.revision(), active));
            held_at = release_drives(shared, &mut known);
        } else if held_at.is_some_and(|tried| tried.elapsed() >= RELEASE_INTERVAL) {
            // No map may ever come again.
            held_at = release_drives(shared, &mut known);
        }
        let due = if clean < ROUNDS_CLEAN { ROUND_INTERVAL } else { ROUND_INTERVAL_MAX };
        if last.elapsed() < due {
            continue;
        }
        last = Instant::now();
        match round(shared) {
            Ok(0) => clean += 1,
            Ok(deleted) => {
                tracing::info!(deleted, "deleted layers of removed volumes");
                clean = 0;
            }
            Err(reason) => {
                tracing::debug!(reason, "deleting layers of removed volumes is tried again");
                clean = 0;
            }
        }
    }
}

fn active_layers(map: &MapView) -> BTreeSet<LayerId> {
    let active = map.volumes().filter(|volume| volume.value.state == VolumeState::Active);
    active.map(|volume| volume.value.layer).collect()
}

/// Deletes what can go now; returns how many layers of shards that were.
pub(crate) fn round(shared: &Shared) -> Result<usize, String> {
    let held = shared.backend.layers().map_err(|error| error.to_string())?;
    let active = active_layers(&shared.map.map());
    if held.iter().flat_map(|(_, layers)| layers).all(|layer| active.contains(layer)) {
        shared.map.found_lost_layers(BTreeSet::new());
        return Ok(0);
    }
    // Something may go: now it has to be certain.
    let map = shared.map.read_again().map_err(|error| error.to_string())?;
    let active = active_layers(&map);
    let is_given = |layer: LayerId| map.cluster().is_some_and(|cluster| cluster.has_given_layer(layer));
    let found = held.iter().flat_map(|(_, layers)| layers).filter(|layer| !active.contains(layer));
    let lost: BTreeSet<LayerId> = found.copied().filter(|layer| !is_given(*layer)).collect();
    if shared.map.found_lost_layers(lost.clone()) != lost && !lost.is_empty() {
        let layers: Vec<u64> = lost.iter().map(|layer| layer.0).take(8).collect();
        tracing::warn!(
            count = lost.len(),
            ?layers,
            "drives here hold data of volumes that the map does not know"
        );
    }
    let mut deleted = 0;
    for (shard, layers) in held {
        for layer in layers.into_iter().filter(|layer| is_given(*layer) && !active.contains(layer)) {
            if shared.stop.is_set() {
                return Ok(deleted);
            }
            shared.backend.delete_layer(shard, layer).map_err(|error| error.to_string())?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// Lets go of drives that were in the map and are not any more, and of those that were this node's and are another one's now. When this
/// was tried last, if one is still held. `known` has the drives that were in the map, and whether they were this node's.
fn release_drives(shared: &Shared, known: &mut BTreeMap<DriveId, bool>) -> Option<Instant> {
    let reports = shared.backend.drive_reports();
    // Read after that: what is served then has been registered by this node before.
    let map = shared.map.map();
    for report in reports {
        if let Some(record) = map.drive(report.drive) {
            // One that cannot be used here is perhaps still to be registered, when it can.
            let is_served = report.condition != DriveCondition::Failed;
            *known.entry(report.drive).or_default() |= is_served || record.node == shared.node;
        }
    }
    let mut is_held = false;
    for (drive, was_own) in known.clone() {
        // By the newest map each time: the one before may have taken long, and this one may have come back meanwhile.
        let node = shared.map.map().drive(drive).map(|record| record.node);
        let has_moved = was_own && node.is_some_and(|node| node != shared.node);
        if node.is_some() && !has_moved {
            continue;
        }
        let reason = if has_moved { "belongs to another node now" } else { "was removed from the cluster" };
        match shared.backend.drive_removed(drive) {
            Ok(()) => {
                known.remove(&drive);
                tracing::info!(%drive, reason, "the drive is let go");
            }
            Err(error) => {
                is_held = true;
                tracing::warn!(%drive, reason, %error, "a drive is still held");
            }
        }
    }
    is_held.then(Instant::now)
}
