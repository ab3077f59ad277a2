//! Superblocks: who a drive belongs to, how it is laid out, and where each shard's last checkpoint is.
//!
//! Invariants:
//! - each superblock is kept twice and written alternately, so that a torn write leaves the older one;
//! - a newer format or an unknown incompatible feature bit refuses the drive; unknown compatible bits are kept.

use coquina_base::{
    AlignedBuf, BLOCK_BYTES, ClusterId, DriveId, NodeId, crc32c_bytes, format_least_size_bytes,
    format_size_bytes,
};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::api::{Device, FormatOptions, Identity, IoError};
use crate::checkpoint::root_fits;
use crate::geometry::{
    DRIVE_HEAD_BYTES, Geometry, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MIN, SHARD_HEAD_BYTES,
    SHARDS_MAX, SUPERBLOCK_B_OFFSET_BYTES, choose_segment_bytes,
};

/// Version of everything on a drive.
pub const FORMAT_VERSION: u32 = 2;
/// Incompatible feature bits that this program knows.
pub const INCOMPATIBLE_KNOWN: u64 = 0;
/// Compatible feature bit of a shard: its log was once cut where it was damaged, so that all may be lost of a placement group of
/// which nothing is known.
pub const COMPATIBLE_CUT: u64 = 1;
/// Compatible feature bit of a shard: no checkpoint is complete yet that says which placement groups are not to be trusted since
/// the cut: none is.
pub const COMPATIBLE_CUTTING: u64 = 2;
/// Incarnations since the last checkpoint that a shard superblock can name.
pub const INCARNATIONS_MAX: usize = 128;

const DRIVE_MAGIC: [u8; 8] = *b"COQDRIVE";
const SHARD_MAGIC: [u8; 8] = *b"COQSHARD";
const FLAG_PREWRITE: u32 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
struct DriveRecord {
    magic: [u8; 8],
    format_version: U32,
    crc: U32,
    incompatible: U64,
    compatible: U64,
    cluster: ClusterId,
    node: NodeId,
    drive: DriveId,
    generation: U64,
    size_bytes: U64,
    segment_bytes: U64,
    shard_bytes: U64,
    shards: U32,
    flags: U32,
    created_unix_ns: U64,
}

/// A drive's superblock, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriveSuperblock {
    /// Whose drive it is.
    pub identity: Identity,
    /// Which write of the superblock this is.
    pub generation: u64,
    /// Bytes of the drive in use.
    pub size_bytes: u64,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Size of each shard, its head included.
    pub shard_bytes: u64,
    /// How many shards.
    pub shards: u32,
    /// Whether space must be written once before use.
    pub prewrite: bool,
    /// For display only.
    pub created_unix_ns: u64,
    /// Version of the format that it was written in.
    pub format_version: u32,
    /// Compatible feature bits, of which this program knows none: kept when it is written again.
    pub compatible: u64,
}

/// Why a drive cannot be formatted or its superblock not be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    /// Nothing of Coquina's is there.
    #[error("it holds no Coquina superblock: format it first, or name another drive")]
    Missing,
    /// Something is there, but both copies are damaged.
    #[error("both copies of its superblock are damaged ({0}); its data cannot be found without one")]
    Damaged(&'static str),
    /// A newer program wrote it.
    #[error("its format is version {found}, this program knows up to {FORMAT_VERSION}: use a newer program")]
    Newer {
        /// The version found.
        found: u32,
    },
    /// A program from before the first release wrote it.
    #[error(
        "its format is version {found}, from before the first release, and this program reads {FORMAT_VERSION} only: copy its \
         volumes with the program that wrote it, and format it again"
    )]
    Older {
        /// The version found.
        found: u32,
    },
    /// It uses features that this program does not know.
    #[error("it uses features that this program does not know (bits {0:#x}): use a newer program")]
    Features(u64),
    /// The drive has become smaller than it was when it was formatted.
    #[error(
        "it has {} less than the {} that it was formatted with: the file or device was cut off",
        format_size_bytes(formatted.saturating_sub(*actual)),
        format_size_bytes(*formatted)
    )]
    Shrunk {
        /// Bytes there.
        actual: u64,
        /// Bytes expected.
        formatted: u64,
    },
    /// The drive is too small for a shard.
    #[error(
        "it has {}; {} are the least for this number of shards and segment size",
        format_size_bytes(*actual),
        format_least_size_bytes(*needed)
    )]
    TooSmall {
        /// Bytes there.
        actual: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// The wished geometry is not possible.
    #[error("{0}")]
    Geometry(&'static str),
    /// The drive failed.
    #[error("reading or writing its superblock failed (errno {}{})", .0.0, hint(*.0))]
    Io(IoError),
}

/// What an error number most likely means to whoever reads it.
fn hint(error: IoError) -> &'static str {
    match error.0 {
        1 | 30 => ": the device is read-only, or may not be written; make it writable",
        5 => ": the device has failed; look at the kernel's log",
        _ => "",
    }
}

