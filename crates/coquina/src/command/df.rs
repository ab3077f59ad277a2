//! `coquina df`

use std::fmt::Write;

use coquina_base::{DriveId, NodeId, format_size_bytes};
use coquina_control::api;
use serde::Serialize;

use super::connect::client;
use super::status::state_text;
use crate::arguments::Global;
use crate::error::CliError;
use crate::output::{self, print, print_json};

/// What the drives hold and what the volumes may take, in bytes.
#[derive(Serialize)]
struct Space {
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    provisioned_bytes: u64,
    provisionable_bytes: u64,
    drives: Vec<DriveSpace>,
    volumes: Vec<VolumeSpace>,
}

#[derive(Serialize)]
struct DriveSpace {
    id: DriveId,
    /// Its node's name, as `node_name`: scripts may know it by this one.
    node: String,
    node_id: NodeId,
    node_name: String,
    path: String,
    state: api::DriveState,
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
}

#[derive(Serialize)]
struct VolumeSpace {
    name: String,
    size_bytes: u64,
    copies: u32,
    pool: String,
}

pub fn run(global: &Global) -> Result<(), CliError> {
    let client = client(global)?;
    let status = client.status(0)?;
    let volumes = client.volumes(0)?;
    let drive = |drive: &api::Drive| DriveSpace {
        id: drive.id,
        node: drive.node_name.clone(),
        node_id: drive.node,
        node_name: drive.node_name.clone(),
        path: drive.path.clone(),
        state: drive.state,
        capacity_bytes: drive.capacity_bytes,
        used_bytes: drive.live_bytes,
        free_bytes: drive.capacity_bytes.saturating_sub(drive.live_bytes),
    };
    let data = &status.data;
    let space = Space {
        capacity_bytes: data.capacity_bytes,
        used_bytes: data.live_bytes,
        free_bytes: data.capacity_bytes.saturating_sub(data.live_bytes),
        provisioned_bytes: data.provisioned_bytes,
        provisionable_bytes: data.provisionable_bytes,
        drives: status.drives.iter().map(drive).collect(),
        volumes: volumes
            .volumes
            .iter()
            .map(|volume| VolumeSpace {
                name: volume.name.clone(),
                size_bytes: volume.size_bytes,
                copies: volume.copies,
                pool: volume.pool.clone(),
            })
            .collect(),
    };
    if global.json { print_json(&space) } else { print(&text(&space)) }
}

// Writing to a string cannot fail.
fn text(space: &Space) -> String {
    let mut text = String::new();
    let mut table = output::table(&["DRIVE", "NODE", "STATE", "CAPACITY", "USED", "FREE", "USED %"], 3);
    let percent = |used: u64, of: u64| {
        if of == 0 { "-".to_owned() } else { format!("{:.1}", used as f64 * 100.0 / of as f64) }
    };
    for drive in &space.drives {
        table.add_row([
            drive.path.clone(),
            drive.node.clone(),
            state_text(drive.state).to_owned(),
            format_size_bytes(drive.capacity_bytes),
            format_size_bytes(drive.used_bytes),
            format_size_bytes(drive.free_bytes),
            percent(drive.used_bytes, drive.capacity_bytes),
        ]);
    }
    table.add_row([
        "all".to_owned(),
        String::new(),
        String::new(),
        format_size_bytes(space.capacity_bytes),
        format_size_bytes(space.used_bytes),
        format_size_bytes(space.free_bytes),
        percent(space.used_bytes, space.capacity_bytes),
    ]);
    let _ = writeln!(text, "{}", table.trim_fmt());
    if !space.volumes.is_empty() {
        let mut table = output::table(&["VOLUME", "POOL", "COPIES", "SIZE"], 2);
        for volume in &space.volumes {
            table.add_row([
                volume.name.clone(),
                volume.pool.clone(),
                volume.copies.to_string(),
                format_size_bytes(volume.size_bytes),
            ]);
        }
        let _ = writeln!(text, "\n{}", table.trim_fmt());
    }
    let _ = writeln!(
        text,
        "\nsizes of volumes, all copies, add up to {} of {}",
        format_size_bytes(space.provisioned_bytes),
        format_size_bytes(space.provisionable_bytes)
    );
    text
}
