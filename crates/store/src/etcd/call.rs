//! One request: which endpoint, how long, what its failure means, and whether it may be asked again.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::EtcdOptions;
use super::connection::{
    Connection, Connections, Trouble, Unconnected, is_tls, is_unconnected, status_reason,
};
use super::seen::Seen;
use crate::error::{Attempt, StoreError};
use crate::wire::{Answer, ResponseHeader};

/// What a request does, for messages, and whether it does the same when it is done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doing {
    pub text: &'static str,
    again: bool,
}

impl Doing {
    pub(super) const READ: Doing = Doing { text: "read the cluster map", again: true };
    pub(super) const WATCH: Doing = Doing { text: "watch the cluster map", again: true };
    pub(super) const CHANGE: Doing = Doing { text: "change the cluster map", again: false };
    pub(super) const GRANT: Doing = Doing { text: "take a lease", again: true };
    pub(super) const KEEP_ALIVE: Doing = Doing { text: "keep a lease", again: true };
    pub(super) const REVOKE: Doing = Doing { text: "give a lease back", again: true };
    pub(super) const COMPACT: Doing = Doing { text: "compact the store", again: true };
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The revision asked for is forgotten.
    Compacted,
    /// The lease is gone.
    LeaseNotFound,
    Other(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Other(error)
    }
}

impl Failure {
    pub(super) fn into_error(self, caller: &Caller, doing: Doing) -> StoreError {
        match self {
            Failure::Compacted => caller.refused(doing, "the revision is compacted"),
            Failure::LeaseNotFound => caller.refused(doing, "the lease is gone"),
            Failure::Other(error) => error,
        }
    }
}

/// What the failure of one attempt means.
#[derive(Debug)]
pub(super) enum Meaning {
    /// It was not done; another endpoint or a new token may help.
    NotDone,
    /// It may have been done.
    Unknown,
    /// No use in asking again.
    Final(Failure),
}

/// Asks etcd.
#[derive(Debug)]
pub(super) struct Caller {
    connections: Connections,
    seen: Seen,
    request_timeout: Duration,
    attempt_timeout: Duration,
    pub(super) watch_silence: Duration,
}

