//! Seeds on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

/// A seed that is being run. If that panics, it says which one it was, and that no more are to be begun.
struct Running<'a> {
    seed: u64,
    has_failed: &'a AtomicBool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.has_failed.store(true, Ordering::Relaxed);
            eprintln!("seed {} failed", self.seed);
        }
    }
}

/// Runs seeds side by side, and gives what came of each, in their order. Each must depend on nothing but itself.
///
/// # Panics
///
/// When one of them does, once the other processors are done with those that they had begun; no others are run.
pub fn spread<T: Send>(seeds: impl IntoIterator<Item = u64>, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    let threads = available_parallelism().map_or(1, usize::from).min(seeds.len());
    let left = Mutex::new(seeds.into_iter().enumerate());
    let has_failed = AtomicBool::new(false);
    let next = || left.lock().ok().and_then(|mut left| left.next());
    let work = || {
        let mut done = Vec::new();
        while !has_failed.load(Ordering::Relaxed)
            && let Some((place, seed)) = next()
        {
            let _running = Running { seed, has_failed: &has_failed };
            done.push((place, run(seed)));
        }
        done
    };
    let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_are_run_once_and_in_order() {
        assert_eq!(
            spread(1..=1000, |seed| seed * seed),
            (1..=1000).map(|seed| seed * seed).collect::<Vec<_>>()
        );
        assert_eq!(spread([7, 3, 5], |seed| seed), [7, 3, 5]);
        assert_eq!(spread([], |seed| seed), [0; 0]);
    }

    #[test]
    #[should_panic(expected = "seed 77")]
    fn one_that_fails_is_not_lost() {
        spread(1..=100, |seed| assert!(seed != 77, "seed {seed}"));
    }

    /// A campaign whose first seed failed went on for as long as if none had.
    #[test]
    fn no_more_are_begun_when_one_has_failed() {
        let begun = AtomicU64::new(0);
        let run = |seed| {
            begun.fetch_add(1, Ordering::Relaxed);
            assert!(seed != 3, "seed {seed}");
            std::thread::sleep(Duration::from_millis(2));
        };
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| spread(1..=2000, run)));
        let reason = failed.map(drop).unwrap_err();
        assert_eq!(reason.downcast_ref::<String>().map(String::as_str), Some("seed 3"));
        assert!(begun.into_inner() < 1000);
    }
}
