//! What happened in a run, so that a campaign can show that it reached every feature.

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident),+ $(,)?) => {
        /// Counts of what happened.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Adds another run's counts.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)+
            }

            /// Names and counts in order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
        }
    };
}

counters! {
    /// Power cuts while the shards ran.
    power_cuts,
    /// Process crashes with the power on while the shards ran.
    process_crashes,
    /// Power cuts during recovery.
    cuts_in_recovery,
    /// Power cuts during formatting.
    cuts_in_format,
    /// Power cuts and crashes during a clean stop.
    cuts_in_close,
    /// Power cuts and crashes with a checkpoint under way.
    cuts_in_checkpoint,
    /// Power cuts and crashes while the cleaner had just moved blocks.
    cuts_in_cleaning,
    /// Power cuts and crashes on a drive that had just answered `NoSpace`.
    cuts_when_full,
    /// Power cuts and crashes during a scrub.
    cuts_in_scrub,
    /// Power cuts and crashes with a layer's deletion under way.
    cuts_in_delete,
    /// Power cuts and crashes with the trim of a layer's tail under way.
    cuts_in_shrink,
    /// Power cuts and crashes with three or more writes of at least 64 KiB in flight.
    cuts_in_large_frames,
    /// Clean stops.
    clean_stops,
    /// Starts that succeeded.
    starts,
    /// Starts that replayed entries.
    starts_with_replay,
    /// Starts on drives with segments of 512 KiB.
    starts_with_large_segments,
    /// Log entries replayed.
    replayed_entries,
    /// Writes in flight that a cut lost whole.
    writes_lost,
    /// Writes in flight that a cut let through whole.
    writes_applied,
    /// Writes in flight that a cut tore.
    writes_torn,
    /// Cuts that let a later write through and not an earlier one.
    cuts_reordered,
    /// Volatile blocks that a cut took back.
    blocks_taken_back,
    /// Reads.
    reads,
    /// Writes.
    writes,
    /// Writes of parts of blocks.
    part_writes,
    /// Writes of 64 KiB and more.
    large_writes,
    /// Writes whose payload was received into the engine's own buffers.
    landed_writes,
    /// Changes sent again, with their old numbers, after a cut that left them without an answer.
    retries,
    /// Entries of placement groups that got a number.
    numbered_entries,
    /// Configurations of placement groups persisted.
    configurations,
    /// Uncommitted entries that were read back as they were logged.
    entries_read_back,
    /// Starts that found entries of a placement group that were not known to be committed.
    starts_with_tails,
    /// Reads that waited until changes were committed.
    reads_behind_commits,
    /// Trims.
    trims,
    /// Zeroings that may leave holes.
    zeroings,
    /// Zeroings that keep space.
    reservations,
    /// Maps of extents.
    maps,
    /// Layers deleted.
    deletes,
    /// Layers deleted while changes of theirs were outstanding.
    deletes_while_busy,
    /// Requests that a deletion under way overtook.
    requests_of_deleted_layers,
    /// Layers deleted on a drive that had just answered `NoSpace`.
    deletes_when_full,
    /// Layers made shorter.
    shrinks,
    /// Layers made shorter while writes behind their new end were outstanding.
    shrinks_while_busy,
    /// Requests on a block that another request was changing.
    overlaps,
    /// Answers `NoSpace`.
    no_space,
    /// Writes that succeeded after `NoSpace` and trims or deletions.
    writes_after_full,
    /// Segments freed by the cleaner.
    cleaner_segments,
    /// Checkpoints completed.
    checkpoints,
    /// Scrubs completed.
    scrubs,
    /// Index pages written out to make room.
    page_evictions,
    /// Index pages read.
    page_reads,
    /// Blocks served from memory.
    cache_hits,
    /// Blocks read from the drive.
    cache_misses,
    /// Bytes of zeros written ahead.
    prewrite_bytes,
    /// Comparisons of everything ever written with the model.
    full_comparisons,
    /// Checks of the stopped drive.
    drive_checks,
}

impl Counters {
    /// Cuts and crashes of every kind.
    pub fn cuts(&self) -> u64 {
        self.power_cuts + self.process_crashes + self.cuts_in_recovery + self.cuts_in_format
    }

    /// Requests of every kind.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.trims + self.zeroings + self.reservations + self.maps + self.deletes
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        self.list().into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }
}
