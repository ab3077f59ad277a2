//! Serves an embedded store to other processes of the machine, in the part of etcd's protocol that
//! [`EtcdStore`](crate::EtcdStore) speaks: nodes have one client for both. `etcdctl` can look into it.
//!
//! Differences from etcd, which its client here does not see:
//! - a read has no pages unless one key at most is asked for, and shows the present only;
//! - a transaction compares create and mod revisions for equality, and either reads or changes;
//! - watches are on a key or a prefix.
//!
//! Invariants:
//! - nothing is served without the token, if there is one;
//! - when it stops, watches end, so that the store can be closed;
//! - no client keeps it from stopping.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use crate::embedded::EmbeddedStore;
use crate::error::StoreError;
use crate::wire::{ResponseHeader, number, path};

mod keys;
mod token;
mod watches;

pub use token::{create_token, read_token};

/// How long a stop waits for clients to end their connections.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// A running server. Stops when it is dropped.
#[derive(Debug)]
pub struct StoreServer {
    address: SocketAddr,
    closing: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl StoreServer {
    /// Serves a store on an address, which should be one of the loopback, to those who have the token.
    pub async fn start(
        store: EmbeddedStore,
        address: SocketAddr,
        token: Option<String>,
    ) -> Result<Self, StoreError> {
        let io_error = |error: std::io::Error| StoreError::Io {
            doing: "listen on",
            path: address.to_string(),
            reason: error.to_string(),
            kind: error.kind(),
        };
        let listener = TcpListener::bind(address).await.map_err(io_error)?;
        let address = listener.local_addr().map_err(io_error)?;
        let (closing, closed) = watch::channel(false);
        let service = StoreService {
            inner: Arc::new(Served { store, token: token.map(String::into_bytes), closed: closed.clone() }),
        };
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let mut signal = closed;
        let serving = tokio::spawn(async move {
            let stop = async move {
                let _ = signal.wait_for(|closing| *closing).await;
            };
            let server = tonic::transport::Server::builder();
            if let Err(error) = server.serve_with_incoming_shutdown(service, incoming, stop).await {
                tracing::error!(%error, "the store's server ended");
            }
        });
        Ok(StoreServer { address, closing, serving })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint for [`EtcdOptions`](crate::EtcdOptions).
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops, and returns when all connections have ended. One whose client says nothing any more, as when its process is stopped, is not
    /// waited for: it ends with the runtime.
    pub async fn stop(mut self) {
        self.closing.send_replace(true);
        if tokio::time::timeout(STOP_TIME_MAX, &mut self.serving).await.is_err() {
            tracing::warn!("a client of the store does not end its connection: it is not waited for");
            self.serving.abort();
        }
    }
}

pub(super) struct Served {
    store: EmbeddedStore,
    token: Option<Vec<u8>>,
    closed: watch::Receiver<bool>,
}

impl Served {
    fn check_token(&self, headers: &http::HeaderMap) -> Result<(), Status> {
        let Some(wanted) = &self.token else { return Ok(()) };
        let given = headers.get("token").or_else(|| headers.get("authorization"));
        let given = given.map_or(&[][..], |given| given.as_bytes());
        match token::is_equal(wanted, given) {
            true => Ok(()),
            false => Err(Status::unauthenticated("the token is missing or wrong")),
        }
    }

    fn header(&self, revision: u64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.store.store_id(),
            member_id: 1,
            revision: number(revision),
            raft_term: 1,
        }
    }
}

/// The status that etcd has for an error.
fn status(error: StoreError) -> Status {
    match &error {
        StoreError::LeaseLost { .. } => Status::not_found("etcdserver: requested lease not found"),
        StoreError::Invalid { .. } => Status::invalid_argument(error.to_string()),
        StoreError::Closed => Status::unavailable("etcdserver: server stopped"),
        StoreError::Poisoned { .. } => Status::internal(error.to_string()),
        _ => Status::new(Code::Unknown, error.to_string()),
    }
}

#[derive(Clone)]
struct StoreService {
    inner: Arc<Served>,
}

impl Service<Request<Body>> for StoreService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let served = self.inner.clone();
        Box::pin(async move {
            Ok(match served.check_token(request.headers()) {
                Ok(()) => route(served, request).await,
                Err(status) => status.into_http(),
            })
        })
    }
}

async fn route(served: Arc<Served>, request: Request<Body>) -> Response<Body> {
    match request.uri().path() {
        path::RANGE => unary(served, request, keys::range).await,
        path::PUT => unary(served, request, keys::put).await,
        path::DELETE_RANGE => unary(served, request, keys::delete_range).await,
        path::TXN => unary(served, request, keys::transaction).await,
        path::COMPACT => unary(served, request, keys::compact).await,
        path::LEASE_GRANT => unary(served, request, keys::lease_grant).await,
        path::LEASE_REVOKE => unary(served, request, keys::lease_revoke).await,
        path::STATUS => unary(served, request, keys::status).await,
        path::AUTHENTICATE => unary(served, request, keys::authenticate).await,
        path::WATCH => streaming(served, request, watches::watch).await,
        path::LEASE_KEEP_ALIVE => streaming(served, request, watches::lease_keep_alive).await,
        _ => Status::unimplemented("the embedded store does not have this part of etcd").into_http(),
    }
}

async fn unary<Q, A, F>(
    served: Arc<Served>,
    request: Request<Body>,
    method: impl Fn(Arc<Served>, Q) -> F + Send + Sync,
) -> Response<Body>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + 'static,
    F: Future<Output = Result<A, Status>> + Send + 'static,
{
    let service = service_fn(|request: tonic::Request<Q>| {
        let answer = method(served.clone(), request.into_inner());
        async move { answer.await.map(tonic::Response::new) }
    });
    tonic::server::Grpc::new(ProstCodec::<A, Q>::default()).unary(service, request).await
}

async fn streaming<Q, A>(
    served: Arc<Served>,
    request: Request<Body>,
    method: impl Fn(Arc<Served>, tonic::Streaming<Q>) -> watches::Answers<A> + Send + Sync,
) -> Response<Body>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + 'static,
{
    let service = service_fn(|request: tonic::Request<tonic::Streaming<Q>>| {
        let answers = method(served.clone(), request.into_inner());
        async move { Ok::<_, Status>(tonic::Response::new(answers)) }
    });
    tonic::server::Grpc::new(ProstCodec::<A, Q>::default()).streaming(service, request).await
}
