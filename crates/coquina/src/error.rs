//! The error of a command: what went wrong and what to do, and the exit code.

use coquina_bench::{BenchError, ConfigError};
use coquina_control::{ClientError, FolderError, ServerError};
use coquina_node::NodeError;

/// Exit code of a node that was removed from the cluster.
pub const EXIT_CODE_REMOVED: u8 = 3;

/// Exit code of a process that was stopped by a signal before it served.
pub const EXIT_CODE_INTERRUPTED: u8 = 130;

/// Why a command ended without success.
#[derive(Debug)]
pub enum CliError {
    /// Wrong usage that the parser does not see: exit code 2.
    Usage(String),
    /// Everything else: exit code 1.
    Failed(String),
    /// A signal asked for a stop before anything was served: exit code 130. Nothing more is said.
    Interrupted,
    /// The node is not in the cluster any more: exit code 3, so that nobody starts it again.
    Removed(String),
}

impl CliError {
    /// An error with exit code 1.
    pub fn failed(message: impl Into<String>) -> Self {
        CliError::Failed(message.into())
    }

    /// An error with exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        CliError::Usage(message.into())
    }

    /// An error of the operating system, in context.
    pub fn io(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        CliError::Failed(format!("cannot {doing} {}: {error}", path.display()))
    }

    /// 2 for wrong usage, 3 for a node that was removed, 130 after a signal, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => 2,
            CliError::Failed(_) => 1,
            CliError::Interrupted => EXIT_CODE_INTERRUPTED,
            CliError::Removed(_) => EXIT_CODE_REMOVED,
        }
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CliError::Usage(message) | CliError::Failed(message) | CliError::Removed(message) => {
                formatter.write_str(message)
            }
            CliError::Interrupted => formatter.write_str("stopped before it served"),
        }
    }
}

macro_rules! from_errors {
    ($($error:ty),+) => {$(
        impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                CliError::Failed(error.to_string())
            }
        }
    )+};
}

from_errors!(FolderError, NodeError, ServerError);

/// Codes of a server's refusals of what is wrong in itself, whatever the cluster is like.
const WRONG_IN_ITSELF: [&str; 3] = ["bad_name", "bad_size", "bad_striping"];

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Refused { code, .. } if WRONG_IN_ITSELF.contains(&code.as_str()) => {
                CliError::Usage(error.to_string())
            }
            _ => CliError::Failed(error.to_string()),
        }
    }
}

impl From<BenchError> for CliError {
    fn from(error: BenchError) -> Self {
        match error {
            // The rest depends on what the target is like.
            BenchError::Config(error @ ConfigError::Uri { .. }) => error.into(),
            error => CliError::Failed(error.to_string()),
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        CliError::Usage(error.to_string())
    }
}
