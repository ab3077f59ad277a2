//! A connected socket whose sends never wait and whose receives wait no longer than told.

use std::io::{Error, ErrorKind, Result};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::uri::Peer;

/// Waits at least this long use the socket's own time-out, which saves a system call.
const OWN_TIMEOUT_MIN: Duration = Duration::from_millis(50);
const CONNECT: Duration = Duration::from_secs(10);

pub(super) struct Stream {
    socket: OwnedFd,
    own_timeout: Duration,
}

impl Stream {
    pub fn connect(peer: &Peer) -> Result<Self> {
        let socket = match peer {
            Peer::Unix { path } => OwnedFd::from(UnixStream::connect(path)?),
            Peer::Tcp { host, port } => {
                let stream = connect_tcp(host, *port)?;
                stream.set_nodelay(true)?;
                OwnedFd::from(stream)
            }
        };
        Ok(Stream { socket, own_timeout: Duration::ZERO })
    }

    /// Sends what the socket takes now; `None` if it takes nothing.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        // SAFETY: the pointer and length are those of a slice that outlives the call.
        #[allow(unsafe_code)]
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        outcome(sent)
    }

    /// Sends everything, waiting where needed.
    pub fn send_all(&mut self, mut bytes: &[u8], timeout: Duration) -> Result<()> {
        while !bytes.is_empty() {
            match self.send(bytes)? {
                Some(length) => bytes = &bytes[length..],
                None if self.wait(libc::POLLOUT, timeout)? => {}
                None => return Err(ErrorKind::TimedOut.into()),
            }
        }
        Ok(())
    }

    /// Receives at least a byte; `None` if nothing came in time, 0 if the peer has closed.
    pub fn receive(&mut self, space: &mut [u8], timeout: Duration) -> Result<Option<usize>> {
        self.receive_while(space, timeout, false)
    }

    /// As [`Self::receive`]; with `must_send` it also comes back with `None` once the socket takes data again.
    pub fn receive_while(
        &mut self,
        space: &mut [u8],
        timeout: Duration,
        must_send: bool,
    ) -> Result<Option<usize>> {
        if !must_send && timeout >= OWN_TIMEOUT_MIN {
            if timeout != self.own_timeout {
                set_receive_timeout(&self.socket, timeout)?;
                self.own_timeout = timeout;
            }
            return self.receive_now(space, 0);
        }
        let events = if must_send { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        if !self.wait(events, timeout)? {
            return Ok(None);
        }
        self.receive_now(space, libc::MSG_DONTWAIT)
    }

    fn receive_now(&mut self, space: &mut [u8], flags: i32) -> Result<Option<usize>> {
        // SAFETY: the pointer and length are those of a slice that outlives the call.
        #[allow(unsafe_code)]
        let received =
            unsafe { libc::recv(self.socket.as_raw_fd(), space.as_mut_ptr().cast(), space.len(), flags) };
        outcome(received)
    }

    fn wait(&mut self, events: i16, timeout: Duration) -> Result<bool> {
        let mut entry = libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 };
        let limit = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: one valid entry and a valid time, both outliving the call; no signal mask.
        #[allow(unsafe_code)]
        let count = unsafe { libc::ppoll(&mut entry, 1, &limit, std::ptr::null()) };
        match count {
            0 => Ok(false),
            count if count > 0 => Ok(true),
            _ => match Error::last_os_error() {
                error if error.kind() == ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }
}

fn set_receive_timeout(socket: &OwnedFd, timeout: Duration) -> Result<()> {
    let value =
        libc::timeval { tv_sec: timeout.as_secs() as libc::time_t, tv_usec: timeout.subsec_micros().into() };
    // SAFETY: the option takes a timeval, whose pointer and size are given.
    #[allow(unsafe_code)]
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const value).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        )
    };
    if failed == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn outcome(result: isize) -> Result<Option<usize>> {
    if let Ok(length) = usize::try_from(result) {
        return Ok(Some(length));
    }
    match Error::last_os_error() {
        error if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        error => Err(error),
    }
}

fn connect_tcp(host: &str, port: u16) -> Result<TcpStream> {
    use std::net::ToSocketAddrs;
    let began = Instant::now();
    let mut last = Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = CONNECT.saturating_sub(began.elapsed()).max(Duration::from_millis(100));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
