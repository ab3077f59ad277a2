//! Drives: formatting, looking at, checking and opening them.

use std::path::{Path, PathBuf};

use coquina_base::{AlignedBuf, BLOCK_BYTES, ClusterId, DriveId, NodeId, format_size_bytes};
use coquina_engine::{
    Device, DriveSuperblock, FormatOptions, Identity, SuperblockError, check_drive, format_drive,
    geometry::COPY_SEGMENT_BYTES_MIN,
};
use coquina_reactor::{DriveFile, DriveOptions, SyncDevice};
use serde::{Serialize, Serializer};

use crate::error::NodeError;

/// How a drive is to be formatted.
#[derive(Clone, Debug)]
pub struct FormatRequest {
    /// Size of a new file; an existing one keeps its own if `None`.
    pub size_bytes: Option<u64>,
    /// How many shards.
    pub shards: u32,
    /// Size of a segment; chosen by the drive's size if `None`.
    pub segment_bytes: Option<u64>,
    /// Whose drive it becomes; its own identity is made here.
    pub cluster_and_node: Identity,
    /// Erase what is there.
    pub force: bool,
}

/// A path need not be UTF-8, and JSON must be.
fn as_shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// What a drive's superblock says.
#[derive(Clone, Debug, Serialize)]
pub struct DriveInfo {
    /// File or device.
    #[serde(serialize_with = "as_shown")]
    pub path: PathBuf,
    /// Its identity.
    pub drive: DriveId,
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
    /// The node that formatted it.
    pub node: NodeId,
    /// Bytes in use.
    pub size_bytes: u64,
    /// How many shards.
    pub shards: u32,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Version of the format.
    pub format_version: u32,
    /// When it was formatted, for display only.
    pub created_unix_ns: u64,
}

impl std::fmt::Display for DriveInfo {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(formatter, "path      {}", self.path.display())?;
        writeln!(formatter, "drive     {}", self.drive)?;
        writeln!(formatter, "cluster   {}", self.cluster)?;
        writeln!(formatter, "node      {}", self.node)?;
        writeln!(formatter, "size      {}", format_size_bytes(self.size_bytes))?;
        writeln!(formatter, "shards    {}", self.shards)?;
        writeln!(formatter, "segments  {}", format_size_bytes(self.segment_bytes))?;
        write!(formatter, "format    {}", self.format_version)
    }
}

fn describe(path: &Path, superblock: &DriveSuperblock) -> DriveInfo {
    DriveInfo {
        path: path.to_owned(),
        drive: superblock.identity.drive,
        cluster: superblock.identity.cluster,
        node: superblock.identity.node,
        size_bytes: superblock.size_bytes,
        shards: superblock.shards,
        segment_bytes: superblock.segment_bytes,
        format_version: superblock.format_version,
        created_unix_ns: superblock.created_unix_ns,
    }
}

fn superblock_error(path: &Path) -> impl FnOnce(SuperblockError) -> NodeError + '_ {
    move |error| NodeError::Superblock { path: path.to_owned(), error }
}

/// Reads a drive's superblock without changing anything; a running server may have it open.
pub fn info(path: &Path) -> Result<DriveInfo, NodeError> {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    // No lock is taken: the superblocks are read as they are.
    let direct = || std::fs::OpenOptions::new().read(true).custom_flags(0).open(path);
    let options = DriveOptions { read_only: true, ..DriveOptions::default() };
    let (mut device, size_bytes);
    match DriveFile::open(path, options) {
        Ok(file) => {
            size_bytes = file.size_bytes();
            let superblock =
                DriveSuperblock::read(&mut SyncDevice::new(&file)).map_err(superblock_error(path))?;
            return Ok(DriveInfo {
                size_bytes: superblock.size_bytes.min(size_bytes),
                ..describe(path, &superblock)
            });
        }
        Err(error) => {
            let Ok(file) = direct() else { return Err(error.into()) };
            let Ok(metadata) = file.metadata() else { return Err(error.into()) };
            if !metadata.is_file() {
                return Err(error.into());
            }
            device = Peek {
                size_bytes: metadata.len(),
                read: move |buffer: &mut [u8], at| file.read_exact_at(buffer, at),
            };
        }
    }
    let superblock = DriveSuperblock::read(&mut device).map_err(superblock_error(path))?;
    Ok(describe(path, &superblock))
}

/// A file that another process has open: for its superblocks only.
struct Peek<F> {
    size_bytes: u64,
    read: F,
}

