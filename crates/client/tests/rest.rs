//! A directed client that nobody has open gives its memory back: counted by an allocator of this test's process.

#![allow(unsafe_code, reason = "counting allocations takes a global allocator")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../tests/lib/counting_allocator.rs"]
mod counting_allocator;
#[allow(dead_code, reason = "made for other tests as well")]
mod fake;

use coquina_client::{
    ClientCompletion, ClientConfig, ClientRequest, RequestKind, VolumeClient, VolumeConnection,
};
use coquina_reactor::{Reactor, ReactorConfig, Wait, monotonic_ns};

use counting_allocator::held_bytes;
use fake::Fake;

/// A client, and the reactor that it runs on.
struct Driven {
    client: VolumeClient,
    reactor: Reactor,
    completions: Vec<ClientCompletion>,
}

impl Driven {
    fn turn(&mut self) {
        let mut turned = Vec::new();
        self.client.flush(&mut self.reactor);
        self.reactor.turn(Wait::Until(monotonic_ns() + 5_000_000), &mut turned).unwrap();
        for completion in turned {
            self.client.complete(&mut self.reactor, completion);
        }
        self.client.take_completions(&mut self.completions);
    }

    /// So many requests of this size at once.
    fn run(&mut self, kind: RequestKind, requests: u64, length_bytes: u64) {
        for token in 0..requests {
            let offset_bytes = token * length_bytes;
            let buffer = VolumeConnection::buffer(length_bytes as usize);
            self.client.submit(ClientRequest { token, kind, offset_bytes, length_bytes, buffer });
        }
        while self.completions.len() < requests as usize {
            self.turn();
        }
        assert!(self.completions.drain(..).all(|done| done.result.is_ok()));
        self.completions.shrink_to_fit();
    }

    /// Closes everything, and waits until it is closed.
    fn rest(&mut self) {
        self.client.set_open(false);
        self.turn();
        while self.client.in_flight() > 0 {
            self.turn();
        }
    }
}

/// Its lists, its receive buffers and the window of its requests lasted as long as the volume.
#[test]
fn a_client_that_nobody_has_open_keeps_no_memory() {
    let fake = Fake::start(16 << 20);
    let mut client = VolumeClient::directed(
        ClientConfig { copy_bytes_max: 1 << 20, ..VolumeConnection::config("", "disk") },
        1 << 32,
    );
    let reactor = Reactor::new(ReactorConfig::default()).unwrap();
    client.set_volume(&fake.attached());
    let mut driven = Driven { client, reactor, completions: Vec::new() };
    // What the reactor needs, and who keeps no list of connections yet.
    driven.run(RequestKind::Read, 1, 4096);
    driven.rest();
    let before = held_bytes();
    for _ in 0..3 {
        driven.client.set_open(true);
        driven.run(RequestKind::Write, 100, 16 << 10);
        driven.run(RequestKind::Read, 100, 16 << 10);
        let kept = held_bytes() - before;
        assert!(kept > 512 << 10, "it is open: {kept} bytes");
        driven.rest();
        let kept = held_bytes() - before;
        assert!(kept < 64 << 10, "{kept} bytes");
    }
}
