//! Listening for clients: taken first, so that an address in use is noticed before drives are opened.

use coquina_reactor::{Address, ListenProblem, Listener, ReactorError};

use crate::error::NodeError;
use crate::node::NodeConfig;
use crate::open::patiently;

/// Listeners for NBD, and the one for native clients.
pub(crate) fn bind_all(config: &NodeConfig) -> Result<(Vec<Listener>, Option<Listener>), NodeError> {
    let bind = |flag: &str, text: &str| {
        let named = |reason: String| NodeError::Address { address: format!("{flag} {text}"), reason };
        let address = Address::resolve(text).map_err(|error| named(error.to_string()))?;
        let is_busy = |error: &ReactorError| {
            matches!(error, ReactorError::Listen { problem: ListenProblem::InUse, .. })
        };
        patiently(is_busy, || Listener::bind(&address)).map_err(|error| match error {
            ReactorError::Listen { problem, .. } => named(problem.to_string()),
            other => named(other.to_string()),
        })
    };
    let nbd = config.nbd.iter().map(|text| bind("--nbd", text)).collect::<Result<Vec<_>, _>>()?;
    let native = config.native.as_ref().map(|text| bind("--listen", text)).transpose()?;
    Ok((nbd, native))
}
