//! Processes of this host that serve a target which ran before, found by the socket on which they listen.
//!
//! Invariants:
//! - only a process that holds the listening socket counts, never one that is merely named like a server;
//! - what the kernel hides, as of other users' processes, is not there: who asks takes the servers as not known then.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};

use super::reach;

/// The port of NBD exports whose URI names none.
const NBD_PORT: u16 = 10809;
/// `/proc/net/tcp` writes this state of sockets that listen.
const TCP_LISTENS: &str = "0A";
/// A flag in `/proc/net/unix`.
const UNIX_LISTENS: u32 = 0x1_0000;
/// It may hold the sockets of the servers that it starts.
const INIT: u32 = 1;

/// Sockets that listen on this host, and who holds them.
#[derive(Debug, Default)]
pub struct Listeners {
    tcp: Vec<(SocketAddr, u64)>,
    unix: Vec<(PathBuf, u64)>,
    holders: BTreeMap<u64, Vec<u32>>,
}

impl Listeners {
    /// Looks at all processes.
    pub fn look() -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
        let mut found = Listeners {
            tcp: ["tcp", "tcp6"].iter().flat_map(|name| tcp_listeners(&read(name))).collect(),
            unix: unix_listeners(&read("unix")),
            ..Listeners::default()
        };
        let inodes =
            found.tcp.iter().map(|(_, inode)| inode).chain(found.unix.iter().map(|(_, inode)| inode));
        found.holders = inodes.map(|inode| (*inode, Vec::new())).collect();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            for inode in sockets_of(pid) {
                if let Some(holders) = found.holders.get_mut(&inode).filter(|pids| !pids.contains(&pid)) {
                    holders.push(pid);
                }
            }
        }
        found
    }

    fn holders(&self, inode: u64) -> Vec<u32> {
        let mut pids = self.holders.get(&inode).cloned().unwrap_or_default();
        if pids.len() > 1 {
            pids.retain(|pid| *pid != INIT);
        }
        pids
    }

    /// Processes that answer at an address of this host.
    pub fn at(&self, address: SocketAddr) -> Vec<u32> {
        let wanted = address.ip().to_canonical();
        if !is_of_this_host(wanted) {
            return Vec::new();
        }
        let answers = |listening: &SocketAddr| {
            let ip = listening.ip().to_canonical();
            listening.port() == address.port()
                && (ip == wanted || ip.is_unspecified() || wanted.is_unspecified())
        };
        let inodes = self.tcp.iter().filter(|(listening, _)| answers(listening)).map(|(_, inode)| *inode);
        unique(inodes.flat_map(|inode| self.holders(inode)))
    }

    /// Processes that answer at a Unix socket. It may have been named from their folder.
    pub fn at_path(&self, path: &Path) -> Vec<u32> {
        let Ok(wanted) = path.canonicalize() else { return Vec::new() };
        let is_it = |pid: u32, named: &Path| {
            let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            folder.join(named).canonicalize().is_ok_and(|found| found == wanted)
        };
        let held = self.unix.iter().flat_map(|(named, inode)| {
            self.holders(*inode).into_iter().filter(|pid| is_it(*pid, named)).collect::<Vec<u32>>()
        });
        unique(held)
    }

    /// Processes of this host that serve an NBD export.
    pub fn of_uri(&self, uri: &str) -> Vec<u32> {
        let Some(host) = reach::host_of(uri) else {
            return socket_of(uri).map(|path| self.at_path(&path)).unwrap_or_default();
        };
        let host = if host.is_empty() { "localhost" } else { &host };
        let addresses = (host, port_of(uri)).to_socket_addrs();
        unique(addresses.into_iter().flatten().flat_map(|address| self.at(address)))
    }

    /// The processes at all of these addresses. `None` if one of them is not found: a part is not taken for the whole.
    pub fn at_all<'a>(&self, addresses: impl IntoIterator<Item = &'a str>) -> Option<Vec<u32>> {
        let mut all = Vec::new();
        for address in addresses {
            let found = address_of(address).map(|address| self.at(address)).unwrap_or_default();
            if found.is_empty() {
                return None;
            }
            all.extend(found);
        }
        Some(unique(all))
    }
}

