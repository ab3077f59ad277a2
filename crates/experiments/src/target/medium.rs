//! Whether bytes outlive the machine's power where a path lies: in memory they do not, however durably they are written.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Magic numbers of file systems in memory: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// Loop devices on files on loop devices: so many at most are looked through.
const LOOPS_MAX: u32 = 8;

/// Whether a file, a folder or a block device lies in memory. A path that does not exist yet lies where its folder does.
pub fn lies_in_memory(path: &Path) -> bool {
    is_in_memory(path, LOOPS_MAX)
}

/// What a target knows of its durability, if its bytes lie at these paths: one of them in memory is enough to lose them.
pub fn durable_at(paths: &[PathBuf], otherwise: Option<bool>) -> Option<bool> {
    if paths.iter().any(|path| lies_in_memory(path)) { Some(false) } else { otherwise }
}

/// Added to what is said of caches where bytes lie in memory.
pub fn memory_note(paths: &[PathBuf]) -> &'static str {
    if paths.iter().any(|path| lies_in_memory(path)) { "; all of it lies in memory (tmpfs)" } else { "" }
}

fn is_in_memory(path: &Path, loops: u32) -> bool {
    let Some(there) = path.ancestors().find(|path| path.exists()) else { return false };
    let Ok(metadata) = std::fs::metadata(there) else { return false };
    if !metadata.file_type().is_block_device() {
        return file_system_magic(there).is_some_and(|magic| IN_MEMORY.contains(&magic));
    }
    let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    let Ok(node) = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else { return false };
    // A partition lies in the folder of its device.
    let names = node.ancestors().filter_map(|folder| folder.file_name()?.to_str());
    if names.take(2).any(is_memory_device) {
        return true;
    }
    let backing = node
        .ancestors()
        .take(2)
        .find_map(|folder| std::fs::read_to_string(folder.join("loop/backing_file")).ok());
    backing.is_some_and(|file| loops > 0 && is_in_memory(Path::new(file.trim_end()), loops - 1))
}

/// `ram0`, `zram0`.
fn is_memory_device(name: &str) -> bool {
    ["ram", "zram"].iter().any(|kind| {
        let number = name.strip_prefix(kind).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn file_system_magic(path: &Path) -> Option<u64> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: all-zero is a valid value of this plain structure, which is only written to by the call below.
    #[allow(unsafe_code)]
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in a zero byte and `found` is a valid place for the answer.
    #[allow(unsafe_code)]
    let failed = unsafe { libc::statfs(path.as_ptr(), &mut found) };
    // The type of the field differs between platforms; the numbers have 32 bits.
    (failed == 0).then_some(found.f_type as u64 & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_in_memory_is_told_from_one_on_a_drive() {
        // This one is tmpfs wherever there is one at all.
        if file_system_magic(Path::new("/dev/shm")) == Some(IN_MEMORY[0]) {
            assert!(lies_in_memory(Path::new("/dev/shm")));
            assert!(lies_in_memory(Path::new("/dev/shm/not/there/yet")));
            let paths = [PathBuf::from("/dev/shm/x")];
            assert_eq!(durable_at(&paths, Some(true)), Some(false));
            assert!(memory_note(&paths).contains("tmpfs"));
        }
        let here = [PathBuf::from("/proc/self/stat")];
        assert!(!lies_in_memory(&here[0]));
        assert_eq!(durable_at(&here, Some(true)), Some(true));
        assert_eq!(durable_at(&here, None), None);
    }

    #[test]
    fn devices_in_memory_are_known_by_name() {
        for (name, wanted) in
            [("ram0", true), ("zram12", true), ("sda", false), ("ramdisk", false), ("ram", false)]
        {
            assert_eq!(is_memory_device(name), wanted, "{name}");
        }
    }
}
