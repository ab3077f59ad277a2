//! Where the kernel shows a host: `/proc` and `/sys`, of this host or made up by a test.

use std::path::{Path, PathBuf};

/// A host to look at. Paths are absolute, as on that host.
#[derive(Clone, Debug)]
pub struct HostRoot {
    root: PathBuf,
    /// This host: what no file says may be tried.
    is_here: bool,
    io_uring: Option<Result<(), i32>>,
}

impl HostRoot {
    /// This host.
    pub fn here() -> Self {
        HostRoot { root: PathBuf::from("/"), is_here: true, io_uring: None }
    }

    /// A host whose `/proc` and `/sys` lie below a folder. What no file says is not known.
    pub fn below(folder: impl Into<PathBuf>) -> Self {
        HostRoot { root: folder.into(), is_here: false, io_uring: None }
    }

    /// Says what a try of `io_uring_setup` gives on a made-up host: an error is an error number.
    pub fn with_io_uring(mut self, answer: Result<(), i32>) -> Self {
        self.io_uring = Some(answer);
        self
    }

    /// Whether this is the host on which the program runs.
    pub(super) fn is_here(&self) -> bool {
        self.is_here
    }

    /// What a try of `io_uring_setup` gave, as an error number, or `None` where it cannot be tried.
    pub(super) fn try_io_uring(&self) -> Option<Result<(), i32>> {
        if self.is_here { Some(io_uring_setup()) } else { self.io_uring }
    }

    /// Where a path of the host is found.
    pub(crate) fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// A file without white space around it. `None` where it cannot be read or has nothing in it.
    pub(crate) fn text(&self, absolute: &str) -> Option<String> {
        let bytes = std::fs::read(self.path(absolute)).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// A file that is one number.
    pub(super) fn number(&self, absolute: &str) -> Option<u64> {
        self.text(absolute)?.parse().ok()
    }

    /// Whether there is such a file or folder.
    pub(super) fn has(&self, absolute: &str) -> bool {
        self.path(absolute).exists()
    }

    /// The names in a folder in order, none where it cannot be read.
    pub(crate) fn names(&self, absolute: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(absolute)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| (number_at_end(name), name.clone()));
        names
    }

    /// Where a symbolic link points, as it is written.
    pub(crate) fn link(&self, absolute: &str) -> Option<PathBuf> {
        std::fs::read_link(self.path(absolute)).ok()
    }

    /// A path without symbolic links, as far as it exists: what is missing at its end stays as it is.
    pub(crate) fn real(&self, absolute: &Path) -> PathBuf {
        let mut missing = Vec::new();
        let mut there = absolute;
        loop {
            let found = there.to_str().and_then(|text| std::fs::canonicalize(self.path(text)).ok());
            let below = std::fs::canonicalize(&self.root).unwrap_or_else(|_| self.root.clone());
            if let Some(inside) = found.as_deref().and_then(|found| found.strip_prefix(below).ok()) {
                let real = Path::new("/").join(inside);
                return missing.iter().rev().fold(real, |path, name| path.join(name));
            }
            let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
                return absolute.to_owned();
            };
            missing.push(name);
            there = parent;
        }
    }
}

/// Orders `cpu2` before `cpu10`.
fn number_at_end(name: &str) -> (usize, u64) {
    let letters = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    (letters, name[letters..].parse().unwrap_or(0))
}

/// Makes an io_uring and gives it back. An error is an error number.
fn io_uring_setup() -> Result<(), i32> {
    // `struct io_uring_params` has 120 bytes; zeroes ask for the plainest ring.
    let mut parameters = [0u64; 15];
    // SAFETY: the kernel reads and writes 120 bytes at `parameters`, which are there.
    #[allow(unsafe_code)]
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1u32, parameters.as_mut_ptr()) };
    if ring < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    let ring = ring as std::os::fd::RawFd;
    // SAFETY: the call above has just made this file descriptor, and nobody else has it.
    #[allow(unsafe_code)]
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(ring) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cpu10", "cpu2", "cpu0"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let root = HostRoot::below(folder.path());
        assert_eq!(root.names("/"), ["cpu0", "cpu2", "cpu10"]);
        assert!(root.names("/missing").is_empty());
    }

    #[test]
    fn what_is_missing_at_the_end_of_a_path_stays() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
        let root = HostRoot::below(folder.path());
        assert_eq!(root.real(Path::new("/link/a/b")), Path::new("/real/a/b"));
        assert_eq!(root.real(Path::new("/nowhere")), Path::new("/nowhere"));
    }

    #[test]
    fn io_uring_can_be_tried() {
        // Allowed or not, the answer is a proper one, and the ring is closed again: it can be had many times.
        let root = HostRoot::here();
        let answer = root.try_io_uring().unwrap();
        assert!(answer.is_ok() || answer.is_err_and(|errno| errno > 0 && errno < 200));
        assert!((0..100).all(|_| root.try_io_uring() == Some(answer)));
    }
}
