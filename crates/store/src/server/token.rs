//! The token of a store's folder: whoever can read the file may use the store.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::StoreError;
use crate::random::random_u64;

const TOKEN_NAME: &str = "store.token";
/// Longer files are no tokens.
const TOKEN_BYTES_MAX: u64 = 256;

/// The token of a folder; made if there is none.
pub fn create_token(folder: &Path) -> Result<String, StoreError> {
    let path = folder.join(TOKEN_NAME);
    if path.exists() {
        return read_token(folder);
    }
    let number = || random_u64().map_err(StoreError::io("make a token for", folder));
    let token = format!("{:016x}{:016x}", number()?, number()?);
    // Under another name first: nobody reads a part of it.
    let new = folder.join("store.new.token");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StoreError::io("remove", &new)(error));
        }
        _ => {}
    }
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let mut file = opened.map_err(StoreError::io("write", &new))?;
    file.write_all(token.as_bytes()).and_then(|()| file.sync_all()).map_err(StoreError::io("write", &new))?;
    fs::rename(&new, &path).map_err(StoreError::io("make", &path))?;
    Ok(token)
}

/// Reads the token of a folder. One that others may read is refused.
pub fn read_token(folder: &Path) -> Result<String, StoreError> {
    let path = folder.join(TOKEN_NAME);
    let metadata = fs::metadata(&path).map_err(StoreError::io("read", &path))?;
    if metadata.mode() & 0o077 != 0 {
        let reason = format!("others may use it; run `chmod 600 {}`", path.display());
        return Err(StoreError::AuthRefused { endpoint: path.display().to_string(), reason });
    }
    let text = match metadata.len() {
        1..=TOKEN_BYTES_MAX => fs::read_to_string(&path).map_err(StoreError::io("read", &path))?,
        _ => String::new(),
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let reason = "it holds no token; remove it and restart the server".to_owned();
        return Err(StoreError::Damaged { path: path.display().to_string(), reason, previous: None });
    }
    Ok(token.to_owned())
}

/// Compares in a time that does not tell where the difference is.
pub(super) fn is_equal(wanted: &[u8], given: &[u8]) -> bool {
    let different =
        wanted.iter().zip(given).fold(0, |different, (wanted, given)| different | (wanted ^ given));
    wanted.len() == given.len() && different == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read_token(folder.path()), Err(StoreError::Io { .. })));
        let token = create_token(folder.path()).unwrap();
        assert_eq!(token.len(), 32);
        assert_eq!(create_token(folder.path()).unwrap(), token);
        assert_eq!(read_token(folder.path()).unwrap(), token);
        let path = folder.path().join(TOKEN_NAME);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_token(folder.path()).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "").unwrap();
        assert!(matches!(read_token(folder.path()), Err(StoreError::Damaged { .. })));
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(is_equal(b"abc", b"abc"));
        assert!(!is_equal(b"abc", b"abd") && !is_equal(b"abc", b"ab") && !is_equal(b"abc", b"abcd"));
        assert!(!is_equal(b"abc", b""));
    }
}
