//! Addresses of nodes and clients, and listeners on them.

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Errno, ListenProblem, ReactorError};
use crate::socket::{open_tcp, set_option};

/// An accepted connection on which the other host acknowledges nothing of what was sent for so long is broken.
const ACCEPTED_UNHEARD_MS_MAX: i32 = 60_000;

/// Where a peer is reached: `host:port`, `[v6]:port` or `unix:/path`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// An IP address and port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not of a known form.
    #[error("{0:?} is not an address: write HOST:PORT, [IPV6]:PORT or unix:PATH")]
    Malformed(String),
    /// The host's name has no address.
    #[error("the name in {0:?} has no address ({1})")]
    Unresolved(String, String),
    /// Nobody could say whether the host's name has an address.
    #[error("the name in {0:?} cannot be looked up now ({1}); see whether this host's name server answers")]
    Unanswered(String, String),
    /// Unix socket paths are short.
    #[error("the socket path {0:?} is longer than 107 bytes; choose a shorter one")]
    PathTooLong(PathBuf),
}

impl AddressError {
    /// Whether the same address may be found later.
    pub fn is_passing(&self) -> bool {
        matches!(self, AddressError::Unanswered(..))
    }
}

/// Whether an error of a look-up says that no name server answered (`EAI_AGAIN`). The text is all that the standard library tells of it:
/// that of glibc, and that of musl.
pub fn is_unanswered(error: &std::io::Error) -> bool {
    let text = error.to_string();
    text.contains("Temporary failure in name resolution") || text.ends_with("Try again")
}

impl Address {
    /// Reads an address; a host name is looked up, which may block. Of several addresses of a name it is the first.
    pub fn resolve(text: &str) -> Result<Address, AddressError> {
        Address::resolve_next(text, 0)
    }

    /// Like `resolve`, but of several addresses of a name the one whose turn it is: who has failed `failures` times so far tries each.
    pub fn resolve_next(text: &str, failures: u32) -> Result<Address, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return match path.as_os_str().len() {
                0 => Err(AddressError::Malformed(text.to_owned())),
                1..=107 => Ok(Address::Unix(path)),
                _ => Err(AddressError::PathTooLong(path)),
            };
        }
        if let Ok(address) = text.parse() {
            return Ok(Address::Tcp(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| AddressError::Malformed(text.to_owned()))?;
        let port: u16 = port.parse().map_err(|_| AddressError::Malformed(text.to_owned()))?;
        if host.is_empty() {
            return Err(AddressError::Malformed(text.to_owned()));
        }
        let found = (host, port).to_socket_addrs().map_err(|error| unresolved(text, &error))?;
        let found = in_turn(found.collect(), failures).map(Address::Tcp);
        found.ok_or_else(|| AddressError::Unresolved(text.to_owned(), "no result".to_owned()))
    }
}

fn unresolved(text: &str, error: &std::io::Error) -> AddressError {
    match is_unanswered(error) {
        true => AddressError::Unanswered(text.to_owned(), error.to_string()),
        false => AddressError::Unresolved(text.to_owned(), error.to_string()),
    }
}

/// The address that is tried after so many failures: at first the one that the resolver prefers, then each, in an order of
/// their own, for some name servers give another order each time.
fn in_turn(mut found: Vec<SocketAddr>, failures: u32) -> Option<SocketAddr> {
    if failures > 0 {
        found.sort_unstable();
    }
    found.get(failures as usize % found.len().max(1)).copied()
}

impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(formatter),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// An address in the kernel's form.
#[derive(Clone, Copy)]
pub(crate) struct RawAddress {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl RawAddress {
    pub(crate) fn empty() -> RawAddress {
        // SAFETY: `sockaddr_storage` is a plain C structure for which zeros are valid.
        #[allow(unsafe_code)]
        let storage = unsafe { std::mem::zeroed() };
        RawAddress { storage, length: 0 }
    }

    pub(crate) fn new(address: &Address) -> RawAddress {
        let mut raw = RawAddress::empty();
        match address {
            Address::Tcp(SocketAddr::V4(address)) => raw.put(libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            Address::Tcp(SocketAddr::V6(address)) => raw.put(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
            Address::Unix(path) => {
                let mut unix = libc::sockaddr_un { sun_family: libc::AF_UNIX as _, sun_path: [0; 108] };
                let bytes = path.as_os_str().as_bytes();
                for (place, byte) in unix.sun_path.iter_mut().take(107).zip(bytes) {
                    *place = *byte as libc::c_char;
                }
                raw.put(unix);
            }
        }
        raw
    }

    fn put<T: Copy>(&mut self, address: T) {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        const { assert!(align_of::<T>() <= align_of::<libc::sockaddr_storage>()) };
        // SAFETY: the storage is large and aligned enough for every socket address, as asserted above.
        #[allow(unsafe_code)]
        unsafe {
            (&raw mut self.storage).cast::<T>().write(address);
        }
        self.length = size_of::<T>() as libc::socklen_t;
    }

    pub(crate) fn parts(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        ((&raw const self.storage).cast(), self.length)
    }
}

/// A listening socket, not yet attached to a reactor. A Unix socket's file is removed by [`Listener::remove`].
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: Address,
}

impl Listener {
    /// Listens. A Unix socket file that nobody listens on any more is replaced.
    pub fn bind(address: &Address) -> Result<Listener, ReactorError> {
        let bound = match address {
            Address::Tcp(tcp) => bind_tcp(*tcp).map_err(explain),
            Address::Unix(path) => {
                clear_stale(path).and_then(|()| bind_unix(path)).map(|socket| (socket, address.clone()))
            }
        };
        bound
            .map(|(socket, address)| Listener { socket, address })
            .map_err(|problem| ReactorError::Listen { address: address.to_string(), problem })
    }

