//! Randomness for identities, from the operating system.

use coquina_base::Id128;

/// A new identity of 128 random bits.
pub fn random_id() -> std::io::Result<Id128> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(Id128(bytes))
}

/// 64 random bits.
pub fn random_u64() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(bytes).map_err(|error| std::io::Error::other(format!("no randomness: {error}")))
}