impl<F: FnMut(&mut [u8], u64) -> std::io::Result<()>> Device for Peek<F> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&mut self, offset_bytes: u64, buffer: &mut AlignedBuf) -> Result<(), coquina_engine::IoError> {
        (self.read)(&mut *buffer, offset_bytes)
            .map_err(|error| coquina_engine::IoError(error.raw_os_error().unwrap_or(5)))
    }

    fn write(&mut self, _: u64, _: &AlignedBuf) -> Result<(), coquina_engine::IoError> {
        Err(coquina_engine::IoError(30))
    }

    fn sync(&mut self) -> Result<(), coquina_engine::IoError> {
        Err(coquina_engine::IoError(30))
    }
}

/// Formats a drive; refuses to erase anything unless told to.
pub fn format(path: &Path, request: &FormatRequest) -> Result<DriveInfo, NodeError> {
    if request.size_bytes.is_none() && !path.exists() {
        return Err(NodeError::NoSize { path: path.to_owned() });
    }
    let is_new = !path.exists();
    // An existing file keeps its size: it may be somebody's.
    let create_bytes = if is_new { request.size_bytes } else { None };
    // If somebody else makes it meanwhile, it is not taken for one that was made here, and removed.
    let options = DriveOptions { create_bytes, create_new: is_new, ..DriveOptions::default() };
    let file = DriveFile::open(path, options)?;
    let result = format_open(path, &file, request);
    if result.is_err() && is_new {
        // Nothing was there before, so that nothing is lost; an error here leaves an empty file.
        let _ = std::fs::remove_file(path);
    }
    result
}

pub(crate) fn format_open(
    path: &Path,
    file: &DriveFile,
    request: &FormatRequest,
) -> Result<DriveInfo, NodeError> {
    if request.segment_bytes.is_some_and(|bytes| bytes < COPY_SEGMENT_BYTES_MIN) {
        let too_small =
            SuperblockError::Geometry("a segment of a drive that holds copies has at least 256 KiB");
        return Err(superblock_error(path)(too_small));
    }
    let mut device = SyncDevice::new(file);
    if !request.force {
        refuse_data(path, &mut device)?;
    }
    reserve(path, file)?;
    let random = coquina_control::random_id().map_err(NodeError::Random)?;
    let unix_ns = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_nanos() as u64);
    let options = FormatOptions {
        identity: Identity { drive: DriveId(random), ..request.cluster_and_node },
        shards: request.shards,
        segment_bytes: request.segment_bytes.unwrap_or(0),
        prewrite: !file.is_block_device(),
        created_unix_ns: unix_ns,
    };
    let superblock = format_drive(&mut device, &options).map_err(superblock_error(path))?;
    Ok(describe(path, &superblock))
}

/// Takes the space of a file from its file system now: were it to run short later, a write would fail in the middle of
/// the work, and a drive takes no changes after that.
fn reserve(path: &Path, file: &DriveFile) -> Result<(), NodeError> {
    if file.is_block_device() {
        return Ok(());
    }
    let descriptor = file.try_clone_descriptor()?;
    // tmpfs: taking memory ahead of its use would hurt more than it helps.
    let in_memory = rustix::fs::fstatfs(&descriptor).is_ok_and(|system| system.f_type == 0x0102_1994);
    if in_memory {
        return Ok(());
    }
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::fs::fallocate(&descriptor, flags, 0, file.size_bytes()) {
        Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
            Err(NodeError::NoRoom { path: path.to_owned(), size_bytes: file.size_bytes() })
        }
        // Not every file system can; the space is then taken as it is used.
        _ => Ok(()),
    }
}

/// Bytes at the start of a drive that must be empty before it is formatted without force.
const LOOKED_AT_BYTES: u64 = 1 << 20;

fn refuse_data(path: &Path, device: &mut SyncDevice<'_>) -> Result<(), NodeError> {
    match DriveSuperblock::read(device) {
        Ok(superblock) => {
            let cluster = superblock.identity.cluster;
            return Err(NodeError::AlreadyFormatted { path: path.to_owned(), cluster });
        }
        Err(SuperblockError::Missing) => {}
        Err(SuperblockError::Io(error)) => return Err(superblock_error(path)(SuperblockError::Io(error))),
        Err(other) => {
            let what = format!("a Coquina superblock that cannot be used: {other}");
            return Err(NodeError::ForeignData { path: path.to_owned(), what });
        }
    }
    let bytes = device.size_bytes().min(LOOKED_AT_BYTES) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let mut start = AlignedBuf::zeroed(bytes as usize / BLOCK_BYTES);
    if bytes > 0 {
        device.read(0, &mut start).map_err(|error| superblock_error(path)(SuperblockError::Io(error)))?;
    }
    match foreign_data(&start) {
        Some(what) => Err(NodeError::ForeignData { path: path.to_owned(), what: what.to_owned() }),
        None => Ok(()),
    }
}

