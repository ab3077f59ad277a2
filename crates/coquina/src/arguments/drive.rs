//! `coquina drive`.

use std::path::PathBuf;

use clap::Subcommand;
use coquina_engine::geometry::{COPY_SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};

use super::{size, whole};

fn segment_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..COPY_SEGMENT_BYTES_MIN).contains(&bytes) => {
            Err("a segment is at least 256K: what other copies send must fit a part of one".to_owned())
        }
        bytes if bytes.is_power_of_two() && (COPY_SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) => {
            Ok(bytes)
        }
        _ => Err("a segment is a power of two from 256K to 256M".to_owned()),
    }
}

/// Reads a share of the data: shares are counted in MiB, and a part of one would be none at all.
fn share(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if (1..1 << 20).contains(&bytes) => {
            Err("a weight is a capacity of at least 1M, or 0 to move everything away".to_owned())
        }
        bytes => Ok(bytes),
    }
}

#[derive(Subcommand)]
pub enum Drive {
    /// Format a drive for the local folder's cluster, ahead of `coquina up --drive`
    #[command(
        after_help = "Examples:\n  coquina drive format /srv/drive1:100G\n  coquina drive format /dev/nvme1n1 --shards 2"
    )]
    Format {
        /// File or block device, with the size of a file to make
        #[arg(value_name = "PATH[:SIZE]")]
        drive: String,
        /// Shards: each has its own log and can use its own core
        #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1..=64), allow_negative_numbers = true)]
        shards: u32,
        /// Size of a segment, a power of two from 256K to 256M [default: by the size of the drive]
        #[arg(long, value_parser = segment_size, allow_hyphen_values = true)]
        segment: Option<u64>,
        /// Format it even if it holds something else. What it holds is lost
        #[arg(long)]
        force: bool,
    },
    /// Add a drive to a running node, and move its share of the data to it
    #[command(after_help = "\
Examples:
  coquina drive add /dev/nvme2n1
  coquina drive add /srv/drive1:100G --node a
The path is one of the node's host.")]
    Add {
        /// File or block device, with the size of a file to make
        #[arg(value_name = "PATH[:SIZE]")]
        drive: String,
        /// Which node gets it; needed where a process without drives is asked [default: the one that is asked]
        #[arg(long)]
        node: Option<String>,
        /// Format it even if it holds something else. What it holds is lost
        #[arg(long)]
        force: bool,
    },
    /// Change a drive's share of the data
    #[command(after_help = "\
Examples:
  coquina drive reweight /dev/nvme1n1 --weight 500G
  coquina drive reweight 3f9a2c41 --weight 0        moves everything away
A drive's weight is its capacity unless it is changed.")]
    Reweight {
        /// Path, identity, or the beginning of its identity, as `coquina drive list` shows them
        drive: String,
        /// Its share, as if it had this capacity
        #[arg(long, value_parser = share, allow_hyphen_values = true)]
        weight: u64,
    },
    /// List the drives of the cluster
    #[command(after_help = "Examples:\n  coquina drive list\n  coquina drive list --json")]
    List,
    /// Move the data of a drive to others, then forget the drive; asks first
    #[command(after_help = "\
Examples:
  coquina drive remove /dev/nvme1n1
  coquina drive remove 3f9a2c41 --yes --no-wait
  coquina drive remove /srv/drive1 --lost           when it never comes back: its copies are made anew elsewhere
  coquina drive remove /srv/drive1 --lose-data      also if it had the only copy of something
Refused where the others could not keep the copies apart, or where it has the last good copy of something. What the
drive itself holds is not erased: do not name it with --drive again, unless it is to come back.")]
    Remove {
        /// Path, identity, or the beginning of its identity, as `coquina drive list` shows them
        drive: String,
        /// It is gone for good: do not wait for it, and do not take it back
        #[arg(long)]
        lost: bool,
        /// As --lost, also if it had the last good copy of something: those volumes are removed
        #[arg(long)]
        lose_data: bool,
        /// Let it stay after all, if its data is still being moved away
        #[arg(long, conflicts_with_all = ["lost", "lose_data"])]
        cancel: bool,
        /// Remove it without asking
        #[arg(long, short)]
        yes: bool,
        /// Start it and return
        #[arg(long)]
        no_wait: bool,
    },
    /// Show what a drive says about itself
    #[command(after_help = "Example:\n  coquina drive info ./coquina-data/drive0")]
    Info {
        /// File or block device
        path: PathBuf,
    },
    /// Read and check every block of a running server's drives, at a limited rate
    #[command(
        after_help = "Examples:\n  coquina drive scrub\n  coquina drive scrub --drive /dev/nvme1n1 --no-wait"
    )]
    Scrub {
        /// Path, identity, or the beginning of its identity [default: all drives]
        #[arg(long)]
        drive: Option<String>,
        /// Start it and return
        #[arg(long)]
        no_wait: bool,
    },
    /// Verify a stopped drive end to end and say what is wrong
    #[command(after_help = "Example:\n  coquina drive check ./coquina-data/drive0")]
    Check {
        /// File or block device
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::segment_size;

    /// A copy on a drive with smaller ones stopped at the first large write: it could not take what was one entry elsewhere.
    #[test]
    fn segments_are_large_enough_for_what_other_copies_send() {
        for small in ["64K", "128K"] {
            assert!(segment_size(small).is_err_and(|error| error.contains("at least 256K")));
        }
        assert_eq!(segment_size("256K"), Ok(256 << 10));
        assert_eq!(segment_size("256M"), Ok(256 << 20));
        assert!(segment_size("300K").is_err() && segment_size("512M").is_err());
    }
}
