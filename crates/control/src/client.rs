//! The client of the REST interface, for the command line.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use coquina_reactor::is_unanswered;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use crate::api;

/// Longest wait for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause before a name is looked up again.
const LOOK_UP_PAUSE: Duration = Duration::from_millis(200);
/// Longest wait for an answer; a shrink of a large volume takes a while.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Why a request had no useful answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address cannot be understood or resolved.
    #[error("cannot find server {address:?}: {reason}; give it as --server HOST:PORT")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No connection, or it broke.
    #[error("cannot reach the server at {address}: {reason}; is it running, and is this its HTTP address?")]
    Unreachable {
        /// The address.
        address: String,
        /// What went wrong.
        reason: String,
    },
    /// The server refused.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// A stable code.
        code: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// What answers is not a Coquina server, or one of another version.
    #[error(
        "the answer of {address} cannot be understood ({reason}); is this the HTTP address of a coquina server?"
    )]
    Answer {
        /// The address.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Looks a name up, and again for a while if no name server answers.
fn looked_up<T>(patience: Duration, look_up: &mut dyn FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let began = Instant::now();
    loop {
        match look_up() {
            Err(error) if is_unanswered(&error) && began.elapsed() < patience => {
                std::thread::sleep(LOOK_UP_PAUSE);
            }
            result => return result,
        }
    }
}

/// Whether anybody listens there.
fn answers(address: SocketAddr, within: Duration) -> bool {
    TcpStream::connect_timeout(&address, within).is_ok()
}

/// Knows the only address that is asked for. The usual one starts a thread for each request that has a time-out, though there is nothing to look
/// up: with three nodes' heartbeats that is a dozen threads per second.
#[derive(Debug)]
struct Known(SocketAddr);

impl Resolver for Known {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut found = self.empty();
        found.push(self.0);
        Ok(found)
    }
}

/// A client of one server.
pub struct Client {
    agent: ureq::Agent,
    address: SocketAddr,
}

impl Client {
    /// A client of the server at `HOST:PORT`. Connects with the first request.
    pub fn new(address: &str) -> Result<Client, ClientError> {
        Client::with_patience(address, CONNECT_TIME_MAX, ANSWER_TIME_MAX)
    }

