//! Bodies of control messages: hello, open, notify, error. They are rare and may allocate.

use coquina_base::{ClusterId, DriveId, LayerId, NodeId, SessionId, VolumeId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::{Header, Kind};
use crate::{ProtocolError, Status, TEXT_BYTES_MAX};

/// Most placement groups of a volume, and most shards in its table.
const GROUPS_MAX: u32 = 1 << 18;
/// Most addresses of nodes in an open reply.
const NODES_MAX: usize = 1024;
/// In a volume's table, stands for a placement group of which no primary is known.
pub const GROUP_UNKNOWN: u32 = u32::MAX;
/// On the wire, the shard number that stands for "any shard".
const SHARD_ANY: u32 = u32::MAX;

/// First message of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Oldest version that the client speaks.
    pub version_min: u16,
    /// Newest version that the client speaks.
    pub version_max: u16,
    /// Optional features that the client knows; none yet.
    pub features: u64,
    /// The cluster that the client wants; nil for any.
    pub cluster: ClusterId,
    /// The client's session: 64 random bits, the same on all its connections, also after a reconnect.
    pub session: SessionId,
    /// The shard that this connection is for; `None` for opening volumes only, or any shard of the node.
    pub shard: Option<(DriveId, u32)>,
    /// Who the client says it is, for the server's log.
    pub client: &'a str,
}

/// Answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloReply {
    /// The version to speak from now on.
    pub version: u16,
    /// The features that both sides know.
    pub features: u64,
    /// The server's cluster.
    pub cluster: ClusterId,
    /// The server's node.
    pub node: NodeId,
    /// Requests that the server takes at once on this connection; more wait in the client.
    pub requests_max: u32,
}

/// Which volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeRef<'a> {
    /// By name.
    Name(&'a str),
    /// By identity.
    Id(VolumeId),
}

/// Opens a volume on this connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest<'a> {
    /// Which.
    pub volume: VolumeRef<'a>,
    /// Refuse changes on this handle.
    pub read_only: bool,
    /// 0 attaches anew; otherwise this handle belongs to that earlier attachment.
    pub attach_generation: u64,
}

/// A shard and where it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardRef {
    /// Its drive.
    pub drive: DriveId,
    /// Its number on the drive.
    pub shard: u32,
    /// Address of its node: `host:port` or `unix:/path`.
    pub address: String,
}

/// Body of an open reply; the handle is in its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedVolume {
    /// Its identity.
    pub volume: VolumeId,
    /// Its name at this time.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// The layer that is written.
    pub layer: LayerId,
    /// Names the attachment; to be repeated on the client's other connections.
    pub attach_generation: u64,
    /// Revision of the map that the table was made from.
    pub map_version: u64,
    /// Names the volume's family; with the chunk it gives the placement group.
    pub family: u64,
    /// First placement group of the volume's pool.
    pub group_first: u32,
    /// Bytes that go to one chunk before the next of the stripe is used.
    pub stripe_unit_bytes: u32,
    /// Chunks that are filled at the same time.
    pub stripe_count: u32,
    /// Whether changes are refused.
    pub read_only: bool,
    /// The shards that are primary of a placement group of the pool.
    pub shards: Vec<ShardRef>,
    /// For each placement group of the pool, from `group_first` on, the index of its primary in `shards`, or
    /// [`GROUP_UNKNOWN`]. Their number is a power of two.
    pub groups: Vec<u32>,
    /// Addresses of the cluster's nodes, any of which opens volumes.
    pub nodes: Vec<String>,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NotifyKind {
    /// The volume has another size.
    Resized = 1,
    /// The volume is removed; its handles are stale.
    Removed = 2,
    /// Its placement changed: open it again to get the table.
    MapChanged = 3,
}

