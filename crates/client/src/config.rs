//! How a client behaves.

use coquina_base::{BUSY_POLL_NS, ClusterId, DriveId, SessionId};

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Addresses of nodes, `host:port` or `unix:/path`: any that answers will do, and it tells of the others. Not used
    /// by a directed client.
    pub addresses: Vec<String>,
    /// The volume's name.
    pub volume: String,
    /// Refuse changes.
    pub read_only: bool,
    /// 64 random bits, never used before.
    pub session: SessionId,
    /// The cluster that the volume must be in; nil for any.
    pub cluster: ClusterId,
    /// Who this is, for the server's log.
    pub client: String,
    /// How long a broken connection, or a refusal that may pass, is tried again before its requests fail. So long, too, one connection after
    /// the other that can be made and breaks before it has brought an answer.
    pub give_up_ns: u64,
    /// How long a server with requests outstanding may be silent before the connection counts as broken.
    pub stall_ns: u64,
    /// After so long a silence with requests outstanding the server is asked for a sign of life, and after as long again
    /// other nodes are asked whether its work has moved.
    pub probe_ns: u64,
    /// How long a connection with a reactor of its own may look for an answer before it sleeps, where answers came that soon of
    /// late; 0 is never.
    pub busy_poll_ns: u64,
    /// Payloads below this size are copied into the send buffer, which is cheaper than a piece of their own.
    pub copy_bytes_max: usize,
    /// Answers of whole blocks of which at least so much is still to come are received into the buffer of the read; others are
    /// cheaper copied.
    pub landing_bytes_min: usize,
    /// Discards may lie beyond the end of the volume, as far as the server knows of data there: for making it smaller.
    pub discards_beyond_end: bool,
    /// Shards in this process: their parts are not sent, but handed out by `take_local`.
    pub local: Vec<(DriveId, u32)>,
}

impl ClientConfig {
    /// The usual behaviour. `addresses` is one address or several with commas between them, `session` is 64 random bits.
    pub fn new(addresses: &str, volume: &str, session: u64) -> ClientConfig {
        let addresses = addresses.split(',').map(str::trim).filter(|address| !address.is_empty());
        ClientConfig {
            addresses: addresses.map(str::to_owned).collect(),
            volume: volume.to_owned(),
            read_only: false,
            session: SessionId(session),
            cluster: ClusterId::default(),
            client: format!("coquina-client/{}", env!("CARGO_PKG_VERSION")),
            give_up_ns: 30_000_000_000,
            stall_ns: 10_000_000_000,
            probe_ns: 500_000_000,
            busy_poll_ns: BUSY_POLL_NS,
            copy_bytes_max: 16 << 10,
            landing_bytes_min: 64 << 10,
            discards_beyond_end: false,
            local: Vec::new(),
        }
    }
}
