//! Whole clusters from one seed: nodes with drives, a network, clocks, a coordinator, clients, and faults of all kinds.
//!
//! The engine, replication and what lies between are the real ones; messages go through their real byte form. What the
//! rest promises is modelled: a connection delivers in order or breaks, and both ends are told; the coordinator changes
//! configurations by compare-and-set only; a node's clock drifts within the bound.
//!
//! Checked: each read fits some order of the changes (`model.rs`, block by block), so no acknowledged write is lost and no
//! request is done twice; once all faults are over everything is answered and all copies come back; then all copies of a
//! block are the same.

mod bad_blocks;
mod checks;
mod clients;
mod contradiction;
mod control;
mod coordinator;
mod faults;
mod hung_drive;
mod layers;
mod network;
mod node;
mod operator;
mod plan;
mod report;
mod rot;
mod seat;
mod sweep;
mod world;

pub use report::{ClusterReport, Rare};

use crate::random::Random;
use crate::violation::Violation;
use plan::ClusterPlan;
use world::World;

/// Runs one seed to its end.
pub fn run_seed(seed: u64, verbose: bool) -> Result<ClusterReport, Violation> {
    run(seed, verbose, |_| {})
}

/// Runs one seed as it was before clients asked for maps, trimmed parts of blocks and sent requests that arrive late, and before
/// failed writes left anything.
pub fn run_former(seed: u64) -> Result<ClusterReport, Violation> {
    run(seed, false, |plan| plan.besides_seed = None)
}

/// Runs one seed of a cluster in which groups move between drives all the time, and copies forget what has moved away.
pub fn run_swept(seed: u64, verbose: bool) -> Result<ClusterReport, Violation> {
    let mut random = Random::new(seed ^ 0x7377_6565);
    let plan = ClusterPlan {
        nodes: random.pick(&[3, 4]),
        drives_per_node: 2,
        copies: random.pick(&[2, 3, 3]),
        groups: random.pick(&[1, 2, 4]),
        is_full: false,
        is_long: false,
        is_real: true,
        drive_bytes: 32 << 20,
        requests: 300,
        besides_seed: Some(seed ^ 0x6265_7369),
        ..ClusterPlan::random(&mut random)
    };
    let mut world = World::new(plan, random, verbose)?;
    world.begin_to_sweep();
    world.run()?;
    Ok(world.finish())
}

/// Runs one seed of a cluster that makes a deliberate mistake.
#[cfg(feature = "mutations")]
pub fn run_mutated(seed: u64, mutation: coquina_replication::Mutation) -> Result<ClusterReport, Violation> {
    run(seed, false, |plan| plan.settings.mutation = Some(mutation))
}

/// Messages between copies per second in a cluster of three nodes and three copies that nobody uses, with the times of a
/// real one.
pub fn idle_messages_per_s(groups: u32) -> Result<u64, Violation> {
    const SECONDS: u64 = 20;
    let mut random = Random::new(1);
    let plan = ClusterPlan::idle(groups, &mut random);
    let mut world = World::new(plan, random, false)?;
    world.pass(5_000_000_000)?;
    let before = world.report.messages;
    world.pass(SECONDS * 1_000_000_000)?;
    Ok((world.report.messages - before) / SECONDS)
}

/// A cluster in use, in which a copy stops itself and is made the primary then: the others go on without it, and after a
/// restart of its process it comes back.
pub fn run_contradicted(seed: u64) -> Result<ClusterReport, Violation> {
    let mut world = in_use(seed, false)?;
    world.contradict_next_primary()?;
    world.run()?;
    Ok(world.finish())
}

/// A cluster in use, in which the drive of the primary, or of a backup, answers nothing for a while: the others go on, and it comes back.
pub fn run_with_hung_drive(seed: u64, of_primary: bool) -> Result<ClusterReport, Violation> {
    let mut world = in_use(seed, true)?;
    world.hang_drive(if of_primary { 0 } else { 1 })?;
    world.run()?;
    Ok(world.finish())
}

/// A cluster with one group on three nodes and times of a real one, with clients that have just begun.
fn in_use(seed: u64, is_real: bool) -> Result<World, Violation> {
    let mut random = Random::new(seed);
    let idle = ClusterPlan::idle(1, &mut random);
    let plan = ClusterPlan {
        clients: 2,
        requests: 600,
        depth: 2,
        blocks: 32,
        drive_bytes: 32 << 20,
        is_real,
        ..idle
    };
    let mut world = World::new(plan, random, false)?;
    world.pass(100_000_000)?;
    Ok(world)
}

fn run(seed: u64, verbose: bool, adjust: impl FnOnce(&mut ClusterPlan)) -> Result<ClusterReport, Violation> {
    let mut random = Random::new(seed ^ 0x00c0_9a11);
    let mut plan = ClusterPlan::random(&mut random);
    // In one of three, decided apart from the rest: the others run as they did before there was rot.
    let may_rot = !plan.is_long && !plan.is_full && Random::new(seed ^ 0x0072_6f74).chance(1, 3);
    if may_rot {
        plan.rot_seed = Some(seed);
        // Only what a checkpoint covers rots, and segments that are full: otherwise it would be damage to the log.
        plan.config.checkpoint_log_bytes = 64 << 10;
        plan.segment_bytes = 256 << 10;
        plan.requests = plan.requests.max(300);
    }
    // As nodes have it, in every second one.
    if Random::new(seed ^ 0x6c6f_6164).chance(1, 2) {
        plan.config.batch_blocks_loaded_min = 64;
    }
    // Copies that catch up hold commits up far sooner than in nodes, in half of all.
    plan.settings.stream_lag_blocks_max = Random::new(seed ^ 0x6c61_6773).pick(&[1, 8, 256, 256]);
    // Groups go on without drives that hang, in half of all that the real coordinator leads.
    let hung_ms: Option<u64> = Random::new(seed ^ 0x6875_6e67).pick(&[None, None, Some(30), Some(100)]);
    plan.hung_ns = hung_ms.map(|hung_ms| hung_ms * 1_000_000);
    plan.besides_seed = Some(seed ^ 0x6265_7369);
    // Apart from the rest again, in one of four.
    plan.flip_seed = Random::new(seed ^ 0x666c_6970).chance(1, 4).then_some(seed);
    adjust(&mut plan);
    let mut world = World::new(plan, random, verbose)?;
    world.run()?;
    Ok(world.finish())
}
