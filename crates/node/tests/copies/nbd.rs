//! NBD clients that give a connection up and go on with another one.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use coquina_cluster::{GroupRecord, Key, PoolRecord, Record};

use crate::cluster::Cluster;

const READ: u16 = 0;
pub const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;

/// An NBD client that sends what it is told to.
pub struct NbdClient {
    pub stream: TcpStream,
    cookie: u64,
}

impl NbdClient {
    pub fn open(address: &str, export: &str) -> NbdClient {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        // No zeroes behind the answer; the export by its name.
        let mut hello = b"\0\0\0\x03IHAVEOPT\0\0\0\x01".to_vec();
        hello.extend_from_slice(&(export.len() as u32).to_be_bytes());
        hello.extend_from_slice(export.as_bytes());
        stream.write_all(&hello).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        NbdClient { stream, cookie: 0 }
    }

    /// A request for so much from block 0 on.
    fn ask(&mut self, command: u16, length_bytes: u32, payload: &[u8]) {
        self.ask_at(command, 0, length_bytes, payload);
    }

    /// A request for so much of the volume.
    pub fn ask_at(&mut self, command: u16, offset_bytes: u64, length_bytes: u32, payload: &[u8]) {
        self.cookie += 1;
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend_from_slice(&[0, 0]);
        request.extend_from_slice(&command.to_be_bytes());
        request.extend_from_slice(&self.cookie.to_be_bytes());
        request.extend_from_slice(&offset_bytes.to_be_bytes());
        request.extend_from_slice(&length_bytes.to_be_bytes());
        request.extend_from_slice(payload);
        self.stream.write_all(&request).unwrap();
    }

    fn answer(&mut self) {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "it succeeds");
    }

    fn write(&mut self, fill: u8) {
        self.ask(WRITE, 4096, &[fill; 4096]);
    }

    fn read(&mut self) -> u8 {
        self.ask(READ, 4096, &[]);
        self.answer();
        let mut block = [0; 4096];
        self.stream.read_exact(&mut block).unwrap();
        assert!(block.iter().all(|byte| *byte == block[0]));
        block[0]
    }
}

/// Changes how many copies a write needs.
pub fn need_copies(cluster: &Cluster, min_copies: u32) {
    let map = cluster.service().map();
    let pool = map.pools().next().unwrap().value.as_ref().clone();
    cluster.put(Key::Pool(pool.id), Record::Pool(PoolRecord { min_copies, copies: min_copies, ..pool }));
    cluster.change_groups(|group| GroupRecord { epoch: group.epoch + 1, ..group.clone() });
    let revision = cluster.service().map().revision();
    for machine in cluster.machines.iter().flatten() {
        assert!(machine.service.wait_followed(revision, Duration::from_secs(10)));
    }
}

/// They were tried again for 30 s, and overwrote what the client had written meanwhile by its next connection.
#[test]
fn writes_of_a_connection_that_was_given_up_do_not_come_after_those_of_the_next() {
    let cluster = Cluster::with_reactors(1, 1, 2);
    cluster.make_volume("disk");
    let address = cluster.machines[0].as_ref().unwrap().node.nbd_addresses()[0].clone();
    // From one with more than is taken at once nothing is received for the time being, also not that it is closed.
    for (round, writes) in [1, 1500, 1, 1500].into_iter().enumerate() {
        need_copies(&cluster, 2);
        let (old, new) = (round as u8 * 2 + 1, round as u8 * 2 + 2);
        let mut first = NbdClient::open(&address, "disk");
        for _ in 0..writes {
            first.write(old);
        }
        first.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert!(first.stream.read_exact(&mut [0; 16]).is_err(), "it is not answered");
        drop(first);
        let mut second = NbdClient::open(&address, "disk");
        second.write(old);
        std::thread::sleep(Duration::from_millis(50));
        need_copies(&cluster, 1);
        second.answer();
        second.write(new);
        second.answer();
        for _ in 0..10 {
            assert_eq!(second.read(), new, "round {round}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Its writes were withdrawn when they were refused once, since nothing more could come from it.
#[test]
fn who_disconnects_and_only_receives_is_answered() {
    let cluster = Cluster::with_reactors(1, 1, 2);
    cluster.make_volume("disk");
    let address = cluster.machines[0].as_ref().unwrap().node.nbd_addresses()[0].clone();
    // Behind as many requests as are taken at once, or as many bytes, that it disconnects is read, but not obeyed yet.
    for (writes, length_bytes) in [(3, 4096), (1500, 4096), (2, 32 << 20), (3, 32 << 20)] {
        need_copies(&cluster, 2);
        let mut client = NbdClient::open(&address, "disk");
        for fill in 1..=writes {
            client.ask(WRITE, length_bytes, &vec![fill as u8 | 1; length_bytes as usize]);
        }
        client.ask(DISCONNECT, 0, &[]);
        client.stream.shutdown(Shutdown::Write).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        need_copies(&cluster, 1);
        for _ in 0..writes {
            client.answer();
        }
        assert_eq!(client.stream.read(&mut [0; 16]).unwrap(), 0, "it is closed then");
        assert_ne!(NbdClient::open(&address, "disk").read(), 0);
    }
}
