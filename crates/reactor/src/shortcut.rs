//! The short way to a server of the same host: a Unix socket beside its TCP address. A message costs less than over loopback, and
//! nobody has to configure anything: see `docs/decisions/unix-sockets-on-one-host.md`.
//!
//! Its name is `coquina:` and the TCP address, among the names without a file (`unix(7)`, abstract sockets): they end with the
//! process, and belong to a network namespace as the TCP address does.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt,
};
use rustix::process::geteuid;

use crate::accept::Address;
use crate::error::Errno;
use crate::socket::set_option;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Bytes that a socket takes before its reader is there, where that may be set: the usual 208 KiB hold large writes back.
const BUFFER_BYTES: i32 = 4 << 20;

/// Listens for clients of this host, beside the TCP address. None for an address that is not TCP's.
pub fn listen_nearby(address: &Address) -> Option<Result<OwnedFd, Errno>> {
    let Address::Tcp(tcp) = address else { return None };
    let make = || {
        let socket = open(SocketFlags::CLOEXEC)?;
        bind(&socket, &name(tcp)?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    Some(make().map_err(|errno: rustix::io::Errno| Errno(errno.raw_os_error())))
}

/// A connection to the server of this host that has the TCP address, if there is one. Only a server of the same user or of root
/// is taken, since a name without a file can be anybody's.
pub(crate) fn connect_nearby(address: &Address) -> Option<OwnedFd> {
    let Address::Tcp(tcp) = address else { return None };
    // It does not block while it connects: a server that does not accept must not stop this thread.
    let socket = open(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()?;
    connect(&socket, &name(tcp).ok()?).ok()?;
    let server = sockopt::socket_peercred(&socket).ok()?.uid;
    if !server.is_root() && server != geteuid() {
        return None;
    }
    fcntl_setfl(&socket, OFlags::empty()).ok()?;
    Some(socket)
}

/// Gives a connection that was accepted from this host the buffers of one that was made.
pub(crate) fn prepare_accepted(socket: &OwnedFd) {
    if sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX) {
        widen(socket);
    }
}

fn name(address: &SocketAddr) -> Result<SocketAddrUnix, rustix::io::Errno> {
    SocketAddrUnix::new_abstract_name(format!("coquina:{address}").as_bytes())
}

fn open(flags: SocketFlags) -> Result<OwnedFd, rustix::io::Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    widen(&socket);
    Ok(socket)
}

fn widen(socket: &OwnedFd) {
    // Needs the right to go beyond the limit of the host; without it the limit stays.
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_BYTES);
}
