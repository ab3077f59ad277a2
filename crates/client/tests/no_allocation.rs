//! Small requests allocate nothing on their way, here or to a server: counted by an allocator of this test's process.

#![allow(unsafe_code, reason = "counting allocations takes a global allocator")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../tests/lib/counting_allocator.rs"]
mod counting_allocator;

use coquina_base::{AlignedBuf, ClusterId, DriveId, Id128, LayerId, NodeId, VolumeId};
use coquina_client::{ClientCompletion, ClientConfig, ClientCore, ClientRequest, LocalAnswer, RequestKind};
use coquina_protocol::*;
use coquina_reactor::ReceiveBuffer;

use counting_allocator::allocations;

const REQUESTS: usize = 32;

fn drive() -> DriveId {
    DriveId(Id128([3; 16]))
}

fn table() -> AttachedVolume {
    AttachedVolume {
        volume: VolumeId(Id128([9; 16])),
        name: "disk".to_owned(),
        size_bytes: 64 << 20,
        layer: LayerId(1),
        attach_generation: 1,
        map_version: 1,
        family: 1,
        group_first: 0,
        stripe_unit_bytes: 8192,
        stripe_count: 4,
        read_only: false,
        shards: vec![ShardRef { drive: drive(), shard: 0, address: "there:1".to_owned() }],
        groups: vec![0; 8],
        nodes: Vec::new(),
    }
}

/// A client whose calls are counted.
struct Counted {
    core: ClientCore,
    allocations: u64,
    completions: Vec<ClientCompletion>,
    buffers: Vec<AlignedBuf>,
}

impl Counted {
    fn new(local: Vec<(DriveId, u32)>) -> Counted {
        let mut core = ClientCore::directed(ClientConfig { local, ..ClientConfig::new("", "disk", 1) });
        core.set_volume(&table(), 1);
        let buffers = vec![AlignedBuf::zeroed(3); REQUESTS];
        Counted { core, allocations: 0, completions: Vec::new(), buffers }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut ClientCore) -> T) -> T {
        let before = allocations();
        let result = call(&mut self.core);
        self.allocations += allocations() - before;
        result
    }

    /// Each request has two parts, of 4 and 8 KiB.
    fn submit(&mut self, kind: RequestKind) {
        for token in 0..REQUESTS as u64 {
            let buffer = self.buffers.pop().unwrap();
            let offset_bytes = token * 16384 + 4096;
            let request = ClientRequest { token, kind, offset_bytes, length_bytes: 12288, buffer };
            self.call(|core| core.submit(request));
        }
        self.call(|core| core.pump(1));
    }

    fn finish(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        self.call(|core| core.take_completions(&mut completions));
        assert_eq!(completions.len(), REQUESTS);
        for done in completions.drain(..) {
            done.result.unwrap();
            self.buffers.push(done.buffer);
        }
        self.completions = completions;
    }
}

const KINDS: [RequestKind; 3] = [RequestKind::Write, RequestKind::Read, RequestKind::Discard];

#[test]
fn parts_in_this_process_allocate_nothing() {
    let mut client = Counted::new(vec![(drive(), 0)]);
    let mut parts = Vec::new();
    for round in 0..40 {
        if round == 6 {
            client.allocations = 0;
        }
        client.submit(KINDS[round % 3]);
        client.call(|core| core.take_local(&mut parts));
        assert_eq!(parts.len(), 2 * REQUESTS);
        for part in parts.drain(..) {
            client.call(|core| {
                let answer = match part.kind {
                    RequestKind::Read => {
                        core.local_buffer(part.name).unwrap().fill(1);
                        LocalAnswer::Data
                    }
                    _ => LocalAnswer::Changed,
                };
                assert!(part.kind != RequestKind::Write || core.local_payload(part.name).is_some());
                core.local_done(part.name, Ok(answer), 1);
            });
        }
        client.finish();
    }
    assert_eq!(client.allocations, 0);
}

#[test]
fn small_parts_to_a_server_allocate_nothing() {
    let mut client = Counted::new(Vec::new());
    let mut receiving = ReceiveBuffer::with_capacity_bytes(1 << 20);
    for round in 0..40 {
        client.submit(KINDS[round % 3]);
        if round == 0 {
            client.core.connected(1, 1);
        }
        if round == 6 {
            client.allocations = 0;
        }
        let mut sends = 0;
        while let Some(mut list) = client.call(|core| core.take_send(1)) {
            let requests = list.to_bytes();
            client.call(|core| core.sent(1, list));
            receiving.extend(&answers(&requests));
            client.call(|core| core.received(1, &mut receiving, 1));
            client.call(|core| core.pump(1));
            sends += 1;
        }
        assert_eq!(sends, if round == 0 { 2 } else { 1 });
        client.finish();
    }
    assert_eq!(client.allocations, 0);
}

fn answers(mut requests: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((message, length)) = decode(requests).unwrap() {
        let header = message.header;
        requests = &requests[length..];
        match message.body {
            Body::Hello(_) => {
                let hello = HelloReply {
                    version: 1,
                    features: 0,
                    cluster: ClusterId::default(),
                    node: NodeId::default(),
                    requests_max: 256,
                };
                encode_hello_reply(&mut out, &header.reply(Kind::HelloReply), &hello);
            }
            Body::Open(_) => encode_open_reply(&mut out, &header.reply(Kind::OpenReply), &table()).unwrap(),
            Body::Read => {
                let payload = vec![7; header.length_bytes as usize];
                encode_data_head_for(&mut out, &header.reply(Kind::ReadReply), &payload);
                out.extend_from_slice(&payload);
            }
            _ => {
                let kind = Kind::from_wire(header.kind as u16 | 0x8000).unwrap();
                encode_plain(&mut out, &header.reply(kind));
            }
        }
    }
    out
}
