//! `coquina drive ...`

mod remove;
mod scrub;

use std::path::{Path, PathBuf};

use coquina_base::{ClusterId, check_name, format_size_bytes};
use coquina_control::{Client, FolderError, FolderLock, NodeFile, api, running_server};
use coquina_engine::{Identity, SuperblockError};
use coquina_node::NodeError;
use coquina_node::drive::{self, CheckReport, DriveInfo, FormatRequest};

use super::connect::client;
use super::drive_argument::{self, DriveArgument};
use super::status::drive_state_text;
use crate::arguments::{Drive, Global};
use crate::error::CliError;
use crate::output::{self, print, print_json};
use crate::progress::Progress;

pub fn run(global: &Global, command: &Drive) -> Result<(), CliError> {
    match command {
        Drive::Format { drive, shards, segment, force } => {
            let argument = drive_argument::parse(drive)?;
            let (owner, made) = cluster_and_node(global)?;
            let request = FormatRequest {
                size_bytes: argument.size_bytes,
                shards: *shards,
                segment_bytes: *segment,
                cluster_and_node: owner,
                force: *force,
            };
            let formatted = check_place(&argument).and_then(|()| drive::format(&argument.path, &request));
            if let (Err(_), Some(made)) = (&formatted, made) {
                made.remove();
            }
            show_info(global, &formatted?)
        }
        Drive::Add { drive, node, force } => add(global, drive, node.clone(), *force),
        Drive::Reweight { drive, weight } => reweight(global, drive, *weight),
        Drive::List => list(global),
        Drive::Remove { drive, lost, lose_data, cancel, yes, no_wait } => {
            let drive = as_server_knows(global, drive)?;
            let (lost, cancel) = (*lost || *lose_data, *cancel);
            let request =
                api::RemoveDrive { drive, lost, lose_data: *lose_data, cancel, ..Default::default() };
            remove::run(global, request, *yes, *no_wait)
        }
        Drive::Info { path } => show_info(global, &drive::info(path).map_err(explain)?),
        Drive::Scrub { drive, no_wait } => scrub::run(global, drive.clone(), *no_wait),
        Drive::Check { path } => check(global, path),
    }
}

/// Refuses a new drive in a folder that is not there.
fn check_place(argument: &DriveArgument) -> Result<(), NodeError> {
    let path = &argument.path;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.exists() => {
            Err(NodeError::NoFolder { path: path.clone(), folder: folder.to_owned() })
        }
        _ => Ok(()),
    }
}

/// A cluster that was made for a drive, in a folder that was not there. Nobody else takes it as long as this is held.
struct MadeCluster {
    folder: PathBuf,
    _lock: FolderLock,
}

