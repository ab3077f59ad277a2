//! A cluster in memory, with the wires to it: everything happens when the test says so.
//!
//! A sector holds one number, repeated. All copies are alike; who is primary decides who answers.

use std::collections::{HashMap, HashSet, VecDeque};

use coquina_base::{ClusterId, DriveId, Id128, Landing, LayerId, NodeId, VolumeId};
use coquina_cluster::{Striping, mix};
use coquina_protocol::*;
use coquina_reactor::{ReceiveBuffer, SendList};

use crate::{
    ClientCompletion, ClientConfig, ClientCore, ClientRequest, LinkAction, LocalAnswer, LocalName, LocalPart,
    RequestKind,
};

pub(crate) const FAMILY: u64 = 5;
pub(crate) const GROUP_FIRST: u32 = 64;
pub(crate) const SECTOR: u64 = 512;
const SESSION: u64 = 99;

/// How a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Up,
    /// Takes connections and bytes, and does nothing.
    Stopped,
    /// Refuses connections.
    Dead,
    /// Nothing comes from it or gets there, and nobody says so.
    CutOff,
}

/// A data request as a server took it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    pub(crate) node: usize,
    pub(crate) number: u64,
    pub(crate) floor: u64,
    pub(crate) chunk: u32,
    pub(crate) offset_bytes: u32,
    pub(crate) length_bytes: u32,
    pub(crate) is_retry: bool,
    pub(crate) is_beyond_end: bool,
}

/// One connection.
struct Wire {
    node: usize,
    shard: Option<u32>,
    is_open: bool,
    sending: Option<SendList>,
    to_server: Vec<u8>,
    to_client: VecDeque<Vec<u8>>,
    receiving: ReceiveBuffer,
    landing: Option<Landing>,
}

pub(crate) struct World {
    pub(crate) core: ClientCore,
    pub(crate) now_ns: u64,
    pub(crate) lives: Vec<Life>,
    /// Who is primary of each group, as node; one shard per node.
    pub(crate) primaries: Vec<Option<usize>>,
    pub(crate) version: u64,
    pub(crate) size_bytes: u64,
    /// What servers take at once on a connection.
    pub(crate) requests_max: u32,
    pub(crate) striping: Striping,
    /// Nodes that are in the client's process.
    pub(crate) local: Vec<usize>,
    pub(crate) sectors: HashMap<(u32, u32), u64>,
    applied: HashSet<u64>,
    floor: u64,
    /// What the next data requests are refused with.
    pub(crate) refusals: VecDeque<Option<Status>>,
    /// How far behind the newest number of its group an unanswered one may be.
    pub(crate) window: u64,
    /// Groups that refuse everything, and how.
    pub(crate) refusing_groups: HashMap<usize, Status>,
    /// Groups in this process that take everything and answer nothing.
    pub(crate) silent_groups: HashSet<usize>,
    /// The newest number that each group has seen.
    newest: HashMap<usize, u64>,
    /// How many nodes tell an older table than the present one, and that table.
    pub(crate) lagging: HashMap<usize, AttachedVolume>,
    /// Nodes that greet and open, and say nothing to all else.
    pub(crate) mute: HashSet<usize>,
    /// What nodes answer opens with.
    pub(crate) refused_opens: HashMap<usize, Status>,
    pub(crate) arrivals: Vec<Arrival>,
    /// Addresses that were connected to, in order.
    pub(crate) connects: Vec<(u32, usize)>,
    wires: HashMap<u32, Wire>,
    pub(crate) connecting: Vec<(u32, usize)>,
    pub(crate) local_parts: Vec<LocalPart>,
    /// What is written by each of these, which is copied when it is handed over, and the version of the map then.
    handed_over: HashMap<(u64, u32), (Vec<u8>, u64)>,
    /// Answers of shards in this process that are on their way, with what was read.
    pub(crate) local_answers: Vec<(LocalName, Result<LocalAnswer, Status>, Vec<u8>)>,
    /// The version of the map in which a group got the primary that it has.
    promoted: HashMap<usize, u64>,
    /// How many answers were received into the buffers of their reads.
    pub(crate) landed: usize,
    pub(crate) completions: Vec<ClientCompletion>,
}

