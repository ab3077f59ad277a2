//! `coquina drive ...`

use std::path::Path;
use std::time::Duration;

use coquina_base::format_size_bytes;
use coquina_control::{
    Client, Coordinator, EmbeddedCoordinator, FolderError, FolderLock, api, running_server,
};
use coquina_engine::Identity;
use coquina_node::drive::{self, CheckReport, DriveInfo, FormatRequest};

use super::connect::client;
use super::drive_argument;
use super::status::{drives_text, state_text};
use crate::arguments::{Drive, Global};
use crate::error::CliError;
use crate::output::{self, print, print_json};
use crate::progress::Progress;

/// How often a scrub's progress is asked for.
const SCRUB_POLL: Duration = Duration::from_millis(500);

pub fn run(global: &Global, command: &Drive) -> Result<(), CliError> {
    match command {
        Drive::Format { drive, shards, segment, force } => {
            let argument = drive_argument::parse(drive)?;
            let request = FormatRequest {
                size_bytes: argument.size_bytes,
                shards: *shards,
                segment_bytes: *segment,
                cluster_and_node: cluster_and_node(global)?,
                force: *force,
            };
            show_info(global, &drive::format(&argument.path, &request)?)
        }
        Drive::List => list(global),
        Drive::Remove { drive, lose_data, yes } => remove(global, drive, *lose_data, *yes),
        Drive::Info { path } => show_info(global, &drive::info(path)?),
        Drive::Scrub { drive, no_wait } => scrub(global, drive.clone(), *no_wait),
        Drive::Check { path } => check(global, path),
    }
}

/// Whose drive a new one becomes: the cluster and node of the folder, made if there is none.
fn cluster_and_node(global: &Global) -> Result<Identity, CliError> {
    let from_server = |client: &Client| -> Result<Identity, CliError> {
        let status = client.status(0)?;
        Ok(Identity { cluster: status.cluster.id, node: status.node.id, ..Identity::default() })
    };
    if global.server.is_some() {
        return Err(CliError::usage("a drive is formatted on the host that has it; use --dir, not --server"));
    }
    match running_server(&global.dir) {
        Ok(server) => from_server(&Client::new(&server.http)?),
        Err(FolderError::NotRunning { .. }) => {
            let _lock = FolderLock::acquire(&global.dir)?;
            let coordinator = EmbeddedCoordinator::open(&global.dir, "node")?;
            let (cluster, node) = (coordinator.map().cluster.value.id, coordinator.node_id());
            Ok(Identity { cluster, node, ..Identity::default() })
        }
        Err(other) => Err(other.into()),
    }
}

fn show_info(global: &Global, info: &DriveInfo) -> Result<(), CliError> {
    if global.json {
        return print_json(info);
    }
    print(&format!("{info}\n"))
}

fn list(global: &Global) -> Result<(), CliError> {
    let list = client(global)?.drives()?;
    if global.json { print_json(&list) } else { print(&list_text(&list.drives)) }
}

/// Identities in full and paths last, for copying; what is wrong below.
fn list_text(drives: &[api::Drive]) -> String {
    if drives.is_empty() {
        return "no drives; add one with `coquina up --drive PATH:SIZE`\n".to_owned();
    }
    let header = ["ID", "STATE", "SIZE", "CAPACITY", "USED", "PATH"];
    let mut table = output::table(&header, 2);
    if let Some(path) = table.column_mut(header.len() - 1) {
        path.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for drive in drives {
        table.add_row([
            drive.id.to_string(),
            state_text(drive.state).to_owned(),
            format_size_bytes(drive.size_bytes),
            format_size_bytes(drive.capacity_bytes),
            // What a missing drive holds cannot be seen.
            if drive.shards.is_empty() { "-".to_owned() } else { format_size_bytes(drive.live_bytes) },
            drive.path.clone(),
        ]);
    }
    let mut text = table.trim_fmt() + "\n";
    for drive in drives {
        if let Some(problem) = &drive.problem {
            text += &format!("{} is missing: {problem}\n", drive.id);
        }
    }
    text
}

fn remove(global: &Global, drive: &str, lose_data: bool, yes: bool) -> Result<(), CliError> {
    let client = client(global)?;
    let drive = as_server_knows(global, drive)?;
    let plan = client.remove_drive(&api::RemoveDrive { drive, lose_data, dry_run: true })?;
    let mut question = format!("drive {} ({}) is removed", plan.path, plan.id);
    if !plan.volumes_lost.is_empty() {
        let count = plan.volumes_lost.len();
        let names = plan.volumes_lost.join(", ");
        question += &format!(", and with it {count} volume(s) and all their data ({names})");
    }
    output::confirm(&question, yes)?;
    let request = api::RemoveDrive { drive: plan.id.to_string(), lose_data, dry_run: false };
    let removed = client.remove_drive(&request)?;
    if global.json {
        return print_json(&removed);
    }
    let mut text = format!("removed drive {} ({})\n", removed.path, removed.id);
    removed.volumes_lost.iter().for_each(|name| text += &format!("removed volume {name}\n"));
    print(&text)
}

/// A drive as the local server's map names it: paths are absolute there. For a remote server a text stays as it is.
fn as_server_knows(global: &Global, text: &str) -> Result<String, CliError> {
    let path = Path::new(text);
    if global.server.is_some() || !(text.contains('/') || path.exists()) {
        return Ok(text.to_owned());
    }
    Ok(drive_argument::absolute(path)?.to_string_lossy().into_owned())
}

fn scrub(global: &Global, drive: Option<String>, no_wait: bool) -> Result<(), CliError> {
    let client = client(global)?;
    let drive = drive.map(|text| as_server_knows(global, &text)).transpose()?;
    let request = api::ScrubDrives { drive };
    let mut list = client.scrub_drives(&request)?;
    if !no_wait {
        let progress = Progress::new("scrub");
        loop {
            let running: Vec<f64> = list.drives.iter().filter_map(|drive| drive.scrub_percent).collect();
            let Some(least) = running.iter().copied().reduce(f64::min) else { break };
            progress.set("scrub", least / 100.0, format!("{} drive(s), {least:.0} %", running.len()));
            std::thread::sleep(SCRUB_POLL);
            list = client.drives()?;
        }
    }
    if global.json {
        print_json(&list)?
    } else {
        print(&(drives_text(&list.drives) + "\n"))?
    }
    let bad: u64 = list.drives.iter().map(|drive| drive.bad_blocks).sum();
    if bad > 0 && !no_wait {
        return Err(CliError::failed(format!(
            "{bad} bad block(s); the server's log names them: restore those volumes and replace the device"
        )));
    }
    Ok(())
}

fn check(global: &Global, path: &Path) -> Result<(), CliError> {
    let progress = Progress::new("check");
    let report: CheckReport = drive::check(path, &mut |done_bytes, total_bytes| {
        let fraction = done_bytes as f64 / total_bytes.max(1) as f64;
        let message = format!("{} of {}", format_size_bytes(done_bytes), format_size_bytes(total_bytes));
        progress.set("check", fraction, message);
    })?;
    drop(progress);
    if global.json {
        print_json(&report)?
    } else {
        print(&format!("{report}\n"))?
    }
    if report.is_clean() {
        return Ok(());
    }
    Err(CliError::failed(format!(
        "drive {} is damaged; restore what is named above from a backup",
        path.display()
    )))
}
