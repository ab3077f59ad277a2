//! `coquina status`

use std::fmt::Write;
use std::io::IsTerminal;

use coquina_base::format_size_bytes;
use coquina_bench::format_count;
use coquina_control::{Severity, api};

use super::connect::client;
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
                    eprintln!("{error}\nwaiting for it to come back; Ctrl-C ends this");
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
    let node = &status.node;
    let _ = writeln!(
        text,
        "node      {} (coquina {}, process {}, up {})",
        node.name,
        node.version,
        node.process,
        format_duration(node.uptime_ns)
    );
    let _ = writeln!(text, "cluster   {} (map revision {})", status.cluster.id, status.cluster.revision);
    let services = &status.services;
    let _ = writeln!(text, "services");
    let _ = writeln!(text, "  nbd     {} ({} connected)", services.nbd.join(", "), services.nbd_connections);
    let _ = writeln!(text, "  native  {} ({} connected)", services.native, services.native_connections);
    let _ = writeln!(text, "  http    {}", services.http);
    data_text(&mut text, &status.data);
    if let Some(rates) = &status.rates {
        let _ = writeln!(text, "io");
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
        let _ = writeln!(text, "  read    {read}\n  write   {write}");
    }
    let _ = writeln!(text, "\n{}", drives_text(&status.drives));
    text
}

fn health_text(text: &mut String, health: &api::Health) {
    let state = match health.state {
        api::HealthState::Ok => "OK",
        api::HealthState::Warning => "WARNING",
        api::HealthState::Error => "ERROR",
    };
    let _ = writeln!(text, "health    {state}");
    for entry in &health.entries {
        let mark = if entry.severity == Severity::Error { "error" } else { "warning" };
        let _ = writeln!(text, "  {} ({mark}) {}: {}", entry.code.as_str(), entry.subject, entry.message);
        let _ = writeln!(text, "    to do: {}", entry.advice);
    }
}

fn data_text(text: &mut String, data: &api::DataSummary) {
    let percent = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    let removing = if data.volumes_removing > 0 {
        format!(", {} being removed", data.volumes_removing)
    } else {
        String::new()
    };
    let _ = writeln!(text, "data");
    let _ = writeln!(
        text,
        "  volumes {}{removing}, sizes add up to {} of {} (overcommit {}.{:02})",
        data.volumes,
        format_size_bytes(data.provisioned_bytes),
        format_size_bytes(data.provisionable_bytes),
        data.overcommit_percent / 100,
        data.overcommit_percent % 100,
    );
    let _ = writeln!(
        text,
        "  used    {} of {} ({:.1} %)",
        format_size_bytes(data.live_bytes),
        format_size_bytes(data.capacity_bytes),
        percent(data.live_bytes, data.capacity_bytes)
    );
}

/// Digits of an identity in a table; the beginning is enough to name a drive.
const ID_SHOWN: usize = 8;

/// The state of a drive, for people.
pub fn state_text(state: api::DriveState) -> &'static str {
    match state {
        api::DriveState::Healthy => "healthy",
        api::DriveState::ReadOnly => "read-only",
        api::DriveState::Missing => "missing",
    }
}

/// A table of drives.
pub fn drives_text(drives: &[api::Drive]) -> String {
    let header = ["DRIVE", "ID", "STATE", "SHARDS", "SIZE", "CAPACITY", "USED", "BAD BLOCKS", "SCRUB"];
    let mut table = output::table(&header, 3);
    for drive in drives {
        let mut id = drive.id.to_string();
        id.truncate(ID_SHOWN);
        table.add_row([
            drive.path.clone(),
            id,
            state_text(drive.state).to_owned(),
            drive.shards.len().to_string(),
            format_size_bytes(drive.size_bytes),
            format_size_bytes(drive.capacity_bytes),
            format_size_bytes(drive.live_bytes),
            drive.bad_blocks.to_string(),
            drive.scrub_percent.map_or("-".to_owned(), |percent| format!("{percent:.0} %")),
        ]);
    }
    table.trim_fmt()
}
