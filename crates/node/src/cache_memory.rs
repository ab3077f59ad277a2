//! Memory for block caches that is at hand when a reactor wants it.
//!
//! Memory that a system has not given out before is found and cleared when it is touched first. In a virtual machine that gets it
//! from its own host that took 10 to 17 ms for 2 MiB. A reactor that waited for it would hold up every write of its node. So a thread
//! touches it ahead, behind all others that want a processor.

use std::sync::mpsc::{Receiver, sync_channel};

use coquina_base::{AlignedBuf, SharedBlock};
use coquina_engine::{CacheMemory, FrameMemory};
use rustix::thread::{sched_getaffinity, sched_setaffinity};

/// Slabs that are touched ahead for each shard whose cache grows.
const SLABS_AHEAD: usize = 4;
/// The same of buffers for frames, of up to 768 KiB.
const FRAMES_AHEAD: usize = 8;

/// How far the thread stands back behind others (`nice`): where processors are scarce, users come before memory that only may be of use.
/// Not `SCHED_IDLE`: a thread that may never run could hold a lock of the address space for as long.
const NICENESS: i32 = 19;

/// Has a thread make things ahead, until the receiver is dropped; it sleeps while there are `ahead`. Without the thread nothing comes.
fn made_ahead<T: Send + 'static>(ahead: usize, make: impl Fn() -> T + Send + 'static) -> Receiver<T> {
    let (give, things) = sync_channel(ahead);
    let work = move || {
        // Of this thread alone, in Linux. Each may stand back; where that is refused, it runs as the others do.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        run_anywhere();
        while give.send(make()).is_ok() {}
    };
    if let Err(error) = std::thread::Builder::new().name("cache memory".to_owned()).spawn(work) {
        tracing::warn!(%error, "no thread for the block cache's memory: reads wait until it has grown, and frames of moved blocks do not stay in memory");
    }
    things
}

/// A thread begins where the one that makes it may run, and a reactor stays on one processor for a while. The process's first thread never
/// does: it has what whoever runs the process has given it.
fn run_anywhere() {
    if let Ok(processors) = sched_getaffinity(Some(rustix::process::getpid())) {
        let _ = sched_setaffinity(None, &processors);
    }
}

/// Where a shard's cache gets memory. The thread that touches it starts when memory is asked for the first time, and sleeps while
/// enough is at hand; it ends when what is returned is dropped.
pub(crate) fn touched_ahead() -> CacheMemory {
    let mut slabs = None;
    Box::new(move || {
        let slabs = slabs.get_or_insert_with(|| made_ahead(SLABS_AHEAD, SharedBlock::touched_slab));
        slabs.try_recv().ok().filter(|slab: &Vec<SharedBlock>| !slab.is_empty())
    })
}

/// The same for buffers that take the place of frames which stay in memory. Those of a shard are all of one size.
pub(crate) fn frames_touched_ahead() -> FrameMemory {
    let mut buffers = None;
    Box::new(move |capacity, blocks| {
        let make = move || {
            let mut buffer = AlignedBuf::with_capacity_blocks(capacity);
            // Writes zeros to what a frame will take.
            buffer.resize_blocks(blocks);
            buffer.resize_blocks(0);
            buffer
        };
        let buffers = buffers.get_or_insert_with(|| made_ahead(FRAMES_AHEAD, make));
        buffers.try_recv().ok().filter(|buffer: &AlignedBuf| buffer.capacity_blocks() == capacity)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::{Duration, Instant};

    use super::*;

    /// Asks until so many have come.
    fn wait_for<T>(count: usize, mut ask: impl FnMut() -> Option<T>) -> Vec<T> {
        let mut got = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while got.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} in a minute", got.len());
            match ask() {
                Some(one) => got.push(one),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        got
    }

    #[test]
    fn gives_slabs_once_they_have_been_asked_for() {
        let mut slabs = wait_for(3 * SLABS_AHEAD, touched_ahead());
        for slab in &mut slabs {
            assert_eq!(slab.len() * coquina_base::BLOCK_BYTES, coquina_base::SLAB_BYTES);
            assert!(slab.iter_mut().all(|block| block.get_mut().unwrap().iter().all(|byte| *byte == 0)));
        }
    }

    #[test]
    fn the_thread_stands_back_behind_others() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let things = made_ahead(1, niceness);
        assert_eq!(things.recv_timeout(Duration::from_secs(60)).unwrap(), NICENESS);
        assert_eq!(niceness(), before, "only that thread does");
    }

    #[test]
    fn the_thread_does_not_stay_on_the_processor_of_the_reactor_that_makes_it() {
        let processors = || sched_getaffinity(None).unwrap();
        let all = sched_getaffinity(Some(rustix::process::getpid())).unwrap();
        // A thread of its own: a test may run on the first one of the process.
        let reactor = std::thread::spawn(move || {
            let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
            let mut one = rustix::thread::CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            let things = made_ahead(1, processors);
            assert_eq!(things.recv_timeout(Duration::from_secs(60)).unwrap(), all);
            assert_eq!(processors(), one, "only that thread is free");
        });
        reactor.join().unwrap();
    }

    #[test]
    fn the_thread_ends_when_nobody_wants_any_more() {
        let (alive, ended) = channel::<()>();
        // The thread has the one end for as long as it lives.
        let things = made_ahead(1, move || drop(alive.clone()));
        things.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(things);
        let end = ended.recv_timeout(Duration::from_secs(60));
        assert_eq!(end, Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn gives_buffers_for_frames_of_the_size_that_was_asked_for() {
        let mut memory = frames_touched_ahead();
        let buffers = wait_for(3 * FRAMES_AHEAD, || memory(128, 86));
        assert!(buffers.iter().all(|buffer| buffer.is_empty() && buffer.capacity_blocks() == 128));
        assert!(memory(64, 33).is_none(), "not one of another size");
    }
}
