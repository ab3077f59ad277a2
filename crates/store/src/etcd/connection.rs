//! Connections to etcd's members: one at a time, the next one when it fails.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity as ClientIdentity};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::{Access, EtcdOptions};
use crate::error::{Attempt, StoreError};
use crate::wire::{AuthenticateRequest, AuthenticateResponse, StatusRequest, StatusResponse, path};

/// etcd refuses clients that ask more often than every 5 s.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// A page of a read, or a revision, may be this large.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// What is said of a connection that ends in the handshake.
const HANDSHAKE_CUT: &str = "handshake eof";

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection could not be used: nothing was sent.
    Unsent(String),
    /// What the member answered, or what happened to the connection meanwhile.
    Status(Status),
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Self {
        Trouble::Status(status)
    }
}

impl Trouble {
    pub(super) fn reason(&self) -> String {
        match self {
            Trouble::Unsent(reason) => reason.clone(),
            Trouble::Status(status) => status_reason(status),
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Unconnected {
    /// It may pass. `slow`: somebody was reached, but did not answer.
    Passing {
        tried: Vec<Attempt>,
        slow: bool,
    },
    Final(StoreError),
}

/// A connection to one member.
#[derive(Debug)]
pub(super) struct Connection {
    channel: Channel,
    token: Option<AsciiMetadataValue>,
    /// The endpoint, as it was configured.
    pub endpoint: String,
    is_secure: bool,
    index: usize,
}

impl Connection {
    /// A client that takes large answers. If that fails, the connection is gone and nothing was sent.
    pub(super) async fn client(&self) -> Result<tonic::client::Grpc<Channel>, Trouble> {
        let mut client =
            tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        client.ready().await.map_err(|error| Trouble::Unsent(reason(&error)))?;
        Ok(client)
    }

    /// Marks a request: who asks, and that a member without a leader is no use.
    pub(super) fn mark(&self, metadata: &mut MetadataMap) {
        metadata.insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            metadata.insert("token", token.clone());
        }
    }
}

/// All endpoints, and the connection in use.
#[derive(Debug)]
pub(super) struct Connections {
    endpoints: Vec<(String, Endpoint)>,
    access: Access,
    connect_timeout: Duration,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    connection: Option<Arc<Connection>>,
    /// The endpoint to try first.
    index_next: usize,
}

impl Connections {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, StoreError> {
        if options.endpoints.is_empty() {
            return Err(StoreError::Invalid {
                reason: "no etcd endpoint is given; use --etcd URL".to_owned(),
            });
        }
        let endpoints = options
            .endpoints
            .iter()
            .map(|text| endpoint(text, options).map(|endpoint| (text.clone(), endpoint)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Connections {
            endpoints,
            access: options.access.clone(),
            connect_timeout: options.connect_timeout,
            current: Mutex::default(),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.endpoints.len()
    }

    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.endpoints.iter().map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    }

    /// Gives a connection up that failed, so that the next request takes the next endpoint.
    pub(super) async fn give_up(&self, connection: &Arc<Connection>) {
        let mut current = self.current.lock().await;
        if current.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            current.connection = None;
            current.index_next = (connection.index + 1) % self.endpoints.len();
        }
    }

    /// The connection in use, or a new one to the first endpoint that answers.
    pub(super) async fn get(&self) -> Result<Arc<Connection>, Unconnected> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok(connection.clone());
        }
        let mut tried = Vec::new();
        let mut slow = false;
        let mut finals = Vec::new();
        for _ in 0..self.endpoints.len() {
            let index = current.index_next;
            // Before the attempt: whoever gives up waiting leaves the next endpoint to the next.
            current.index_next = (index + 1) % self.endpoints.len();
            let reason = match self.connect(index).await {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    current.connection = Some(connection.clone());
                    return Ok(connection);
                }
                Err(Refusal::Final(error)) => {
                    let reason = error.to_string();
                    finals.push(error);
                    reason
                }
                Err(Refusal::Unreachable(reason)) => reason,
                Err(Refusal::Silent(timeout)) => {
                    slow = true;
                    format!("connected, but silent for {} ms", timeout.as_millis())
                }
            };
            tried.push(Attempt { endpoint: self.endpoints[index].0.clone(), reason });
        }
        // As long as one endpoint may come back and take what the others refuse, waiting may help.
        if finals.len() == self.endpoints.len()
            && let Some(error) = finals.pop()
        {
            return Err(Unconnected::Final(error));
        }
        Err(Unconnected::Passing { tried, slow })
    }