pub(crate) fn drive(node: usize) -> DriveId {
    DriveId(Id128([node as u8 + 1; 16]))
}

pub(crate) fn address(node: usize) -> String {
    format!("node{node}:1")
}

/// The bytes of sectors with these numbers.
pub(crate) fn filled(tags: impl Iterator<Item = u64>) -> Vec<u8> {
    tags.flat_map(|tag| std::iter::repeat_n(tag.to_le_bytes(), SECTOR as usize / 8)).flatten().collect()
}

/// The numbers of sectors with these bytes.
pub(crate) fn tags(bytes: &[u8]) -> Vec<u64> {
    let tag = |sector: &[u8]| {
        assert!(sector.chunks(8).all(|tag| tag == &sector[..8]), "a sector is of one piece");
        u64::from_le_bytes(sector[..8].try_into().unwrap())
    };
    bytes.chunks(SECTOR as usize).map(tag).collect()
}

pub(crate) fn config(nodes: usize) -> ClientConfig {
    let addresses: Vec<String> = (0..nodes).map(address).collect();
    ClientConfig::new(&addresses.join(","), "disk", SESSION)
}

impl World {
    pub(crate) fn new(
        config: ClientConfig,
        nodes: usize,
        groups: u32,
        striping: Striping,
        directed: bool,
    ) -> World {
        let local: Vec<usize> = (0..nodes).filter(|node| config.local.contains(&(drive(*node), 7))).collect();
        let core = if directed { ClientCore::directed(config) } else { ClientCore::new(config, 1) };
        World {
            core,
            now_ns: 1,
            lives: vec![Life::Up; nodes],
            primaries: (0..groups as usize).map(|group| Some(group % nodes)).collect(),
            version: 1,
            size_bytes: 16 << 20,
            requests_max: 5,
            striping,
            local,
            sectors: HashMap::new(),
            applied: HashSet::new(),
            floor: 0,
            refusals: VecDeque::new(),
            window: REQUEST_WINDOW,
            refusing_groups: HashMap::new(),
            silent_groups: HashSet::new(),
            newest: HashMap::new(),
            lagging: HashMap::new(),
            mute: HashSet::new(),
            refused_opens: HashMap::new(),
            arrivals: Vec::new(),
            connects: Vec::new(),
            wires: HashMap::new(),
            connecting: Vec::new(),
            local_parts: Vec::new(),
            handed_over: HashMap::new(),
            local_answers: Vec::new(),
            promoted: HashMap::new(),
            landed: 0,
            completions: Vec::new(),
        }
    }

    /// The present table.
    pub(crate) fn table(&self) -> AttachedVolume {
        AttachedVolume {
            volume: VolumeId(Id128([9; 16])),
            name: "disk".to_owned(),
            size_bytes: self.size_bytes,
            layer: LayerId(1),
            attach_generation: 3,
            map_version: self.version,
            family: FAMILY,
            group_first: GROUP_FIRST,
            stripe_unit_bytes: self.striping.stripe_unit_bytes,
            stripe_count: self.striping.stripe_count,
            read_only: false,
            shards: (0..self.lives.len())
                .map(|node| ShardRef { drive: drive(node), shard: 7, address: address(node) })
                .collect(),
            groups: self
                .primaries
                .iter()
                .map(|node| node.map_or(GROUP_UNKNOWN, |node| node as u32))
                .collect(),
            nodes: (0..self.lives.len()).map(address).collect(),
        }
    }

    pub(crate) fn group(&self, chunk: u32) -> usize {
        (mix(FAMILY) as u32).wrapping_add(chunk) as usize % self.primaries.len()
    }

    /// Makes a node primary of a group, in the next version of the map.
    pub(crate) fn promote(&mut self, group: usize, node: Option<usize>) {
        self.primaries[group] = node;
        self.version += 1;
        self.promoted.insert(group, self.version);
    }

