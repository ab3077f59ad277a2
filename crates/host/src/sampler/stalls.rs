//! For how long drives ended nothing though operations were in flight.
//!
//! Some do that for tenths of a second now and then: virtual ones while others on their host have their turn, flash while it cleans, disks that
//! write in shingles. Nothing is busy meanwhile but the drive, which others are as well that do their work, and means over a second hide it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often to look. Between two looks a drive may have ended something and been given something new.
const LOOK: Duration = Duration::from_millis(20);
/// Shorter than this is what single operations take, on disks that spin as well.
const STALL_MIN: Duration = Duration::from_millis(100);

/// Some drives, looked at again and again.
#[derive(Debug)]
pub(super) struct Stalls {
    drives: Vec<(Option<File>, Stall)>,
    looked: Instant,
}

impl Stalls {
    /// Drives by their names in `/sys/class/block`. One that has no counters there never stalls.
    pub(super) fn of(names: &[String]) -> Stalls {
        let open = |name: &String| File::open(format!("/sys/class/block/{name}/stat")).ok();
        Stalls {
            drives: names.iter().map(|name| (open(name), Stall::default())).collect(),
            looked: Instant::now(),
        }
    }

    /// Looks at all of them, if it is time to, and adds how long each was stalled to its place.
    pub(super) fn look(&mut self, stalled_ns: &[AtomicU64]) {
        let passed = self.looked.elapsed();
        if passed < LOOK {
            return;
        }
        self.looked = Instant::now();
        for ((file, stall), stalled_ns) in self.drives.iter_mut().zip(stalled_ns) {
            let counted = file.as_ref().and_then(counted);
            let stalled = counted.map(|(ended, in_flight)| stall.look(ended, in_flight, passed));
            stalled_ns.fetch_add(stalled.unwrap_or_default().as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// What is known of a drive since it last ended something.
#[derive(Default, Debug)]
struct Stall {
    ended: u64,
    had_in_flight: bool,
    lasts: Duration,
}

impl Stall {
    /// Learns how many operations the drive has ended so far, and how many it has; says how much longer it is known to have been stalled.
    fn look(&mut self, ended: u64, in_flight: u64, passed: Duration) -> Duration {
        let is_stuck = self.had_in_flight && in_flight > 0 && ended == self.ended;
        (self.ended, self.had_in_flight) = (ended, in_flight > 0);
        if !is_stuck {
            self.lasts = Duration::ZERO;
            return Duration::ZERO;
        }
        let before = self.lasts;
        // Who looks late does not know what was meanwhile: the whole machine may have stood still.
        self.lasts += passed.min(2 * LOOK);
        match self.lasts {
            lasts if lasts < STALL_MIN => Duration::ZERO,
            lasts if before < STALL_MIN => lasts,
            lasts => lasts - before,
        }
    }
}

/// Operations that a drive has ended, and those in flight (`Documentation/block/stat.rst`).
fn counted(file: &File) -> Option<(u64, u64)> {
    let mut text = [0; 512];
    let length = file.read_at(&mut text, 0).ok()?;
    let fields = std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace();
    let fields: Option<Vec<u64>> = fields.map(|field| field.parse().ok()).collect();
    let fields = fields.filter(|fields| fields.len() >= 11)?;
    // Reads, writes, and, where the kernel counts them, discards and flushes.
    let ended = [0, 4, 11, 15].iter().filter_map(|place| fields.get(*place));
    Some((ended.fold(0, |sum: u64, count| sum.wrapping_add(*count)), fields[8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// What a drive of which so much was seen was stalled for, in milliseconds: operations ended, in flight, and milliseconds between looks.
    fn stalled_ms(looks: &[(u64, u64, u64)]) -> Vec<u64> {
        let mut stall = Stall::default();
        let look = |(ended, in_flight, passed_ms): &(u64, u64, u64)| {
            let stalled = stall.look(*ended, *in_flight, Duration::from_millis(*passed_ms));
            stalled.as_nanos() as u64 / MS
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_drive_is_stalled_from_when_it_ended_its_last_operation() {
        let stuck = [(7, 3, 20); 8];
        assert_eq!(stalled_ms(&stuck), [0, 0, 0, 0, 0, 100, 20, 20]);
        assert_eq!(stalled_ms(&[&stuck[..], &[(8, 3, 20)], &stuck[..2]].concat())[8..], [0, 0, 0]);
    }

    #[test]
    fn a_drive_that_is_slow_or_has_nothing_to_do_is_not_stalled() {
        let slow: Vec<_> = (0..20).map(|look| (look / 4, 1, 20)).collect();
        assert_eq!(stalled_ms(&slow), [0; 20], "each operation takes 80 ms");
        assert_eq!(stalled_ms(&[(7, 0, 20); 20]), [0; 20]);
        let now_and_then: Vec<_> = (0..20).map(|look| (7, look % 4, 20)).collect();
        assert_eq!(stalled_ms(&now_and_then), [0; 20], "nothing was in flight between");
    }

    #[test]
    fn a_late_look_does_not_say_that_a_drive_was_stalled_all_the_time() {
        assert_eq!(stalled_ms(&[(7, 1, 20), (7, 1, 5000), (8, 1, 20)]), [0, 0, 0]);
        assert_eq!(stalled_ms(&[(7, 1, 20), (7, 1, 5000), (7, 1, 20), (7, 1, 5000)]), [0, 0, 0, 100]);
    }

    #[test]
    fn counters_of_old_and_new_kernels_are_read_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let path = folder.path().join("stat");
            std::fs::write(&path, text).unwrap();
            counted(&File::open(path).unwrap())
        };
        let old = "  100 0 800 20 30 0 240 9 5 29 29";
        assert_eq!(of(old), Some((130, 5)));
        assert_eq!(of(&format!("{old} 7 0 56 1")), Some((137, 5)));
        assert_eq!(of(&format!("{old} 7 0 56 1 1000 2\n")), Some((1137, 5)));
        assert_eq!([of(""), of("1 2 3\n"), of(&format!("{old} x"))], [None; 3]);
    }

    #[test]
    fn a_drive_without_counters_is_passed_over() {
        let mut stalls = Stalls::of(&["no such drive".to_owned()]);
        std::thread::sleep(LOOK);
        let stalled_ns = [AtomicU64::new(3)];
        stalls.look(&stalled_ns);
        assert_eq!(stalled_ns[0].load(Ordering::Relaxed), 3);
    }
}