    /// Where it listens; a port of 0 is replaced by the one that the kernel chose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A second handle of the same listening socket, for another reactor.
    pub fn try_clone(&self) -> Result<Listener, ReactorError> {
        let socket = self.socket.try_clone().map_err(|error| ReactorError::Listen {
            address: self.address.to_string(),
            problem: ListenProblem::Other(Errno::from_io(&error)),
        })?;
        Ok(Listener { socket, address: self.address.clone() })
    }

    /// The socket, to be attached to a reactor.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Removes the file of a Unix socket; to be called when the server stops.
    pub fn remove(address: &Address) {
        if let Address::Unix(path) = address {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn explain(errno: Errno) -> ListenProblem {
    match errno.0 {
        libc::EADDRINUSE => ListenProblem::InUse,
        libc::EADDRNOTAVAIL => ListenProblem::NotLocal,
        libc::EACCES | libc::EPERM => ListenProblem::Permission,
        libc::ENOENT => ListenProblem::NoFolder,
        _ => ListenProblem::Other(errno),
    }
}

fn bind_tcp(address: SocketAddr) -> Result<(OwnedFd, Address), Errno> {
    let socket = open_tcp(&address)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    // Connections have it, too: while an answer is not acknowledged the kernel does not ask whether the other host lives.
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ACCEPTED_UNHEARD_MS_MAX)?;
    if address.is_ipv6() {
        set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    let raw = RawAddress::new(&Address::Tcp(address));
    let (pointer, length) = raw.parts();
    // SAFETY: the address is valid for `length` bytes during the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::bind(socket.as_raw_fd(), pointer, length) };
    if result < 0 {
        return Err(Errno::last());
    }
    // SAFETY: plain system call on a socket that is owned here.
    #[allow(unsafe_code)]
    let result = unsafe { libc::listen(socket.as_raw_fd(), 1024) };
    if result < 0 {
        return Err(Errno::last());
    }
    let listener = TcpListener::from(socket);
    let local = listener.local_addr().map_err(|error| Errno::from_io(&error))?;
    Ok((OwnedFd::from(listener), Address::Tcp(local)))
}

fn bind_unix(path: &Path) -> Result<OwnedFd, ListenProblem> {
    let listener = UnixListener::bind(path).map_err(|error| explain(Errno::from_io(&error)))?;
    Ok(OwnedFd::from(listener))
}

/// Removes a socket file that nobody listens on.
fn clear_stale(path: &Path) -> Result<(), ListenProblem> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(ListenProblem::NotASocket);
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| explain(Errno::from_io(&error)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(ListenProblem::Permission),
        _ => Err(ListenProblem::InUse),
    }
}

/// Connects to `address`, blocking for at most `timeout`; for command line tools and tests.
pub fn connect_blocking(address: &Address, timeout: Duration) -> Result<OwnedFd, Errno> {
    match address {
        Address::Tcp(tcp) => {
            let stream = TcpStream::connect_timeout(tcp, timeout).map_err(|error| Errno::from_io(&error))?;
            stream.set_nodelay(true).map_err(|error| Errno::from_io(&error))?;
            Ok(OwnedFd::from(stream))
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).map_err(|error| Errno::from_io(&error))?;
            Ok(OwnedFd::from(stream))
        }
    }
}

/// Owns a file descriptor that the kernel handed over in a completion.
pub(crate) fn own_accepted(raw: i32) -> OwnedFd {
    assert!(raw >= 0, "an accepted connection has a file descriptor");
    // SAFETY: the completion of an accept hands over a new descriptor that nobody else owns.
    #[allow(unsafe_code)]
    unsafe {
        OwnedFd::from_raw_fd(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_that_does_not_answer_says_nothing_of_a_name() {
        let failed = |reason: &str| {
            let error = std::io::Error::other(format!("failed to lookup address information: {reason}"));
            unresolved("host:1", &error)
        };
        assert!(failed("Temporary failure in name resolution").is_passing());
        assert!(failed("Try again").is_passing());
        assert!(!failed("Name or service not known").is_passing());
        assert!(!Address::resolve("nonsense").unwrap_err().is_passing());
    }

    #[test]
    fn who_fails_tries_each_address_of_a_name() {
        let found: Vec<SocketAddr> = ["[::1]:80", "127.0.0.1:80"].map(|text| text.parse().unwrap()).to_vec();
        assert_eq!(in_turn(found.clone(), 0), Some(found[0]));
        // A name server that gives them in turns, too.
        for rotated in [0, 1] {
            let tried = (1..3).map(|failures| {
                let mut all = found.clone();
                all.rotate_left(rotated * failures as usize % 2);
                in_turn(all, failures)
            });
            let mut tried: Vec<_> = tried.flatten().collect();
            tried.sort_unstable_by_key(|one| found.iter().position(|other| other == one));
            assert_eq!(tried, found);
        }
        assert_eq!(in_turn(Vec::new(), 3), None);
        assert_eq!(Address::resolve_next("127.0.0.1:80", 5), Ok(Address::Tcp(found[1])));
    }
}
