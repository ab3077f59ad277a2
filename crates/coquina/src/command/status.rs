//! `coquina status`

use std::fmt::Write;
use std::io::IsTerminal;

use coquina_base::format_size_bytes;
use coquina_bench::format_count;
use coquina_control::{Severity, api, unix_ms};

use super::connect::client;
use super::node::nodes_text;
use super::room::Room;
use super::volume::latency_text;
use crate::arguments::{Global, Status};
use crate::error::CliError;
use crate::output::{self, format_duration, print, print_json};

pub fn run(global: &Global, command: &Status) -> Result<(), CliError> {
    match command.watch {
        Some(seconds) => watch(global, seconds),
        None => {
            let status = client(global)?.status(command.interval.interval)?;
            if global.json { print_json(&status) } else { print(&text(&status)) }
        }
    }
}

/// Shows it until Ctrl-C, or until nobody reads any more. A server that goes away is said once and waited for.
fn watch(global: &Global, seconds: u64) -> Result<(), CliError> {
    const CLEAR: &str = "\x1b[2J\x1b[H";
    let on_terminal = std::io::stdout().is_terminal() && !global.json;
    let mut is_gone = false;
    let mut was_there = false;
    loop {
        let status = match client(global).and_then(|client| Ok(client.status(seconds * 1000)?)) {
            Ok(status) => status,
            Err(error) if was_there => {
                if !is_gone {
                    output::tell(format_args!("{error}\nwaiting for it to come back; Ctrl-C ends this"));
                }
                is_gone = true;
                std::thread::sleep(std::time::Duration::from_secs(seconds));
                continue;
            }
            Err(error) => return Err(error),
        };
        (was_there, is_gone) = (true, false);
        let shown = if global.json {
            output::print_json_line(&status)?
        } else {
            let begin = if on_terminal { CLEAR } else { "" };
            output::print_while_read(&format!("{begin}{}\n", text(&status)))?
        };
        if !shown {
            return Ok(());
        }
    }
}

// Writing to a string cannot fail, here and below.
fn text(status: &api::Status) -> String {
    let mut text = String::new();
    health_text(&mut text, &status.health);
    let _ = writeln!(text, "cluster   {} (map revision {})", status.cluster.id, status.cluster.revision);
    let up = status.nodes.iter().filter(|node| node.state == api::NodeState::Up).count();
    let leader = status.nodes.iter().find(|node| node.leads).map(|node| node.name.clone());
    let leader = leader.or(status.store.leader.clone()).unwrap_or("nobody".to_owned());
    let _ = writeln!(text, "nodes     {up} of {} up; {leader} leads", status.nodes.len());
    if let Some(problem) = &status.store.problem {
        let _ = writeln!(text, "store     {problem}");
    }
    drive_states_text(&mut text, &status.drives);
    groups_text(&mut text, status);
    data_text(&mut text, status);
    rates_text(&mut text, status);
    recovery_text(&mut text, &status.recovery);
    process_text(&mut text, status);
    if status.nodes.len() > 1 {
        let _ = writeln!(text, "\n{}", nodes_text(&status.nodes));
    }
    let _ = writeln!(text, "\n{}", drives_text(&status.drives));
    text
}

fn drive_states_text(text: &mut String, drives: &[api::Drive]) {
    let count = |state| drives.iter().filter(|drive| drive.state == state && !drive.unknown).count();
    let _ = write!(text, "drives    {} of {} healthy", count(api::DriveState::Healthy), drives.len());
    for state in [api::DriveState::ReadOnly, api::DriveState::Missing, api::DriveState::GivenUp] {
        if count(state) > 0 {
            let _ = write!(text, ", {} {}", count(state), state_text(state));
        }
    }
    let unknown = drives.iter().filter(|drive| drive.unknown).count();
    if unknown > 0 {
        let _ = write!(text, ", {unknown} unknown");
    }
    let _ = writeln!(text);
}

fn groups_text(text: &mut String, status: &api::Status) {
    let Some(groups) = &status.groups else {
        let _ = writeln!(text, "groups    unknown, since the leader cannot be asked");
        return;
    };
    let _ = write!(text, "groups    {} of {} active and clean", groups.active_clean, groups.total);
    let others = [
        (groups.down, "down"),
        (groups.below_min_copies, "below min_copies"),
        (groups.degraded, "degraded"),
        (groups.undersized, "undersized"),
        (groups.recovering, "recovering"),
        (groups.stuck, "stuck"),
        (groups.moving, "moving"),
    ];
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(text, ", {count} {what}");
    }
    let pools: Vec<_> = status.pools.iter().map(|pool| format!("{} x{}", pool.name, pool.copies)).collect();
    let _ = writeln!(text, "{}{}", if pools.is_empty() { "" } else { "; pools: " }, pools.join(", "));
}

fn rates_text(text: &mut String, status: &api::Status) {
    let Some(rates) = &status.rates else { return };
    let line = |per_s: f64, bytes_per_s: f64, latency: &api::Latency| {
        format!(
            "{} IOPS, {}/s, mean {}",
            format_count(per_s),
            format_size_bytes(bytes_per_s as u64),
            latency_text(per_s, latency)
        )
    };
    let read = line(rates.reads_per_s, rates.read_bytes_per_s, &rates.read_latency);
    let write = line(rates.writes_per_s, rates.write_bytes_per_s, &rates.write_latency);
    let _ = writeln!(text, "io\n  read    {read}\n  write   {write}");
}

