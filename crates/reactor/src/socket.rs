//! Sockets as the protocol wants them.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::accept::Address;
use crate::error::{Errno, ReactorError};

/// An unconnected socket for `address`, to be attached to a reactor and connected there.
pub fn open_socket(address: &Address) -> Result<OwnedFd, ReactorError> {
    let opened = match address {
        Address::Tcp(tcp) => open_tcp(tcp),
        Address::Unix(_) => open(libc::AF_UNIX),
    };
    opened.map_err(|errno| ReactorError::Socket { address: address.to_string(), errno })
}

/// When the kernel gives a connection up by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GiveUp {
    /// When nothing of what was sent is acknowledged for so many seconds. An idle connection sends nothing.
    UnheardSeconds(u32),
    /// That, or when an idle one does not answer the kernel's questions for as long.
    SilentSeconds(u32),
}

/// Has the kernel give a connection up sooner than it would by itself: it waits longer and longer before it sends again, and
/// on a network that was cut for 7 s and is mended, 6 s more. A socket that is not TCP stays as it is.
pub fn give_up(socket: &OwnedFd, when: GiveUp) {
    match when {
        GiveUp::UnheardSeconds(seconds) => {
            let milliseconds = seconds.clamp(1, 3600) as i32 * 1000;
            // Without it a cut is only noticed later.
            let _ = set_option(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, milliseconds);
        }
        GiveUp::SilentSeconds(seconds) => keep_watch(socket, seconds),
    }
}

fn keep_watch(socket: &OwnedFd, seconds: u32) {
    let seconds = seconds.clamp(2, 3600) as i32;
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, seconds - 1),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, seconds * 1000),
    ];
    for (level, name, value) in options {
        // Without them an end is only noticed later.
        let _ = set_option(socket, level, name, value);
    }
}

/// A TCP socket that sends at once. A listener hands the option on to its connections.
pub(crate) fn open_tcp(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = open(if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 })?;
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 10)?;
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5)?;
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)?;
    avoid_pacing(&socket);
    Ok(socket)
}

/// Where the host's rule is BBR, takes one that does not pace: BBR sends by timers, which costs CPU and time for every
/// message on a storage network. Other rules are the operator's choice and stay. See `docs/decisions/`.
fn avoid_pacing(socket: &OwnedFd) {
    let mut name = [0u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: `name` is writable for the length given.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 || !name.starts_with(b"bbr") {
        return;
    }
    // Failure (not loaded, not allowed) leaves the rule as it was.
    let rules = [b"cubic".as_slice(), b"reno"];
    let _ = rules
        .into_iter()
        .any(|rule| set_option_bytes(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, rule).is_ok());
}

fn open(family: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: plain system call; the result is checked before it is owned.
    #[allow(unsafe_code)]
    let raw = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(Errno::last());
    }
    // SAFETY: `raw` was just made and belongs to nobody else.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

pub(crate) fn set_option(socket: &OwnedFd, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    set_option_bytes(socket, level, name, &value.to_ne_bytes())
}

fn set_option_bytes(socket: &OwnedFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    // SAFETY: `value` is readable for its length during the call.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result < 0 { Err(Errno::last()) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn the_kernel_is_told_when_to_give_up() {
        let tcp = || open(libc::AF_INET).unwrap();
        let unheard = tcp();
        give_up(&unheard, GiveUp::UnheardSeconds(2));
        assert_eq!(sockopt::tcp_user_timeout(&unheard), Ok(2000));
        assert_eq!(sockopt::socket_keepalive(&unheard), Ok(false), "an idle one is left alone");
        let silent = tcp();
        give_up(&silent, GiveUp::SilentSeconds(4));
        assert_eq!(sockopt::tcp_user_timeout(&silent), Ok(4000));
        assert_eq!(sockopt::socket_keepalive(&silent), Ok(true));
        // Nothing to be told, and nothing broken.
        give_up(&open(libc::AF_UNIX).unwrap(), GiveUp::UnheardSeconds(2));
    }
}