impl Caller {
    pub(super) fn new(options: EtcdOptions) -> Result<Self, StoreError> {
        // With one endpoint there is nobody else to ask: it has more time.
        let alone_timeout =
            if options.endpoints.len() == 1 { options.request_timeout / 2 } else { Duration::ZERO };
        Ok(Caller {
            connections: Connections::new(&options)?,
            seen: Seen::new(options.known),
            request_timeout: options.request_timeout,
            attempt_timeout: options.attempt_timeout.max(alone_timeout),
            watch_silence: options.watch_silence,
        })
    }

    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.connections
    }

    pub(super) fn refused(&self, doing: Doing, reason: &str) -> StoreError {
        StoreError::Refused {
            doing: doing.text,
            endpoint: self.connections.names(),
            reason: reason.to_owned(),
        }
    }

    /// A request with one answer, whose revision is not below any seen before the request was sent.
    pub(super) async fn call<Q, A>(&self, doing: Doing, path: &'static str, request: &Q) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Answer,
    {
        let floor = self.seen.floor()?;
        let (answer, endpoint): (A, String) = self
            .attempts(doing, |connection| async move { unary(&connection, path, request.clone()).await })
            .await?;
        self.believe(doing, endpoint, answer.header(), floor)?;
        Ok(answer)
    }

    /// A request over a stream that has one answer: etcd's way to keep a lease. The answer may come from a member
    /// that lags.
    pub(super) async fn call_stream<Q, A>(
        &self,
        doing: Doing,
        path: &'static str,
        request: &Q,
    ) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Answer,
    {
        self.seen.floor()?;
        let (answer, endpoint): (A, String) = self
            .attempts(doing, |connection| async move { once(&connection, path, request.clone()).await })
            .await?;
        self.believe(doing, endpoint, answer.header(), 0)?;
        Ok(answer)
    }

    fn believe(
        &self,
        doing: Doing,
        endpoint: String,
        header: Option<&ResponseHeader>,
        floor: u64,
    ) -> Result<(), StoreError> {
        match header {
            Some(header) => self.seen.check(header, floor),
            None => {
                let reason = "its answer has no header; is it etcd?".to_owned();
                Err(StoreError::Refused { doing: doing.text, endpoint, reason })
            }
        }
    }

    async fn attempts<A, F>(
        &self,
        doing: Doing,
        attempt: impl Fn(Arc<Connection>) -> F,
    ) -> Result<(A, String), Failure>
    where
        F: Future<Output = Result<A, Trouble>>,
    {
        let begin = Instant::now();
        let deadline = begin + self.request_timeout;
        let mut tried: Vec<Attempt> = Vec::new();
        let mut slow = false;
        // By members that were found to be etcd before.
        let mut unimplemented = 0;
        let attempts_max = 2 * self.connections.count() + 1;
        while tried.len() < attempts_max {
            let connection = match tokio::time::timeout_at(deadline, self.connections.get()).await {
                Ok(Ok(connection)) => connection,
                // What happened before tells more than that nobody answers now.
                Ok(Err(Unconnected::Passing { tried: more, slow: more_slow })) => {
                    tried.extend(more);
                    slow |= more_slow;
                    break;
                }
                Ok(Err(Unconnected::Final(error))) => return Err(error.into()),
                Err(_) => {
                    slow = true;
                    let reason = "no connection in time".to_owned();
                    tried.push(Attempt { endpoint: self.connections.names(), reason });
                    break;
                }
            };
            let ends = deadline.min(Instant::now() + self.attempt_timeout);
            let (meaning, reason) = match tokio::time::timeout_at(ends, attempt(connection.clone())).await {
                Ok(Ok(answer)) => return Ok((answer, connection.endpoint.clone())),
                Ok(Err(trouble)) => {
                    unimplemented += usize::from(is_unimplemented(&trouble));
                    (meaning(&trouble, &connection.endpoint, doing), trouble.reason())
                }
                Err(_) => {
                    slow = true;
                    (Meaning::Unknown, "no answer in time".to_owned())
                }
            };
            let failed = Attempt { endpoint: connection.endpoint.clone(), reason };
            match meaning {
                Meaning::Final(failure) => return Err(failure),
                Meaning::Unknown if !doing.again => {
                    self.connections.give_up(&connection).await;
                    return Err(StoreError::OutcomeUnknown { doing: doing.text, attempt: failed }.into());
                }
                Meaning::Unknown | Meaning::NotDone => self.connections.give_up(&connection).await,
            }
            tried.push(failed);
            if Instant::now() >= deadline {
                break;
            }
        }
        let waited_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        if unimplemented == tried.len()
            && let Some(Attempt { endpoint, reason }) = tried.pop()
        {
            return Err(StoreError::Refused { doing: doing.text, endpoint, reason }.into());
        }
        Err(exhausted(doing, tried, slow, waited_ms).into())
    }
}

/// Why no attempt has succeeded.
fn exhausted(doing: Doing, tried: Vec<Attempt>, slow: bool, waited_ms: u64) -> StoreError {
    // One refusal may come of a token that expired, and whoever is away now may give another: two in a row, up to the end, do not.
    let refusals = tried.iter().rev().take_while(|attempt| is_access_text(&attempt.reason)).count();
    match tried.last() {
        Some(last) if refusals > 1 => {
            StoreError::AuthRefused { endpoint: last.endpoint.clone(), reason: last.reason.clone() }
        }
        _ if slow => StoreError::Slow { doing: doing.text, waited_ms, tried },
        _ => StoreError::Unreachable { doing: doing.text, tried },
    }
}

/// A member that was left may have another program at its port now, to which its connection was made anew without a word.
fn is_unimplemented(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Status(status) if status.code() == Code::Unimplemented)
}

/// What etcd says when a token is missing or has expired.
fn is_access_text(reason: &str) -> bool {
    const TEXTS: [&str; 4] =
        ["invalid auth token", "user name is empty", "auth store is old", "token is missing or wrong"];
    TEXTS.iter().any(|text| reason.contains(text))
}