    pub(crate) fn tell_table(&mut self) {
        let table = self.table();
        self.core.set_volume(&table, self.now_ns);
    }

    pub(crate) fn submit(&mut self, token: u64, kind: RequestKind, first: u64, count: u64) {
        let mut buffer = coquina_base::AlignedBuf::new();
        if matches!(kind, RequestKind::Read | RequestKind::Write) {
            buffer.resize_blocks((count * SECTOR).div_ceil(4096) as usize);
            let tag = if kind == RequestKind::Write { token } else { u64::MAX };
            buffer[..(count * SECTOR) as usize].copy_from_slice(&filled((0..count).map(|_| tag)));
        }
        let (offset_bytes, length_bytes) = (first * SECTOR, count * SECTOR);
        self.core.submit(ClientRequest { token, kind, offset_bytes, length_bytes, buffer });
    }

    /// What the client wants done: connections, sends, parts for this process.
    pub(crate) fn pump(&mut self) {
        self.core.pump(self.now_ns);
        let mut actions = Vec::new();
        self.core.take_actions(&mut actions);
        for action in actions {
            match action {
                LinkAction::Close { link } => self.cut(link),
                LinkAction::Connect { link, address } => {
                    let node = (0..self.lives.len()).find(|node| self::address(*node) == address).unwrap();
                    self.connects.push((link, node));
                    self.connecting.push((link, node));
                }
            }
        }
        let mut links: Vec<u32> = self.wires.keys().copied().collect();
        links.sort_unstable();
        for link in links {
            let wire = self.wires.get_mut(&link).unwrap();
            if wire.sending.is_none()
                && let Some(mut list) = self.core.take_send(link)
            {
                wire.to_server.extend_from_slice(&list.to_bytes());
                wire.sending = Some(list);
            }
        }
        let known = self.local_parts.len();
        self.core.take_local(&mut self.local_parts);
        for part in &self.local_parts[known..] {
            let payload = self.core.local_payload(part.name).filter(|_| part.kind == RequestKind::Write);
            let payload = payload.unwrap_or_default().to_vec();
            let name = (part.name.number, part.name.attempt);
            assert!(
                self.handed_over.insert(name, (payload, self.version)).is_none(),
                "no name is given twice"
            );
        }
        self.core.take_completions(&mut self.completions);
        self.core.assert_consistent();
    }

    /// Drops a connection without telling the client.
    fn cut(&mut self, link: u32) {
        self.connecting.retain(|(waiting, _)| *waiting != link);
        if let Some(wire) = self.wires.remove(&link)
            && let Some(list) = wire.sending
        {
            self.core.send_dropped(list);
        }
    }

    pub(crate) fn wires(&self) -> Vec<u32> {
        let mut links: Vec<u32> = self.wires.keys().copied().collect();
        links.sort_unstable();
        links
    }

    pub(crate) fn node_of(&self, link: u32) -> Option<usize> {
        self.wires.get(&link).map(|wire| wire.node)
    }

    /// Breaks a connection, and tells the client.
    pub(crate) fn break_wire(&mut self, link: u32) {
        self.cut(link);
        self.core.broken(link, "cut", self.now_ns);
    }

    /// An attempt to connect that ends somehow.
    fn reachable(&self) -> Option<usize> {
        self.connecting.iter().position(|(_, node)| self.lives[*node] != Life::CutOff)
    }

    /// Ends the attempt to connect at `index` as the node's state says.
    pub(crate) fn connect(&mut self, index: usize) {
        let (link, node) = self.connecting.remove(index);
        if self.lives[node] == Life::Dead {
            return self.core.broken(link, "refused", self.now_ns);
        }
        let wire = Wire {
            node,
            shard: None,
            is_open: false,
            sending: None,
            to_server: Vec::new(),
            to_client: VecDeque::new(),
            receiving: ReceiveBuffer::default(),
            landing: None,
        };
        self.wires.insert(link, wire);
        self.core.connected(link, self.now_ns);
    }