fn recovery_text(text: &mut String, recovery: &api::Recovery) {
    if recovery.groups == 0 {
        return;
    }
    let _ = write!(
        text,
        "recovery  {} group(s), {} left",
        recovery.groups,
        format_size_bytes(recovery.left_bytes)
    );
    if let Some(rate) = recovery.bytes_per_s {
        let _ = write!(text, ", {}/s", format_size_bytes(rate as u64));
    }
    if let Some(left_ns) = recovery.left_ns {
        let _ = write!(text, ", done in {}", format_duration(left_ns));
    }
    let _ = writeln!(text);
}

/// The process that answers.
fn process_text(text: &mut String, status: &api::Status) {
    let node = &status.node;
    let name = if node.process_name.is_empty() { "this process" } else { &node.process_name };
    let _ = writeln!(
        text,
        "services  of {name} (coquina {}, process {}, up {})",
        node.version,
        node.process,
        format_duration(node.uptime_ns)
    );
    let services = &status.services;
    if !services.nbd.is_empty() {
        let _ =
            writeln!(text, "  nbd     {} ({} connected)", services.nbd.join(", "), services.nbd_connections);
    }
    if !services.native.is_empty() {
        let _ = writeln!(text, "  native  {} ({} connected)", services.native, services.native_connections);
    }
    let _ = writeln!(text, "  http    {}", services.http);
}

fn health_text(text: &mut String, health: &api::Health) {
    let state = match health.state {
        api::HealthState::Ok => "OK",
        api::HealthState::Warning => "WARNING",
        api::HealthState::Error => "ERROR",
    };
    let _ = writeln!(text, "health    {state}");
    for entry in &health.entries {
        let mark = match entry.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
        };
        let _ = writeln!(text, "  {} ({mark}) {}: {}", entry.code.as_str(), entry.subject, entry.message);
        let _ = writeln!(text, "    to do: {}", entry.advice);
    }
}

fn data_text(text: &mut String, status: &api::Status) {
    let data = &status.data;
    let removing = if data.volumes_removing > 0 {
        format!(", {} being removed", data.volumes_removing)
    } else {
        String::new()
    };
    let _ = writeln!(text, "data");
    let _ = writeln!(
        text,
        "  volumes {}{removing}, sizes of all copies add up to {} of {} (overcommit {}.{:02})",
        data.volumes,
        format_size_bytes(data.provisioned_bytes),
        format_size_bytes(data.provisionable_bytes),
        data.overcommit_percent / 100,
        data.overcommit_percent % 100,
    );
    let room = Room::of(&status.drives, data.capacity_bytes, data.live_bytes);
    let _ = writeln!(text, "  used    {room}");
    for pool in &status.pools {
        let available = pool.available_bytes.map_or("-".to_owned(), format_size_bytes);
        let _ = writeln!(text, "  pool    {}: {} copies, max avail {available}", pool.name, pool.copies);
    }
}

/// Digits of an identity in a table; the beginning is enough to name a drive.
const ID_SHOWN: usize = 8;

/// The state of a drive, for people.
pub fn state_text(state: api::DriveState) -> &'static str {
    match state {
        api::DriveState::Healthy => "healthy",
        api::DriveState::ReadOnly => "read-only",
        api::DriveState::Missing => "missing",
        api::DriveState::GivenUp => "given up",
    }
}

/// The state of a drive, or that it is to go, or that nobody who could be asked knows it.
pub fn drive_state_text(drive: &api::Drive) -> &'static str {
    match (drive.state, drive.wanted) {
        _ if drive.unknown => "unknown",
        (api::DriveState::Healthy, api::Wanted::Removing) => "removing",
        (state, _) => state_text(state),
    }
}

/// How far the scrub of a drive is, or how long ago the last one ended.
fn scrub_text(drive: &api::Drive, now_unix_ms: u64) -> String {
    let ended = drive.last_scrub.and_then(|scrub| scrub.ended_unix_ms);
    match (drive.scrub_percent, ended) {
        (Some(percent), _) => format!("{percent:.0} %"),
        (None, Some(ended)) => {
            let ago_ms = now_unix_ms.saturating_sub(ended);
            format!("{} ago", format_duration(ago_ms.saturating_mul(1_000_000)))
        }
        // Of what nobody serves nothing is known.
        (None, None) if drive.shards.is_empty() => "-".to_owned(),
        (None, None) => "never".to_owned(),
    }
}

/// A table of drives.
pub fn drives_text(drives: &[api::Drive]) -> String {
    let header = [
        "DRIVE",
        "NODE",
        "ID",
        "STATE",
        "SIZE",
        "CAPACITY",
        "USED",
        "GROUPS",
        "BAD BLOCKS",
        "REPAIRED",
        "SCRUB",
    ];
    let mut table = output::table(&header, 4);
    for drive in drives {
        let mut id = drive.id.to_string();
        id.truncate(ID_SHOWN);
        table.add_row([
            drive.path.clone(),
            drive.node_name.clone(),
            id,
            drive_state_text(drive).to_owned(),
            format_size_bytes(drive.size_bytes),
            format_size_bytes(drive.capacity_bytes),
            format_size_bytes(drive.live_bytes),
            drive.groups.to_string(),
            drive.bad_blocks_left.to_string(),
            drive.repaired_blocks.to_string(),
            scrub_text(drive, unix_ms()),
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_says_how_far_its_scrub_is_or_when_the_last_one_ended() {
        let mut drive = api::Drive::default();
        assert_eq!(scrub_text(&drive, 0), "-");
        drive.shards.push(api::Shard::default());
        assert_eq!(scrub_text(&drive, 0), "never");
        drive.last_scrub = Some(api::Scrub { ended_unix_ms: Some(1_000), ..Default::default() });
        assert_eq!(scrub_text(&drive, 3_601_000), "1 h 0 min ago");
        drive.scrub_percent = Some(41.6);
        assert_eq!(scrub_text(&drive, 3_601_000), "42 %");
    }
}