impl MadeCluster {
    /// Takes it back. What cannot be removed stays: it harms nobody.
    fn remove(self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Whose drive a new one becomes: the cluster and node of the folder, made if there is none.
fn cluster_and_node(global: &Global) -> Result<(Identity, Option<MadeCluster>), CliError> {
    let from_server = |client: &Client| -> Result<Identity, CliError> {
        let status = client.status(0)?;
        Ok(Identity { cluster: status.cluster.id, node: status.node.id, ..Identity::default() })
    };
    if global.server.is_some() {
        return Err(CliError::usage("a drive is formatted on the host that has it; use --dir, not --server"));
    }
    match running_server(&global.dir) {
        Ok(server) => Ok((from_server(&Client::new(&server.http)?)?, None)),
        Err(FolderError::NotRunning { .. }) => {
            if let Some(cluster) = super::up::cluster_without_map(&global.dir)? {
                return Ok((of_stopped_node(&global.dir, cluster)?, None));
            }
            let was_there = global.dir.exists();
            let lock = FolderLock::acquire(&global.dir)?;
            // Somebody else may have made it in between, and then more than the lock is in it.
            let is_new =
                !was_there && std::fs::read_dir(&global.dir).is_ok_and(|entries| entries.count() == 1);
            let (cluster, node) = super::up::identity(&global.dir)?;
            let made = is_new.then(|| MadeCluster { folder: global.dir.clone(), _lock: lock });
            Ok((Identity { cluster, node, ..Identity::default() }, made))
        }
        Err(other) => Err(other.into()),
    }
}

/// The identity of a node whose map is elsewhere. Nothing is made.
fn of_stopped_node(folder: &Path, cluster: ClusterId) -> Result<Identity, CliError> {
    match NodeFile::read(folder)? {
        Some(file) => Ok(Identity { cluster, node: file.node, ..Identity::default() }),
        None => Err(CliError::failed(format!(
            "{} belongs to cluster {cluster} and is no node's, as that of a gateway; give the folder of a node with --dir",
            folder.display()
        ))),
    }
}

/// What holds nothing of Coquina's is most likely not what was meant.
fn explain(error: NodeError) -> CliError {
    match error {
        NodeError::Superblock { path, error: SuperblockError::Missing } => CliError::failed(format!(
            "{} holds no Coquina superblock; is this the path of a drive?",
            path.display()
        )),
        other => other.into(),
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
        return "no drives; add one with `coquina drive add PATH:SIZE`\n".to_owned();
    }
    let header = ["ID", "NODE", "STATE", "SIZE", "CAPACITY", "USED", "WEIGHT", "GROUPS", "PATH"];
    let mut table = output::table(&header, 3);
    if let Some(path) = table.column_mut(header.len() - 1) {
        path.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for drive in drives {
        table.add_row([
            drive.id.to_string(),
            drive.node_name.clone(),
            drive_state_text(drive).to_owned(),
            format_size_bytes(drive.size_bytes),
            format_size_bytes(drive.capacity_bytes),
            // What a missing drive holds cannot be seen.
            if drive.shards.is_empty() { "-".to_owned() } else { format_size_bytes(drive.live_bytes) },
            weight_text(drive.weight),
            drive.groups.to_string(),
            drive.path.clone(),
        ]);
    }
    let mut text = table.trim_fmt() + "\n";
    for drive in drives {
        if let Some(problem) = &drive.problem {
            let state = if drive.unknown { "not known here" } else { "missing" };
            text += &format!("{} is {state}: {problem}\n", drive.id);
        }
    }
    text
}

fn add(global: &Global, text: &str, node: Option<String>, force: bool) -> Result<(), CliError> {
    // A remote node's paths are its own; those of this host are given in full.
    let path = if global.server.is_some() { text.to_owned() } else { in_full(text)? };
    let drive = client(global)?.add_drive(&api::AddDrive { path, force, node })?;
    if global.json {
        return print_json(&drive);
    }
    let capacity = format_size_bytes(drive.capacity_bytes);
    print(&format!("added drive {} ({}) of {capacity} to node {}\n", drive.path, drive.id, drive.node_name))
}

/// `PATH[:SIZE]` with the path in full.
fn in_full(text: &str) -> Result<String, CliError> {
    let argument = drive_argument::parse(text)?;
    let path = drive_argument::for_map(&argument.path)?;
    Ok(match argument.size_bytes {
        Some(size_bytes) => format!("{}:{size_bytes}", path.display()),
        None => path.display().to_string(),
    })
}

fn reweight(global: &Global, drive: &str, weight_bytes: u64) -> Result<(), CliError> {
    let drive = as_server_knows(global, drive)?;
    let request = api::ReweightDrive { drive, weight: weight_bytes >> 20 };
    let drive = client(global)?.reweight_drive(&request)?;
    if global.json {
        return print_json(&drive);
    }
    print(&format!("drive {} has weight {} now\n", drive.path, weight_text(drive.weight)))
}

/// A weight is a capacity in MiB unless somebody chose another unit.
fn weight_text(weight: u64) -> String {
    format_size_bytes(weight.saturating_mul(1 << 20))
}

/// A drive as the local server's map names it: paths are absolute there. For a remote server a text stays as it is, and so does
/// the path of another node's host, `NODE:PATH`.
fn as_server_knows(global: &Global, text: &str) -> Result<String, CliError> {
    let path = Path::new(text);
    let of_node = |(node, path): (&str, &str)| check_name(node).is_ok() && path.starts_with('/');
    let names_node = !path.exists() && text.split_once(':').is_some_and(of_node);
    if global.server.is_some() || names_node || !(text.contains('/') || path.exists()) {
        return Ok(text.to_owned());
    }
    Ok(drive_argument::absolute(path)?.to_string_lossy().into_owned())
}

fn check(global: &Global, path: &Path) -> Result<(), CliError> {
    if let Err(error @ NodeError::Superblock { error: SuperblockError::Missing, .. }) = drive::info(path) {
        return Err(explain(error));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive was read for hours, and then there was no report.
    #[test]
    fn a_path_that_is_not_utf8_is_shown_in_json_as_far_as_it_can_be() {
        let path = PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"/d/\xff"));
        let report = CheckReport { path, clean: true, error: None, shards: Vec::new() };
        assert!(output::json_text(&report).unwrap().contains("/d/\u{fffd}"));
    }

    #[test]
    fn a_drive_of_a_named_node_is_told_from_a_path_here() {
        let global = Global { dir: "./coquina-data".into(), server: None, json: false };
        let known = |text: &str| as_server_knows(&global, text).unwrap();
        for text in ["n2:/dev/nvme1n1", "3f9a2c41"] {
            assert_eq!(known(text), text);
        }
        for text in ["nowhere/n2:x", "./n2:/nowhere", "/nowhere/x:/y"] {
            assert_eq!(Path::new(&known(text)), std::path::absolute(text).unwrap());
        }
    }
}
