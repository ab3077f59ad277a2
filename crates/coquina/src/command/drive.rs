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
use super::status::drives_text;
use crate::arguments::{Drive, Global};
use crate::error::CliError;
use crate::output::{print, print_json};
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

fn scrub(global: &Global, drive: Option<String>, no_wait: bool) -> Result<(), CliError> {
    let client = client(global)?;
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
