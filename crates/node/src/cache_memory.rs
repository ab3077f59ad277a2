//! Memory for block caches that is at hand when a reactor wants it.
//!
//! Memory that a system has not given out before is found and cleared when it is touched first. In a virtual machine that gets it
//! from its own host that took 10 to 17 ms for 2 MiB. A reactor that waited for it would hold up every write of its node.

use std::sync::mpsc::sync_channel;

use coquina_base::SharedBlock;
use coquina_engine::CacheMemory;

/// Slabs that are touched ahead for each shard whose cache grows.
const SLABS_AHEAD: usize = 4;

/// Where a shard's cache gets memory. The thread that touches it starts when memory is asked for the first time, and sleeps while
/// enough is at hand; it ends when what is returned is dropped.
pub(crate) fn touched_ahead() -> CacheMemory {
    let (give, slabs) = sync_channel(SLABS_AHEAD);
    let mut give = Some(give);
    Box::new(move || {
        if let Some(give) = give.take() {
            let work = move || while give.send(SharedBlock::touched_slab()).is_ok() {};
            // Without the thread nothing comes, and the cache takes memory from the system for what is read.
            if let Err(error) = std::thread::Builder::new().name("cache memory".to_owned()).spawn(work) {
                tracing::warn!(%error, "no thread for the block cache's memory: only what is read makes the cache grow");
            }
        }
        slabs.try_recv().ok().filter(|slab: &Vec<SharedBlock>| !slab.is_empty())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn gives_slabs_once_they_have_been_asked_for() {
        let mut memory = touched_ahead();
        let mut slabs = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while slabs.len() < 3 * SLABS_AHEAD {
            assert!(Instant::now() < deadline, "{} slabs in a minute", slabs.len());
            match memory() {
                Some(slab) => slabs.push(slab),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        for slab in &mut slabs {
            assert_eq!(slab.len() * coquina_base::BLOCK_BYTES, coquina_base::SLAB_BYTES);
            assert!(slab.iter_mut().all(|block| block.get_mut().unwrap().iter().all(|byte| *byte == 0)));
        }
    }
}
