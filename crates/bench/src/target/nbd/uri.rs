//! NBD URIs, as in `doc/uri.md` of the NetworkBlockDevice project: the TCP and Unix forms without TLS.

use std::path::PathBuf;

use crate::error::ConfigError;

const PORT_DEFAULT: u16 = 10_809;

/// Where an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp { host: String, port: u16 },
    Unix { path: PathBuf },
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
