//! Seeds on all processors.

use std::sync::Mutex;
use std::thread::available_parallelism;

/// Runs seeds side by side, and gives what came of each, in their order. Each must depend on nothing but itself.
///
/// # Panics
///
/// When one of them does, once the other processors have run what is left.
pub fn spread<T: Send>(seeds: impl IntoIterator<Item = u64>, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    let threads = available_parallelism().map_or(1, usize::from).min(seeds.len());
    let left = Mutex::new(seeds.into_iter().enumerate());
    let next = || left.lock().ok().and_then(|mut left| left.next());
    let work = || {
        let mut done = Vec::new();
        while let Some((place, seed)) = next() {
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
}