impl SuperblockError {
    /// Whether another program can read the drive.
    fn is_of_another_program(&self) -> bool {
        matches!(
            self,
            SuperblockError::Newer { .. } | SuperblockError::Older { .. } | SuperblockError::Features(_)
        )
    }
}

impl From<IoError> for SuperblockError {
    fn from(error: IoError) -> Self {
        SuperblockError::Io(error)
    }
}

fn checksum_of(block: &[u8], crc_offset: usize) -> u32 {
    let mut copy = [0; BLOCK_BYTES];
    copy.copy_from_slice(block);
    copy[crc_offset..crc_offset + 4].fill(0);
    crc32c_bytes(&copy)
}

const CRC_OFFSET: usize = 12;

impl DriveSuperblock {
    /// Geometry of one of the drive's shards.
    pub fn geometry(&self, shard: u32) -> Geometry {
        assert!(shard < self.shards, "shard {shard} of {}", self.shards);
        Geometry {
            shard_offset_bytes: DRIVE_HEAD_BYTES + u64::from(shard) * self.shard_bytes,
            segment_blocks: (self.segment_bytes / BLOCK_BYTES as u64) as u32,
            segments: ((self.shard_bytes - SHARD_HEAD_BYTES) / self.segment_bytes) as u32,
        }
    }

    fn encode(&self) -> AlignedBuf {
        let record = DriveRecord {
            magic: DRIVE_MAGIC,
            format_version: FORMAT_VERSION.into(),
            crc: 0.into(),
            incompatible: 0.into(),
            compatible: self.compatible.into(),
            cluster: self.identity.cluster,
            node: self.identity.node,
            drive: self.identity.drive,
            generation: self.generation.into(),
            size_bytes: self.size_bytes.into(),
            segment_bytes: self.segment_bytes.into(),
            shard_bytes: self.shard_bytes.into(),
            shards: self.shards.into(),
            flags: if self.prewrite { FLAG_PREWRITE } else { 0 }.into(),
            created_unix_ns: self.created_unix_ns.into(),
        };
        seal(record.as_bytes())
    }

    fn decode(block: &[u8]) -> Result<Self, SuperblockError> {
        let (record, _) =
            DriveRecord::read_from_prefix(block).map_err(|_| SuperblockError::Damaged("too short"))?;
        check_common(
            block,
            record.magic == DRIVE_MAGIC,
            record.format_version.get(),
            record.incompatible.get(),
        )?;
        let superblock = DriveSuperblock {
            identity: Identity { cluster: record.cluster, node: record.node, drive: record.drive },
            generation: record.generation.get(),
            size_bytes: record.size_bytes.get(),
            segment_bytes: record.segment_bytes.get(),
            shard_bytes: record.shard_bytes.get(),
            shards: record.shards.get(),
            prewrite: record.flags.get() & FLAG_PREWRITE != 0,
            created_unix_ns: record.created_unix_ns.get(),
            format_version: record.format_version.get(),
            compatible: record.compatible.get(),
        };
        superblock.check_geometry()?;
        Ok(superblock)
    }

