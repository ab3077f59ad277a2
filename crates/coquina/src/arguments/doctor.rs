//! `coquina doctor`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
#[command(after_help = "\
Examples:
  coquina doctor                                      look at this host and all of its drives
  coquina doctor --drive /dev/nvme1n1 --drive /dev/sdb
  coquina doctor --folder /srv/coquina                a folder for drive files, too
  sudo coquina doctor --apply                         change what can be put back; prints how to
  sudo coquina doctor --drive /dev/sdb --apply        of this drive only, and nothing else of the host
  coquina doctor --json
--apply sets schedulers, read-ahead, swappiness, the CPU governor and huge pages, and reads them back. It lasts until \
the host starts again. With --drive it sets the schedulers and read-ahead of these drives only. It does not touch what may lose data, cut off the network or use up memory: for that there are \
only the commands.
Exit codes: 0 nothing worse than a warning, 1 a problem (Coquina cannot run like this) or a change that failed, 2 wrong \
usage. What cannot be read is shown as not known, and is no problem.")]
pub struct Doctor {
    /// A block device, which is looked at itself, whatever is behind it, or a file or folder on a drive; repeat it for
    /// more [default: all drives]
    #[arg(long, value_name = "PATH")]
    pub drive: Vec<PathBuf>,
    /// A folder in which drive files are, or will be
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Change what can be put back, and print what puts it back; needs root
    #[arg(long)]
    pub apply: bool,
}
