//! What is in use of drives.

use coquina_base::format_size_bytes;
use coquina_control::api;

/// What drives can hold for users, and what is in use of that. What lies in the room that drives keep for copies that other nodes send is in
/// use as well, so that more may be in use than they can hold for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    /// What users can still write. Where one shard has more in use than it can hold for users, others may have room.
    pub free_bytes: u64,
}

impl Room {
    /// Of so many drives, as far as their nodes answer.
    pub fn of(drives: &[api::Drive], capacity_bytes: u64, used_bytes: u64) -> Room {
        let shards = drives.iter().flat_map(|drive| &drive.shards);
        let free = shards.map(|shard| shard.stats.capacity_bytes.saturating_sub(shard.stats.live_bytes));
        Room { capacity_bytes, used_bytes, free_bytes: free.fold(0, u64::saturating_add).min(capacity_bytes) }
    }

    /// Of a drive; `None` if it does not answer.
    pub fn of_drive(drive: &api::Drive) -> Option<Room> {
        let is_seen = !drive.shards.is_empty();
        is_seen.then(|| Room::of(std::slice::from_ref(drive), drive.capacity_bytes, drive.live_bytes))
    }

    /// What is not free any more for users, in percent: 100 where all is in use, whatever lies in the room that is kept.
    pub fn percent(&self) -> Option<f64> {
        let taken_bytes = self.capacity_bytes - self.free_bytes;
        (self.capacity_bytes > 0).then(|| taken_bytes as f64 * 100.0 / self.capacity_bytes as f64)
    }
}

/// `3 GiB of 16 GiB (18.8 %), 13 GiB free`
impl std::fmt::Display for Room {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (used, capacity) = (format_size_bytes(self.used_bytes), format_size_bytes(self.capacity_bytes));
        let percent = self.percent().unwrap_or(0.0);
        write!(
            formatter,
            "{used} of {capacity} ({percent:.1} %), {} free",
            format_size_bytes(self.free_bytes)
        )?;
        let taken_bytes = self.capacity_bytes - self.free_bytes;
        match self.used_bytes.saturating_sub(taken_bytes) {
            0 => Ok(()),
            kept => {
                write!(
                    formatter,
                    "; {} lie in what drives keep for other nodes' copies",
                    format_size_bytes(kept)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coquina_engine::ShardStats;

    use super::*;

    fn drive(shards: &[(u64, u64)]) -> api::Drive {
        let shard = |(capacity_bytes, live_bytes): &(u64, u64)| api::Shard {
            stats: ShardStats {
                capacity_bytes: *capacity_bytes,
                live_bytes: *live_bytes,
                ..ShardStats::default()
            },
            ..api::Shard::default()
        };
        api::Drive {
            capacity_bytes: shards.iter().map(|(capacity_bytes, _)| capacity_bytes).sum(),
            live_bytes: shards.iter().map(|(_, live_bytes)| live_bytes).sum(),
            shards: shards.iter().map(shard).collect(),
            ..api::Drive::default()
        }
    }

    /// 103 % were in use of a cluster that was full.
    #[test]
    fn no_more_than_all_is_in_use() {
        let full = Room::of_drive(&drive(&[(100 << 20, 103 << 20)])).unwrap();
        assert_eq!((full.used_bytes, full.free_bytes), (103 << 20, 0));
        assert_eq!(
            full.to_string(),
            "103 MiB of 100 MiB (100.0 %), 0 B free; 3 MiB lie in what drives keep for other nodes' copies"
        );
        // One that is full takes nothing from what is free of another.
        let half = Room::of_drive(&drive(&[(100 << 20, 103 << 20), (100 << 20, 0)])).unwrap();
        assert_eq!(half.free_bytes, 100 << 20);
        assert!(
            half.to_string().starts_with("103 MiB of 200 MiB (50.0 %), 100 MiB free; 3 MiB lie"),
            "{half}"
        );
        let some = Room::of_drive(&drive(&[(16 << 30, 3 << 30)])).unwrap();
        assert_eq!(some.to_string(), "3 GiB of 16 GiB (18.8 %), 13 GiB free");
    }

    #[test]
    fn what_does_not_answer_has_no_figures() {
        assert_eq!(Room::of_drive(&api::Drive { capacity_bytes: 1 << 30, ..api::Drive::default() }), None);
        let none = Room::of(&[], 0, 0);
        assert_eq!((none.percent(), none.to_string().as_str()), (None, "0 B of 0 B (0.0 %), 0 B free"));
    }
}
