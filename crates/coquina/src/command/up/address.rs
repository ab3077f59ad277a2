//! Addresses to listen on.

use std::net::ToSocketAddrs;

use coquina_control::{HealthCode, HealthEntry, Severity};

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
pub fn check_nbd(address: &str) -> Result<(), CliError> {
    match address.strip_prefix("unix:") {
        None => check_tcp("--nbd", address),
        Some("") => Err(CliError::usage("--nbd unix: needs the path of a socket")),
        Some(path) if path.len() > UNIX_PATH_BYTES_MAX => Err(CliError::usage(format!(
            "the path of --nbd {address:?} has {} bytes; the path of a socket has at most {UNIX_PATH_BYTES_MAX}",
            path.len()
        ))),
        Some(_) => Ok(()),
    }
}

/// A health entry for each address that other hosts can reach: nothing asks them who they are.
pub fn open_interfaces(addresses: &[String]) -> Vec<HealthEntry> {
    let open = addresses.iter().filter(|address| {
        let resolved = address.to_socket_addrs();
        resolved.is_ok_and(|mut resolved| resolved.any(|address| !address.ip().is_loopback()))
    });
    let entry = |address: &String| {
        HealthEntry::new(
            HealthCode::OpenInterface,
            Severity::Warning,
            format!("address {address}"),
            format!("{address} can be reached from other hosts, and nothing asks them who they are"),
        )
    };
    open.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_open_ones_told() {
        for good in ["127.0.0.1:1", "[::1]:10809", "localhost:0", "unix:/run/x.sock"] {
            assert!(check_nbd(good).is_ok(), "{good}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for bad in ["", "127.0.0.1", ":1", "h:99999", "h:x", "unix:", &long] {
            assert!(matches!(check_nbd(bad), Err(CliError::Usage(_))), "{bad}");
        }
        let addresses = ["127.0.0.1:1", "[::1]:1", "0.0.0.0:1", "10.1.2.3:4", "unix:/x"].map(str::to_owned);
        let open: Vec<_> = open_interfaces(&addresses).into_iter().map(|entry| entry.subject).collect();
        assert_eq!(open, ["address 0.0.0.0:1", "address 10.1.2.3:4"]);
    }
}