/// What a failed attempt means, by what etcd documents of its errors.
pub(super) fn meaning(trouble: &Trouble, endpoint: &str, doing: Doing) -> Meaning {
    let status = match trouble {
        Trouble::Unsent(_) => return Meaning::NotDone,
        Trouble::Status(status) => status,
    };
    let message = status.message();
    let endpoint = endpoint.to_owned();
    let reason = status_reason(status);
    let has = |text: &str| message.contains(text);
    let fails = |error: StoreError| Meaning::Final(error.into());
    match status.code() {
        _ if is_access_text(message) || is_unimplemented(trouble) => Meaning::NotDone,
        _ if has("no leader") || has("too many requests") => Meaning::NotDone,
        _ if has("has been compacted") => Meaning::Final(Failure::Compacted),
        _ if has("requested lease not found") => Meaning::Final(Failure::LeaseNotFound),
        _ if has("database space exceeded") => fails(StoreError::Full { endpoint, reason }),
        Code::PermissionDenied | Code::Unauthenticated => fails(StoreError::AuthRefused { endpoint, reason }),
        // Once a connection is there, an alert may come when the request has been done. What one member has against this client, others may
        // not have; who can get no connection at all is told why before.
        _ if is_tls(status) && !doing.again => Meaning::Unknown,
        _ if is_tls(status) => Meaning::NotDone,
        _ if is_unconnected(status) => Meaning::NotDone,
        Code::InvalidArgument | Code::OutOfRange => {
            fails(StoreError::Invalid { reason: format!("{endpoint}: {reason}") })
        }
        Code::FailedPrecondition | Code::NotFound | Code::AlreadyExists => {
            fails(StoreError::Refused { doing: doing.text, endpoint, reason })
        }
        _ => Meaning::Unknown,
    }
}

async fn unary<Q, A>(connection: &Connection, path: &'static str, request: Q) -> Result<A, Trouble>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut request = tonic::Request::new(request);
    connection.mark(request.metadata_mut());
    let path = http::uri::PathAndQuery::from_static(path);
    let answer = connection.client().await?.unary(request, path, ProstCodec::<Q, A>::default()).await?;
    Ok(answer.into_inner())
}

async fn once<Q, A>(connection: &Connection, path: &'static str, request: Q) -> Result<A, Trouble>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut request = tonic::Request::new(tokio_stream::once(request));
    connection.mark(request.metadata_mut());
    let path = http::uri::PathAndQuery::from_static(path);
    let answers = connection.client().await?.streaming(request, path, ProstCodec::<Q, A>::default()).await?;
    let answer = answers.into_inner().message().await?;
    Ok(answer.ok_or_else(|| Status::unavailable("the stream ended without an answer"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request may have been done before the alert came.
    #[test]
    fn an_alert_in_the_middle_of_a_change_says_nothing_of_its_outcome() {
        let alert = || Trouble::Status(Status::unknown("received fatal alert: CertificateExpired"));
        let of = |doing| meaning(&alert(), "https://etcd:2379", doing);
        assert!(matches!(of(Doing::CHANGE), Meaning::Unknown));
        assert!(matches!(of(Doing::READ), Meaning::NotDone));
    }

    /// An expired token, and then nobody to give another, was told as a refusal, which ended leases.
    #[test]
    fn a_refusal_before_all_members_were_away_is_not_the_last_word() {
        let attempt = |reason: &str| Attempt { endpoint: "etcd:2379".to_owned(), reason: reason.to_owned() };
        let expired = || attempt("etcdserver: invalid auth token");
        let away = || attempt("Connection refused (os error 111)");
        let of = |tried: Vec<Attempt>, slow| exhausted(Doing::KEEP_ALIVE, tried, slow, 1);
        assert!(of(vec![expired(), away(), away()], false).is_passing());
        assert!(of(vec![away(), expired()], true).is_passing());
        assert!(matches!(of(vec![expired(), expired()], false), StoreError::AuthRefused { .. }));
        assert!(matches!(of(vec![away(), expired(), expired()], true), StoreError::AuthRefused { .. }));
    }
}
