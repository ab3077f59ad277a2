//! On which processor the interrupts of a drive arrive.
//!
//! A drive with a queue for each processor interrupts the one that has asked. Others, such as virtual disks with one queue, interrupt
//! the same processor whoever asked, and the kernel goes on with the work there.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fstat, major, minor};

/// A device with more interrupts than these has queues for several processors.
const NUMBERS_MAX: usize = 4;
/// How deep devices lie upon devices, as with LVM on RAID.
const LAYERS_MAX: u32 = 4;

/// The interrupts of the device below a file.
#[derive(Clone, Default, Debug)]
pub struct Interrupts {
    numbers: Vec<u32>,
}

impl Interrupts {
    /// Those of the device that a file lies on, or that it is; none where that cannot be told, or where there are many.
    pub fn of(file: impl AsFd) -> Interrupts {
        let Ok(stat) = fstat(file) else { return Interrupts::default() };
        let device =
            if FileType::from_raw_mode(stat.st_mode).is_block_device() { stat.st_rdev } else { stat.st_dev };
        let mut numbers = Vec::new();
        let path = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        collect(Path::new(&path), LAYERS_MAX, &mut numbers);
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() > NUMBERS_MAX {
            numbers.clear();
        }
        Interrupts { numbers }
    }

    /// The processor on which nearly all of them arrive, if it is one. Reads a few small files of the kernel.
    pub fn cpu(&self) -> Option<u32> {
        let counts = self.numbers.iter().map(|number| {
            let text = fs::read_to_string(format!("/sys/kernel/irq/{number}/per_cpu_count"));
            (sum_of(&text.unwrap_or_default()), *number)
        });
        let counts: Vec<(u64, u32)> = counts.collect();
        let all = counts.iter().fold(0_u64, |sum, (count, _)| sum.saturating_add(*count));
        let (most, number) = counts.into_iter().max()?;
        if most == 0 || most < all - all / 4 {
            return None;
        }
        // Where the kernel does not say which of the allowed ones it is, there may be only one that is allowed.
        let effective = fs::read_to_string(format!("/proc/irq/{number}/effective_affinity_list"));
        let list = effective.or_else(|_| fs::read_to_string(format!("/proc/irq/{number}/smp_affinity_list")));
        list.ok()?.trim().parse().ok()
    }
}

/// Interrupts of the device at a place of sysfs, or of those that it is made of.
fn collect(device: &Path, layers: u32, numbers: &mut Vec<u32>) {
    let Ok(place) = fs::canonicalize(device) else { return };
    // What a partition is made of is said of the whole.
    let below = [place.join("slaves"), place.join("../slaves")];
    let slaves = below.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let slaves: Vec<PathBuf> = slaves.map(|slave| slave.path()).collect();
    if !slaves.is_empty() {
        for slave in slaves.iter().filter(|_| layers > 0) {
            collect(slave, layers - 1, numbers);
        }
        return;
    }
    for part in place.ancestors() {
        if let Ok(entries) = fs::read_dir(part.join("msi_irqs")) {
            let names = entries.flatten().map(|entry| entry.file_name());
            numbers.extend(names.filter_map(|name| name.to_str().and_then(|name| name.parse::<u32>().ok())));
            return;
        }
        if let Ok(line) = fs::read_to_string(part.join("irq")) {
            numbers.extend(line.trim().parse::<u32>().ok().filter(|number| *number > 0));
            return;
        }
    }
}

/// The sum of numbers between commas; what is not a number counts as nothing.
fn sum_of(text: &str) -> u64 {
    let counts = text.trim().split(',').filter_map(|count| count.parse::<u64>().ok());
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn found(device: &Path) -> Vec<u32> {
        let mut numbers = Vec::new();
        collect(device, LAYERS_MAX, &mut numbers);
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn finds_interrupts_above_the_drive_and_below_what_is_made_of_drives() {
        let root = tempfile::tempdir().unwrap();
        let pci = root.path().join("devices/pci0/0000:00:02.0");
        let disk = pci.join("virtio1/block/vda");
        let partition = disk.join("vda1");
        fs::create_dir_all(&partition).unwrap();
        // A bridge above has interrupts, too: they are not the drive's.
        fs::create_dir_all(root.path().join("devices/pci0/msi_irqs")).unwrap();
        fs::write(root.path().join("devices/pci0/msi_irqs/7"), "msi").unwrap();
        assert_eq!(found(&disk), [7]);
        fs::write(pci.join("irq"), "11\n").unwrap();
        assert_eq!(found(&partition), [11]);
        fs::create_dir_all(pci.join("msi_irqs")).unwrap();
        for number in ["35", "36", "x"] {
            fs::write(pci.join("msi_irqs").join(number), "msix\n").unwrap();
        }
        assert_eq!(found(&disk), [35, 36]);
        assert_eq!(found(&partition), [35, 36]);
        // A volume on a RAID on that partition; and a partition of that volume.
        let raid = root.path().join("devices/virtual/block/md0");
        let volume = root.path().join("devices/virtual/block/dm-0");
        fs::create_dir_all(raid.join("slaves")).unwrap();
        fs::create_dir_all(volume.join("slaves")).unwrap();
        fs::create_dir_all(volume.join("dm-0p1")).unwrap();
        symlink(&partition, raid.join("slaves/vda1")).unwrap();
        symlink(&raid, volume.join("slaves/md0")).unwrap();
        assert_eq!(found(&volume), [35, 36]);
        assert_eq!(found(&volume.join("dm-0p1")), [35, 36]);
        // What lies upon itself ends.
        fs::remove_file(raid.join("slaves/vda1")).unwrap();
        symlink(&volume, raid.join("slaves/dm-0")).unwrap();
        assert_eq!(found(&volume), [] as [u32; 0]);
        assert_eq!(found(&root.path().join("nothing")), [] as [u32; 0]);
    }

    #[test]
    fn what_is_no_drive_has_no_processor() {
        assert_eq!(Interrupts::default().cpu(), None);
        let file = fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(Interrupts::of(&file).cpu(), None);
    }

    #[test]
    fn sums_what_the_kernel_prints() {
        assert_eq!(sum_of("0,167192047\n"), 167_192_047);
        assert_eq!((sum_of(""), sum_of("5"), sum_of("1,x,2")), (0, 5, 3));
        assert_eq!(sum_of("18446744073709551615,1"), u64::MAX);
    }
}