    /// A client that waits no longer than that for a connection and for each answer.
    pub(crate) fn with_patience(
        address: &str,
        connect: Duration,
        answer: Duration,
    ) -> Result<Client, ClientError> {
        let failed = |reason: String| ClientError::Address { address: address.to_owned(), reason };
        let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        // Requests name the address, not the name: servers refuse names that are not theirs.
        let look_up = &mut || bare.to_socket_addrs().map(Iterator::collect);
        let found: Vec<SocketAddr> =
            looked_up(connect, look_up).map_err(|error| failed(error.to_string()))?;
        let resolved = match found.as_slice() {
            [] => return Err(failed("the name has no address".to_owned())),
            [only] => *only,
            [first, ..] => found.iter().copied().find(|one| answers(*one, connect)).unwrap_or(*first),
        };
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_connect(Some(connect))
            .timeout_global(Some(answer))
            .max_redirects(0)
            .build();
        let agent = ureq::Agent::with_parts(config, DefaultConnector::default(), Known(resolved));
        Ok(Client { agent, address: resolved })
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The whole at a glance; live rates if an interval above zero is given.
    pub fn status(&self, interval_ms: u64) -> Result<api::Status, ClientError> {
        self.get(&format!("/v1/status?interval_ms={interval_ms}"))
    }

    /// How the server is; an answer also if something does not work.
    pub fn health(&self) -> Result<api::Health, ClientError> {
        let response = self.agent.get(self.url("/health")).call();
        let (_, text) = self.text(response)?;
        self.decode(&text)
    }

    /// The metrics as text.
    pub fn metrics(&self) -> Result<String, ClientError> {
        let response = self.agent.get(self.url("/metrics")).call();
        let (status, text) = self.text(response)?;
        self.accept(status, &text)?;
        Ok(text)
    }

    /// All volumes; live rates if an interval above zero is given.
    pub fn volumes(&self, interval_ms: u64) -> Result<api::VolumeList, ClientError> {
        self.get(&format!("/v1/volumes?interval_ms={interval_ms}"))
    }

    /// One volume.
    pub fn volume(&self, name: &str) -> Result<api::Volume, ClientError> {
        self.get(&volume_path(name, ""))
    }

    /// Makes a volume.
    pub fn create_volume(&self, request: &api::CreateVolume) -> Result<api::Volume, ClientError> {
        self.post("/v1/volumes", request)
    }

    /// Grows or shrinks a volume.
    pub fn resize_volume(&self, name: &str, request: &api::ResizeVolume) -> Result<api::Volume, ClientError> {
        self.post(&volume_path(name, "/resize"), request)
    }

    /// Gives a volume another name.
    pub fn rename_volume(&self, name: &str, request: &api::RenameVolume) -> Result<api::Volume, ClientError> {
        self.post(&volume_path(name, "/rename"), request)
    }

    /// Removes a volume.
    pub fn remove_volume(&self, name: &str, request: &api::RemoveVolume) -> Result<api::Volume, ClientError> {
        self.post(&volume_path(name, "/remove"), request)
    }

    /// All drives.
    pub fn drives(&self) -> Result<api::DriveList, ClientError> {
        self.get("/v1/drives")
    }

    /// Starts a scrub.
    pub fn scrub_drives(&self, request: &api::ScrubDrives) -> Result<api::ScrubBegun, ClientError> {
        self.post("/v1/drives/scrub", request)
    }

    /// Forgets a drive, or says what that would do.
    pub fn remove_drive(&self, request: &api::RemoveDrive) -> Result<api::RemovedDrive, ClientError> {
        self.post("/v1/drives/remove", request)
    }

    /// Has the node that is asked, or another one, use a drive.
    pub fn add_drive(&self, request: &api::AddDrive) -> Result<api::Drive, ClientError> {
        self.post("/v1/drives/add", request)
    }

    /// Gives a drive another share of the data.
    pub fn reweight_drive(&self, request: &api::ReweightDrive) -> Result<api::Drive, ClientError> {
        self.post("/v1/drives/reweight", request)
    }

    /// All pools.
    pub fn pools(&self) -> Result<api::PoolList, ClientError> {
        self.get("/v1/pools")
    }

    /// Makes a pool.
    pub fn create_pool(&self, request: &api::CreatePool) -> Result<api::Pool, ClientError> {
        self.post("/v1/pools", request)
    }

    /// Removes a pool without volumes.
    pub fn remove_pool(&self, name: &str) -> Result<api::Pool, ClientError> {
        self.post(&named_path("/v1/pools/", name, "/remove"), &api::RemovePool {})
    }

    /// All nodes.
    pub fn nodes(&self) -> Result<api::NodeList, ClientError> {
        self.get("/v1/nodes")
    }

    /// Takes a node out of the cluster, or says what that would do.
    pub fn remove_node(&self, request: &api::RemoveNode) -> Result<api::RemovedNode, ClientError> {
        self.post("/v1/nodes/remove", request)
    }

    /// Placement groups: all, or those of a volume.
    pub fn groups(&self, volume: Option<&str>) -> Result<api::GroupList, ClientError> {
        match volume {
            Some(volume) => self.get(&named_path("/v1/groups?volume=", volume, "")),
            None => self.get("/v1/groups"),
        }
    }

    /// Sets what volume sizes, times copies, may add up to.
    pub fn set_overcommit(&self, percent: u32) -> Result<api::DataSummary, ClientError> {
        self.post("/v1/cluster/overcommit", &api::SetOvercommit { percent })
    }

    /// Gives up what drives hold of volumes that the map lost.
    pub fn forget_lost(&self, request: &api::ForgetLost) -> Result<api::LostData, ClientError> {
        self.post("/v1/cluster/forget-lost", request)
    }

    /// What the process counts.
    pub fn local(&self) -> Result<api::Local, ClientError> {
        self.get("/v1/local")
    }

    /// How the cluster is, as its leader sees it; refused by others.
    pub(crate) fn leader_health(&self) -> Result<api::LeaderHealth, ClientError> {
        self.get("/v1/health")
    }

    /// How long that process's node has not heard the leader.
    pub(crate) fn leader_silence(&self) -> Result<api::LeaderSilence, ClientError> {
        self.get("/v1/leader/silence")
    }

    /// Tells the leader that a node is there.
    pub(crate) fn heartbeat(
        &self,
        heartbeat: &coquina_cluster::Heartbeat,
    ) -> Result<api::HeartbeatReply, ClientError> {
        self.post("/v1/heartbeat", heartbeat)
    }

    /// Waits until nothing of a volume that was taken under an older map is under way there.
    pub(crate) fn quiesce(&self, request: &api::Quiesce) -> Result<api::Quiesce, ClientError> {
        self.post("/v1/quiesce", request)
    }

    /// Asks the server to stop cleanly.
    pub fn shutdown(&self) -> Result<api::Shutdown, ClientError> {
        self.post("/v1/shutdown", &api::Shutdown {})
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let response = self.agent.get(self.url(path)).call();
        let (status, text) = self.text(response)?;
        self.accept(status, &text)?;
        self.decode(&text)
    }

    fn post<T: DeserializeOwned>(&self, path: &str, request: &impl Serialize) -> Result<T, ClientError> {
        let response = self.agent.post(self.url(path)).send_json(request);
        let (status, text) = self.text(response)?;
        self.accept(status, &text)?;
        self.decode(&text)
    }

    fn text(
        &self,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<(u16, String), ClientError> {
        let unreachable = |error: ureq::Error| {
            let address = self.address.to_string();
            match error {
                ureq::Error::Protocol(_) | ureq::Error::Http(_) | ureq::Error::BodyExceedsLimit(_) => {
                    ClientError::Answer { address, reason: error.to_string() }
                }
                _ => ClientError::Unreachable { address, reason: error.to_string() },
            }
        };
        let mut response = response.map_err(unreachable)?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        Ok((status, text.map_err(unreachable)?))
    }

    /// Turns an error status into an error.
    fn accept(&self, status: u16, text: &str) -> Result<(), ClientError> {
        if (200..300).contains(&status) {
            return Ok(());
        }
        match serde_json::from_str::<api::Error>(text) {
            Ok(api::Error { code, message }) => Err(ClientError::Refused { status, code, message }),
            Err(_) => Err(ClientError::Answer {
                address: self.address.to_string(),
                reason: format!("status {status} without an explanation"),
            }),
        }
    }

    fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<T, ClientError> {
        serde_json::from_str(text).map_err(|error| ClientError::Answer {
            address: self.address.to_string(),
            reason: error.to_string(),
        })
    }
}

fn volume_path(name: &str, operation: &str) -> String {
    named_path("/v1/volumes/", name, operation)
}

/// A path with a name in it, with everything escaped that could be taken for another path.
fn named_path(prefix: &str, name: &str, operation: &str) -> String {
    let mut path = prefix.to_owned();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric()
            || b"_-~".contains(&byte)
            || (byte == b'.' && name.bytes().any(|b| b != b'.'))
        {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path + operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_again_when_no_name_server_answers() {
        let failed = |reason: &str| std::io::Error::other(format!("failed to lookup address: {reason}"));
        let unanswered = || failed("Temporary failure in name resolution");
        let mut tries = 0;
        let found = looked_up(Duration::from_secs(20), &mut || {
            tries += 1;
            if tries < 3 { Err(unanswered()) } else { Ok(7) }
        });
        assert_eq!((found.ok(), tries), (Some(7), 3));
        assert!(looked_up::<()>(Duration::ZERO, &mut || Err(unanswered())).is_err());
        let mut tries = 0;
        let unknown = looked_up::<()>(Duration::from_secs(20), &mut || {
            tries += 1;
            Err(failed("Name or service not known"))
        });
        assert!(unknown.is_err() && tries == 1);
    }
}
