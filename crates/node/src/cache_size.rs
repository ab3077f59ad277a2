//! How much memory the block cache takes: what the host can spare, within a bound.

use std::fs;

/// Part of the host's memory that is left free for others.
const SPARE_PART: u64 = 8;
/// Smallest cache.
const CACHE_BYTES_MIN: u64 = 16 << 20;

/// Memory of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostMemory {
    /// All of it.
    pub total_bytes: u64,
    /// What could be given out without swapping.
    pub available_bytes: u64,
}

impl HostMemory {
    /// Asks the kernel; `None` where it does not say.
    pub fn read() -> Option<HostMemory> {
        let text = fs::read_to_string("/proc/meminfo").ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<HostMemory> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 =
                line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kibibytes << 10)
        };
        Some(HostMemory { total_bytes: field("MemTotal")?, available_bytes: field("MemAvailable")? })
    }
}

/// What the cache should be bounded by now, given what it holds.
pub fn target_bytes(memory: HostMemory, held_bytes: u64, bound_bytes: u64) -> u64 {
    let spare = memory.total_bytes / SPARE_PART;
    let room = memory.available_bytes + held_bytes;
    room.saturating_sub(spare).clamp(CACHE_BYTES_MIN.min(bound_bytes), bound_bytes)
}

/// The bound where none is given: half of the host's memory.
pub fn default_bound_bytes(memory: Option<HostMemory>) -> u64 {
    memory.map_or(256 << 20, |memory| memory.total_bytes / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_way_when_others_need_memory() {
        let memory =
            HostMemory::parse("MemTotal:  16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n").unwrap();
        assert_eq!(memory, HostMemory { total_bytes: 16 << 30, available_bytes: 8 << 30 });
        assert_eq!(target_bytes(memory, 0, 64 << 30), 6 << 30);
        assert_eq!(target_bytes(memory, 0, 1 << 30), 1 << 30);
        let tight = HostMemory { available_bytes: 1 << 30, ..memory };
        assert_eq!(target_bytes(tight, 3 << 30, 64 << 30), 2 << 30);
        assert_eq!(target_bytes(tight, 0, 64 << 30), 16 << 20);
    }
}
