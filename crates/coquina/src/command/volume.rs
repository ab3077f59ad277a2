//! `coquina volume ...`

use coquina_base::{check_name, format_size_bytes};
use coquina_bench::{format_count, format_ns};
use coquina_control::{api, check_volume_size};

use super::connect::client;
use crate::arguments::{Global, Volume};
use crate::error::CliError;
use crate::output::{self, print, print_json};

/// What is wrong in itself is said before a server is looked for.
fn check(command: &Volume) -> Result<(), CliError> {
    if let Volume::Create { name, .. } | Volume::Rename { new_name: name, .. } = command {
        check_name(name).map_err(|error| CliError::usage(error.to_string()))?;
    }
    if let Volume::Create { size, .. } | Volume::Resize { size, .. } = command {
        check_volume_size(*size).map_err(|error| CliError::usage(error.to_string()))?;
    }
    Ok(())
}

pub fn run(global: &Global, command: &Volume) -> Result<(), CliError> {
    check(command)?;
    let client = client(global)?;
    match command {
        Volume::Create { name, size, pool, copies, stripe_unit, stripe_count } => {
            let request = api::CreateVolume {
                name: name.clone(),
                size_bytes: *size,
                pool: pool.clone(),
                copies: *copies,
                stripe_unit_bytes: stripe_unit.map(unit_bytes).transpose()?,
                stripe_count: *stripe_count,
            };
            show(global, &client.create_volume(&request)?, created_text)
        }
        Volume::List(interval) => {
            let list = client.volumes(interval.interval)?;
            if global.json { print_json(&list) } else { print(&list_text(&list)) }
        }
        Volume::Info { name } => show(global, &client.volume(name)?, info_text),
        Volume::Du { names } => super::volume_usage::run(global, &client, names),
        Volume::ForgetLost { yes } => super::volume_lost::run(global, &client, *yes),
        Volume::Resize { name, size, yes, force } => {
            let before = client.volume(name)?;
            if *size < before.size_bytes {
                let question = format!(
                    "volume {name:?} shrinks from {} to {}, and the data beyond is lost",
                    format_size_bytes(before.size_bytes),
                    format_size_bytes(*size)
                );
                output::confirm(&question, *yes)?;
            }
            let allow_shrink = *size < before.size_bytes;
            let request = api::ResizeVolume { size_bytes: *size, allow_shrink, force: *force };
            let volume = client.resize_volume(name, &request)?;
            show(global, &volume, resized_text)
        }
        Volume::Rename { name, new_name } => {
            let volume = client.rename_volume(name, &api::RenameVolume { new_name: new_name.clone() })?;
            show(global, &volume, |volume| format!("volume {name} is called {} now", volume.name))
        }
        Volume::Remove { name, yes, force } => {
            let before = client.volume(name)?;
            let size = format_size_bytes(before.size_bytes);
            output::confirm(&format!("volume {name:?} of {size} and all its data are removed"), *yes)?;
            let volume = client.remove_volume(name, &api::RemoveVolume { force: *force })?;
            show(global, &volume, |volume| format!("removed volume {}", volume.name))
        }
    }
}

fn unit_bytes(bytes: u64) -> Result<u32, CliError> {
    u32::try_from(bytes).map_err(|_| CliError::usage("--stripe-unit is at most the size of a chunk, 4M"))
}

fn created_text(volume: &api::Volume) -> String {
    let copies = match volume.copies {
        1 => "1 copy".to_owned(),
        copies => format!("{copies} copies"),
    };
    let size = format_size_bytes(volume.size_bytes);
    format!("created volume {} of {size}, {copies} in pool {}", volume.name, volume.pool)
}

fn resized_text(volume: &api::Volume) -> String {
    let text = format!("volume {} has {} now", volume.name, format_size_bytes(volume.size_bytes));
    match volume.shrinking_from_bytes {
        None => text,
        Some(from_bytes) => format!(
            "{text}; what lies beyond, up to {}, is still being deleted: until that is done it takes space, and the volume \
             cannot grow. `coquina status` shows SHRINK_PENDING meanwhile",
            format_size_bytes(from_bytes)
        ),
    }
}

fn show(
    global: &Global,
    volume: &api::Volume,
    text: impl FnOnce(&api::Volume) -> String,
) -> Result<(), CliError> {
    if global.json { print_json(volume) } else { print(&(text(volume) + "\n")) }
}

fn state_text(state: api::VolumeState) -> &'static str {
    match state {
        api::VolumeState::Active => "active",
        api::VolumeState::Removing => "removing",
    }
}

