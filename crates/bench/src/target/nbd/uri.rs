//! NBD URIs, as in `doc/uri.md` of the NetworkBlockDevice project: the TCP and Unix forms without TLS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};

use crate::error::ConfigError;

const PORT_DEFAULT: u16 = 10_809;

/// Where an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp { host: String, port: u16 },
    Unix { path: PathBuf },
}

impl Peer {
    /// Whether a server of this host that listens at `address`, `HOST:PORT` or `unix:PATH`, is the one that answers there.
    pub fn is_at(&self, address: &str) -> bool {
        match (self, address.strip_prefix("unix:")) {
            (Peer::Unix { path }, Some(listens)) => {
                let real = |path: &Path| path.canonicalize().ok();
                real(path).is_some() && real(path) == real(Path::new(listens))
            }
            (Peer::Tcp { host, port }, None) => {
                let Ok(listens) = address.parse::<SocketAddr>() else { return false };
                // Looking up a name may take long.
                *port == listens.port()
                    && (host.as_str(), *port)
                        .to_socket_addrs()
                        .is_ok_and(|mut found| found.any(|meant| answers(listens.ip(), meant.ip())))
            }
            _ => false,
        }
    }
}

/// Whether who listens at one address is reached by another.
fn answers(listens: IpAddr, meant: IpAddr) -> bool {
    let meant = match meant.to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    // Who listens at all addresses of IPv6 mostly does so at those of IPv4, too.
    let is_at_all = listens.is_unspecified() && (listens.is_ipv6() || meant.is_ipv4());
    listens.to_canonical() == meant
        // Only addresses of its own can be bound.
        || (is_at_all && (meant.is_loopback() || UdpSocket::bind((meant, 0)).is_ok()))
}

impl std::fmt::Display for Peer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Tcp { host, port } if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Peer::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            Peer::Unix { path } => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Reads a URI into the peer and the name of the export.
pub(crate) fn parse(uri: &str) -> Result<(Peer, String), ConfigError> {
    let wrong = |reason| ConfigError::Uri { uri: uri.to_owned(), reason };
    let (scheme, rest) = uri.split_once("://").ok_or_else(|| wrong("it has no ://"))?;
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = before_query.split_once('/').unwrap_or((before_query, ""));
    let export = decode(export).ok_or_else(|| wrong("a %-escape is broken"))?;
    let peer = match scheme {
        "nbd" => tcp(authority).map_err(wrong)?,
        "nbd+unix" => {
            let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
            let socket = socket.ok_or_else(|| wrong("?socket=PATH is missing"))?;
            let path = decode(socket).ok_or_else(|| wrong("a %-escape is broken"))?;
            Peer::Unix { path: path.into() }
        }
        "nbds" | "nbds+unix" => return Err(wrong("TLS is not supported")),
        _ => return Err(wrong("the scheme is neither nbd nor nbd+unix")),
    };
    Ok((peer, export))
}

fn tcp(authority: &str) -> Result<Peer, &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("a bracket is not closed")?;
            (host, after.strip_prefix(':'))
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => PORT_DEFAULT,
        Some(port) => port.parse().map_err(|_| "the port is not a number from 0 to 65535")?,
    };
    let host = if host.is_empty() { "localhost" } else { host };
    Ok(Peer::Tcp { host: host.to_owned(), port })
}

/// Undoes %-escapes.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_of_an_export_is_known_by_where_it_listens() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("socket"), "").unwrap();
        std::os::unix::fs::symlink(at("socket"), at("link")).unwrap();
        let (socket, link) = (at("socket").display().to_string(), at("link").display().to_string());
        let (unix, unix_link) =
            (format!("nbd+unix:///e?socket={socket}"), format!("nbd+unix:///e?socket={link}"));
        let is_at = |uri: &str, address: &str| parse(uri).unwrap().0.is_at(address);
        for (uri, address, wanted) in [
            ("nbd://127.0.0.1:7/e", "127.0.0.1:7", true),
            ("nbd://localhost:7/e", "127.0.0.1:7", true),
            ("nbd:///e", "127.0.0.1:10809", true),
            ("nbd://127.0.0.1:7/e", "0.0.0.0:7", true),
            ("nbd://127.0.0.1:7/e", "[::]:7", true),
            ("nbd://0.0.0.0:7/e", "127.0.0.1:7", true),
            ("nbd://127.0.0.1:7/e", "127.0.0.1:8", false),
            ("nbd://127.0.0.2:7/e", "127.0.0.1:7", false),
            ("nbd://[::1]:7/e", "0.0.0.0:7", false),
            ("nbd://192.0.2.1:7/e", "0.0.0.0:7", false),
            ("nbd://127.0.0.1:7/e", "unix:/run/nbd", false),
            (&unix, "127.0.0.1:7", false),
            (&unix, &format!("unix:{link}"), true),
            (&unix_link, &format!("unix:{socket}"), true),
            (&unix, "unix:/nonexistent", false),
            ("nbd+unix:///e?socket=/nonexistent", "unix:/nowhere", false),
        ] {
            assert_eq!(is_at(uri, address), wanted, "{uri} {address}");
        }
    }

    #[test]
    fn reads_both_forms() {
        let tcp = |host: &str, port| Peer::Tcp { host: host.into(), port };
        assert_eq!(parse("nbd://h:1/e"), Ok((tcp("h", 1), "e".into())));
        assert_eq!(parse("nbd://[::1]/a%20b"), Ok((tcp("::1", 10_809), "a b".into())));
        assert_eq!(parse("nbd:///"), Ok((tcp("localhost", 10_809), String::new())));
        assert_eq!(
            parse("nbd+unix:///disk?socket=/tmp/s"),
            Ok((Peer::Unix { path: "/tmp/s".into() }, "disk".into()))
        );
        for bad in ["nbd:x", "nbd+unix:///e", "nbds://h/e", "nbd://h:99999/e", "nbd://h/%4", "ftp://h/"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
