//! Bytes written to the drive under a file, from `/proc/diskstats`. They count everything on that drive, whoever wrote it.

use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Size of a sector in `/proc/diskstats`, whatever the drive's own.
const DISKSTATS_SECTOR_BYTES: u64 = 512;

/// The counter of one drive or partition.
#[derive(Clone, Debug)]
pub struct DriveCounter {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Its name, such as `vda`.
    pub name: String,
}

impl DriveCounter {
    /// The drive that holds a file, or that is the device itself. `None` where the file system has no single drive.
    pub fn under(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let device =
            if metadata.file_type().is_block_device() { metadata.st_rdev() } else { metadata.st_dev() };
        let (major, minor) = (libc::major(device), libc::minor(device));
        let text = std::fs::read_to_string("/proc/diskstats").ok()?;
        let (name, _) = find(&text, major, minor)?;
        Some(DriveCounter { major, minor, name: name.to_owned() })
    }

    /// Bytes written since the machine started.
    pub fn written_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/diskstats").ok()?;
        find(&text, self.major, self.minor).map(|(_, sectors)| sectors * DISKSTATS_SECTOR_BYTES)
    }
}

/// Name and sectors written.
fn find(text: &str, major: u32, minor: u32) -> Option<(&str, u64)> {
    text.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let is_it = fields.next()?.parse() == Ok(major) && fields.next()?.parse() == Ok(minor);
        let name = fields.next()?;
        // Reads: done, merged, sectors, ms; writes: done, merged, sectors.
        let sectors = fields.nth(6)?.parse().ok()?;
        is_it.then_some((name, sectors))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_sectors_written() {
        let text = " 7 0 loop0 1 2 3 4 5 6 7 8 0 0 0\n 254 0 vda 10 20 30 40 50 60 70 80 0 0 0\n";
        assert_eq!(find(text, 254, 0), Some(("vda", 70)));
        assert_eq!(find(text, 1, 1), None);
        assert_eq!(find("garbage\n1 2\n", 1, 2), None);
    }
}