    fn check_geometry(&self) -> Result<(), SuperblockError> {
        let segment_ok = self.segment_bytes.is_power_of_two()
            && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes);
        let shards_ok = (1..=SHARDS_MAX).contains(&self.shards);
        if !segment_ok || !shards_ok {
            return Err(SuperblockError::Damaged("impossible geometry"));
        }
        let room = self.size_bytes.saturating_sub(DRIVE_HEAD_BYTES) / u64::from(self.shards);
        let least = SHARD_HEAD_BYTES + SEGMENTS_MIN * self.segment_bytes;
        if self.shard_bytes > room || self.shard_bytes < least || self.shard_bytes % BLOCK_BYTES as u64 != 0 {
            return Err(SuperblockError::Damaged("impossible geometry"));
        }
        Ok(())
    }

    /// Lays a drive out and writes its superblocks and an empty checkpoint for each shard.
    ///
    /// The drive counts as formatted only when this has returned: the first copy is written last.
    pub fn format(device: &mut dyn Device, options: &FormatOptions) -> Result<Self, SuperblockError> {
        let superblock = Self::plan(device.size_bytes(), options)?;
        for shard in 0..superblock.shards {
            let offset_bytes = superblock.geometry(shard).shard_offset_bytes;
            let mut empty = ShardSuperblock::empty(superblock.identity.drive, shard);
            device.write(offset_bytes, &empty.encode())?;
            empty.generation += 1;
            device.write(offset_bytes + SUPERBLOCK_B_OFFSET_BYTES, &empty.encode())?;
        }
        device.write(SUPERBLOCK_B_OFFSET_BYTES, &superblock.encode())?;
        device.write(0, &superblock.encode())?;
        device.sync()?;
        Ok(superblock)
    }

    /// Whether a drive of this size can be formatted like this.
    pub fn check_size(size_bytes: u64, options: &FormatOptions) -> Result<(), SuperblockError> {
        Self::plan(size_bytes, options).map(drop)
    }

    fn plan(size_bytes: u64, options: &FormatOptions) -> Result<Self, SuperblockError> {
        if !(1..=SHARDS_MAX).contains(&options.shards) {
            return Err(SuperblockError::Geometry("a drive has 1 to 64 shards"));
        }
        let shards = u64::from(options.shards);
        let room = size_bytes.saturating_sub(DRIVE_HEAD_BYTES) / shards;
        let segment_bytes =
            if options.segment_bytes == 0 { choose_segment_bytes(room) } else { options.segment_bytes };
        if !segment_bytes.is_power_of_two()
            || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes)
        {
            return Err(SuperblockError::Geometry("a segment is a power of two from 64 KiB to 256 MiB"));
        }
        let segments = room.saturating_sub(SHARD_HEAD_BYTES) / segment_bytes;
        if segments < SEGMENTS_MIN {
            let needed = DRIVE_HEAD_BYTES + shards * (SHARD_HEAD_BYTES + SEGMENTS_MIN * segment_bytes);
            return Err(SuperblockError::TooSmall { actual: size_bytes, needed });
        }
        if !root_fits((segment_bytes / BLOCK_BYTES as u64) as u32, segments) {
            return Err(SuperblockError::Geometry(
                "with so many segments a checkpoint would not end, for one of them has to hold the list of all its parts: choose larger \
                 segments or more shards, or leave their size to the program",
            ));
        }
        Ok(DriveSuperblock {
            identity: options.identity,
            generation: 1,
            size_bytes,
            segment_bytes,
            shard_bytes: SHARD_HEAD_BYTES + segments * segment_bytes,
            shards: options.shards,
            prewrite: options.prewrite,
            created_unix_ns: options.created_unix_ns,
            format_version: FORMAT_VERSION,
            compatible: 0,
        })
    }

    /// Reads a drive's superblock; a damaged copy is passed over where the other is good.
    pub fn read(device: &mut dyn Device) -> Result<Self, SuperblockError> {
        let superblock = read_pair(device, 0, Self::decode, |superblock| superblock.generation)?;
        if device.size_bytes() < superblock.size_bytes {
            return Err(SuperblockError::Shrunk {
                actual: device.size_bytes(),
                formatted: superblock.size_bytes,
            });
        }
        Ok(superblock)
    }
}

