//! A node that stops while NBD clients have requests under way.

use std::io::Read as _;
use std::net::TcpStream;

use crate::cluster::{Cluster, wait_for};
use crate::nbd::{NbdClient, WRITE, need_copies};

/// More than are taken at once.
const WRITES: u64 = 1500;

/// Whether NBD clients are not served any more.
fn is_refused(address: &str) -> bool {
    TcpStream::connect(address).and_then(|mut stream| stream.read_exact(&mut [0; 18])).is_err()
}

/// Receives answers to writes until the connection ends: how many of success, and how many of a server that stops.
fn answers(client: &mut NbdClient) -> (u64, u64) {
    let (mut done, mut refused) = (0, 0);
    loop {
        let mut reply = [0; 16];
        let first = client.stream.read(&mut reply).unwrap();
        if first == 0 {
            return (done, refused);
        }
        client.stream.read_exact(&mut reply[first..]).unwrap();
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98]);
        match u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]]) {
            0 => done += 1,
            108 => refused += 1,
            error => panic!("error {error}"),
        }
    }
}

/// Stops the first of several nodes while clients of both of its reactors have writes under way that cannot be done yet; these can be done
/// before the stop is over if `copies_come`. Gives how many were done, and how many refused.
fn stop_with_writes_under_way(nodes: usize, copies_come: bool) -> (u64, u64) {
    let copies = nodes as u32;
    let cluster = Cluster::with_reactors(nodes, copies, 2);
    cluster.make_volume("disk");
    let node = cluster.machines[0].as_ref().unwrap().node.clone();
    let address = node.nbd_addresses()[0].clone();
    need_copies(&cluster, copies + 1);
    let mut clients: Vec<_> = (0..2).map(|_| NbdClient::open(&address, "disk")).collect();
    for client in &mut clients {
        // On shards of all nodes.
        (0..WRITES).for_each(|at| client.ask_at(WRITE, (at % 64) << 16, 4096, &[1; 4096]));
    }
    let stop = std::thread::spawn(move || node.stop());
    wait_for("the stop begins", || is_refused(&address));
    if copies_come {
        need_copies(&cluster, copies);
    }
    let (mut done, mut refused) = (0, 0);
    for client in &mut clients {
        let answered = answers(client);
        assert_eq!(
            answered.0 + answered.1,
            WRITES,
            "each is answered before the connection ends: {answered:?}"
        );
        done += answered.0;
        refused += answered.1;
    }
    stop.join().unwrap();
    (done, refused)
}

#[test]
fn requests_under_way_are_done_before_a_node_stops_and_later_ones_refused() {
    let (done, refused) = stop_with_writes_under_way(1, true);
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
}

/// Most of them are with other nodes.
#[test]
fn requests_under_way_at_three_nodes_are_done_before_one_stops() {
    let (done, refused) = stop_with_writes_under_way(3, true);
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
}

#[test]
fn requests_that_cannot_be_done_are_refused_before_a_node_stops() {
    assert_eq!(stop_with_writes_under_way(1, false), (0, 2 * WRITES));
}
