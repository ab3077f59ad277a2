//! Whether what is named as a drive is one, or is on one.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::place::{drives_named, is_of_kernel, mount_of};
use super::root::HostRoot;

/// Why a path cannot be meant as a drive.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDrive {
    /// Neither a block device nor a file or folder.
    #[error("{path} is no drive: it is a {kind}; name a block device, or a file or folder on a drive")]
    Kind {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It is in a file system that the kernel makes up.
    #[error(
        "no drive is behind {path}: the kernel shows itself there ({file_system}); name a block device, or a file or folder \
         on a drive"
    )]
    OfKernel {
        /// The path.
        path: PathBuf,
        /// The type of its file system.
        file_system: String,
    },
    /// A loop device without a file, or a reader without a medium.
    #[error(
        "no drive is behind {path}: its size is 0; give a loop device a file with losetup, or a reader a medium"
    )]
    Empty {
        /// The path.
        path: PathBuf,
    },
}

/// Checks that a path that is named as a drive is a block device, or a file or folder on what may be a drive. A path that
/// cannot be looked at is none of the business here.
pub fn check_drive(root: &HostRoot, path: &Path) -> Result<(), NoDrive> {
    let path = path.to_owned();
    let here = path.to_str().and_then(|text| std::fs::metadata(root.path(text)).ok());
    let kind = here.map(|metadata| metadata.file_type());
    if let Some(kind) = kind.and_then(other_kind) {
        return Err(NoDrive::Kind { path, kind });
    }
    if kind.is_some_and(|kind| kind.is_block_device()) {
        let drives = drives_named(root, &path);
        let is_empty = |drive: &String| root.number(&format!("/sys/block/{drive}/size")) == Some(0);
        return if drives.iter().any(is_empty) { Err(NoDrive::Empty { path }) } else { Ok(()) };
    }
    match mount_of(root, &path) {
        Some(mount) if is_of_kernel(&mount.file_system) => {
            Err(NoDrive::OfKernel { path, file_system: mount.file_system })
        }
        _ => Ok(()),
    }
}

/// What it is, where it is neither a block device nor a file or folder.
fn other_kind(kind: FileType) -> Option<&'static str> {
    if kind.is_char_device() {
        Some("character device")
    } else if kind.is_fifo() {
        Some("pipe")
    } else if kind.is_socket() {
        Some("socket")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    #[test]
    fn what_is_no_drive_and_what_has_none_is_told() {
        let here =
            |path: &str| check_drive(&HostRoot::here(), Path::new(path)).map_err(|error| error.to_string());
        assert!(here("/dev/null").unwrap_err().contains("/dev/null is no drive: it is a character device"));
        for path in ["/proc", "/proc/self/stat"] {
            let said = here(path).unwrap_err();
            assert!(
                said.contains(&format!("no drive is behind {path}")) && said.contains("(proc)"),
                "{said}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(here(socket.to_str().unwrap()).unwrap_err().contains("a socket"));
        assert_eq!(here(folder.path().to_str().unwrap()), Ok(()));
    }

    #[test]
    fn folders_of_file_systems_that_hold_data_may_be_named() {
        let host = TestHost::empty();
        host.file(
            "proc/self/mountinfo",
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:5 / /sys rw - sysfs sysfs rw\n",
        );
        assert_eq!(check_drive(&host.root(), Path::new("/srv")), Ok(()));
        let file_system = "sysfs".to_owned();
        let refused = NoDrive::OfKernel { path: "/sys/x".into(), file_system };
        assert_eq!(check_drive(&host.root(), Path::new("/sys/x")), Err(refused));
    }
}