    /// The bytes of a link's send are gone.
    pub(crate) fn finish_send(&mut self, link: u32) {
        if let Some(list) = self.wires.get_mut(&link).and_then(|wire| wire.sending.take()) {
            self.core.sent(link, list);
        }
    }

    /// The server at a link's end takes its next message, if there is one.
    pub(crate) fn serve(&mut self, link: u32) -> bool {
        let Some(wire) = self.wires.get_mut(&link) else { return false };
        if self.lives[wire.node] != Life::Up {
            return false;
        }
        let bytes = std::mem::take(&mut wire.to_server);
        let Some((message, length)) = decode(&bytes).unwrap() else { return false };
        let answer = self.answer(link, &message);
        let wire = self.wires.get_mut(&link).unwrap();
        wire.to_server.extend_from_slice(&bytes[length..]);
        wire.to_client.extend(answer);
        true
    }

    /// The next answer of a link, or only its first bytes, reaches the client.
    pub(crate) fn deliver(&mut self, link: u32, bytes_max: usize) -> bool {
        let Some(wire) = self.wires.get_mut(&link) else { return false };
        if self.lives[wire.node] == Life::CutOff {
            return false;
        }
        let Some(mut answer) = wire.to_client.pop_front() else { return false };
        let rest = answer.split_off(bytes_max.min(answer.len()));
        if !rest.is_empty() {
            wire.to_client.push_front(rest);
        }
        if let Some(mut landing) = wire.landing.take() {
            let rest = answer.split_off(answer.len().min(landing.left_bytes()));
            if !rest.is_empty() {
                wire.to_client.push_front(rest);
            }
            landing.push(&answer);
            let landing = self.core.landed(link, landing, self.now_ns);
            self.landed += usize::from(landing.is_none());
            if let Some(wire) = self.wires.get_mut(&link) {
                wire.landing = landing;
            }
            return true;
        }
        let mut receiving = std::mem::take(&mut wire.receiving);
        receiving.extend(&answer);
        self.core.received(link, &mut receiving, self.now_ns);
        let landing = self.core.start_landing(link, &mut receiving);
        if let Some(wire) = self.wires.get_mut(&link) {
            wire.receiving = receiving;
            wire.landing = landing;
        }
        true
    }

    /// The server at a link's end says that the map has changed.
    pub(crate) fn notify(&mut self, link: u32) {
        self.tell(link, NotifyKind::MapChanged, self.size_bytes, self.version);
    }

    /// The server at a link's end says which size the volume has in a version of the map, which need not be the present one.
    pub(crate) fn tell_size(&mut self, link: u32, size_bytes: u64, map_version: u64) {
        self.tell(link, NotifyKind::Resized, size_bytes, map_version);
    }

    fn tell(&mut self, link: u32, kind: NotifyKind, size_bytes: u64, map_version: u64) {
        let notify = Notify { kind, volume: VolumeId(Id128([9; 16])), size_bytes, map_version };
        let mut out = Vec::new();
        encode_notify(&mut out, &Header::new(Kind::Notify), &notify);
        if let Some(wire) = self.wires.get_mut(&link) {
            wire.to_client.push_back(out);
        }
    }

    fn answer(&mut self, link: u32, message: &Message<'_>) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let header = &message.header;
        let node = self.wires[&link].node;
        match &message.body {
            Body::Hello(hello) => {
                assert_eq!(hello.session.0, SESSION);
                self.wires.get_mut(&link).unwrap().shard = hello.shard.map(|(_, shard)| shard);
                assert!(hello.shard.is_none_or(|(at, _)| at == drive(node)), "each drive is where it is");
                let reply = HelloReply {
                    version: 1,
                    features: 0,
                    cluster: ClusterId::default(),
                    node: NodeId::default(),
                    requests_max: self.requests_max,
                };
                encode_hello_reply(&mut out, &header.reply(Kind::HelloReply), &reply);
            }
            Body::Open(_) if self.refused_opens.contains_key(&node) => {
                encode_error(&mut out, header, self.refused_opens[&node], "as ordered");
            }
            Body::Open(_) => {
                self.wires.get_mut(&link).unwrap().is_open = true;
                let table = self.lagging.get(&node).cloned().unwrap_or_else(|| self.table());
                let header = Header { handle: u64::from(link) + 1, ..header.reply(Kind::OpenReply) };
                encode_open_reply(&mut out, &header, &table).unwrap();
            }
            _ if self.mute.contains(&node) => return None,
            Body::Ping => encode_plain(&mut out, &header.reply(Kind::PingReply)),
            body => {
                assert!(self.wires[&link].is_open && self.wires[&link].shard.is_some());
                self.take_request(node, header, body, &mut out);
            }
        }
        Some(out)
    }

