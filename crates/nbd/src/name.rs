use std::fmt;

/// Longest string of the protocol, in bytes.
pub const STRING_BYTES_MAX: usize = 4096;

/// Why bytes are not an export name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportNameError {
    /// spec: a string must be no longer than 4096 bytes.
    #[error("the export name has {length_bytes} bytes, the protocol allows {STRING_BYTES_MAX}")]
    TooLong {
        /// Size of what was sent, in bytes.
        length_bytes: usize,
    },
    /// spec: a string is a sequence of UTF-8 code points.
    #[error("the export name is not UTF-8")]
    NotUtf8,
    /// spec: a string must not contain NUL.
    #[error("the export name contains a zero byte")]
    Zero,
}

/// The name that a client gave for an export: at most 4096 bytes of UTF-8 without NUL.
///
/// It may be empty (spec: the default export), and it is not yet known to name a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportName(Box<str>);

impl ExportName {
    /// Checks and copies a name.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ExportNameError> {
        if bytes.len() > STRING_BYTES_MAX {
            return Err(ExportNameError::TooLong { length_bytes: bytes.len() });
        }
        if bytes.contains(&0) {
            return Err(ExportNameError::Zero);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| ExportNameError::NotUtf8)?;
        Ok(Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for ExportName {
    type Err = ExportNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_bytes(text.as_bytes())
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
