//! The thread that tells followers of new maps.

use std::sync::{Arc, PoisonError};

use coquina_cluster::{MapError, MapView};

use super::{MapFollower, Shared};

/// Runs until the service stops or the map must not be used any more.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut followers: Vec<MapFollower> = Vec::new();
    let mut told: u64 = 0;
    while let Some((news, joining)) = next(shared, told) {
        let newer = news.as_ref().map_or(true, |map| map.revision() > told);
        if newer {
            followers.iter_mut().for_each(|follow| follow(news.clone()));
        }
        followers.extend(joining.into_iter().map(|mut follow| {
            follow(news.clone());
            follow
        }));
        match news {
            Ok(map) => {
                told = map.revision();
                shared.change_state(|state| state.followed = told);
            }
            Err(_) => {
                // Whoever comes later is told too.
                followers.clear();
                told = u64::MAX;
            }
        }
    }
}

type News = (Result<Arc<MapView>, MapError>, Vec<MapFollower>);

/// Waits for a newer map or for new followers. `None`: the service stops.
fn next(shared: &Shared, told: u64) -> Option<News> {
    let mut state = shared.state();
    loop {
        if state.stopping {
            return None;
        }
        let refused = state.store.refused.clone();
        let newer = if refused.is_some() { told < u64::MAX } else { state.map.revision() > told };
        if newer || !state.joining.is_empty() {
            let joining = std::mem::take(&mut state.joining);
            let news = refused.map_or_else(|| Ok(state.map.clone()), Err);
            return Some((news, joining));
        }
        state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}
