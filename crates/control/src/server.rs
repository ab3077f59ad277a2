//! The HTTP server: REST interface, metrics and health, on its own thread.
//!
//! Invariants:
//! - blocking work runs on tokio's blocking threads: a slow change never keeps `/metrics` waiting;
//! - connections and their idle time are limited, request bodies too, and how many changes are made at a time; who wants to know
//!   what is counted, here or by all processes, waits for a sample that others get as well: see [`samples`]. So there are always threads for what processes
//!   ask each other, on which changes may wait;
//! - a web page in somebody's browser cannot drive it: see [`guard`].

mod error;
mod guard;
mod internal;
mod listener;
mod routes;
mod samples;

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use coquina_cluster::HealthEntry;
use tokio::sync::oneshot;

use crate::catalogue::Catalogue;
use crate::metrics::MetricsOptions;

/// Threads for what may block.
const BLOCKING_THREADS: usize = 32;
/// Most of them that make changes. A shrink holds one until all nodes refuse the old size, this one too, which takes another.
const CHANGES_MAX: usize = 16;

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen for HTTP on {address}: {source}; give another address with --http")]
    Bind {
        /// The address.
        address: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// No thread or runtime.
    #[error("cannot start the HTTP server: {0}")]
    Start(std::io::Error),
}

/// Called when a client asks the process to stop cleanly; returns at once.
pub type ShutdownRequest = Box<dyn Fn() + Send + Sync>;

/// What the server says about its node, and whom it tells of a request to stop.
pub struct ServerConfig {
    /// Version of the program.
    pub version: String,
    /// Addresses of the NBD server.
    pub nbd: Vec<String>,
    /// Address of the native protocol; empty for a process that does not serve it.
    pub native: String,
    /// What `/metrics` shows.
    pub metrics: MetricsOptions,
    /// Health entries that hold as long as the server runs, such as an interface that is open to others.
    pub health: Vec<HealthEntry>,
    /// Called when a client asks the process to stop.
    pub shutdown: ShutdownRequest,
}

/// A bound socket that does not serve yet: taken early, so that a port in use is noticed before drives are opened.
#[derive(Debug)]
pub struct ControlListener {
    listener: TcpListener,
    address: String,
}

impl ControlListener {
    /// Binds `HOST:PORT`; port 0 takes a free one.
    pub fn bind(address: &str) -> Result<ControlListener, ServerError> {
        let failed = |source| ServerError::Bind { address: address.to_owned(), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok(ControlListener { listener, address: bound.to_string() })
    }

    /// The address with its real port.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// The running server.
pub struct ControlServer {
    address: String,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ControlServer {
    /// Serves on a bound socket.
    pub fn start(
        listener: ControlListener,
        config: ServerConfig,
        catalogue: Arc<Catalogue>,
    ) -> Result<ControlServer, ServerError> {
        let ControlListener { listener, address } = listener;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("control-blocking")
            .build()
            .map_err(ServerError::Start)?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(ServerError::Start)?
        };
        let shared = Arc::new(routes::Shared::new(config, address.clone(), catalogue));
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let listener = listener::LimitedListener::new(listener);
                    let serve = async { axum::serve(listener, routes::router(shared)).await };
                    tokio::select! {
                        // An error cannot be: the listener retries by itself.
                        _ = serve => {}
                        _ = stopped => {}
                    }
                });
                // A change that is being made is finished by its thread; its answer may be lost.
                runtime.shutdown_background();
            })
            .map_err(ServerError::Start)?;
        Ok(ControlServer { address, stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)) })
    }

    /// The address that it serves, with its real port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Stops serving.
    pub fn stop(&self) {
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The thread may have ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic of the thread was already reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop();
    }
}
