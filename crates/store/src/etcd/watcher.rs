//! A watch on etcd that survives its connections.
//!
//! etcd's watches do not resume by themselves. This one begins again behind the last revision that it delivered,
//! and asks for one revision more than it needs, which it has seen: a compaction exactly at the first one
//! needed would otherwise hide a delete in it.
//!
//! Before each beginning, a read through the leader shows whether this is still the same store: a watch from a
//! revision that a wiped store has not reached would wait silently.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic_prost::ProstCodec;

use super::call::{Caller, Doing, Failure, Meaning, meaning};
use super::connection::{Connection, Trouble, Unconnected};
use crate::api::{Revision, Watched};
use crate::error::StoreError;
use crate::wire::{
    self, EventMessage, RangeRequest, RangeResponse, WatchAsk, WatchCreateRequest, WatchProgressRequest,
    WatchRequest, WatchResponse, path, prefix_end, revisions,
};

/// Pause before a broken watch begins again, which doubles up to the largest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A reader that takes nothing for so long gives the connection free, which others use too.
const STALL: Duration = Duration::from_secs(2);
/// Refusals in a row that are believed: one may come of a token that expired.
const REFUSALS_MAX: u32 = 2;

pub(super) struct Watcher {
    caller: Arc<Caller>,
    prefix: Vec<u8>,
    /// The next revision to deliver.
    next: u64,
    sender: mpsc::Sender<Result<Watched, StoreError>>,
    /// Pieces of revisions that etcd has cut in several answers.
    pieces: Vec<EventMessage>,
    refusals: u32,
}

/// Why one stream ended.
enum End {
    /// Begin again.
    Broken(String),
    /// The reader is slow: begin again when it has taken what waits.
    Stalled(Watched),
    /// The last to tell.
    Last(Result<Watched, StoreError>),
    /// Nobody listens any more.
    Unheard,
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        match error.is_passing() {
            true => End::Broken(error.to_string()),
            false => End::Last(Err(error)),
        }
    }
}

impl From<Unconnected> for End {
    fn from(unconnected: Unconnected) -> Self {
        match unconnected {
            Unconnected::Passing { .. } => End::Broken("no member can be reached".to_owned()),
            Unconnected::Final(error) => error.into(),
        }
    }
}

