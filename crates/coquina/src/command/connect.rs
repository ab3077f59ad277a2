//! Finds the server that a command is for.

use coquina_control::{Client, running_server};

use crate::arguments::Global;
use crate::error::CliError;

/// A client of the server named by `--server`, or of the one that runs on the folder.
pub fn client(global: &Global) -> Result<Client, CliError> {
    match &global.server {
        Some(address) => Ok(Client::new(address)?),
        None => Ok(Client::new(&running_server(&global.dir)?.http)?),
    }
}