    fn take_request(&mut self, node: usize, header: &Header, body: &Body<'_>, out: &mut Vec<u8>) {
        self.arrivals.push(Arrival {
            node,
            number: header.request,
            floor: header.request_floor,
            chunk: header.chunk,
            offset_bytes: header.offset_bytes,
            length_bytes: header.length_bytes,
            is_retry: header.flags & FLAG_RETRY != 0,
            is_beyond_end: header.flags & FLAG_BEYOND_END != 0,
        });
        let payload = match body {
            Body::Write(data) => {
                assert!(data.is_intact());
                data.payload
            }
            _ => &[],
        };
        let mut data = vec![0; if header.kind == Kind::Read { header.length_bytes as usize } else { 0 }];
        let place = (header.chunk, header.offset_bytes, header.length_bytes);
        let numbers = (header.request, header.request_floor);
        let kind = Kind::from_wire(header.kind as u16 | 0x8000).unwrap();
        match self.execute(node, header.kind, numbers, place, payload, &mut data) {
            Err(status) => encode_error(out, header, status, "as ordered"),
            Ok(()) if header.kind == Kind::Read => {
                encode_data_head_for(out, &header.reply(kind), &data);
                out.extend_from_slice(&data);
            }
            Ok(()) if header.kind == Kind::Map => {
                let extents = [Extent { length_bytes: header.length_bytes, kind: ExtentKind::Data }];
                encode_map_reply(out, &header.reply(kind), &extents);
            }
            Ok(()) => encode_plain(out, &header.reply(kind)),
        }
    }

    /// What a server does with a request.
    fn execute(
        &mut self,
        node: usize,
        kind: Kind,
        (number, floor): (u64, u64),
        (chunk, offset_bytes, length_bytes): (u32, u32, u32),
        payload: &[u8],
        data: &mut [u8],
    ) -> Result<(), Status> {
        assert!(floor <= number, "no number below the floor is unanswered");
        let newest = self.newest.entry(self.group(chunk)).or_default();
        *newest = number.max(*newest);
        let is_wanted = self.core.window.peek(number).is_some();
        assert!(!is_wanted || *newest - number < self.window, "{number} is not forgotten");
        if let Some(status) = self.refusing_groups.get(&self.group(chunk)) {
            return Err(*status);
        }
        if self.primaries[self.group(chunk)] != Some(node) {
            return Err([Status::NotServing, Status::NotHere, Status::StaleEpoch][number as usize % 3]);
        }
        if let Some(Some(status)) = self.refusals.pop_front() {
            return Err(status);
        }
        let sectors = (offset_bytes / 512..(offset_bytes + length_bytes) / 512).map(|sector| (chunk, sector));
        if matches!(kind, Kind::Read | Kind::Map) {
            if kind == Kind::Read {
                data.copy_from_slice(&filled(sectors.map(|at| self.sectors.get(&at).copied().unwrap_or(0))));
            }
            return Ok(());
        }
        if self.applied.contains(&number) {
            return Ok(());
        }
        if number < self.floor {
            return Err(Status::Invalid);
        }
        self.floor = self.floor.max(floor);
        self.applied.insert(number);
        let written = if kind == Kind::Write { tags(payload) } else { vec![0; length_bytes as usize / 512] };
        assert_eq!(written.len(), length_bytes as usize / 512);
        self.sectors.extend(sectors.zip(written));
        Ok(())
    }

