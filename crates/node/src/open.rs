//! Opening a node's drives at its start.
//!
//! Invariants:
//! - a drive that the map has and that is gone or damaged does not keep the others from being served;
//! - a log is cut where it is damaged only when no group counts on a copy of the drive: all is on others then;
//! - what is in the place of a remembered drive is never formatted, unless the user forces it;
//! - one drive is served once: two that say they are the same are refused, since one must be a copy.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use coquina_base::DriveId;
use coquina_cluster::MapView;
use coquina_control::AbsentDrive;
use coquina_engine::{
    DriveSuperblock, FormatOptions, Identity, OpenError, Shard, ShardConfig, SuperblockError,
};
use coquina_reactor::{DriveFile, DriveOptions, DriveProblem, ReactorError, SyncDevice, random_u64};

use crate::drive::{FormatRequest, format_open};
use crate::error::NodeError;
use crate::node::NodeDrive;

/// How long a start waits for what a killed server may still hold.
const BUSY_MAX: Duration = Duration::from_secs(1);
/// Shards of a drive that is formatted at a start.
const SHARDS: u32 = 1;

/// A drive that a node shall serve.
#[derive(Clone, Debug)]
pub struct DriveSpec {
    /// File or block device.
    pub path: PathBuf,
    /// Size of the file to make, if there is none.
    pub size_bytes: Option<u64>,
    /// Erase what is there if it is not a drive of this cluster.
    pub force: bool,
    /// The drive that was there before: if it cannot be used now, the node starts without it.
    pub remembered: Option<DriveId>,
}

impl DriveSpec {
    /// Reads `PATH[:SIZE]`. What exists under the whole text is a path without a size.
    pub fn parse(text: &str) -> Result<DriveSpec, String> {
        let spec = |path: &str, size_bytes| {
            let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
            Ok(DriveSpec { path: absolute, size_bytes, force: false, remembered: None })
        };
        if text.is_empty() {
            return Err("a drive needs a path; write it like /srv/drive1:100G".to_owned());
        }
        match text.rsplit_once(':') {
            Some((path, size)) if !std::path::Path::new(text).exists() && !size.contains('/') => {
                let size_bytes = coquina_base::parse_size_bytes(size).map_err(|error| error.to_string())?;
                spec(path, Some(size_bytes))
            }
            _ => spec(text, None),
        }
    }
}

/// A drive that is open, before its reactor has it.
pub(crate) struct Opened {
    pub file: DriveFile,
    pub id: DriveId,
    pub shards: u32,
    pub path: PathBuf,
    pub size_bytes: u64,
}

/// A drive whose log is damaged. Other copies have what it has lost, or will soon be all that there is.
#[derive(Clone, Debug)]
pub(crate) struct DamagedDrive {
    pub id: DriveId,
    pub path: PathBuf,
    /// How often it was tried to use it again, without success for a reason that passes.
    pub tries: u32,
}

impl DamagedDrive {
    /// How it is opened again.
    pub fn spec(&self) -> DriveSpec {
        DriveSpec { path: self.path.clone(), size_bytes: None, force: false, remembered: Some(self.id) }
    }
}

/// The drives of a node at its start.
#[derive(Default)]
pub(crate) struct Drives {
    pub opened: Vec<Opened>,
    pub absent: Vec<AbsentDrive>,
    /// Those of the absent that can be used again once no group counts on their copies.
    pub damaged: Vec<DamagedDrive>,
    /// Whether logs are cut where they are damaged.
    pub is_cut: bool,
}

/// Whether all groups that count on copies of a drive have others in sync.
pub(crate) fn is_spare(map: &MapView, drive: DriveId) -> bool {
    map.groups().all(|group| {
        let mut own = group.in_sync.iter().filter(|shard| shard.drive == drive);
        own.next().is_none() || group.in_sync.iter().any(|shard| shard.drive != drive)
    })
}

/// Whether no group counts on a copy of a drive.
pub(crate) fn is_out(map: &MapView, drive: DriveId) -> bool {
    map.groups().all(|group| group.in_sync.iter().all(|shard| shard.drive != drive))
}

/// Opens or formats drives. Those that the map has and that cannot be used are told apart.
pub(crate) fn open_drives(
    specs: &[DriveSpec],
    identity: Identity,
    map: &MapView,
) -> Result<Drives, NodeError> {
    if let Some(spec) = specs.iter().find(|spec| spec.path.to_str().is_none()) {
        return Err(NodeError::PathNotText { path: spec.path.clone() });
    }
    // Before any other is formatted.
    specs.iter().filter(|spec| spec.remembered.is_none()).try_for_each(check_new)?;
    let mut drives = Drives::default();
    for spec in specs {
        match (open_drive(spec, identity, map), spec.remembered) {
            (Ok(opened), _) => drives.add(opened)?,
            (Err(error), Some(id)) if is_absence(&error) => drives.miss(id, &spec.path, &error),
            (Err(error), _) => return Err(error),
        }
    }
    for spec in specs {
        let Some(id) = spec.remembered else { continue };
        let found = drives.opened.iter().any(|drive| drive.id == id);
        drives.absent.retain(|absent| absent.id != id || !found);
        if !found && drives.absent.iter().all(|absent| absent.id != id) {
            let reason = format!("{} is another drive now", spec.path.display());
            drives.absent.push(AbsentDrive { id, reason });
        }
    }
    Ok(drives)
}

