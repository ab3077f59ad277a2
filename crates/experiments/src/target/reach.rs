//! From where a target can be reached: `--client HOST` has fio on other hosts open it, by the same name.
//!
//! A path, or an address of this host's loopback, is something else there, if it is anything: load on it would be of another
//! drive, and could overwrite it.

use std::net::{IpAddr, ToSocketAddrs};

use crate::generator::fio;

/// From where a target can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// From all hosts, as far as can be known here.
    Anywhere,
    /// From this host only, and why.
    ThisHost(String),
}

/// A path of this host: `what` is a file or a block device.
pub fn of_path(what: &str) -> Reach {
    Reach::ThisHost(format!(
        "fio there would open that host's own {what} of this name, not this host's; \
         measure it there with a run of its own, or export it with an NBD server and name it nbd:URI"
    ))
}

/// Addresses of NBD exports.
pub fn of_uris<'a>(uris: impl IntoIterator<Item = &'a str>) -> Reach {
    for uri in uris {
        let why = match host_of(uri) {
            None => "is a socket of this host",
            Some(host) if is_local_name(&host) => "is this host's loopback",
            Some(host) if is_unspecified(&host) => "stands for all addresses of this host",
            Some(_) => continue,
        };
        return Reach::ThisHost(format!(
            "{uri} {why}, which fio there cannot reach; have the server listen on an address that other hosts reach, and \
             name that"
        ));
    }
    Reach::Anywhere
}

/// A cluster that is made for the run.
pub fn of_local_cluster() -> Reach {
    Reach::ThisHost(
        "the cluster that is made for the run listens on this host's loopback; start one that other hosts reach, and name its \
         volumes"
            .to_owned(),
    )
}

/// Load that fio does not make.
pub fn of_native_client() -> Reach {
    Reach::ThisHost(
        "Coquina's native client makes load on this host only; name coquina-nbd:VOLUME for load by fio"
            .to_owned(),
    )
}

/// Whole objects of a cluster that is reached from anywhere.
pub fn of_objects() -> Reach {
    Reach::ThisHost(
        "whole objects are read and written by `coquina bench io`, on this host only, since fio does not look at what became of them"
            .to_owned(),
    )
}

/// Why these hosts cannot make load on a target, if they cannot. Hosts are named as fio takes them.
pub fn refusal(reach: &Reach, hosts: &[String]) -> Option<String> {
    let Reach::ThisHost(why) = reach else { return None };
    let other = hosts.iter().find(|host| !is_this_host(host))?;
    Some(format!(
        "--client {other} cannot make load on it: {why}. If {other} is this host, name it 127.0.0.1"
    ))
}

/// Whether fio's `--client=` means this host by loopback: `localhost`, `ip:127.0.0.1,8765`, `ip6:::1`, `sock:/path`.
pub fn is_this_host(client: &str) -> bool {
    client.starts_with("sock:") || is_local_name(fio::host(client))
}

/// Whether a name or an address is this host's loopback.
fn is_local_name(name: &str) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        return is_loopback(address);
    }
    if name.is_empty() || name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    let found = (name, 0).to_socket_addrs().map(|all| all.map(|address| address.ip()).collect::<Vec<_>>());
    found.is_ok_and(|all| !all.is_empty() && all.into_iter().all(is_loopback))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn is_unspecified(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_unspecified())
}

/// The host of an NBD URI; `None` if it is a socket of the file system. `nbd:///x` has none, and means localhost.
pub(super) fn host_of(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once("://").unwrap_or(("", uri));
    if scheme.ends_with("+unix") {
        return None;
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let host = match address.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => address.rsplit_once(':').map_or(address, |(host, _)| host),
    };
    Some(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(named: &[&str]) -> Vec<String> {
        named.iter().map(|host| (*host).to_owned()).collect()
    }

    #[test]
    fn loopback_is_this_host_however_it_is_written() {
        for host in [
            "localhost",
            "127.0.0.1",
            "127.8.9.1",
            "::1",
            "::ffff:127.0.0.1",
            "ip:127.0.0.1,8765",
            "ip4:localhost",
            "ip6:::1",
            "localhost,8765",
            "sock:/tmp/fio",
        ] {
            assert!(is_this_host(host), "{host}");
        }
        for host in ["192.0.2.7", "ip:192.0.2.7,8765", "ip6:2001:db8::7", "127.0.0.1.example.invalid"] {
            assert!(!is_this_host(host), "{host}");
        }
    }

    #[test]
    fn what_lies_on_this_host_takes_no_load_from_others() {
        let here = hosts(&["127.0.0.1", "::1", "localhost"]);
        let there = hosts(&["127.0.0.1", "192.0.2.7"]);
        for reach in [of_path("file"), of_path("block device"), of_local_cluster(), of_native_client()] {
            assert_eq!(refusal(&reach, &[]), None);
            assert_eq!(refusal(&reach, &here), None);
            let error = refusal(&reach, &there).unwrap();
            assert!(error.contains("--client 192.0.2.7"), "{error}");
        }
        assert!(refusal(&of_path("file"), &there).unwrap().contains("that host's own file"));
        assert_eq!(refusal(&Reach::Anywhere, &there), None);
    }

    #[test]
    fn exports_are_reached_by_their_address() {
        for (uri, is_reached) in [
            ("nbd://192.0.2.1:10809/x", true),
            ("nbd://user@[2001:db8::1]:10809/x", true),
            ("nbds://192.0.2.1/x", true),
            ("nbd://127.0.0.1:10809/x", false),
            ("nbd://localhost/x", false),
            ("nbd://[::1]:10809/x", false),
            ("nbd:///x", false),
            ("nbd://0.0.0.0:10809/x", false),
            ("nbd://[::]:10809/x", false),
            ("nbd+unix:///x?socket=/run/nbd", false),
            ("nbds+unix:///x?socket=/run/nbd", false),
        ] {
            let reach = of_uris(["nbd://192.0.2.1:10809/x", uri]);
            assert_eq!(reach == Reach::Anywhere, is_reached, "{uri}: {reach:?}");
        }
    }
}
