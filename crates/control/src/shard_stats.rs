//! The engine's counters as JSON. The engine itself knows nothing of JSON.

use coquina_engine::ShardStats;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Fields {
    capacity_bytes: u64,
    live_bytes: u64,
    segments: u64,
    segments_free: u64,
    segment_bytes: u64,
    reads: u64,
    read_bytes: u64,
    reads_behind_commits: u64,
    writes: u64,
    write_bytes: u64,
    trim_bytes: u64,
    drive_read_bytes: u64,
    drive_write_bytes: u64,
    prewrite_bytes: u64,
    frames: u64,
    cleaner_bytes: u64,
    cleaner_segments: u64,
    metadata_bytes: u64,
    checkpoints: u64,
    cache_hits: u64,
    cache_misses: u64,
    cache_bytes: u64,
    index_memory_bytes: u64,
    index_page_reads: u64,
    index_page_evictions: u64,
    bad_blocks: u64,
    poisoned: bool,
    scrub_progress: Option<u32>,
    log_since_checkpoint_bytes: u64,
    replayed_entries: u64,
}

pub(crate) fn serialize<S: Serializer>(stats: &ShardStats, serializer: S) -> Result<S::Ok, S::Error> {
    let fields = Fields {
        capacity_bytes: stats.capacity_bytes,
        live_bytes: stats.live_bytes,
        segments: stats.segments,
        segments_free: stats.segments_free,
        segment_bytes: stats.segment_bytes,
        reads: stats.reads,
        read_bytes: stats.read_bytes,
        reads_behind_commits: stats.reads_behind_commits,
        writes: stats.writes,
        write_bytes: stats.write_bytes,
        trim_bytes: stats.trim_bytes,
        drive_read_bytes: stats.drive_read_bytes,
        drive_write_bytes: stats.drive_write_bytes,
        prewrite_bytes: stats.prewrite_bytes,
        frames: stats.frames,
        cleaner_bytes: stats.cleaner_bytes,
        cleaner_segments: stats.cleaner_segments,
        metadata_bytes: stats.metadata_bytes,
        checkpoints: stats.checkpoints,
        cache_hits: stats.cache_hits,
        cache_misses: stats.cache_misses,
        cache_bytes: stats.cache_bytes,
        index_memory_bytes: stats.index_memory_bytes,
        index_page_reads: stats.index_page_reads,
        index_page_evictions: stats.index_page_evictions,
        bad_blocks: stats.bad_blocks,
        poisoned: stats.poisoned,
        scrub_progress: stats.scrub_progress,
        log_since_checkpoint_bytes: stats.log_since_checkpoint_bytes,
        replayed_entries: stats.replayed_entries,
    };
    fields.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ShardStats, D::Error> {
    let fields = Fields::deserialize(deserializer)?;
    // What the engine counts and is not shown stays at zero.
    #[allow(clippy::needless_update)]
    let stats = ShardStats {
        capacity_bytes: fields.capacity_bytes,
        live_bytes: fields.live_bytes,
        segments: fields.segments,
        segments_free: fields.segments_free,
        segment_bytes: fields.segment_bytes,
        reads: fields.reads,
        read_bytes: fields.read_bytes,
        reads_behind_commits: fields.reads_behind_commits,
        writes: fields.writes,
        write_bytes: fields.write_bytes,
        trim_bytes: fields.trim_bytes,
        drive_read_bytes: fields.drive_read_bytes,
        drive_write_bytes: fields.drive_write_bytes,
        prewrite_bytes: fields.prewrite_bytes,
        frames: fields.frames,
        cleaner_bytes: fields.cleaner_bytes,
        cleaner_segments: fields.cleaner_segments,
        metadata_bytes: fields.metadata_bytes,
        checkpoints: fields.checkpoints,
        cache_hits: fields.cache_hits,
        cache_misses: fields.cache_misses,
        cache_bytes: fields.cache_bytes,
        index_memory_bytes: fields.index_memory_bytes,
        index_page_reads: fields.index_page_reads,
        index_page_evictions: fields.index_page_evictions,
        bad_blocks: fields.bad_blocks,
        poisoned: fields.poisoned,
        scrub_progress: fields.scrub_progress,
        log_since_checkpoint_bytes: fields.log_since_checkpoint_bytes,
        replayed_entries: fields.replayed_entries,
        ..ShardStats::default()
    };
    Ok(stats)
}
