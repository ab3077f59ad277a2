//! A little server that keeps one volume in memory, applies each request of a session once, and fails on order.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use coquina_base::{ClusterId, DriveId, Id128, LayerId, NodeId, VolumeId};
use coquina_protocol::*;

/// What goes wrong with the next data request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// It is applied, but only so many bytes of the answer are sent before the connection is cut.
    CutReply(usize),
    /// The connection is cut before it is applied.
    CutBefore,
    /// The answer's payload has a flipped bit.
    FlipBit,
    /// It is refused.
    Refuse(Status),
    /// The answer never comes.
    Swallow,
    /// The answer names another request.
    WrongNumber,
}

/// A data request as it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    pub shard: u32,
    pub request: u64,
    pub floor: u64,
    pub kind: Kind,
    pub chunk: u32,
    pub retry: bool,
    pub client_checks: bool,
}

#[derive(Default)]
pub struct State {
    pub data: Vec<u8>,
    /// How often each request of each session changed something.
    pub applied: HashMap<(u64, u64), u32>,
    pub faults: VecDeque<Fault>,
    pub arrivals: Vec<Arrival>,
    pub hellos: u32,
    pub opens: u32,
    pub sessions: Vec<u64>,
    pub requests_max: u32,
    /// Answer all-zero reads without payload.
    pub leave_out_zeroes: bool,
    pub refuse_hello: Option<Status>,
    pub streams: Vec<TcpStream>,
    pub address: String,
    /// The version of the map that it tells of.
    pub map_version: u64,
}

