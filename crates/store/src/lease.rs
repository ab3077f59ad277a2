//! Keeps a lease alive in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::api::{Lease, LeaseId, Store};
use crate::error::StoreError;

/// Shortest pause between two keep-alives.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Keeps a lease alive until it is dropped; the lease then runs out by itself unless it is revoked.
#[derive(Debug)]
pub struct LeaseKeeper {
    lease: Lease,
    lost: watch::Receiver<Option<StoreError>>,
    task: AbortHandle,
}

impl LeaseKeeper {
    /// Grants a lease and keeps it.
    pub async fn grant(store: Arc<dyn Store>, seconds: u64) -> Result<Self, StoreError> {
        let asked = Instant::now();
        let lease = store.lease_grant(seconds).await?;
        let (sender, lost) = watch::channel(None);
        let task = tokio::spawn(async move {
            let error = keep(&*store, lease, asked).await;
            sender.send_replace(Some(error));
        });
        Ok(LeaseKeeper { lease, lost, task: task.abort_handle() })
    }

    /// The lease.
    pub fn lease(&self) -> LeaseId {
        self.lease.id
    }

    /// Why the lease is lost, if it is: it has ended, or nobody could be asked for as long as it lives.
    pub fn lost_already(&self) -> Option<StoreError> {
        self.lost.borrow().clone()
    }

    /// Waits until the lease is lost, and tells why. Cancel-safe.
    pub async fn lost(&mut self) -> StoreError {
        match self.lost.wait_for(Option::is_some).await {
            Ok(error) => error.clone().unwrap_or(StoreError::Closed),
            Err(_) => StoreError::Closed,
        }
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns when the lease is lost. The time counts from when each request was sent: the store gives it anew later.
async fn keep(store: &dyn Store, lease: Lease, asked: Instant) -> StoreError {
    let mut life = Duration::from_secs(lease.seconds);
    let mut ends = asked + life;
    loop {
        tokio::time::sleep((life / 3).max(PAUSE_MIN).min(ends.saturating_duration_since(Instant::now())))
            .await;
        let mut pause = PAUSE_MIN;
        loop {
            let asked = Instant::now();
            match tokio::time::timeout_at(ends, store.lease_keep_alive(lease.id)).await {
                Ok(Ok(seconds)) => {
                    life = Duration::from_secs(seconds);
                    ends = asked + life;
                    break;
                }
                Ok(Err(error)) if error.is_passing() && Instant::now() < ends => {
                    tracing::debug!(%error, lease = %lease.id, "a keep-alive failed");
                    tokio::time::sleep(pause.min(ends.saturating_duration_since(Instant::now()))).await;
                    pause = (pause * 2).min(life / 3).max(PAUSE_MIN);
                }
                Ok(Err(error)) if !error.is_passing() => return error,
                Ok(Err(_)) | Err(_) => return StoreError::LeaseLost { lease: lease.id },
            }
        }
    }
}