/// A latency, or a dash where nothing was done.
pub fn latency_text(per_s: f64, latency: &api::Latency) -> String {
    if per_s > 0.0 { format_ns(latency.mean_ns as f64) } else { "-".to_owned() }
}

fn list_text(list: &api::VolumeList) -> String {
    if list.volumes.is_empty() {
        return "no volumes; make one with `coquina volume create NAME --size SIZE`\n".to_owned();
    }
    let header = [
        "NAME",
        "STATE",
        "POOL",
        "COPIES",
        "SIZE",
        "CONNECTIONS",
        "READ/S",
        "WRITE/S",
        "READ LAT",
        "WRITE LAT",
    ];
    let mut table = output::table(&header, 3);
    for volume in &list.volumes {
        let rates = volume.rates.unwrap_or_default();
        table.add_row([
            volume.name.clone(),
            state_text(volume.state).to_owned(),
            volume.pool.clone(),
            volume.copies.to_string(),
            format_size_bytes(volume.size_bytes),
            volume.io.connections.to_string(),
            format_count(rates.reads_per_s),
            format_count(rates.writes_per_s),
            latency_text(rates.reads_per_s, &rates.read_latency),
            latency_text(rates.writes_per_s, &rates.write_latency),
        ]);
    }
    format!("{}\n", table.trim_fmt())
}

fn info_text(volume: &api::Volume) -> String {
    let io = &volume.io;
    let mut lines = vec![
        format!("name         {}", volume.name),
        format!("id           {}", volume.id),
        format!("layer        {}", volume.layer),
        format!("state        {}", state_text(volume.state)),
        format!("size         {} ({} bytes)", format_size_bytes(volume.size_bytes), volume.size_bytes),
        format!("created      {}", output::format_unix_ns(volume.created_unix_ns)),
        format!("connections  {}", io.connections),
        format!("reads        {} ({})", format_count(io.reads as f64), format_size_bytes(io.read_bytes)),
        format!("writes       {} ({})", format_count(io.writes as f64), format_size_bytes(io.write_bytes)),
        format!("trims        {} ({})", format_count(io.trims as f64), format_size_bytes(io.trim_bytes)),
        format!("errors       {}", io.errors),
    ];
    if let Some(from_bytes) = volume.shrinking_from_bytes {
        let from = format_size_bytes(from_bytes);
        lines
            .insert(5, format!("shrinking    from {from}: what lies beyond the size is still being deleted"));
    }
    lines.push(format!(
        "copies       {} in pool {}, at least {} for writes",
        volume.copies, volume.pool, volume.min_copies
    ));
    lines.push(format!(
        "striping     {} to each of {} chunk(s)",
        format_size_bytes(u64::from(volume.stripe_unit_bytes)),
        volume.stripe_count
    ));
    lines.push(format!("groups       {}, {} degraded", volume.groups, volume.groups_degraded));
    lines.push(placement_text(&volume.placement));
    lines.join("\n")
}

/// Where the copies are: how many groups have one there, of how many it answers, and how many are not in sync.
fn placement_text(placement: &[api::PlacementShare]) -> String {
    let mut table = output::table(&["NODE", "SHARD", "GROUPS", "PRIMARIES", "NOT IN SYNC", "DRIVE"], 1);
    if let Some(path) = table.column_mut(5) {
        path.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for share in placement {
        table.add_row([
            share.node.clone(),
            share.shard.to_string(),
            share.groups.to_string(),
            share.primaries.to_string(),
            share.groups_out.to_string(),
            share.path.clone(),
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shrink_that_is_not_done_is_not_said_to_be() {
        let mut volume = api::Volume {
            id: Default::default(),
            name: "disk".to_owned(),
            size_bytes: 5 << 30,
            state: api::VolumeState::Active,
            created_unix_ns: 0,
            layer: 1,
            shrinking_from_bytes: None,
            groups: 0,
            placement: Vec::new(),
            pool: "default".to_owned(),
            copies: 1,
            min_copies: 1,
            stripe_unit_bytes: 4 << 20,
            stripe_count: 1,
            groups_degraded: 0,
            io: Default::default(),
            rates: None,
        };
        assert_eq!(resized_text(&volume), "volume disk has 5 GiB now");
        volume.shrinking_from_bytes = Some(10 << 30);
        let text = resized_text(&volume);
        assert!(text.contains("up to 10 GiB") && text.contains("cannot grow"), "{text}");
        assert!(info_text(&volume).contains("shrinking    from 10 GiB"));
    }
}
