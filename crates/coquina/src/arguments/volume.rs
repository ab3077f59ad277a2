//! `coquina volume` and `coquina pool`.

use clap::Subcommand;
use coquina_cluster::STRIPE_COUNT_MAX;

use super::{Interval, size, whole};

#[derive(Subcommand)]
pub enum Volume {
    /// Make a volume
    #[command(after_help = "\
Examples:
  coquina volume create disk --size 10G
  coquina volume create disk --size 10G --copies 2
  coquina volume create disk --size 10G --pool safe --stripe-unit 64K --stripe-count 8
Without --pool the only pool is taken; the first volume makes one, with up to 3 copies on different nodes.")]
    Create {
        /// 1 to 63 characters out of a-z, A-Z, 0-9, '.', '_' and '-', the first a letter or digit
        name: String,
        /// Size, such as 512M, 10G or 1.5TiB; rounded up to whole blocks of 4 KiB
        #[arg(long, value_parser = size, allow_hyphen_values = true)]
        size: u64,
        /// Pool that decides how many copies there are and where
        #[arg(long)]
        pool: Option<String>,
        /// Copies of each block: takes the pool with so many, or makes one
        #[arg(long, value_name = "N", conflicts_with = "pool", value_parser = whole::<u32>(1..=8), allow_negative_numbers = true)]
        copies: Option<u32>,
        /// Bytes that go to one chunk before the next of the stripe is used
        #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true, requires = "stripe_count")]
        stripe_unit: Option<u64>,
        /// Chunks that are filled at the same time
        #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=STRIPE_COUNT_MAX), allow_negative_numbers = true, requires = "stripe_unit")]
        stripe_count: Option<u32>,
    },
    /// List volumes with their live I/O
    #[command(after_help = "Example:\n  coquina volume list --json")]
    List(Interval),
    /// Show one volume, and where its copies are
    #[command(after_help = "Example:\n  coquina volume info disk")]
    Info {
        /// Its name
        name: String,
    },
    /// Show how much volumes take of the drives: of all that is asked for, what is written
    #[command(after_help = "\
Examples:
  coquina volume du
  coquina volume du disk --json
Reads what is mapped of each volume, not its data. What is written or trimmed meanwhile may be missing.")]
    Du {
        /// Their names [default: all volumes]
        names: Vec<String>,
    },
    /// Grow or shrink a volume. Shrinking loses the data beyond the new end and asks first
    #[command(
        after_help = "Examples:\n  coquina volume resize disk --size 20G\n  coquina volume resize disk --size 5G --yes"
    )]
    Resize {
        /// Its name
        name: String,
        /// The new size
        #[arg(long, value_parser = size, allow_hyphen_values = true)]
        size: u64,
        /// Shrink without asking
        #[arg(long, short)]
        yes: bool,
        /// Shrink it although it has connections
        #[arg(long)]
        force: bool,
    },
    /// Give a volume another name
    #[command(after_help = "Example:\n  coquina volume rename disk old-disk")]
    Rename {
        /// Its name
        name: String,
        /// Its new name
        new_name: String,
    },
    /// Remove a volume and its data; asks first
    #[command(
        after_help = "Examples:\n  coquina volume remove disk\n  coquina volume remove disk --yes --force"
    )]
    Remove {
        /// Its name
        name: String,
        /// Remove it without asking
        #[arg(long, short)]
        yes: bool,
        /// Remove it although it has connections
        #[arg(long)]
        force: bool,
    },
    /// Give up what drives hold of volumes that the map lost when it was put back to an older state; asks first
    #[command(after_help = "\
Examples:
  coquina volume forget-lost
  coquina volume forget-lost --yes --json
`coquina status` tells of such volumes (LOST_VOLUMES). They have no names any more, and are called by their layers.
If there is a newer state of the map, bring that back instead.")]
    ForgetLost {
        /// Delete it without asking
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Subcommand)]
pub enum Pool {
    /// Make a pool
    #[command(after_help = "\
Examples:
  coquina pool create safe --copies 3
  coquina pool create wide --copies 3 --min-copies 2 --domain rack --groups 256")]
    Create {
        /// 1 to 63 characters out of a-z, A-Z, 0-9, '.', '_' and '-', the first a letter or digit
        name: String,
        /// Copies of each block
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>(1..=8))]
        copies: u32,
        /// Refuse writes while fewer copies are in sync [default: more than half of 3 or more copies, else 1]
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>(1..=8))]
        min_copies: Option<u32>,
        /// No two copies are in the same of these: drive, node, or a label of nodes such as host or rack
        /// [default: node, or drive where there is one node]
        #[arg(long)]
        domain: Option<String>,
        /// Placement groups, a power of two [default: by the number of drives]
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>(1..=262_144))]
        groups: Option<u32>,
    },
    /// List pools
    #[command(after_help = "Examples:\n  coquina pool list\n  coquina pool list --json")]
    List,
    /// Remove a pool that has no volumes
    #[command(after_help = "Example:\n  coquina pool remove old")]
    Remove {
        /// Its name
        name: String,
    },
}
