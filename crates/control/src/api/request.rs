//! What operators ask for.

use coquina_base::VolumeId;
use serde::{Deserialize, Serialize};

/// Asks for a new volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name.
    pub name: String,
    /// Its size, which is rounded up to whole blocks of 4 KiB.
    pub size_bytes: u64,
    /// Its pool. Without one: the only pool of that many copies, or a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Copies; a pool that is given has to have so many. Without either: the only pool, or a new one with up to three copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Bytes that go to one chunk before the next of the stripe is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe_unit_bytes: Option<u32>,
    /// Chunks that are filled at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe_count: Option<u32>,
}

/// Asks for another size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// The new size.
    pub size_bytes: u64,
    /// Whether data may be cut off.
    #[serde(default)]
    pub allow_shrink: bool,
    /// Whether data may be cut off although there are, or may be, connections.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// Asks for another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameVolume {
    /// The new name.
    pub new_name: String,
}

/// Asks for removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveVolume {
    /// Remove it although it has connections.
    #[serde(default)]
    pub force: bool,
}

/// Asks for a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubDrives {
    /// Path or identity of a drive, or the beginning of its identity; all drives if missing.
    #[serde(default)]
    pub drive: Option<String>,
    /// Only drives of the node that is asked.
    #[serde(default)]
    pub local_only: bool,
}

/// Asks for a drive to be taken out of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveDrive {
    /// Path or identity of a drive, or the beginning of its identity; `NODE:PATH` if several nodes have that path.
    pub drive: String,
    /// It is lost for good: nothing is read from it, its copies are made anew from others.
    #[serde(default)]
    pub lost: bool,
    /// Give up data that has its only good copy on it, if it is missing; the volumes of such pools are removed.
    #[serde(default)]
    pub lose_data: bool,
    /// The volumes that may be removed with such data, as a dry run has told them: refused if there are others by now. Any that
    /// there are without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<VolumeId>>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Let the drive stay after all, if its data is being moved away.
    #[serde(default)]
    pub cancel: bool,
}

/// Asks for a drive to be used by the node that is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddDrive {
    /// `PATH[:SIZE]`: a file, made with that size if it is missing, or a block device.
    pub path: String,
    /// Use it although it holds something else, which is lost.
    #[serde(default)]
    pub force: bool,
    /// The node, by name or identity; the one that is asked without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Asks for another share of the data for a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReweightDrive {
    /// As in [`RemoveDrive`].
    pub drive: String,
    /// Its weight, in any unit that is the same for all drives; MiB of capacity if nobody says otherwise. 0 takes none.
    pub weight: u64,
}

/// Asks for a new pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// Copies of each block.
    pub copies: u32,
    /// Writes are refused while fewer copies are in sync; 2 of 3 and 1 of 2 without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_copies: Option<u32>,
    /// No two copies in the same `drive`, `node` or label of nodes; `node` without, or `drive` on a single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Placement groups: a power of two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
}

/// Asks for a pool's removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovePool {}

/// Asks for a node to be taken out of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveNode {
    /// Name or identity.
    pub node: String,
    /// It is lost for good, with its drives.
    #[serde(default)]
    pub lost: bool,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Let the node stay after all.
    #[serde(default)]
    pub cancel: bool,
}

/// Sets what volume sizes, times copies, may add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetOvercommit {
    /// In percent of the capacity.
    pub percent: u32,
}

/// Gives up what drives hold of volumes that the map lost when it was put back to an older state. Each node deletes what it has of
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForgetLost {
    /// Only say what would be deleted.
    #[serde(default)]
    pub dry_run: bool,
}

/// Asks the server to stop cleanly, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {}
