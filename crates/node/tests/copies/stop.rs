//! A node that stops while NBD clients have requests under way.

use std::io::Read as _;
use std::net::TcpStream;

use coquina_control::{NodeBackend, NodeSnapshot};

use crate::cluster::{Cluster, wait_for};
use crate::nbd::{NbdClient, WRITE, need_copies};

/// More than are taken at once.
const WRITES: u64 = 1500;

/// Whether NBD clients are not served any more.
fn is_refused(address: &str) -> bool {
    TcpStream::connect(address).and_then(|mut stream| stream.read_exact(&mut [0; 18])).is_err()
}

/// Receives answers to writes until the connection ends: how many there were, all of success.
fn answers(client: &mut NbdClient) -> u64 {
    let mut done = 0;
    loop {
        let mut reply = [0; 16];
        let first = client.stream.read(&mut reply).unwrap();
        if first == 0 {
            return done;
        }
        client.stream.read_exact(&mut reply[first..]).unwrap();
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98]);
        assert_eq!(reply[4..8], [0; 4], "no error: the client may repeat what has no answer");
        done += 1;
    }
}

/// Stops the first of several nodes while clients of both of its reactors have writes under way that cannot be done yet; these can be done
/// before the stop is over if `copies_come`. Gives how many were done.
fn stop_with_writes_under_way(nodes: usize, copies_come: bool) -> u64 {
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
    let done = clients.iter_mut().map(answers).sum();
    drop(clients);
    stop.join().unwrap();
    done
}

#[test]
fn requests_under_way_are_done_before_a_node_stops_and_later_ones_not() {
    let done = stop_with_writes_under_way(1, true);
    assert!(done > 0 && done < 2 * WRITES, "{done} done");
}

/// It looked as if nobody were connected and all drives were empty, and what is counted fell to 0.
#[test]
fn reactors_that_do_not_answer_are_told_of_and_nothing_that_they_counted_is_forgotten() {
    let cluster = Cluster::with_reactors(1, 1, 2);
    cluster.make_volume("disk");
    let node = cluster.machines[0].as_ref().unwrap().node.clone();
    let mut client = NbdClient::open(&node.nbd_addresses()[0], "disk");
    client.ask_at(WRITE, 0, 4096, &[1; 4096]);
    let counted = |snapshot: &NodeSnapshot| {
        let live_bytes = snapshot.drives[0].shards.iter().map(|shard| shard.stats.live_bytes).sum::<u64>();
        (live_bytes, snapshot.volumes[0].counters.writes, snapshot.reactors.len())
    };
    wait_for("the write", || counted(&node.snapshot()).1 == 1);
    let before = node.snapshot();
    assert!(!before.incomplete && counted(&before).0 > 0);
    node.stop();
    let after = node.snapshot();
    assert!(after.incomplete);
    assert_eq!(counted(&after), counted(&before));
}

/// Most of them are with other nodes.
#[test]
fn requests_under_way_at_three_nodes_are_done_before_one_stops() {
    let done = stop_with_writes_under_way(3, true);
    assert!(done > 0 && done < 2 * WRITES, "{done} done");
}

#[test]
fn requests_that_cannot_be_done_end_with_the_connection_when_a_node_stops() {
    assert_eq!(stop_with_writes_under_way(1, false), 0);
}
