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
        // Asked of what is bound: a name may have had no address, or another one, when the user's options were checked.
        let is_open = matches!(&address, Address::Tcp(address) if !address.ip().is_loopback());
        if is_open && !config.insecure {
            return Err(named(
                "it can be reached from other hosts, and nothing asks them who they are; add --insecure on a network that you trust"
                    .to_owned(),
            ));
        }
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

/// Takes as many open files as this process may have: each connection and each drive takes one, and the usual soft limit of 1,024 is
/// there for programs that use `select`.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%errno, "the limit of open files stays as it is");
    }
}