/// Something about a volume has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// What.
    pub kind: NotifyKind,
    /// The volume.
    pub volume: VolumeId,
    /// Its size now.
    pub size_bytes: u64,
    /// Version of the map now.
    pub map_version: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireHello {
    version_min: U16,
    version_max: U16,
    shard: U32,
    features: U64,
    session: U64,
    cluster: ClusterId,
    drive: DriveId,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireHelloReply {
    version: U16,
    reserved: U16,
    requests_max: U32,
    features: U64,
    cluster: ClusterId,
    node: NodeId,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireOpen {
    volume: VolumeId,
    attach_generation: U64,
    /// 1: read-only.
    flags: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireOpenReply {
    volume: VolumeId,
    size_bytes: U64,
    layer: U64,
    attach_generation: U64,
    map_version: U64,
    family: U64,
    group_first: U32,
    group_count: U32,
    shard_count: U32,
    stripe_unit_bytes: U32,
    stripe_count: U32,
    /// 1: read-only.
    flags: U32,
    name_bytes: U16,
    node_count: U16,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireShard {
    drive: DriveId,
    shard: U32,
    address_bytes: U16,
    reserved: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireNotify {
    kind: U32,
    reserved: U32,
    volume: VolumeId,
    size_bytes: U64,
    map_version: U64,
}

/// Appends `header` with its body's length, then the body that `write` appends.
fn encode_body(out: &mut Vec<u8>, header: &Header, write: impl FnOnce(&mut Vec<u8>)) {
    let fits = try_encode_body(out, header, write).is_ok();
    assert!(fits, "a control message fits into a body");
}

/// The same, or nothing if that is more than a message carries.
fn try_encode_body(
    out: &mut Vec<u8>,
    header: &Header,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), ProtocolError> {
    let mut body = Vec::new();
    write(&mut body);
    let body_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if body.len() > crate::BODY_BYTES_MAX {
        return Err(ProtocolError::BodyTooLarge(body_bytes));
    }
    Header { body_bytes, ..*header }.encode(out);
    out.extend_from_slice(&body);
    Ok(())
}

/// At most [`TEXT_BYTES_MAX`] bytes of a text, cut between characters.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Appends a hello.
pub fn encode_hello(out: &mut Vec<u8>, header: &Header, hello: &Hello<'_>) {
    let (drive, shard) = hello.shard.unwrap_or((DriveId::default(), SHARD_ANY));
    encode_body(out, header, |body| {
        let wire = WireHello {
            version_min: hello.version_min.into(),
            version_max: hello.version_max.into(),
            shard: shard.into(),
            features: hello.features.into(),
            session: hello.session.0.into(),
            cluster: hello.cluster,
            drive,
        };
        body.extend_from_slice(wire.as_bytes());
        body.extend_from_slice(cut(hello.client).as_bytes());
    });
}

/// Appends the answer to a hello.
pub fn encode_hello_reply(out: &mut Vec<u8>, header: &Header, reply: &HelloReply) {
    encode_body(out, header, |body| {
        let wire = WireHelloReply {
            version: reply.version.into(),
            reserved: 0.into(),
            requests_max: reply.requests_max.into(),
            features: reply.features.into(),
            cluster: reply.cluster,
            node: reply.node,
        };
        body.extend_from_slice(wire.as_bytes());
    });
}

/// Appends an open request.
pub fn encode_open(out: &mut Vec<u8>, header: &Header, open: &OpenRequest<'_>) {
    let (volume, name) = match open.volume {
        VolumeRef::Name(name) => (VolumeId::default(), cut(name)),
        VolumeRef::Id(volume) => (volume, ""),
    };
    encode_body(out, header, |body| {
        let wire = WireOpen {
            volume,
            attach_generation: open.attach_generation.into(),
            flags: u32::from(open.read_only).into(),
            reserved: 0.into(),
        };
        body.extend_from_slice(wire.as_bytes());
        body.extend_from_slice(name.as_bytes());
    });
}

/// Appends the answer to an open request; `header.handle` is the handle. Of very many nodes only the first are told. Fails if the table is
/// larger than a message: some 100,000 shards.
/// Panics if a group names no shard, a shard has no address, or the number of groups is not a power of two.
pub fn encode_open_reply(
    out: &mut Vec<u8>,
    header: &Header,
    reply: &AttachedVolume,
) -> Result<(), ProtocolError> {
    let shard_count = reply.shards.len() as u32;
    let group_count = reply.groups.len();
    assert!(group_count.is_power_of_two() && group_count <= GROUPS_MAX as usize, "a pool's groups");
    let is_known = |shard: u32| shard < shard_count || shard == GROUP_UNKNOWN;
    assert!(reply.groups.iter().all(|shard| is_known(*shard)), "each group is on a shard of the table");
    assert!(reply.shards.iter().all(|shard| !shard.address.is_empty()), "each shard is somewhere");
    let name = cut(&reply.name);
    let nodes = &reply.nodes[..reply.nodes.len().min(NODES_MAX)];
    try_encode_body(out, header, |body| {
        let wire = WireOpenReply {
            volume: reply.volume,
            size_bytes: reply.size_bytes.into(),
            layer: reply.layer.0.into(),
            attach_generation: reply.attach_generation.into(),
            map_version: reply.map_version.into(),
            family: reply.family.into(),
            group_first: reply.group_first.into(),
            group_count: (group_count as u32).into(),
            shard_count: shard_count.into(),
            stripe_unit_bytes: reply.stripe_unit_bytes.into(),
            stripe_count: reply.stripe_count.into(),
            flags: u32::from(reply.read_only).into(),
            name_bytes: (name.len() as u16).into(),
            node_count: (nodes.len() as u16).into(),
            reserved: 0.into(),
        };
        body.extend_from_slice(wire.as_bytes());
        body.extend_from_slice(name.as_bytes());
        for shard in &reply.shards {
            let address = cut(&shard.address);
            let wire = WireShard {
                drive: shard.drive,
                shard: shard.shard.into(),
                address_bytes: (address.len() as u16).into(),
                reserved: 0.into(),
            };
            body.extend_from_slice(wire.as_bytes());
            body.extend_from_slice(address.as_bytes());
        }
        for group in &reply.groups {
            body.extend_from_slice(&group.to_le_bytes());
        }
        for node in nodes {
            let address = cut(node);
            body.extend_from_slice(&(address.len() as u16).to_le_bytes());
            body.extend_from_slice(address.as_bytes());
        }
    })
}

/// Appends a notification.
pub fn encode_notify(out: &mut Vec<u8>, header: &Header, notify: &Notify) {
    encode_body(out, header, |body| {
        let wire = WireNotify {
            kind: (notify.kind as u32).into(),
            reserved: 0.into(),
            volume: notify.volume,
            size_bytes: notify.size_bytes.into(),
            map_version: notify.map_version.into(),
        };
        body.extend_from_slice(wire.as_bytes());
    });
}

/// Appends the failure of `request`, with an explanation that may be empty.
pub fn encode_error(out: &mut Vec<u8>, request: &Header, status: Status, text: &str) {
    let header = Header { status, length_bytes: 0, ..request.reply(Kind::Error) };
    let text = cut(text);
    Header { body_bytes: text.len() as u32, ..header }.encode(out);
    out.extend_from_slice(text.as_bytes());
}

/// Reads fixed structures and texts off the front of a body.
struct Reader<'a> {
    kind: Kind,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn malformed(&self) -> ProtocolError {
        ProtocolError::Malformed(self.kind)
    }

    fn take<T: FromBytes + Immutable + KnownLayout + Unaligned>(&mut self) -> Result<&'a T, ProtocolError> {
        let (value, rest) = T::ref_from_prefix(self.rest).map_err(|_| ProtocolError::Malformed(self.kind))?;
        self.rest = rest;
        Ok(value)
    }

    fn text(&mut self, length: usize) -> Result<&'a str, ProtocolError> {
        if length > TEXT_BYTES_MAX {
            return Err(self.malformed());
        }
        let (text, rest) = self.rest.split_at_checked(length).ok_or(self.malformed())?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| self.malformed())
    }

    fn rest_text(&mut self) -> Result<&'a str, ProtocolError> {
        self.text(self.rest.len())
    }

    fn end(&self) -> Result<(), ProtocolError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed()) }
    }
}