fn seal(record: &[u8]) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(1);
    buffer[..record.len()].copy_from_slice(record);
    let crc = checksum_of(&buffer, CRC_OFFSET);
    buffer[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
    buffer
}

fn check_common(
    block: &[u8],
    magic_ok: bool,
    version: u32,
    incompatible: u64,
) -> Result<(), SuperblockError> {
    if !magic_ok {
        return Err(SuperblockError::Missing);
    }
    let stored = u32::from_le_bytes([block[12], block[13], block[14], block[15]]);
    if stored != checksum_of(block, CRC_OFFSET) {
        return Err(SuperblockError::Damaged("wrong checksum"));
    }
    if version > FORMAT_VERSION {
        return Err(SuperblockError::Newer { found: version });
    }
    if version < FORMAT_VERSION {
        return Err(SuperblockError::Older { found: version });
    }
    if incompatible & !INCOMPATIBLE_KNOWN != 0 {
        return Err(SuperblockError::Features(incompatible & !INCOMPATIBLE_KNOWN));
    }
    Ok(())
}

fn read_pair<T>(
    device: &mut dyn Device,
    offset_bytes: u64,
    decode: fn(&[u8]) -> Result<T, SuperblockError>,
    generation: fn(&T) -> u64,
) -> Result<T, SuperblockError> {
    let size_bytes = device.size_bytes();
    let mut copy = |offset: u64| {
        if offset + BLOCK_BYTES as u64 > size_bytes {
            return Err(SuperblockError::Missing);
        }
        let mut buffer = AlignedBuf::zeroed(1);
        device.read(offset, &mut buffer)?;
        decode(&buffer)
    };
    match (copy(offset_bytes), copy(offset_bytes + SUPERBLOCK_B_OFFSET_BYTES)) {
        (Ok(a), Ok(b)) => Ok(if generation(&a) >= generation(&b) { a } else { b }),
        // Written by a newer program, that of the other copy perhaps before.
        (_, Err(refused)) | (Err(refused), _) if refused.is_of_another_program() => Err(refused),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(SuperblockError::Missing), Err(other)) | (Err(other), Err(_)) => Err(other),
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
struct IncarnationRecord {
    incarnation: U64,
    first_frame: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
struct ShardRecord {
    magic: [u8; 8],
    format_version: U32,
    crc: U32,
    incompatible: U64,
    compatible: U64,
    drive: DriveId,
    shard: U32,
    incarnation_count: U32,
    generation: U64,
    checkpoint: U64,
    root_location: U64,
    root_bytes: U32,
    root_crc: U32,
    incarnations: [IncarnationRecord; INCARNATIONS_MAX],
}

/// Which mount wrote the frames from a number on. A frame of another mount is stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incarnation {
    /// Number of the mount, rising.
    pub incarnation: u64,
    /// Its first frame.
    pub first_frame: u64,
}

/// A shard's superblock, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardSuperblock {
    /// The drive it belongs to.
    pub drive: DriveId,
    /// Its number on the drive.
    pub shard: u32,
    /// Which write of the superblock this is; its parity chooses the copy.
    pub generation: u64,
    /// Number of the last complete checkpoint; 0 means an empty shard.
    pub checkpoint: u64,
    /// Location of the checkpoint's root.
    pub root_location: u64,
    /// Length of the root.
    pub root_bytes: u32,
    /// CRC32C of the root.
    pub root_crc: u32,
    /// Mounts since the checkpoint, in order.
    pub incarnations: Vec<Incarnation>,
    /// Compatible feature bits. Those that this program does not know are kept when it is written again.
    pub compatible: u64,
}

