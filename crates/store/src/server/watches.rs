//! The methods that are streams: watches, and keeping leases.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Served, status as status_of};
use crate::api::{Event, Revision, Store, Watched};
use crate::error::StoreError;
use crate::watch::WATCH_QUEUE;
use crate::wire::{
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, WatchAsk, WatchCreateRequest, WatchRequest, WatchResponse,
    event_messages, number, prefix_end, revision,
};

pub(super) type Answers<A> = ReceiverStream<Result<A, Status>>;
type Sender<A> = mpsc::Sender<Result<A, Status>>;

/// Watches that one connection's stream may have.
const WATCHES_MAX: usize = 1024;

pub(super) fn watch(served: Arc<Served>, asks: Streaming<WatchRequest>) -> Answers<WatchResponse> {
    let (sender, receiver) = mpsc::channel(WATCH_QUEUE);
    tokio::spawn(serve_watches(served, asks, sender));
    ReceiverStream::new(receiver)
}

async fn serve_watches(
    served: Arc<Served>,
    mut asks: Streaming<WatchRequest>,
    sender: Sender<WatchResponse>,
) {
    let mut closed = served.closed.clone();
    // Both end all watches when they are dropped, and some when they are told to.
    let mut running = JoinSet::new();
    let mut handles = HashMap::new();
    let mut id_next = 0;
    loop {
        let ask = tokio::select! {
            ask = asks.message() => ask,
            _ = closed.wait_for(|closing| *closing) => {
                let _ = sender.try_send(Err(Status::unavailable("etcdserver: server stopped")));
                return;
            }
            () = sender.closed() => return,
        };
        let Ok(Some(WatchRequest { ask: Some(ask) })) = ask else { return };
        let answered = match ask {
            WatchAsk::Create(_) if running.len() >= WATCHES_MAX => {
                sender.send(Err(Status::resource_exhausted("too many watches on one stream"))).await
            }
            WatchAsk::Create(create) => {
                let id = id_next;
                id_next += 1;
                let forwarder = forward(served.clone(), create, id, sender.clone());
                handles.insert(id, running.spawn(forwarder));
                Ok(())
            }
            WatchAsk::Cancel(cancel) => {
                if let Some(handle) = handles.remove(&cancel.watch_id) {
                    handle.abort();
                }
                let canceled = canceled(&served, cancel.watch_id, String::new());
                sender.send(Ok(canceled)).await
            }
            WatchAsk::Progress(_) => sender.send(Ok(answer(&served, -1))).await,
        };
        if answered.is_err() {
            return;
        }
        while running.try_join_next().is_some() {}
    }
}

fn answer(served: &Served, watch_id: i64) -> WatchResponse {
    let durable = *served.store.durable().borrow();
    WatchResponse { header: Some(served.header(durable)), watch_id, ..WatchResponse::default() }
}

fn canceled(served: &Served, watch_id: i64, cancel_reason: String) -> WatchResponse {
    WatchResponse { canceled: true, cancel_reason, ..answer(served, watch_id) }
}

/// Forwards one watch; the answer that it was created goes before all others.
async fn forward(served: Arc<Served>, create: WatchCreateRequest, id: i64, sender: Sender<WatchResponse>) {
    let created = WatchResponse { created: true, ..answer(&served, id) };
    if sender.send(Ok(created)).await.is_err() {
        return;
    }
    let last = match forward_all(&served, &create, id, &sender).await {
        Ok(Some(compact_revision)) => {
            WatchResponse { compact_revision, ..canceled(&served, id, "compacted".to_owned()) }
        }
        Ok(None) => return,
        Err(error) => canceled(&served, id, error.to_string()),
    };
    let _ = sender.send(Ok(last)).await;
}

/// Forwards until the history is not there any more (and then to where), or nobody listens.
async fn forward_all(
    served: &Served,
    create: &WatchCreateRequest,
    id: i64,
    sender: &Sender<WatchResponse>,
) -> Result<Option<i64>, StoreError> {
    let is_key = create.range_end.is_empty();
    if !is_key && create.range_end != prefix_end(&create.key) {
        let reason = "only a key or a prefix can be watched here".to_owned();
        return Err(StoreError::Invalid { reason });
    }
    let durable = *served.store.durable().borrow();
    let compacted = served.store.shared().machine().compacted();
    let from = match revision(create.start_revision) {
        0 => durable + 1,
        // etcd serves from the compacted revision itself, where it has nothing left to tell.
        from if from == compacted => from + 1,
        from => from,
    };
    let mut watch = served.store.watch(&create.key, from)?;
    while let Some(watched) = watch.next().await {
        let revision = match watched? {
            Watched::Reset { oldest_revision } => return Ok(Some(number(oldest_revision.saturating_sub(1)))),
            Watched::Revision(revision) if is_key => of_key(revision, &create.key),
            Watched::Revision(revision) => revision,
        };
        if revision.events.is_empty() {
            continue;
        }
        let response = WatchResponse { events: event_messages(&revision), ..answer(served, id) };
        if sender.send(Ok(response)).await.is_err() {
            break;
        }
    }
    Ok(None)
}

fn of_key(revision: Revision, key: &[u8]) -> Revision {
    let events: Vec<Event> = revision.events.into_iter().filter(|event| event.key() == key).collect();
    Revision { events, ..revision }
}

pub(super) fn lease_keep_alive(
    served: Arc<Served>,
    mut asks: Streaming<LeaseKeepAliveRequest>,
) -> Answers<LeaseKeepAliveResponse> {
    let (sender, receiver) = mpsc::channel(WATCH_QUEUE);
    tokio::spawn(async move {
        let mut closed = served.closed.clone();
        loop {
            let ask = tokio::select! {
                ask = asks.message() => ask,
                _ = closed.wait_for(|closing| *closing) => return,
                () = sender.closed() => return,
            };
            let Ok(Some(ask)) = ask else { return };
            let kept = served.store.lease_keep_alive(crate::api::LeaseId(ask.id)).await;
            let durable = *served.store.durable().borrow();
            let answer = match kept {
                Ok(seconds) => Ok(number(seconds)),
                // etcd's way to say that it is gone.
                Err(StoreError::LeaseLost { .. }) => Ok(0),
                Err(error) => Err(status_of(error)),
            };
            let header = Some(served.header(durable));
            let answer = answer.map(|seconds| LeaseKeepAliveResponse { header, id: ask.id, seconds });
            if sender.send(answer).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(receiver)
}
