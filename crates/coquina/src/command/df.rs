//! `coquina df`

use std::fmt::Write;

use coquina_base::{DriveId, NodeId, format_size_bytes};
use coquina_control::api;
use serde::Serialize;

use super::connect::client;
use super::room::Room;
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
    pools: Vec<PoolSpace>,
    volumes: Vec<VolumeSpace>,
    #[serde(skip)]
    room: Room,
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
    /// `None` if it does not answer.
    #[serde(skip)]
    room: Option<Room>,
}

#[derive(Serialize)]
struct PoolSpace {
    name: String,
    copies: u32,
    volumes: u64,
    provisioned_bytes: u64,
    available_bytes: Option<u64>,
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
    let data = &status.data;
    let room = Room::of(&status.drives, data.capacity_bytes, data.live_bytes);
    let space = Space {
        capacity_bytes: data.capacity_bytes,
        used_bytes: data.live_bytes,
        free_bytes: room.free_bytes,
        room,
        provisioned_bytes: data.provisioned_bytes,
        provisionable_bytes: data.provisionable_bytes,
        drives: status.drives.iter().map(drive_space).collect(),
        pools: status.pools.iter().map(pool_space).collect(),
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

fn drive_space(drive: &api::Drive) -> DriveSpace {
    let room = Room::of_drive(drive);
    DriveSpace {
        id: drive.id,
        node: drive.node_name.clone(),
        node_id: drive.node,
        node_name: drive.node_name.clone(),
        path: drive.path.clone(),
        state: drive.state,
        capacity_bytes: drive.capacity_bytes,
        used_bytes: drive.live_bytes,
        free_bytes: room.map_or(0, |room| room.free_bytes),
        room,
    }
}

fn pool_space(pool: &api::Pool) -> PoolSpace {
    PoolSpace {
        name: pool.name.clone(),
        copies: pool.copies,
        volumes: pool.volumes,
        provisioned_bytes: pool.provisioned_bytes,
        available_bytes: pool.available_bytes,
    }
}

// Writing to a string cannot fail.
fn text(space: &Space) -> String {
    let mut text = String::new();
    let mut table = output::table(&["DRIVE", "NODE", "STATE", "CAPACITY", "USED", "FREE", "USED %"], 3);
    let of_room = |room: Option<Room>| {
        let shown = |figure: fn(Room) -> String| room.map_or("-".to_owned(), figure);
        [
            shown(|room| format_size_bytes(room.used_bytes)),
            shown(|room| format_size_bytes(room.free_bytes)),
            shown(|room| room.percent().map_or("-".to_owned(), |percent| format!("{percent:.1}"))),
        ]
    };
    for drive in &space.drives {
        let state = state_text(drive.state).to_owned();
        let capacity = format_size_bytes(drive.capacity_bytes);
        let named = [drive.path.clone(), drive.node.clone(), state, capacity];
        table.add_row(named.into_iter().chain(of_room(drive.room)));
    }
    let all = ["all".to_owned(), String::new(), String::new(), format_size_bytes(space.capacity_bytes)];
    table.add_row(all.into_iter().chain(of_room(Some(space.room))));
    let _ = writeln!(text, "{}", table.trim_fmt());
    if !space.pools.is_empty() {
        let mut table = output::table(&["POOL", "COPIES", "VOLUMES", "SIZES", "MAX AVAIL"], 1);
        for pool in &space.pools {
            table.add_row([
                pool.name.clone(),
                pool.copies.to_string(),
                pool.volumes.to_string(),
                format_size_bytes(pool.provisioned_bytes),
                pool.available_bytes.map_or("-".to_owned(), format_size_bytes),
            ]);
        }
        let _ = writeln!(text, "\n{}", table.trim_fmt());
    }
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