pub(crate) fn parse_hello(body: &[u8]) -> Result<Hello<'_>, ProtocolError> {
    let mut reader = Reader { kind: Kind::Hello, rest: body };
    let wire: &WireHello = reader.take()?;
    let shard = wire.shard.get();
    Ok(Hello {
        version_min: wire.version_min.get(),
        version_max: wire.version_max.get(),
        features: wire.features.get(),
        cluster: wire.cluster,
        session: SessionId(wire.session.get()),
        shard: (shard != SHARD_ANY).then_some((wire.drive, shard)),
        client: reader.rest_text()?,
    })
}

pub(crate) fn parse_hello_reply(body: &[u8]) -> Result<HelloReply, ProtocolError> {
    let mut reader = Reader { kind: Kind::HelloReply, rest: body };
    let wire: &WireHelloReply = reader.take()?;
    Ok(HelloReply {
        version: wire.version.get(),
        features: wire.features.get(),
        cluster: wire.cluster,
        node: wire.node,
        requests_max: wire.requests_max.get(),
    })
}

pub(crate) fn parse_open(body: &[u8]) -> Result<OpenRequest<'_>, ProtocolError> {
    let mut reader = Reader { kind: Kind::Open, rest: body };
    let wire: &WireOpen = reader.take()?;
    let name = reader.rest_text()?;
    let volume = match (name.is_empty(), wire.volume.0.is_nil()) {
        (false, true) => VolumeRef::Name(name),
        (true, false) => VolumeRef::Id(wire.volume),
        _ => return Err(reader.malformed()),
    };
    Ok(OpenRequest {
        volume,
        read_only: wire.flags.get() & 1 != 0,
        attach_generation: wire.attach_generation.get(),
    })
}

