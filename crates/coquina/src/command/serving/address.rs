//! Addresses to listen on.

use std::net::{SocketAddr, ToSocketAddrs};

use coquina_control::ControlListener;

use crate::arguments::Running;
use crate::error::CliError;

/// Longest path of a Unix socket.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// Checks `HOST:PORT`.
pub fn check_tcp(flag: &str, address: &str) -> Result<(), CliError> {
    let valid =
        address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if valid {
        return Ok(());
    }
    Err(CliError::usage(format!("{flag} {address:?} is not an address; write it like 127.0.0.1:10809")))
}

/// Checks `HOST:PORT` or `unix:PATH`.
pub fn check_nbd(flag: &str, address: &str) -> Result<(), CliError> {
    match address.strip_prefix("unix:") {
        None => check_tcp(flag, address),
        Some("") => Err(CliError::usage(format!("{flag} unix: needs the path of a socket"))),
        Some(path) if path.len() > UNIX_PATH_BYTES_MAX => Err(CliError::usage(format!(
            "the path of {flag} {address:?} has {} bytes; the path of a socket has at most {UNIX_PATH_BYTES_MAX}",
            path.len()
        ))),
        Some(_) => Ok(()),
    }
}

/// Refuses addresses that other hosts can reach, unless the user says that this is meant.
pub fn check_closed(addresses: &[String], insecure: bool) -> Result<(), CliError> {
    match open_interfaces(addresses).first() {
        Some(address) if !insecure => Err(CliError::usage(format!(
            "{address} can be reached from other hosts, and nothing asks them who they are: there are no certificates \
             yet; listen on 127.0.0.1 or a Unix socket, or add --insecure on a network that you trust"
        ))),
        _ => Ok(()),
    }
}

/// Binds the REST interface, and asks the same of the address that it has got: a name may have had none, or another one, when it was
/// checked.
pub fn bind_http(address: &str, running: &Running) -> Result<ControlListener, CliError> {
    let listener = ControlListener::bind(address)?;
    check_closed(&[listener.address().to_owned()], running.insecure)?;
    Ok(listener)
}

/// Refuses addresses that say nothing to other nodes.
pub fn check_reachable(flag: &str, address: &str) -> Result<(), CliError> {
    let unspecified = |address: SocketAddr| address.ip().is_unspecified();
    if address.to_socket_addrs().is_ok_and(|mut resolved| resolved.any(unspecified)) {
        return Err(CliError::usage(format!(
            "{flag} {address} is no address that other nodes could connect to; give this host's own, such as 10.0.0.1:10811"
        )));
    }
    Ok(())
}

/// Addresses that other hosts can reach.
pub fn open_interfaces(addresses: &[String]) -> Vec<String> {
    let is_open = |address: &&String| {
        let resolved = address.to_socket_addrs();
        resolved.is_ok_and(|mut resolved| resolved.any(|address| !address.ip().is_loopback()))
    };
    addresses.iter().filter(is_open).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_open_ones_told() {
        for good in ["127.0.0.1:1", "[::1]:10809", "localhost:0", "unix:/run/x.sock"] {
            assert!(check_nbd("--nbd", good).is_ok(), "{good}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for bad in ["", "127.0.0.1", ":1", "h:99999", "h:x", "unix:", &long] {
            assert!(matches!(check_nbd("--nbd", bad), Err(CliError::Usage(_))), "{bad}");
        }
        let addresses = ["127.0.0.1:1", "[::1]:1", "0.0.0.0:1", "10.1.2.3:4", "unix:/x"].map(str::to_owned);
        assert_eq!(open_interfaces(&addresses), ["0.0.0.0:1", "10.1.2.3:4"]);
        let refused = check_closed(&addresses, false).unwrap_err().to_string();
        assert!(refused.contains("0.0.0.0:1") && refused.contains("--insecure"), "{refused}");
        assert!(check_closed(&addresses, true).is_ok() && check_closed(&addresses[..2], false).is_ok());
        let running = |insecure| Running { insecure, ..Running::default() };
        assert!(bind_http("127.0.0.1:0", &running(false)).is_ok());
        assert!(
            bind_http("0.0.0.0:0", &running(true)).is_ok()
                && bind_http("0.0.0.0:0", &running(false)).is_err()
        );
        assert!(check_reachable("--listen", "0.0.0.0:1").is_err());
        assert!(check_reachable("--listen", "10.0.0.1:1").is_ok());
    }
}
