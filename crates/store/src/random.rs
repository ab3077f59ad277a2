//! Random numbers from the operating system.

use std::io;

/// A number that nobody has had before. Never zero.
pub(crate) fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}