fn unique(pids: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut all: Vec<u32> = pids.into_iter().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Only addresses of its own can be bound.
fn is_of_this_host(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Whether an address as Ceph writes it is one of this host.
pub fn is_here(address: &str) -> bool {
    address_of(address).is_some_and(|address| is_of_this_host(address.ip().to_canonical()))
}

/// `127.0.0.1:6789/0`, as Ceph writes it.
fn address_of(address: &str) -> Option<SocketAddr> {
    address.split('/').next()?.parse().ok()
}

/// The port of an NBD URI.
fn port_of(uri: &str) -> u16 {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    // The colons of an address lie within brackets.
    let behind = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
    behind.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(NBD_PORT)
}

/// The Unix socket of an NBD URI.
fn socket_of(uri: &str) -> Option<PathBuf> {
    let (_, options) = uri.split_once('?')?;
    let path = options.split(['&', ';']).find_map(|option| option.strip_prefix("socket="))?;
    Some(PathBuf::from(unescaped(path)))
}

/// `%2f` is a slash.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sockets that a process holds. None where this may not be seen.
fn sockets_of(pid: u32) -> Vec<u64> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let inode = |path: PathBuf| {
        let target = std::fs::read_link(path).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(|entry| inode(entry.path())).collect()
}

/// Lines of `/proc/net/tcp` and `tcp6`: number, local address, remote address, state, and the inode as the tenth.
fn tcp_listeners(text: &str) -> Vec<(SocketAddr, u64)> {
    let lines = text.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let inode = fields.get(9)?.parse().ok()?;
        (fields[3] == TCP_LISTENS).then_some((address_of_kernel(fields[1])?, inode))
    });
    lines.collect()
}

/// `0100007F:2A39`: words of the address as this machine has them in memory, and the port.
fn address_of_kernel(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word =
        |at: usize| Some(u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Lines of `/proc/net/unix`: number, references, protocol, flags, type, state, inode, path.
fn unix_listeners(text: &str) -> Vec<(PathBuf, u64)> {
    let lines = text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let inode = fields.nth(2)?.parse().ok()?;
        // A path may hold blanks.
        let number = format!(" {inode} ");
        let path = &line[line.find(&number)? + number.len()..];
        (flags & UNIX_LISTENS != 0 && !path.is_empty()).then(|| (PathBuf::from(path), inode))
    });
    lines.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits until what is looked for is so. A program that another test is just starting holds the sockets of this process until it
    /// runs.
    pub fn wait_for<T: PartialEq + std::fmt::Debug>(wanted: &T, mut look: impl FnMut() -> T) {
        let began = Instant::now();
        loop {
            let found = look();
            if found == *wanted {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{found:?} in place of {wanted:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn who_listens_is_found() {
        let me = vec![std::process::id()];
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a socket");
        let _unix = UnixListener::bind(&path).unwrap();
        wait_for(&(me.clone(), me.clone()), || {
            let found = Listeners::look();
            (found.at(address), found.at_path(&path))
        });
        let socket = path.to_string_lossy().replace('/', "%2F").replace(' ', "%20");
        wait_for(&me, || Listeners::look().of_uri(&format!("nbd+unix:///x?socket={socket}")));
        wait_for(&me, || Listeners::look().of_uri(&format!("nbd://localhost:{}/x", address.port())));
        let (here, again) = (address.to_string(), format!("{address}/123"));
        wait_for(&Some(me), || Listeners::look().at_all([here.as_str(), &again]));
        let one_is_elsewhere = [here.as_str(), "192.0.2.1:6800/1"];
        assert_eq!(Listeners::look().at_all(one_is_elsewhere), None);
        drop(tcp);
        // What was only used before.
        wait_for(&vec![], || Listeners::look().at(address));
    }

    #[test]
    fn the_kernel_s_tables_are_read() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let rest = "00000000:00000000 00:00000000 00000000     0        0";
        let v4 = u32::from_ne_bytes([127, 0, 0, 1]);
        let lines = format!(
            "{head}   0: {v4:08X}:2A39 00000000:0000 0A {rest} 77 1 x\n   1: {v4:08X}:2A39 {v4:08X}:1111 01 {rest} 78 1 x\n"
        );
        assert_eq!(tcp_listeners(&lines), [("127.0.0.1:10809".parse().unwrap(), 77)]);
        let last = u32::from_ne_bytes([0, 0, 0, 1]);
        let v6 = format!("{:024X}{last:08X}:0050", 0);
        assert_eq!(address_of_kernel(&v6), Some("[::1]:80".parse().unwrap()));
        for wrong in ["", "0100007F", "0100007F:x", "01:50", &"é".repeat(4)] {
            assert_eq!(address_of_kernel(wrong), None, "{wrong}");
        }
        let unix = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 2 0 00010000 0001 01 9 /run/a b\n0: 2 0 00000000 0001 03 10 /run/c\n0: 2 0 00010000 0001 01 11\n";
        assert_eq!(unix_listeners(unix), [(PathBuf::from("/run/a b"), 9)]);
    }

    #[test]
    fn uris_have_a_port_or_a_socket() {
        for (uri, port) in [
            ("nbd://127.0.0.1/x", 10809),
            ("nbd://user@[::1]:7/x", 7),
            ("nbd://[::1]/x", 10809),
            ("nbd://a:8", 8),
        ] {
            assert_eq!(port_of(uri), port, "{uri}");
        }
        assert_eq!(socket_of("nbd+unix:///x?a=b&socket=%2frun%2Fa%zz"), Some("/run/a%zz".into()));
        assert_eq!(socket_of("nbd+unix:///x"), None);
    }
}