pub(crate) fn parse_open_reply(body: &[u8]) -> Result<AttachedVolume, ProtocolError> {
    let mut reader = Reader { kind: Kind::OpenReply, rest: body };
    let wire: &WireOpenReply = reader.take()?;
    let (group_count, shard_count) = (wire.group_count.get(), wire.shard_count.get());
    let is_count = group_count.is_power_of_two() && group_count <= GROUPS_MAX && shard_count <= GROUPS_MAX;
    if !is_count || wire.group_first.get().checked_add(group_count).is_none() {
        return Err(reader.malformed());
    }
    let name = reader.text(wire.name_bytes.get().into())?.to_owned();
    let (shards, groups) = parse_table(&mut reader, shard_count, group_count)?;
    let mut nodes = Vec::new();
    for _ in 0..wire.node_count.get() {
        let length: &U16 = reader.take()?;
        nodes.push(reader.text(length.get().into())?.to_owned());
    }
    reader.end()?;
    Ok(AttachedVolume {
        volume: wire.volume,
        name,
        size_bytes: wire.size_bytes.get(),
        layer: LayerId(wire.layer.get()),
        attach_generation: wire.attach_generation.get(),
        map_version: wire.map_version.get(),
        family: wire.family.get(),
        group_first: wire.group_first.get(),
        stripe_unit_bytes: wire.stripe_unit_bytes.get(),
        stripe_count: wire.stripe_count.get(),
        read_only: wire.flags.get() & 1 != 0,
        shards,
        groups,
        nodes,
    })
}

/// The shards of an open reply, and for each group the index of one or [`GROUP_UNKNOWN`].
fn parse_table(
    reader: &mut Reader<'_>,
    shard_count: u32,
    group_count: u32,
) -> Result<(Vec<ShardRef>, Vec<u32>), ProtocolError> {
    let mut shards = Vec::new();
    for _ in 0..shard_count {
        let shard: &WireShard = reader.take()?;
        let address = reader.text(shard.address_bytes.get().into())?.to_owned();
        if address.is_empty() {
            return Err(reader.malformed());
        }
        shards.push(ShardRef { drive: shard.drive, shard: shard.shard.get(), address });
    }
    let mut groups = Vec::new();
    for _ in 0..group_count {
        let group: &U32 = reader.take()?;
        if group.get() >= shard_count && group.get() != GROUP_UNKNOWN {
            return Err(reader.malformed());
        }
        groups.push(group.get());
    }
    Ok((shards, groups))
}

pub(crate) fn parse_notify(body: &[u8]) -> Result<Notify, ProtocolError> {
    let mut reader = Reader { kind: Kind::Notify, rest: body };
    let wire: &WireNotify = reader.take()?;
    reader.end()?;
    Ok(Notify {
        kind: match wire.kind.get() {
            1 => NotifyKind::Resized,
            2 => NotifyKind::Removed,
            3 => NotifyKind::MapChanged,
            _ => return Err(reader.malformed()),
        },
        volume: wire.volume,
        size_bytes: wire.size_bytes.get(),
        map_version: wire.map_version.get(),
    })
}

pub(crate) fn parse_error(body: &[u8]) -> Result<&str, ProtocolError> {
    Reader { kind: Kind::Error, rest: body }.rest_text()
}
