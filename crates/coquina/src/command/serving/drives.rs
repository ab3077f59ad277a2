//! Which drives a server opens: those it had before, those given now, or a first one by itself.

use std::path::{Path, PathBuf};

use coquina_base::{NodeId, format_size_bytes};
use coquina_cluster::{DriveRecord, DriveState, MapView};
use coquina_node::DriveSpec;

use crate::command::drive_argument::{DriveArgument, for_map, parse};
use crate::error::CliError;

/// Size of the first drive where there is room for it.
const FIRST_DRIVE_BYTES: u64 = 16 << 30;
/// Smallest drive.
const DRIVE_BYTES_MIN: u64 = 256 << 20;
/// The first drive's size is a multiple of this.
const FIRST_DRIVE_UNIT_BYTES: u64 = 64 << 20;

/// The drives, and what to tell the user about the choice.
pub struct Chosen {
    pub drives: Vec<DriveSpec>,
    pub notes: Vec<String>,
}

/// Reads all `--drive` options. Paths that the map could not keep are refused.
pub fn parse_all(texts: &[String]) -> Result<Vec<DriveArgument>, CliError> {
    let drives: Vec<DriveArgument> = texts.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    drives.iter().try_for_each(|drive| for_map(&drive.path).map(drop))?;
    Ok(drives)
}

/// Chooses the drives of a node. One that has none gets a first one in `first_in`, if that is given.
pub fn choose(
    first_in: Option<&Path>,
    given: Vec<DriveArgument>,
    map: &MapView,
    node: NodeId,
    force: bool,
) -> Result<Chosen, CliError> {
    let mut drives = Vec::new();
    for drive in given {
        let path = for_map(&drive.path)?;
        if drives.iter().any(|spec: &DriveSpec| spec.path == path) {
            return Err(CliError::usage(format!("drive {} is given twice", path.display())));
        }
        drives.push(DriveSpec { path, size_bytes: drive.size_bytes, force, remembered: None });
    }
    // One that was given up holds what nobody knows any more.
    for record in map.drives_of(node).filter(|drive| drive.state != DriveState::GivenUp) {
        add_remembered(&mut drives, record);
    }
    let mut notes = Vec::new();
    match first_in {
        Some(folder) if drives.is_empty() => drives.push(first_drive(folder, force, &mut notes)?),
        None if drives.is_empty() => return Err(CliError::usage(no_drive(map, node))),
        _ => {}
    }
    Ok(Chosen { drives, notes })
}

/// What is said to a node without any drive.
fn no_drive(map: &MapView, node: NodeId) -> &'static str {
    if map.drives_of(node).next().is_some() {
        "all drives of this node were given up as lost; give a new one with --drive PATH:SIZE"
    } else if map.node(node).is_some() {
        "this node has no drive any more; give a new one with --drive PATH:SIZE"
    } else {
        "a new node needs a drive; give one with --drive PATH:SIZE"
    }
}

/// Adds a drive that the node had before. One that was moved is among those given now, under its new path.
fn add_remembered(drives: &mut Vec<DriveSpec>, record: &DriveRecord) {
    let path = PathBuf::from(&record.path);
    if let Some(spec) = drives.iter_mut().find(|spec| spec.path == path) {
        spec.remembered = Some(record.id);
        return;
    }
    let is_record = |spec: &DriveSpec| {
        let info = coquina_node::drive::info(&spec.path);
        info.is_ok_and(|info| info.drive == record.id)
    };
    if !drives.iter().any(is_record) {
        drives.push(DriveSpec { path, size_bytes: None, force: false, remembered: Some(record.id) });
    }
}

fn first_drive(folder: &Path, force: bool, notes: &mut Vec<String>) -> Result<DriveSpec, CliError> {
    let path = for_map(&folder.join("drive0"))?;
    if path.exists() {
        return Ok(DriveSpec { path, size_bytes: None, force, remembered: None });
    }
    let size_bytes = first_drive_bytes_of(folder, 1)?;
    let mut note = format!("making drive {} of {}", path.display(), format_size_bytes(size_bytes));
    if size_bytes < FIRST_DRIVE_BYTES {
        note += &format!(", since {} are free there", format_size_bytes(free_bytes(folder)?));
    }
    notes.push(note);
    Ok(DriveSpec { path, size_bytes: Some(size_bytes), force, remembered: None })
}

/// Size of each of so many first drives below a folder.
pub fn first_drive_bytes_of(folder: &Path, drives: u64) -> Result<u64, CliError> {
    let free_bytes = free_bytes(folder)?;
    first_drive_bytes(free_bytes / drives.max(1)).ok_or_else(|| {
        CliError::failed(format!(
            "{} has {} free, and half of that is too little for {drives} drive(s) of at least {}; give another folder with --dir or drives with --drive",
            folder.display(),
            format_size_bytes(free_bytes),
            format_size_bytes(DRIVE_BYTES_MIN)
        ))
    })
}

/// Size of the first drive: half of what is free, at most 16 GiB; `None` if that is too little. Its space is taken at
/// once.
fn first_drive_bytes(free_bytes: u64) -> Option<u64> {
    let bytes = FIRST_DRIVE_BYTES.min(free_bytes / 2) / FIRST_DRIVE_UNIT_BYTES * FIRST_DRIVE_UNIT_BYTES;
    (bytes >= DRIVE_BYTES_MIN).then_some(bytes)
}

fn free_bytes(folder: &Path) -> Result<u64, CliError> {
    let stat = rustix::fs::statvfs(folder)
        .map_err(|error| CliError::io("ask for the free space of", folder, &error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_drive_fits_into_what_is_free() {
        assert_eq!(first_drive_bytes(1 << 40), Some(16 << 30));
        assert_eq!(first_drive_bytes(10 << 30), Some(5 << 30));
        assert_eq!(first_drive_bytes(600 << 20), Some(256 << 20));
        assert_eq!(first_drive_bytes(511 << 20), None);
        assert_eq!(first_drive_bytes(0), None);
    }
}
