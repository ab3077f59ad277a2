//! Why a run did not begin, or gave nothing.

use std::path::PathBuf;

use crate::definition::DefinitionError;
use crate::generator::GeneratorError;
use crate::target::TargetError;

/// Why a run did not begin, or gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The experiment cannot be used.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A target cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A generator failed while volumes were written full.
    #[error("{spec}: {source}")]
    Generator {
        /// The target.
        spec: String,
        /// What happened.
        source: GeneratorError,
    },
    /// The targets are not equal.
    #[error(
        "these are not equal, and figures of them would not compare:\n{0}\nchange them, or add --allow-unequal"
    )]
    Unequal(String),
    /// Nothing is left to do.
    #[error("{0}")]
    Nothing(String),
    /// The folder for files cannot be used.
    #[error("cannot use the folder {path}: {source}; name another with --folder")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl RunError {
    /// Whether the user stopped the run.
    pub fn is_stop(&self) -> bool {
        match self {
            RunError::Target(error) => error.is_stop(),
            error => matches!(error, RunError::Generator { source: GeneratorError::Stopped, .. }),
        }
    }
}