/// Names what the start of a drive looks like; `None` if it is all zeros.
fn foreign_data(start: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(usize, &[u8], &str); 12] = [
        (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
        (0, b"bluestore block device", "a Ceph BlueStore device"),
        (0x218, b"LVM2 001", "an LVM physical volume"),
        (0x200, b"EFI PART", "a GPT partition table"),
        (0, b"LUKS\xba\xbe", "a LUKS encrypted device"),
        (0xff6, b"SWAPSPACE2", "swap space"),
        (0x1000, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux RAID"),
        (0, b"QFI\xfb", "a QCOW2 image"),
        (3, b"NTFS    ", "an NTFS file system"),
        (0x1fe, &[0x55, 0xaa], "a partition table or boot sector"),
    ];
    let found = SIGNATURES.iter().find(|(at, magic, _)| start.get(*at..*at + magic.len()) == Some(*magic));
    match found {
        Some((_, _, what)) => Some(what),
        None => start.iter().any(|byte| *byte != 0).then_some("data of an unknown kind"),
    }
}

/// What `check` found.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// File or device.
    #[serde(serialize_with = "as_shown")]
    pub path: PathBuf,
    /// Whether nothing is wrong.
    pub clean: bool,
    /// Why nothing could be looked at.
    pub error: Option<String>,
    /// Per shard.
    pub shards: Vec<CheckedShard>,
}

/// What `check` found in a shard.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedShard {
    /// Its number.
    pub shard: u32,
    /// Why it cannot be opened, or what contradicts itself.
    pub error: Option<String>,
    /// Bytes compared with their checksums.
    pub checked_bytes: u64,
    /// Blocks that are bad.
    pub bad_blocks: u64,
    /// The first of them.
    pub bad: Vec<BadBlock>,
    /// Layers with data.
    pub layers: u64,
    /// Log entries behind the last checkpoint.
    pub replayed_entries: u64,
}

/// A bad block.
#[derive(Clone, Debug, Serialize)]
pub struct BadBlock {
    /// Layer; `volume info` shows a volume's.
    pub layer: u64,
    /// First byte within the volume.
    pub volume_offset_bytes: u64,
    /// First byte on the drive.
    pub drive_offset_bytes: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.clean
    }
}

impl std::fmt::Display for CheckReport {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(error) = &self.error {
            return write!(formatter, "drive {}: {error}", self.path.display());
        }
        for (index, shard) in self.shards.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            write!(
                formatter,
                "shard {}: {} checked, {} layer(s), {} log entries replayed, {} bad block(s)",
                shard.shard,
                format_size_bytes(shard.checked_bytes),
                shard.layers,
                shard.replayed_entries,
                shard.bad_blocks
            )?;
            if let Some(error) = &shard.error {
                write!(formatter, "\n  error: {error}")?;
            }
            for bad in &shard.bad {
                let BadBlock { layer, volume_offset_bytes, drive_offset_bytes } = bad;
                write!(
                    formatter,
                    "\n  bad: layer {layer}, byte {volume_offset_bytes} of the volume, byte {drive_offset_bytes} of the drive"
                )?;
            }
        }
        Ok(())
    }
}

/// Reads everything on a drive that nobody uses. `progress(done_bytes, total_bytes)`.
pub fn check(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, NodeError> {
    let file = DriveFile::open(path, DriveOptions { read_only: true, ..DriveOptions::default() })?;
    let mut in_blocks =
        |done: u64, total: u64| progress(done * BLOCK_BYTES as u64, total * BLOCK_BYTES as u64);
    let report = check_drive(&mut SyncDevice::new(&file), &mut in_blocks);
    let shards = report.shards.iter().map(checked_shard).collect();
    Ok(CheckReport { path: path.to_owned(), clean: report.is_clean(), error: report.error.clone(), shards })
}

fn checked_shard(shard: &coquina_engine::ShardReport) -> CheckedShard {
    let bad = shard.bad_blocks.iter().map(|bad| BadBlock {
        layer: bad.layer.0,
        volume_offset_bytes: u64::from(bad.chunk) * coquina_base::CHUNK_BYTES
            + u64::from(bad.block) * BLOCK_BYTES as u64,
        drive_offset_bytes: bad.offset_bytes,
    });
    CheckedShard {
        shard: shard.shard,
        error: shard.error.clone(),
        checked_bytes: shard.blocks * BLOCK_BYTES as u64,
        bad_blocks: shard.bad_count,
        bad: bad.collect(),
        layers: shard.layers,
        replayed_entries: shard.replayed_entries,
    }
}