pub struct Fake {
    pub state: Arc<Mutex<State>>,
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

pub const VOLUME: VolumeId = VolumeId(Id128([9; 16]));
pub const SHARDS: u32 = 2;
pub const FAMILY: u64 = 77;

impl Fake {
    pub fn start(size_bytes: usize) -> Fake {
        let state = State { data: vec![0; size_bytes], requests_max: 64, map_version: 1, ..State::default() };
        Self::serve(Arc::new(Mutex::new(state)), SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn serve(state: Arc<Mutex<State>>, address: SocketAddr) -> Fake {
        let listener = (0..200)
            .find_map(|_| match TcpListener::bind(address) {
                Ok(listener) => Some(listener),
                Err(_) => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    None
                }
            })
            .expect("the port becomes free");
        let address = listener.local_addr().unwrap();
        state.lock().unwrap().address = address.to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let (state_there, stop_there) = (state.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut threads = Vec::new();
            for stream in listener.incoming() {
                if stop_there.load(Ordering::Acquire) {
                    break;
                }
                let stream = stream.unwrap();
                state_there.lock().unwrap().streams.push(stream.try_clone().unwrap());
                let state = state_there.clone();
                threads.push(std::thread::spawn(move || serve_connection(stream, &state)));
            }
            drop(listener);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        Fake { state, address, stop, threads: vec![thread] }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What an open is answered with.
    pub fn attached(&self) -> AttachedVolume {
        attached(&self.state.lock().unwrap())
    }

    pub fn fault(&self, fault: Fault) {
        self.state.lock().unwrap().faults.push_back(fault);
    }

    pub fn faults_left(&self) -> usize {
        self.state.lock().unwrap().faults.len()
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        self.state.lock().unwrap().arrivals.clone()
    }

    /// Changes that were applied, and whether each was applied once.
    pub fn applied(&self) -> (usize, bool) {
        let state = self.state.lock().unwrap();
        (state.applied.len(), state.applied.values().all(|count| *count == 1))
    }

    /// Cuts every connection and frees the port; what was applied is kept.
    pub fn stop(mut self) -> (Arc<Mutex<State>>, SocketAddr) {
        self.halt();
        (self.state.clone(), self.address)
    }

    pub fn restart(state: Arc<Mutex<State>>, address: SocketAddr) -> Fake {
        Self::serve(state, address)
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        for stream in self.state.lock().unwrap().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }

    /// Sends a notification of a newer map on every connection.
    pub fn notify(&self, kind: NotifyKind, size_bytes: u64) {
        let mut state = self.state.lock().unwrap();
        state.map_version += 1;
        let notify = Notify { kind, volume: VOLUME, size_bytes, map_version: state.map_version };
        let mut out = Vec::new();
        encode_notify(&mut out, &Header::new(Kind::Notify), &notify);
        for stream in &mut state.streams {
            let _ = stream.write_all(&out);
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.halt();
    }
}

#[derive(Default)]
struct Peer {
    session: u64,
    shard: Option<u32>,
    open: bool,
}

/// Whether the connection goes on.
type GoOn = bool;

fn serve_connection(mut stream: TcpStream, state: &Mutex<State>) {
    let mut input = Vec::new();
    let mut piece = vec![0; 1 << 16];
    let mut peer = Peer::default();
    loop {
        let mut out = Vec::new();
        let mut go_on = true;
        let mut consumed = 0;
        while go_on && let Some((message, length)) = decode(&input[consumed..]).unwrap() {
            consumed += length;
            go_on = answer(&mut peer, &message, &mut state.lock().unwrap(), &mut out);
        }
        input.drain(..consumed);
        if stream.write_all(&out).is_err() || !go_on {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(length) => input.extend_from_slice(&piece[..length]),
        }
    }
}

fn answer(peer: &mut Peer, message: &Message<'_>, state: &mut State, out: &mut Vec<u8>) -> GoOn {
    let header = &message.header;
    match &message.body {
        Body::Hello(hello) => {
            state.hellos += 1;
            if let Some(status) = state.refuse_hello {
                encode_error(out, header, status, "as ordered");
                return false;
            }
            peer.session = hello.session.0;
            state.sessions.push(hello.session.0);
            peer.shard = hello.shard.map(|(_, shard)| shard);
            let reply = HelloReply {
                version: 1,
                features: 0,
                cluster: ClusterId::default(),
                node: NodeId::default(),
                requests_max: state.requests_max,
            };
            encode_hello_reply(out, &header.reply(Kind::HelloReply), &reply);
            true
        }
        Body::Open(open) => {
            state.opens += 1;
            if open.volume != VolumeRef::Name("disk") && open.volume != VolumeRef::Id(VOLUME) {
                encode_error(out, header, Status::UnknownVolume, "not here");
                return true;
            }
            peer.open = true;
            let header = Header { handle: 40 + u64::from(state.opens), ..header.reply(Kind::OpenReply) };
            encode_open_reply(out, &header, &attached(state)).unwrap();
            true
        }
        Body::Ping => {
            encode_plain(out, &header.reply(Kind::PingReply));
            true
        }
        body => data_request(peer, header, body, state, out),
    }
}

fn attached(state: &State) -> AttachedVolume {
    AttachedVolume {
        volume: VOLUME,
        name: "disk".to_owned(),
        size_bytes: state.data.len() as u64,
        layer: LayerId(1),
        attach_generation: 6,
        map_version: state.map_version,
        read_only: false,
        shards: (0..SHARDS)
            .map(|shard| ShardRef { drive: DriveId(Id128([3; 16])), shard, address: state.address.clone() })
            .collect(),
        groups: vec![0, 1, 1, 0],
        family: FAMILY,
        group_first: 100,
        stripe_unit_bytes: 4 << 20,
        stripe_count: 1,
        nodes: vec![state.address.clone()],
    }
}

fn data_request(peer: &Peer, header: &Header, body: &Body<'_>, state: &mut State, out: &mut Vec<u8>) -> GoOn {
    assert!(peer.open, "a volume is opened before it is used");
    let group = (coquina_cluster::mix(FAMILY) as u32).wrapping_add(header.chunk) % 4;
    let shard = [0, 1, 1, 0][group as usize];
    assert_eq!(peer.shard, Some(shard), "each chunk is asked for at its shard");
    assert!(header.request_floor <= header.request && header.request - header.request_floor < REQUEST_WINDOW);
    state.arrivals.push(Arrival {
        shard,
        request: header.request,
        floor: header.request_floor,
        kind: header.kind,
        chunk: header.chunk,
        retry: header.flags & FLAG_RETRY != 0,
        client_checks: header.flags & FLAG_CLIENT_CHECKS != 0,
    });
    let fault = state.faults.pop_front().unwrap_or(Fault::None);
    match fault {
        Fault::CutBefore => return false,
        Fault::Refuse(status) => {
            encode_error(out, header, status, "as ordered");
            return true;
        }
        _ => {}
    }
    let start = out.len();
    let header = match fault {
        Fault::WrongNumber => Header { request: header.request + 1000, ..*header },
        _ => *header,
    };
    apply(peer, &header, body, state, out);
    match fault {
        Fault::CutReply(bytes) => {
            out.truncate(start + bytes);
            false
        }
        Fault::FlipBit => {
            *out.last_mut().unwrap() ^= 4;
            true
        }
        Fault::Swallow => {
            out.truncate(start);
            true
        }
        _ => true,
    }
}

fn apply(peer: &Peer, header: &Header, body: &Body<'_>, state: &mut State, out: &mut Vec<u8>) {
    let first = header.chunk as usize * (4 << 20) + header.offset_bytes as usize;
    let range = first..first + header.length_bytes as usize;
    let is_new = !state.applied.contains_key(&(peer.session, header.request));
    let changed = |state: &mut State| *state.applied.entry((peer.session, header.request)).or_default() += 1;
    match body {
        Body::Write(data) => {
            assert!(data.is_intact(), "what the client sends is intact");
            if is_new {
                state.data[range].copy_from_slice(data.payload);
                changed(state);
            }
            encode_plain(out, &header.reply(Kind::WriteReply));
        }
        Body::Discard | Body::WriteZeroes => {
            if is_new {
                state.data[range].fill(0);
                changed(state);
            }
            let discard = matches!(body, Body::Discard);
            let kind = if discard { Kind::DiscardReply } else { Kind::WriteZeroesReply };
            encode_plain(out, &header.reply(kind));
        }
        Body::Read => {
            let payload = &state.data[range];
            let reply = header.reply(Kind::ReadReply);
            if state.leave_out_zeroes && payload.iter().all(|byte| *byte == 0) {
                encode_plain(out, &Header { flags: FLAG_ZEROES, ..reply });
            } else {
                encode_data_head_for(out, &reply, payload);
                out.extend_from_slice(payload);
            }
        }
        Body::Map => {
            let extents = [Extent { length_bytes: header.length_bytes, kind: ExtentKind::Hole }];
            encode_map_reply(out, &header.reply(Kind::MapReply), &extents);
        }
        other => panic!("a client does not send {other:?}"),
    }
}
