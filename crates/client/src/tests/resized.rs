//! Requests for the end of a volume while it moves.

use coquina_cluster::Striping;
use coquina_protocol::Status;

use super::world::{SECTOR, World, config};
use crate::{ClientError, RequestKind};

const MS: u64 = 1_000_000;

/// A world whose servers do not serve the range at the end for now, and one request of each kind for it, all refused once.
fn refused_at_the_end(discards_beyond_end: bool) -> World {
    let mut config = config(2);
    config.discards_beyond_end = discards_beyond_end;
    let mut world = World::new(config, 2, 4, Striping { stripe_unit_bytes: 65536, stripe_count: 4 }, false);
    world.settle();
    world.refusing_groups = (0..4).map(|group| (group, Status::NotServing)).collect();
    let end = world.size_bytes / SECTOR;
    for (token, kind) in [RequestKind::Write, RequestKind::Read, RequestKind::Discard, RequestKind::Map]
        .into_iter()
        .enumerate()
    {
        world.submit(token as u64, kind, end - 8, 8);
    }
    world.submit(9, RequestKind::Write, 0, 8);
    world.settle();
    assert!(world.completions.is_empty());
    world
}

/// The tokens of what has failed because it lies behind the end.
fn cut_off(world: &mut World) -> Vec<u64> {
    let is_range = |error: &ClientError| matches!(error, ClientError::Range { .. });
    let mut tokens: Vec<u64> = world
        .completions
        .drain(..)
        .inspect(|done| assert!(done.result.as_ref().is_err_and(is_range), "{done:?}"))
        .map(|done| done.token)
        .collect();
    tokens.sort_unstable();
    tokens
}

/// They were tried again for 30 s.
#[test]
fn what_a_shrink_has_cut_off_fails_as_soon_as_its_table_is_known() {
    let mut world = refused_at_the_end(false);
    world.size_bytes /= 2;
    world.version += 1;
    world.pass(30 * MS);
    assert_eq!(cut_off(&mut world), [0, 1, 2, 3]);
    world.refusing_groups.clear();
    world.pass(1000 * MS);
    assert_eq!(world.completions.len(), 1);
    assert_eq!((world.completions[0].token, &world.completions[0].result), (9, &Ok(())));
}

#[test]
fn what_a_shrink_has_cut_off_fails_when_a_notice_tells_of_it() {
    let mut world = refused_at_the_end(false);
    // All nodes tell an older table yet, but one has told the new size.
    world.lagging = [(0, world.table()), (1, world.table())].into();
    world.version += 1;
    world.tell_size(1, world.size_bytes / 2, world.version);
    world.pass(250 * MS);
    assert_eq!(cut_off(&mut world), [0, 1, 2, 3]);
}

#[test]
fn discards_of_what_a_shrink_has_cut_off_go_on() {
    let mut world = refused_at_the_end(true);
    world.size_bytes /= 2;
    world.version += 1;
    world.pass(30 * MS);
    assert_eq!(cut_off(&mut world), [0, 1, 3]);
    world.refusing_groups.clear();
    world.pass(1000 * MS);
    assert!(world.completions.iter().all(|done| done.result.is_ok()));
    assert_eq!(world.completions.len(), 2);
}