struct Stream {
    connection: Arc<Connection>,
    asks: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl Watcher {
    pub(super) fn new(
        caller: Arc<Caller>,
        prefix: &[u8],
        from_revision: u64,
        sender: mpsc::Sender<Result<Watched, StoreError>>,
    ) -> Self {
        let next = from_revision.max(1);
        Watcher { caller, prefix: prefix.to_vec(), next, sender, pieces: Vec::new(), refusals: 0 }
    }

    pub(super) async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let begin = Instant::now();
            let end = match self.open().await {
                Ok(stream) => self.follow(stream).await,
                Err(end) => end,
            };
            match end {
                End::Unheard => return,
                End::Last(last) => {
                    let _ = self.sender.send(last).await;
                    return;
                }
                End::Stalled(watched) => {
                    if self.sender.send(Ok(watched)).await.is_err() {
                        return;
                    }
                }
                End::Broken(reason) => {
                    tracing::debug!(reason, next = self.next, "a watch broke and begins again");
                    pause = if begin.elapsed() > PAUSE_MAX { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.sender.closed() => return,
                    }
                }
            }
        }
    }

    /// Makes sure that it is the same store, and begins a stream.
    async fn open(&mut self) -> Result<Stream, End> {
        self.pieces.clear();
        let request =
            RangeRequest { key: self.prefix.clone(), limit: 1, keys_only: true, ..RangeRequest::default() };
        let read: Result<RangeResponse, Failure> =
            self.caller.call(Doing::WATCH, path::RANGE, &request).await;
        read.map_err(|failure| End::from(failure.into_error(&self.caller, Doing::WATCH)))?;
        let connection = self.caller.connections().get().await.map_err(End::from)?;
        let (asks, receiver) = mpsc::channel(4);
        let create = WatchCreateRequest {
            key: self.prefix.clone(),
            range_end: prefix_end(&self.prefix),
            start_revision: wire::number(self.next.saturating_sub(1).max(1)),
            progress_notify: true,
            fragment: true,
            ..WatchCreateRequest::default()
        };
        let create = WatchRequest { ask: Some(WatchAsk::Create(create)) };
        asks.try_send(create).map_err(|error| End::Broken(error.to_string()))?;
        let begun = tokio::time::timeout(self.caller.watch_silence * 2, begin(&connection, receiver)).await;
        match begun {
            Ok(Ok(answers)) => Ok(Stream { connection, asks, answers }),
            Ok(Err(trouble)) => Err(self.failed(&trouble, &connection).await),
            Err(_) => {
                self.caller.connections().give_up(&connection).await;
                Err(End::Broken("no stream in time".to_owned()))
            }
        }
    }

    async fn failed(&mut self, trouble: &Trouble, connection: &Arc<Connection>) -> End {
        let reason = trouble.reason();
        match meaning(trouble, &connection.endpoint, Doing::WATCH) {
            Meaning::Final(failure) => failure.into_error(&self.caller, Doing::WATCH).into(),
            Meaning::NotDone | Meaning::Unknown => {
                self.caller.connections().give_up(connection).await;
                End::Broken(reason)
            }
        }
    }

    async fn follow(&mut self, mut stream: Stream) -> End {
        let silence = self.caller.watch_silence;
        let mut asked = false;
        loop {
            let patience = if asked { silence / 2 } else { silence };
            let answer = tokio::select! {
                answer = tokio::time::timeout(patience, stream.answers.message()) => answer,
                () = self.sender.closed() => return End::Unheard,
            };
            match answer {
                Ok(Ok(Some(answer))) => {
                    asked = false;
                    if let Err(end) = self.take(answer, &stream.connection).await {
                        return end;
                    }
                }
                Ok(Ok(None)) => {
                    self.caller.connections().give_up(&stream.connection).await;
                    return End::Broken("the member ended the stream".to_owned());
                }
                Ok(Err(status)) => return self.failed(&status.into(), &stream.connection).await,
                // Some versions never answer on a stream that has had no events (etcd's issue 17507): the member
                // itself may be well.
                Err(_)
                    if asked && self.caller.connections().is_alive(&stream.connection, silence / 2).await =>
                {
                    asked = false;
                }
                Err(_) if asked => {
                    self.caller.connections().give_up(&stream.connection).await;
                    return End::Broken("the member is silent".to_owned());
                }
                Err(_) => {
                    asked = true;
                    let ask = WatchRequest { ask: Some(WatchAsk::Progress(WatchProgressRequest {})) };
                    if stream.asks.try_send(ask).is_err() {
                        self.caller.connections().give_up(&stream.connection).await;
                        return End::Broken("the member takes no requests".to_owned());
                    }
                }
            }
        }
    }

    async fn take(&mut self, answer: WatchResponse, connection: &Arc<Connection>) -> Result<(), End> {
        if let Some(header) = &answer.header {
            self.caller.seen().check(header, 0).map_err(End::from)?;
        }
        if answer.compact_revision > 0 {
            let oldest_revision = wire::revision(answer.compact_revision) + 1;
            return Err(End::Last(Ok(Watched::Reset { oldest_revision })));
        }
        if answer.canceled {
            return Err(self.canceled(answer.cancel_reason, connection).await);
        }
        self.refusals = 0;
        let progress =
            !answer.created && answer.watch_id >= 0 && answer.events.is_empty() && self.pieces.is_empty();
        if progress && let Some(header) = &answer.header {
            // etcd says of itself that all up to here was told. An answer to a request for progress has id -1 and
            // does not prove it: it may overtake events (etcd's issue 15220).
            self.next = self.next.max(wire::revision(header.revision) + 1);
        }
        self.pieces.extend(answer.events);
        if answer.fragment {
            return Ok(());
        }
        let nonsense = || End::Broken("events out of order".to_owned());
        let whole = revisions(std::mem::take(&mut self.pieces)).ok_or_else(nonsense)?;
        for revision in whole {
            self.deliver(revision).await?;
        }
        Ok(())
    }

    async fn canceled(&mut self, reason: String, connection: &Arc<Connection>) -> End {
        // etcd says the same of a token that expired and of a right that is missing.
        self.refusals += 1;
        self.caller.connections().give_up(connection).await;
        let refused = reason.contains("permission denied") || reason.contains("auth");
        if refused && self.refusals >= REFUSALS_MAX {
            return End::Last(Err(StoreError::AuthRefused { endpoint: connection.endpoint.clone(), reason }));
        }
        End::Broken(format!("the member ended the watch: {reason}"))
    }

    async fn deliver(&mut self, revision: Revision) -> Result<(), End> {
        if revision.revision < self.next {
            return Ok(());
        }
        self.next = revision.revision + 1;
        let watched = Watched::Revision(revision);
        match tokio::time::timeout(STALL, self.sender.reserve()).await {
            Ok(Ok(permit)) => {
                permit.send(Ok(watched));
                Ok(())
            }
            Ok(Err(_)) => Err(End::Unheard),
            Err(_) => Err(End::Stalled(watched)),
        }
    }
}

async fn begin(
    connection: &Connection,
    receiver: mpsc::Receiver<WatchRequest>,
) -> Result<Streaming<WatchResponse>, Trouble> {
    let mut request = tonic::Request::new(ReceiverStream::new(receiver));
    connection.mark(request.metadata_mut());
    let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
    let path = http::uri::PathAndQuery::from_static(path::WATCH);
    Ok(connection.client().await?.streaming(request, path, codec).await?.into_inner())
}
