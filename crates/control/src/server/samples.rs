//! Samples of all processes, one after the other, each for all who have waited for it.
//!
//! A sample takes a thread for as long as a silent node is waited for. However many ask how the cluster is at the same time, as load
//! balancers and monitoring do, they take one thread, and none waits for longer than two samples take.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use super::error::ApiError;
use super::routes::{Shared, blocking};
use crate::sample::Sample;

/// A sample, and when it was begun.
#[derive(Clone)]
pub(super) struct Taken {
    pub(super) begun: Instant,
    pub(super) sample: Arc<Sample>,
}

/// The last sample. Who holds the lock takes the next one.
#[derive(Default)]
pub(super) struct Samples(Arc<Mutex<Option<Taken>>>);

/// A sample that was begun after the question.
pub(super) async fn take(shared: &Arc<Shared>) -> Result<Taken, ApiError> {
    let asked = Instant::now();
    let mut last = shared.samples.0.clone().lock_owned().await;
    if let Some(taken) = last.as_ref().filter(|taken| taken.begun >= asked) {
        return Ok(taken.clone());
    }
    // A client that goes away ends its handler, but not the work: that has the lock.
    let take = move |shared: &Shared| {
        let begun = Instant::now();
        let taken = Taken { begun, sample: Arc::new(shared.sample()) };
        *last = Some(taken.clone());
        taken
    };
    blocking(shared.clone(), take).await
}
