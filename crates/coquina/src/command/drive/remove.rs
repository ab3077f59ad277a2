//! `coquina drive remove`

use coquina_control::api;

use crate::arguments::Global;
use crate::command::connect::client;
use crate::command::elsewhere::Cluster;
use crate::command::leaving::{self, Leaving, Left};
use crate::error::CliError;
use crate::output::{self, print, print_json};

pub fn run(global: &Global, request: api::RemoveDrive, yes: bool, no_wait: bool) -> Result<(), CliError> {
    let client = client(global)?;
    if request.cancel {
        let drive = client.remove_drive(&request)?;
        return show(global, &drive, &format!("drive {} ({}) stays", drive.path, drive.id));
    }
    let plan = client.remove_drive(&api::RemoveDrive { dry_run: true, ..request.clone() })?;
    let drives = client.drives()?.drives;
    let drive = drives.iter().find(|drive| drive.id == plan.id);
    if let Some(drive) = drive.filter(|_| plan.groups_left > 0 && !request.lost) {
        check_there(drive)?;
    }
    output::confirm(&question(&plan, request.lost), yes)?;
    let lost = request.lost;
    let volumes = request.lose_data.then(|| plan.volume_ids_lost.clone());
    let request = api::RemoveDrive { drive: plan.id.to_string(), volumes, ..request };
    let mut cluster = Cluster::of(client)?;
    let removed = cluster.client().remove_drive(&request)?;
    if no_wait {
        let text =
            format!("drive {} ({}) is being removed; `coquina status` shows how far", plan.path, plan.id);
        return show(global, &removed, &text);
    }
    let leaving = Leaving { what: "drive", groups: plan.groups_left, lost };
    leaving::wait(leaving, &mut cluster, |client| {
        let drives = client.drives()?.drives;
        Ok(match drives.iter().find(|drive| drive.id == plan.id) {
            None => Left::Gone,
            Some(drive) if drive.wanted == api::Wanted::In => Left::Stays,
            Some(drive) => Left::Groups(drive.groups),
        })
    })?;
    let mut text = format!("removed drive {} ({})", removed.path, removed.id);
    removed.volumes_lost.iter().for_each(|name| text += &format!("\nremoved volume {name}"));
    show(global, &removed, &text)
}

/// Refuses to have a drive emptied that is missing, or of which nothing is known.
fn check_there(drive: &api::Drive) -> Result<(), CliError> {
    let api::Drive { path, groups, node_name, .. } = drive;
    if drive.unknown {
        return Err(CliError::failed(format!(
            "node {node_name} does not answer this process, so it is not known how drive {path} is; ask another process with \
             --server or --dir, or look at that node and the network to it"
        )));
    }
    if drive.state == api::DriveState::Missing {
        return Err(CliError::failed(format!(
            "drive {path} is missing, so the {groups} copies on it cannot be moved away; bring it back, or give it up with \
             --lost to have them made anew from others"
        )));
    }
    Ok(())
}

fn question(plan: &api::RemovedDrive, lost: bool) -> String {
    let mut question = format!("drive {} ({}) is removed", plan.path, plan.id);
    if plan.groups_left > 0 {
        let how = if lost { "made anew from other copies" } else { "moved to other drives first" };
        question += &format!("; {} placement group(s) have a copy there, which is {how}", plan.groups_left);
    }
    if let Some(silent_ms) = plan.silent_ms {
        let seconds = silent_ms / 1000;
        question += &format!(
            "; its node has been silent for {seconds} s, as far as the process that leads knows, and may come back"
        );
    }
    if !plan.volumes_lost.is_empty() {
        let count = plan.volumes_lost.len();
        let names = plan.volumes_lost.join(", ");
        question += &format!("; with it go {count} volume(s) and all their data ({names})");
    }
    question
}

fn show(global: &Global, removed: &api::RemovedDrive, text: &str) -> Result<(), CliError> {
    if global.json { print_json(removed) } else { print(&format!("{text}\n")) }
}
