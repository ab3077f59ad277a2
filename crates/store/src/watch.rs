//! The receiving end of a watch.

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::api::Watched;
use crate::error::StoreError;

/// Revisions that may wait for a slow reader before the watch holds back its source.
pub(crate) const WATCH_QUEUE: usize = 64;

/// Tells what happens under a prefix; made by [`Store::watch`](crate::Store::watch). Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    receiver: mpsc::Receiver<Result<Watched, StoreError>>,
    /// The task that feeds it, if one does.
    feeder: Option<AbortHandle>,
}

impl Watch {
    /// A watch that is told through a channel, and ends its feeder with it: for implementations of [`Store`](crate::Store).
    pub fn new(receiver: mpsc::Receiver<Result<Watched, StoreError>>, feeder: Option<AbortHandle>) -> Self {
        Watch { receiver, feeder }
    }

    /// Waits for what is next. Broken connections are made again in the background without a word; an error is
    /// one that waiting does not cure, and the last that the watch tells. `None` follows it, and a reset.
    ///
    /// Cancel-safe: nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Watched, StoreError>> {
        self.receiver.recv().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(feeder) = &self.feeder {
            feeder.abort();
        }
    }
}

/// The runtime that feeds watches: the one of the caller.
pub(crate) fn runtime() -> Result<tokio::runtime::Handle, StoreError> {
    tokio::runtime::Handle::try_current().map_err(|_| StoreError::Invalid {
        reason: "a watch is made where no tokio runtime is entered".to_owned(),
    })
}