    /// The shard in this process takes the part at `index`. Its answer is on its way then.
    pub(crate) fn execute_local(&mut self, index: usize) {
        let part = self.local_parts.remove(index);
        let LocalName { number, attempt } = part.name;
        let node = self.shard_of(&part);
        let group = self.group(part.chunk);
        assert_eq!((part.shard, part.group), (7, GROUP_FIRST + group as u32));
        let (payload, version) = self.handed_over.remove(&(number, attempt)).expect("it was handed over");
        let mut data = vec![0; if part.kind == RequestKind::Read { part.length_bytes as usize } else { 0 }];
        let place = (part.chunk, part.offset_bytes, part.length_bytes);
        let numbers = (number, part.request_floor);
        // What comes to a thread comes in order. So it looks at this before it hears that the group has moved, also where it is primary again
        // since: as a former primary, it can do nothing that counts.
        let result = match self.promoted.get(&group).is_some_and(|promoted| *promoted > version) {
            true => Err(Status::NotServing),
            false => self.execute(node, part.kind.message(), numbers, place, &payload, &mut data),
        };
        let answer = result.map(|()| match part.kind {
            RequestKind::Read => LocalAnswer::Data,
            RequestKind::Map => {
                LocalAnswer::Map(vec![Extent { length_bytes: part.length_bytes, kind: ExtentKind::Data }])
            }
            _ => LocalAnswer::Changed,
        });
        self.local_answers.push((part.name, answer, data));
    }

    /// An answer of a shard in this process reaches the client.
    pub(crate) fn answer_local(&mut self, index: usize) {
        let (name, answer, data) = self.local_answers.remove(index);
        if answer == Ok(LocalAnswer::Data)
            && let Some(buffer) = self.core.local_buffer(name)
        {
            buffer.copy_from_slice(&data);
        }
        self.core.local_done(name, answer, self.now_ns);
    }

    /// The shard in this process takes the part at `index` and answers it.
    pub(crate) fn serve_local(&mut self, index: usize) {
        self.execute_local(index);
        self.answer_local(self.local_answers.len() - 1);
    }

    /// The node whose shard in this process a part is for.
    fn shard_of(&self, part: &LocalPart) -> usize {
        self.local.iter().copied().find(|node| drive(*node) == part.drive).unwrap()
    }

    /// The parts that shards in this process take, by their places.
    pub(crate) fn answering(&self) -> Vec<usize> {
        let takes = |part: &LocalPart| {
            self.lives[self.shard_of(part)] == Life::Up
                && !self.silent_groups.contains(&self.group(part.chunk))
        };
        (0..self.local_parts.len()).filter(|index| takes(&self.local_parts[*index])).collect()
    }

    /// Everything that can happen without time passing happens.
    pub(crate) fn settle(&mut self) {
        loop {
            self.pump();
            let mut moved = false;
            while let Some(index) = self.reachable() {
                self.connect(index);
                moved = true;
            }
            while let Some(index) = self.answering().first() {
                self.execute_local(*index);
                moved = true;
            }
            while !self.local_answers.is_empty() {
                self.answer_local(0);
                moved = true;
            }
            for link in self.wires() {
                self.finish_send(link);
                while self.serve(link) {
                    moved = true;
                }
                while self.deliver(link, usize::MAX) {
                    moved = true;
                }
            }
            if !moved {
                self.pump();
                return;
            }
        }
    }

    /// Time passes, at each deadline of the client everything that can happen does.
    pub(crate) fn pass(&mut self, nanoseconds: u64) {
        let end_ns = self.now_ns + nanoseconds;
        self.settle();
        while let Some(deadline_ns) = self.core.deadline_ns().filter(|deadline_ns| *deadline_ns <= end_ns) {
            self.now_ns = self.now_ns.max(deadline_ns);
            self.core.tick(self.now_ns);
            self.settle();
        }
        self.now_ns = end_ns;
    }
}