impl Drives {
    fn add(&mut self, drive: Opened) -> Result<(), NodeError> {
        if let Some(other) = self.opened.iter().find(|other| other.id == drive.id) {
            let (path, other) = (drive.path, other.path.clone());
            return Err(NodeError::SameDrive { path, other });
        }
        self.opened.push(drive);
        Ok(())
    }

    /// Refuses drives that are served already.
    pub fn refuse_same(&self, served: &[NodeDrive]) -> Result<(), NodeError> {
        for drive in &self.opened {
            if let Some(other) = served.iter().find(|other| other.id == drive.id) {
                let (path, other) = (drive.path.clone(), other.path.clone());
                return Err(NodeError::SameDrive { path, other });
            }
        }
        Ok(())
    }

    fn miss(&mut self, id: DriveId, path: &std::path::Path, error: &NodeError) {
        tracing::error!(drive = %id, path = %path.display(), %error, "a drive cannot be used: going on without it");
        self.absent.push(AbsentDrive { id, reason: error.to_string() });
    }

    /// Opens the shards of every drive, with the copy numbers that `copies` gives to its first shard. A drive of the map
    /// with a shard that cannot be opened counts as absent.
    pub fn open_shards(
        &mut self,
        map: &MapView,
        config: &ShardConfig,
        copies: &mut dyn FnMut(&Opened) -> Result<u64, NodeError>,
    ) -> Result<Vec<OpenedDrive>, NodeError> {
        let mut ready = Vec::new();
        for drive in std::mem::take(&mut self.opened) {
            let copy_first = copies(&drive)?;
            let shards: Result<Vec<_>, _> = (0..drive.shards)
                .map(|number| {
                    let copy = copy_first + u64::from(number);
                    open_shard(&drive, number, ShardConfig { copy, ..config.clone() }, self.is_cut)
                })
                .collect();
            match shards {
                Ok(shards) => ready.push(OpenedDrive { drive, copy_first, shards }),
                Err(error) if map.drive(drive.id).is_some() && is_absence(&error) => {
                    self.miss(drive.id, &drive.path, &error);
                    let is_in_log = matches!(&error, NodeError::Open { error, .. } if error.is_in_log());
                    if is_in_log && !self.is_cut && is_spare(map, drive.id) {
                        tracing::warn!(
                            drive = %drive.id,
                            "once other copies have taken over, it is used again, without what is damaged"
                        );
                        self.damaged.push(DamagedDrive { id: drive.id, path: drive.path, tries: 0 });
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ready)
    }
}

/// A drive with its shards, before its reactors have them.
pub(crate) struct OpenedDrive {
    pub drive: Opened,
    pub copy_first: u64,
    pub shards: Vec<OpenedShard>,
}

/// A shard, and how long its start-up took.
pub(crate) struct OpenedShard {
    pub engine: Shard,
    pub open_ns: u64,
}

/// Whether an error means that a drive is gone or damaged, so that others can do without it. What a person has to
/// decide first, such as about a drive in use elsewhere, is none.
fn is_absence(error: &NodeError) -> bool {
    let superblock = |error: &SuperblockError| match error {
        SuperblockError::Missing
        | SuperblockError::Damaged(_)
        | SuperblockError::Shrunk { .. }
        | SuperblockError::Io(_) => true,
        SuperblockError::Newer { .. }
        | SuperblockError::Older { .. }
        | SuperblockError::Features(_)
        | SuperblockError::TooSmall { .. }
        | SuperblockError::Geometry(_) => false,
    };
    match error {
        NodeError::Reactor(ReactorError::Drive { problem, .. }) => {
            !matches!(problem, DriveProblem::Locked | DriveProblem::Busy)
        }
        NodeError::Absent { .. } => true,
        NodeError::Superblock { error, .. } => superblock(error),
        NodeError::Open { error: OpenError::Superblock(error), .. } => superblock(error),
        NodeError::Open { .. } => true,
        _ => false,
    }
}

/// Tries again for a while: the kernel keeps the sockets and locks of a process that was just killed until it has
/// taken its rings down.
pub(crate) fn patiently<T>(
    is_busy: impl Fn(&ReactorError) -> bool,
    mut attempt: impl FnMut() -> Result<T, ReactorError>,
) -> Result<T, ReactorError> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && started.elapsed() < BUSY_MAX => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn open_drive(spec: &DriveSpec, identity: Identity, map: &MapView) -> Result<Opened, NodeError> {
    let path = &spec.path;
    let is_new = !path.exists();
    let (file, is_made) = (open_file(spec, is_new)?, is_new);
    let superblock = match DriveSuperblock::read(&mut SyncDevice::new(&file)) {
        Ok(superblock) => match refuse_foreign(spec, &superblock, identity, map) {
            Ok(()) => superblock,
            Err(_) if spec.force => format_spec(spec, &file, identity, is_made)?,
            Err(error) => return Err(error),
        },
        Err(SuperblockError::Io(error)) => {
            return Err(NodeError::Superblock { path: path.clone(), error: SuperblockError::Io(error) });
        }
        Err(SuperblockError::Missing) if spec.remembered.is_none() => {
            format_spec(spec, &file, identity, is_made)?
        }
        Err(_) if spec.force => format_spec(spec, &file, identity, is_made)?,
        Err(error) => return Err(NodeError::Superblock { path: path.clone(), error }),
    };
    Ok(Opened {
        id: superblock.identity.drive,
        shards: superblock.shards,
        size_bytes: superblock.size_bytes,
        path: path.clone(),
        file,
    })
}

/// Refuses what cannot become a new drive. What is there already is looked at when it is opened.
fn check_new(spec: &DriveSpec) -> Result<(), NodeError> {
    let path = &spec.path;
    if path.exists() {
        return Ok(());
    }
    let Some(size_bytes) = spec.size_bytes else { return Err(NodeError::NoSize { path: path.clone() }) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        return Err(NodeError::NoFolder { path: path.clone(), folder: folder.to_owned() });
    }
    let options = FormatOptions {
        identity: Identity::default(),
        shards: SHARDS,
        segment_bytes: 0,
        prewrite: true,
        created_unix_ns: 0,
    };
    DriveSuperblock::check_size(size_bytes, &options)
        .map_err(|error| NodeError::Superblock { path: path.clone(), error })
}

fn open_file(spec: &DriveSpec, is_new: bool) -> Result<DriveFile, NodeError> {
    let path = &spec.path;
    if is_new && spec.remembered.is_some() && !spec.force {
        // The disk that has it may just not be mounted: a new file would hide it.
        return Err(NodeError::Absent { path: path.clone() });
    }
    check_new(spec)?;
    // An existing file keeps its size: it may be somebody's.
    let create_bytes = if is_new { spec.size_bytes } else { None };
    // What somebody else makes meanwhile is not taken for one that was made here.
    let options = DriveOptions { create_bytes, create_new: is_new, ..DriveOptions::default() };
    let is_locked =
        |error: &ReactorError| matches!(error, ReactorError::Drive { problem: DriveProblem::Locked, .. });
    Ok(patiently(is_locked, || DriveFile::open(path, options))?)
}

/// Refuses a drive that is not, or not any more, this cluster's.
fn refuse_foreign(
    spec: &DriveSpec,
    superblock: &DriveSuperblock,
    identity: Identity,
    map: &MapView,
) -> Result<(), NodeError> {
    let path = spec.path.clone();
    let found = superblock.identity;
    if found.cluster != identity.cluster {
        let (found, expected) = (found.cluster, identity.cluster);
        return Err(NodeError::OtherCluster { path, found, expected });
    }
    if map.cluster().is_some_and(|cluster| cluster.given_up_drives.contains(&found.drive)) {
        return Err(NodeError::GivenUp { path });
    }
    Ok(())
}

fn format_spec(
    spec: &DriveSpec,
    file: &DriveFile,
    identity: Identity,
    is_made: bool,
) -> Result<DriveSuperblock, NodeError> {
    let request = FormatRequest {
        size_bytes: spec.size_bytes,
        shards: SHARDS,
        segment_bytes: None,
        cluster_and_node: identity,
        force: spec.force,
    };
    if let Err(error) = format_open(&spec.path, file, &request) {
        if is_made {
            // Nothing was there before, so that nothing is lost; an error here leaves an empty file.
            let _ = std::fs::remove_file(&spec.path);
        }
        return Err(error);
    }
    DriveSuperblock::read(&mut SyncDevice::new(file))
        .map_err(|error| NodeError::Superblock { path: spec.path.clone(), error })
}

/// Opens a shard. With `is_cut`, one with a damaged log as it was before the damage.
fn open_shard(
    drive: &Opened,
    number: u32,
    config: ShardConfig,
    is_cut: bool,
) -> Result<OpenedShard, NodeError> {
    let started = Instant::now();
    let mut device = SyncDevice::new(&drive.file);
    let engine = match Shard::open(&mut device, number, random_u64(), config.clone()) {
        Err(error) if is_cut && error.is_in_log() => {
            Shard::open_cut(&mut device, number, config).map(|(engine, cut)| {
                let damage = cut.damage.unwrap_or(error);
                let (path, frame) = (drive.path.display(), cut.frame);
                tracing::error!(drive = %path, shard = number, frame, %damage, "the log is cut at this frame");
                engine
            })
        }
        opened => opened,
    };
    let engine =
        engine.map_err(|error| NodeError::Open { path: drive.path.clone(), shard: number, error })?;
    let open_ns = started.elapsed().as_nanos() as u64;
    tracing::info!(
        drive = %drive.path.display(), shard = number, entries = engine.stats().replayed_entries,
        milliseconds = open_ns / 1_000_000, "shard opened"
    );
    Ok(OpenedShard { engine, open_ns })
}
