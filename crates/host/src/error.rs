//! What goes wrong when figures of the host are read.

/// A file in which the kernel shows its figures cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}")]
pub struct ProcError {
    /// The file.
    pub path: String,
    /// Why.
    pub source: std::io::Error,
}
