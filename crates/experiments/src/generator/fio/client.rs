//! Other hosts on which `fio --server` makes the load.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Where `fio --server` listens unless it is told otherwise.
const PORT: u16 = 8765;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// What may stand before a host's name.
const KINDS: [&str; 3] = ["ip:", "ip4:", "ip6:"];

/// Whether a server answers at `HOST` or `HOST,PORT`, as fio's `--client` takes it. A socket's path is not tried.
pub fn reach(client: &str) -> Result<(), String> {
    if client.starts_with("sock:") {
        return Ok(());
    }
    let (host, port) = address(client)?;
    let advice = format!(
        "start `fio --server` there (it listens at port {PORT}; `fio --server=IP,PORT` at another one, which is named \
         --client HOST,PORT)"
    );
    let found = (host, port).to_socket_addrs().map_err(|error| {
        format!("the host {host:?} cannot be found: {error}; write --client HOST or --client HOST,PORT")
    })?;
    let mut failed = "it has no address".to_owned();
    for address in found {
        match TcpStream::connect_timeout(&address, CONNECT_TIME_MAX) {
            Ok(_) => return Ok(()),
            Err(error) => failed = error.to_string(),
        }
    }
    Err(format!("no fio answers at port {port} of {host}: {failed}; {advice}"))
}

/// The host of `HOST` or `HOST,PORT`.
pub fn host(client: &str) -> &str {
    let plain = plain(client);
    plain.split_once(',').map_or(plain, |(host, _)| host)
}

fn plain(client: &str) -> &str {
    KINDS.iter().find_map(|kind| client.strip_prefix(kind)).unwrap_or(client)
}

fn address(client: &str) -> Result<(&str, u16), String> {
    let plain = plain(client);
    match plain.split_once(',') {
        None if plain.is_empty() => Err("write --client HOST or --client HOST,PORT".to_owned()),
        None => Ok((plain, PORT)),
        Some((host, port)) => match port.parse() {
            Ok(port) if port > 0 && !host.is_empty() => Ok((host, port)),
            _ => Err(format!("{client:?} names no port from 1 to 65535; write --client HOST,PORT")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_may_have_ports() {
        assert_eq!(address("store7"), Ok(("store7", PORT)));
        assert_eq!(address("10.0.0.7,9000"), Ok(("10.0.0.7", 9000)));
        assert_eq!(address("ip6:::1,9000"), Ok(("::1", 9000)));
        for wrong in ["", "store7,", "store7,x", "store7,0", "store7,70000", ",9000"] {
            assert!(address(wrong).unwrap_err().contains("--client HOST,PORT"), "{wrong:?}");
        }
    }

    #[test]
    fn a_host_without_a_server_is_told() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(reach(&format!("127.0.0.1,{port}")), Ok(()));
        // Not the listener's port after its end: a process that another test is starting may hold it a moment longer.
        let error = reach("127.0.0.1,1").unwrap_err();
        assert!(error.contains("fio --server") && error.contains("no fio answers at port 1 of"), "{error}");
    }
}
