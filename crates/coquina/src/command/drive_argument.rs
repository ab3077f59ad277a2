//! `PATH[:SIZE]`, the way in which drives are named.

use std::path::{Path, PathBuf};

use coquina_base::parse_size_bytes;

use crate::error::CliError;

/// A drive as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveArgument {
    /// File or block device.
    pub path: PathBuf,
    /// Size of a file to make.
    pub size_bytes: Option<u64>,
}

/// Reads `PATH[:SIZE]`. A path that exists as it is written is taken as it is, whatever follows its last colon.
pub fn parse(text: &str) -> Result<DriveArgument, CliError> {
    let whole = || DriveArgument { path: PathBuf::from(text), size_bytes: None };
    if text.is_empty() {
        return Err(CliError::usage("a drive needs a path; write it like /srv/drive1:100G"));
    }
    if Path::new(text).exists() {
        return Ok(whole());
    }
    let Some((path, size)) = text.rsplit_once(':') else { return Ok(whole()) };
    if path.is_empty() {
        return Err(CliError::usage(format!("drive {text:?} has no path; write it like /srv/drive1:100G")));
    }
    if size.contains('/') {
        return Ok(whole());
    }
    match parse_size_bytes(size) {
        Ok(0) => Err(CliError::usage(format!("drive {text:?} has size 0; give a size of at least 256M"))),
        Ok(size_bytes) => Ok(DriveArgument { path: PathBuf::from(path), size_bytes: Some(size_bytes) }),
        Err(error) => Err(CliError::usage(format!("drive {text:?}: {error}"))),
    }
}

/// The path of a drive as the cluster map names it, which is text.
pub fn for_map(path: &Path) -> Result<PathBuf, CliError> {
    let path = absolute(path)?;
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(CliError::usage(format!(
            "the path of drive {} is not UTF-8, and could not be found again; give another folder (--dir) or path (--drive)",
            path.display()
        ))),
    }
}

/// The path as the cluster map names it: absolute, and without symbolic links as far as it exists.
pub fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    let absolute = std::path::absolute(path).map_err(|error| CliError::io("resolve", path, &error))?;
    if let Ok(path) = std::fs::canonicalize(&absolute) {
        return Ok(path);
    }
    let folder = absolute.parent().and_then(|folder| std::fs::canonicalize(folder).ok());
    match (folder, absolute.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.join(name)),
        _ => Ok(absolute),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_gone_is_named_as_when_it_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        std::fs::write(real.join("drive"), b"x").unwrap();
        let there = absolute(&link.join("drive")).unwrap();
        std::fs::remove_file(real.join("drive")).unwrap();
        assert_eq!(absolute(&link.join("drive")).unwrap(), there);
        assert_eq!(absolute(Path::new("/no/such/place")).unwrap(), Path::new("/no/such/place"));
    }

    #[test]
    fn sizes_are_told_from_paths() {
        let parsed = |text: &str| parse(text).map(|drive| (drive.path, drive.size_bytes)).ok();
        let path = PathBuf::from;
        assert_eq!(parsed("/nowhere/d:10G"), Some((path("/nowhere/d"), Some(10 << 30))));
        assert_eq!(parsed("/nowhere/d"), Some((path("/nowhere/d"), None)));
        assert_eq!(parsed("/nowhere:1/d"), Some((path("/nowhere:1/d"), None)));
        assert_eq!(parsed("/nowhere/a:b:1M"), Some((path("/nowhere/a:b"), Some(1 << 20))));
        for bad in ["", ":10G", "/nowhere/d:0", "/nowhere/d:-1G", "/nowhere/d:ten", "/nowhere/d:"] {
            assert!(matches!(parse(bad), Err(CliError::Usage(_))), "{bad}");
        }
        let file = tempfile::Builder::new().suffix(":7").tempfile().unwrap();
        let text = file.path().to_str().unwrap();
        assert_eq!(parsed(text), Some((path(text), None)), "an existing path is taken as it is");
    }
}
