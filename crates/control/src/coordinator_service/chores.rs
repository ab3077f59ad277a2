//! What the process that leads does for operators: finishing shrinks.
//!
//! A shrink is recorded before anything is cut off. Then every node has to refuse what lies beyond the new end, with nothing
//! of the kind under way; then it is deleted by a client; then the record says that it is done. Any step can be repeated,
//! by whoever leads then.
//!
//! A dead node is not waited for: what it has taken cannot take effect without the primaries that others have by now. That is so only
//! as long as it leads none of the volume's groups itself, and does not come back while it is deleted: then all is done again.
//!
//! Only one process deletes at a time, or a late one could delete what was written after the volume had grown again. Who
//! leads no more sends nothing more, and what it has sent fails soon; who leads now waits for that long, unless the shrink
//! began under its own leadership.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coquina_base::NodeId;
use coquina_cluster::{GroupRecord, Key, MapView, Record, VolumeRecord, VolumeState, Write};
use tokio::sync::watch;

use super::{Input, Shared};
use crate::api::Quiesce;
use crate::client::Client;
use crate::view;

/// How long it is waited for changes of the map before looking again.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long what a former leader has sent may still take effect: longer than a trimmer tries.
const FORMER_LEADER_TIME: Duration = Duration::from_secs(15);
/// Pause after something failed.
const RETRY_PAUSE: Duration = Duration::from_secs(3);
/// How long a node may take to say that nothing is under way.
const QUIESCE_TIME_MAX: Duration = Duration::from_secs(20);

/// Runs until it is told to stop.
pub(super) fn run(shared: &Arc<Shared>, stopped: &watch::Receiver<bool>) {
    while !*stopped.borrow() {
        let map = shared.map.wait_for_map(PATIENCE, |map| shrinking(map).next().is_some());
        let Some(map) = map.filter(|_| shared.leads()) else {
            std::thread::sleep(Duration::from_millis(200));
            continue;
        };
        let volumes: Vec<VolumeRecord> = shrinking(&map).cloned().collect();
        for volume in volumes {
            if let Err(reason) = finish_shrink(shared, &map, &volume) {
                tracing::warn!(volume = %volume.name, reason, "deleting what was cut off failed and is tried again");
                pause(stopped);
            }
        }
    }
}

fn pause(stopped: &watch::Receiver<bool>) {
    let end = std::time::Instant::now() + RETRY_PAUSE;
    while !*stopped.borrow() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn shrinking(map: &MapView) -> impl Iterator<Item = &VolumeRecord> {
    map.volumes()
        .map(|volume| &*volume.value)
        .filter(|volume| volume.state == VolumeState::Active && volume.shrinking_from_bytes.is_some())
}

fn finish_shrink(shared: &Shared, map: &MapView, volume: &VolumeRecord) -> Result<(), String> {
    let Some(from_bytes) = volume.shrinking_from_bytes else { return Ok(()) };
    let revision = map.revision_of(&Key::Volume(volume.id));
    if !is_alone(shared, revision) {
        return Err("a former leader may still be at it".to_owned());
    }
    let left_out = quiesce_everywhere(shared, map, volume, revision)?;
    let addresses: Vec<String> = map
        .nodes()
        .map(|node| node.value.addresses.native.clone())
        .filter(|address| !address.is_empty())
        .collect();
    let goes_on = || shared.leads() && shared.map.map().volume(volume.id) == Some(volume);
    shared.config.trimmer.trim(&addresses, &volume.name, volume.size_bytes, from_bytes, &goes_on)?;
    let dead = dead_nodes(shared, volume)?;
    if let Some(node) = left_out.iter().find(|node| !dead.contains(node)) {
        // It may have come back with a change under way that was taken before it knew the new end, or take one still.
        return Err(format!("node {} came back meanwhile", view::node_name(map, *node)));
    }
    let done = |map: &MapView| {
        let key = Key::Volume(volume.id);
        // Whoever changed the record meanwhile has to be finished anew.
        if map.volume(volume.id) != Some(volume) {
            return Ok(None);
        }
        let record = VolumeRecord { shrinking_from_bytes: None, ..volume.clone() };
        Ok(Some(Write::new(key, map.revision_of(&key), Some(Record::Volume(record)))))
    };
    shared.map.change(&done).map(drop).map_err(|error| error.to_string())
}

/// Whether nobody else can be at a shrink that was recorded at that revision.
fn is_alone(shared: &Shared, revision: u64) -> bool {
    shared
        .leading()
        .as_ref()
        .is_some_and(|leading| revision > leading.term || leading.since.elapsed() >= FORMER_LEADER_TIME)
}

/// Nodes that count as dead and lead no group of the volume as it was. One that does may be on its way out and serve still, and what it leads
/// cannot be deleted without it anyway.
fn dead_nodes(shared: &Shared, volume: &VolumeRecord) -> Result<BTreeSet<NodeId>, String> {
    let health = shared.ask_blocking(Input::Health).ok_or("this process leads no more")?;
    let map = shared.map.map();
    let size_bytes = volume.shrinking_from_bytes.unwrap_or(volume.size_bytes);
    let before = VolumeRecord { size_bytes, ..volume.clone() };
    let primaries = view::groups_of(&map, &before).into_iter().filter_map(GroupRecord::primary);
    let leading: BTreeSet<NodeId> = primaries.filter_map(|primary| map.node_of(primary)).collect();
    Ok(health.dead.into_iter().filter(|node| !leading.contains(node)).collect())
}

/// Returns when no node takes or has under way what lies beyond the new end, but for dead ones that were left out.
fn quiesce_everywhere(
    shared: &Shared,
    map: &MapView,
    volume: &VolumeRecord,
    map_revision: u64,
) -> Result<BTreeSet<NodeId>, String> {
    let left_out = dead_nodes(shared, volume)?;
    let request = Quiesce { volume: volume.id, map_revision };
    for node in map.nodes().filter(|node| !left_out.contains(&node.value.id)) {
        let (name, address) = (&node.value.name, &node.value.addresses.http);
        let client = Client::with_patience(address, Duration::from_secs(1), QUIESCE_TIME_MAX);
        client
            .and_then(|client| client.quiesce(&request))
            .map_err(|error| format!("node {name} has to refuse the old size first: {error}"))?;
    }
    Ok(left_out)
}
