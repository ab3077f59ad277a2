//! What is counted, here and by all processes: taken one after the other, each time for all who have waited for it.
//!
//! A sample takes a thread for as long as a silent node, or a reactor that hangs, is waited for. However many ask how the cluster is at
//! the same time, as load balancers, monitoring and other processes do, they take one thread for each kind, and none waits for longer
//! than two samples take.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use super::error::ApiError;
use super::routes::{Shared, blocking};
use crate::api::Local;
use crate::sample::Sample;

/// A sample, and when it was begun.
pub(super) struct Taken<T> {
    pub(super) begun: Instant,
    pub(super) sample: Arc<T>,
}

impl<T> Clone for Taken<T> {
    fn clone(&self) -> Self {
        Taken { begun: self.begun, sample: self.sample.clone() }
    }
}

/// The last sample of a kind. Who holds the lock takes the next one.
type Last<T> = Arc<Mutex<Option<Taken<T>>>>;

/// The last ones of all kinds.
#[derive(Default)]
pub(super) struct Samples {
    everywhere: Last<Sample>,
    here: Last<Sample>,
    local: Last<Local>,
}

/// A sample of all processes that was begun after the question.
pub(super) async fn take(shared: &Arc<Shared>) -> Result<Taken<Sample>, ApiError> {
    take_next(shared, &shared.samples.everywhere, Shared::sample).await
}

/// The same of this process only.
pub(super) async fn take_here(shared: &Arc<Shared>) -> Result<Taken<Sample>, ApiError> {
    take_next(shared, &shared.samples.here, Shared::sample_here).await
}

/// What this process counts, as others ask for it.
pub(super) async fn take_local(shared: &Arc<Shared>) -> Result<Taken<Local>, ApiError> {
    take_next(shared, &shared.samples.local, Shared::local).await
}

async fn take_next<T: Send + Sync + 'static>(
    shared: &Arc<Shared>,
    last: &Last<T>,
    make: fn(&Shared) -> T,
) -> Result<Taken<T>, ApiError> {
    let asked = Instant::now();
    let mut last = last.clone().lock_owned().await;
    if let Some(taken) = last.as_ref().filter(|taken| taken.begun >= asked) {
        return Ok(taken.clone());
    }
    // A client that goes away ends its handler, but not the work: that has the lock.
    let take = move |shared: &Shared| {
        let begun = Instant::now();
        let taken = Taken { begun, sample: Arc::new(make(shared)) };
        *last = Some(taken.clone());
        taken
    };
    blocking(shared.clone(), take).await
}