    async fn connect(&self, index: usize) -> Result<Connection, Refusal> {
        let (name, endpoint) = &self.endpoints[index];
        let connecting = tokio::time::timeout(self.connect_timeout, endpoint.connect());
        let channel = match connecting.await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => {
                let mut reason = reason(&error);
                if is_tls(&error) {
                    return Err(Refusal::Final(StoreError::Tls { endpoint: name.clone(), reason }));
                }
                if reason.contains(HANDSHAKE_CUT) {
                    reason.push_str("; if that stays, etcd may not want https");
                }
                return Err(Refusal::Unreachable(reason));
            }
            Err(_) => {
                let timeout_ms = self.connect_timeout.as_millis();
                return Err(Refusal::Unreachable(format!("no connection within {timeout_ms} ms")));
            }
        };
        let is_secure = endpoint.uri().scheme_str() == Some("https");
        let mut connection = Connection { channel, token: None, endpoint: name.clone(), is_secure, index };
        if let Access::Token(token) = &self.access {
            connection.token = Some(metadata_token(name, token)?);
        }
        self.probe(&connection).await?;
        if let Access::Password { user, password } = &self.access {
            let request = AuthenticateRequest { name: user.clone(), password: password.clone() };
            let asked = tokio::time::timeout(self.connect_timeout, authenticate(&connection, request));
            let token = match asked.await {
                Ok(Ok(token)) => token,
                Ok(Err(Trouble::Status(status))) => return Err(authentication_refusal(name, &status)),
                Ok(Err(Trouble::Unsent(reason))) => return Err(Refusal::Unreachable(reason)),
                Err(_) => return Err(Refusal::Silent(self.connect_timeout)),
            };
            connection.token = token.map(|token| metadata_token(name, &token)).transpose()?;
        }
        Ok(connection)
    }
}

impl Connections {
    /// Sees whether it is etcd, new enough, and has a leader: before anything is sent that must not be lost. A
    /// missing client certificate shows only here.
    async fn probe(&self, connection: &Connection) -> Result<(), Refusal> {
        let endpoint = connection.endpoint.clone();
        let answer = match tokio::time::timeout(self.connect_timeout, status(connection)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(trouble)) => return Err(probe_refusal(connection, &trouble)),
            Err(_) => return Err(Refusal::Silent(self.connect_timeout)),
        };
        if !is_new_enough(&answer.version) {
            let reason = format!("version {} is older than 3.4; update etcd", answer.version);
            let doing = "serve the cluster map";
            return Err(Refusal::Final(StoreError::Refused { doing, endpoint, reason }));
        }
        match answer.leader {
            0 => Err(Refusal::Unreachable("it has no leader".to_owned())),
            _ => Ok(()),
        }
    }
}

impl Connections {
    /// Whether a member still answers, and has a leader.
    pub(super) async fn is_alive(&self, connection: &Connection, timeout: Duration) -> bool {
        let answered = tokio::time::timeout(timeout, status(connection)).await;
        matches!(answered, Ok(Ok(answer)) if answer.leader != 0)
    }
}

async fn status(connection: &Connection) -> Result<StatusResponse, Trouble> {
    let codec = ProstCodec::<StatusRequest, StatusResponse>::default();
    let path = http::uri::PathAndQuery::from_static(path::STATUS);
    let mut request = tonic::Request::new(StatusRequest {});
    connection.mark(request.metadata_mut());
    Ok(connection.client().await?.unary(request, path, codec).await?.into_inner())
}

fn probe_refusal(connection: &Connection, trouble: &Trouble) -> Refusal {
    let endpoint = connection.endpoint.clone();
    let reason = trouble.reason();
    match trouble {
        Trouble::Status(status) if is_tls(status) => Refusal::Final(StoreError::Tls { endpoint, reason }),
        Trouble::Status(status) if status.code() == Code::Unauthenticated => {
            Refusal::Final(StoreError::AuthRefused { endpoint, reason })
        }
        Trouble::Status(status) if status.code() == Code::Unimplemented => {
            let reason = format!("{reason}; is it etcd?");
            Refusal::Final(StoreError::Refused { doing: "serve the cluster map", endpoint, reason })
        }
        _ if connection.is_secure => {
            Refusal::Unreachable(format!("{reason}; if that stays, etcd may want a client certificate"))
        }
        _ => Refusal::Unreachable(format!("{reason}; if that stays, etcd may want https")),
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(3), Some(4))
}

enum Refusal {
    /// Another endpoint may do.
    Unreachable(String),
    /// The same, but it was reached.
    Silent(Duration),
    /// The same everywhere, most likely.
    Final(StoreError),
}

fn metadata_token(endpoint: &str, token: &str) -> Result<AsciiMetadataValue, Refusal> {
    let mut value = AsciiMetadataValue::try_from(token).map_err(|_| {
        let reason = "the token has characters that none has".to_owned();
        Refusal::Final(StoreError::AuthRefused { endpoint: endpoint.to_owned(), reason })
    })?;
    value.set_sensitive(true);
    Ok(value)
}