impl ShardSuperblock {
    fn empty(drive: DriveId, shard: u32) -> Self {
        ShardSuperblock {
            drive,
            shard,
            generation: 0,
            checkpoint: 0,
            root_location: 0,
            root_bytes: 0,
            root_crc: 0,
            incarnations: Vec::new(),
            compatible: 0,
        }
    }

    /// The block to be written at [`ShardSuperblock::offset_bytes`].
    pub fn encode(&self) -> AlignedBuf {
        assert!(self.incarnations.len() <= INCARNATIONS_MAX, "too many incarnations");
        let mut incarnations =
            [IncarnationRecord { incarnation: 0.into(), first_frame: 0.into() }; INCARNATIONS_MAX];
        for (record, incarnation) in incarnations.iter_mut().zip(&self.incarnations) {
            record.incarnation = incarnation.incarnation.into();
            record.first_frame = incarnation.first_frame.into();
        }
        let record = ShardRecord {
            magic: SHARD_MAGIC,
            format_version: FORMAT_VERSION.into(),
            crc: 0.into(),
            incompatible: 0.into(),
            compatible: self.compatible.into(),
            drive: self.drive,
            shard: self.shard.into(),
            incarnation_count: (self.incarnations.len() as u32).into(),
            generation: self.generation.into(),
            checkpoint: self.checkpoint.into(),
            root_location: self.root_location.into(),
            root_bytes: self.root_bytes.into(),
            root_crc: self.root_crc.into(),
            incarnations,
        };
        seal(record.as_bytes())
    }

    fn decode(block: &[u8]) -> Result<Self, SuperblockError> {
        let (record, _) =
            ShardRecord::read_from_prefix(block).map_err(|_| SuperblockError::Damaged("too short"))?;
        check_common(
            block,
            record.magic == SHARD_MAGIC,
            record.format_version.get(),
            record.incompatible.get(),
        )?;
        let count = record.incarnation_count.get() as usize;
        if count > INCARNATIONS_MAX {
            return Err(SuperblockError::Damaged("impossible number of mounts"));
        }
        Ok(ShardSuperblock {
            drive: record.drive,
            shard: record.shard.get(),
            generation: record.generation.get(),
            checkpoint: record.checkpoint.get(),
            root_location: record.root_location.get(),
            root_bytes: record.root_bytes.get(),
            root_crc: record.root_crc.get(),
            incarnations: record.incarnations[..count]
                .iter()
                .map(|record| Incarnation {
                    incarnation: record.incarnation.get(),
                    first_frame: record.first_frame.get(),
                })
                .collect(),
            compatible: record.compatible.get(),
        })
    }

    /// Where this generation is written on the drive: the copies take turns.
    pub fn offset_bytes(&self, geometry: &Geometry) -> u64 {
        geometry.shard_offset_bytes + (self.generation % 2) * SUPERBLOCK_B_OFFSET_BYTES
    }

    /// Reads a shard's superblock.
    pub fn read(device: &mut dyn Device, geometry: &Geometry) -> Result<Self, SuperblockError> {
        match read_pair(device, geometry.shard_offset_bytes, Self::decode, |superblock| superblock.generation)
        {
            Err(SuperblockError::Missing) => Err(SuperblockError::Damaged("no shard superblock")),
            other => other,
        }
    }

    /// The mount that owns a frame number.
    pub fn owner(&self, frame_number: u64) -> Option<u64> {
        let owner =
            self.incarnations.iter().rev().find(|incarnation| incarnation.first_frame <= frame_number);
        owner.map(|incarnation| incarnation.incarnation)
    }

    /// Notes a new mount that starts with this frame; mounts that wrote nothing are forgotten.
    pub fn begin_incarnation(&mut self, first_frame: u64) -> u64 {
        let incarnation = self.incarnations.last().map_or(1, |last| last.incarnation + 1);
        self.incarnations.retain(|old| old.first_frame < first_frame);
        self.incarnations.push(Incarnation { incarnation, first_frame });
        incarnation
    }
}

#[cfg(test)]
mod tests;