async fn authenticate(
    connection: &Connection,
    request: AuthenticateRequest,
) -> Result<Option<String>, Trouble> {
    let codec = ProstCodec::<AuthenticateRequest, AuthenticateResponse>::default();
    let path = http::uri::PathAndQuery::from_static(path::AUTHENTICATE);
    let answered = connection.client().await?.unary(tonic::Request::new(request), path, codec).await;
    match answered {
        Ok(answer) => Ok(Some(answer.into_inner().token)),
        // A password that etcd does not want yet, as long as its users are not turned on.
        Err(status) if status.message().contains("authentication is not enabled") => {
            tracing::warn!(
                endpoint = connection.endpoint,
                "etcd asks nobody for a password: auth is not enabled"
            );
            Ok(None)
        }
        Err(status) => Err(status.into()),
    }
}

fn authentication_refusal(endpoint: &str, status: &Status) -> Refusal {
    let endpoint = endpoint.to_owned();
    let reason = status_reason(status);
    match status.code() {
        _ if is_tls(status) => Refusal::Final(StoreError::Tls { endpoint, reason }),
        Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated | Code::FailedPrecondition => {
            Refusal::Final(StoreError::AuthRefused { endpoint, reason })
        }
        _ => Refusal::Unreachable(reason),
    }
}

fn endpoint(text: &str, options: &EtcdOptions) -> Result<Endpoint, StoreError> {
    let invalid = |reason: String| StoreError::Invalid { reason: format!("etcd endpoint {text}: {reason}") };
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let url = if text.contains("://") { text.to_owned() } else { format!("{scheme}://{text}") };
    let endpoint = Endpoint::from_shared(url).map_err(|error| invalid(reason(&error)))?;
    let uri = endpoint.uri().clone();
    if uri.host().is_none_or(str::is_empty) || uri.port_u16().is_none() {
        return Err(invalid("give it as http://HOST:PORT or https://HOST:PORT".to_owned()));
    }
    let endpoint = endpoint
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    match uri.scheme_str() {
        Some("http") => Ok(endpoint),
        Some("https") => {
            let tls = options.tls.as_ref();
            let tls =
                tls.ok_or_else(|| invalid("https needs the file of the authority (--etcd-ca)".to_owned()))?;
            check_pem(text, "CA", &tls.ca_pem, "CERTIFICATE")?;
            if let Some((certificate, key)) = &tls.client_pem {
                check_pem(text, "client certificate", certificate, "CERTIFICATE")?;
                check_pem(text, "client key", key, "PRIVATE KEY")?;
            }
            let mut config =
                ClientTlsConfig::new().assume_http2(true).ca_certificate(Certificate::from_pem(&tls.ca_pem));
            if let Some((certificate, key)) = &tls.client_pem {
                config = config.identity(ClientIdentity::from_pem(certificate, key));
            }
            if let Some(name) = &tls.server_name {
                config = config.domain_name(name);
            }
            endpoint.tls_config(config).map_err(|error| StoreError::Tls {
                endpoint: text.to_owned(),
                reason: format!("a certificate or key file cannot be used: {}", reason(&error)),
            })
        }
        _ => Err(invalid("only http and https are known".to_owned())),
    }
}

/// A file without the wanted part would be taken for one that trusts nobody.
fn check_pem(endpoint: &str, file: &str, pem: &[u8], part: &str) -> Result<(), StoreError> {
    let text = String::from_utf8_lossy(pem);
    let has_part = text.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains(part));
    match has_part {
        true => Ok(()),
        false => {
            let reason = format!("the {file} file has no PEM part with a {}", part.to_lowercase());
            Err(StoreError::Tls { endpoint: endpoint.to_owned(), reason })
        }
    }
}

/// What is at the bottom of an error: the rest says only where it came through.
pub(super) fn reason(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// What a failed request tells: etcd's message, or what happened to the connection.
pub(super) fn status_reason(status: &Status) -> String {
    match Error::source(status) {
        Some(source) => reason(source),
        None if status.message().is_empty() => status.code().to_string(),
        None => status.message().to_owned(),
    }
}

/// Whether an error comes from the handshake or the certificates.
pub(super) fn is_tls(error: &(dyn Error + 'static)) -> bool {
    const SIGNS: [&str; 6] =
        ["certificate", "fatal alert", "corrupt message", "handshake", "HandshakeFailure", "UnknownIssuer"];
    let text = reason(error);
    // A connection that ends in the handshake says nothing of certificates: the member may be stopping.
    SIGNS.iter().any(|sign| text.contains(sign)) && !text.contains(HANDSHAKE_CUT)
}

/// Whether a request surely never left: there was no connection.
pub(super) fn is_unconnected(status: &Status) -> bool {
    let mut next = Error::source(status);
    while let Some(error) = next {
        let refused = error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
        if refused {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn versions_from_3_4_on_will_do() {
        for version in ["3.4.0", "3.4.23", "3.5.9", "3.6.0-rc.1", "4.0.0", "3.4.0+coquina-0.1.0"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["3.3.27", "2.3.8", "", "nonsense", "3"] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
