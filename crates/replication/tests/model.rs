//! The protocol, model-checked: every order of everything that can happen, on the real code, in a small world.

#[path = "model/disk.rs"]
mod disk;
#[path = "model/register.rs"]
mod register;
#[path = "model/search.rs"]
mod search;
#[path = "model/world.rs"]
mod world;

use coquina_replication::{CopyId, Settings};
use search::{Found, Seen, breadth_first, walk};
use world::{Budget, Operation, World};

const NONE: &[Operation] = &[];
const TWO: [&[Operation]; 2] = [&[(0, 1, false)], &[(0, 2, false)]];
const FOUR: [&[Operation]; 2] = [&[(0, 1, false), (1, 3, false)], &[(0, 2, false), (1, 4, true)]];

fn settings() -> Settings {
    Settings::for_tests(CopyId(0))
}

fn expect(name: &str, world: &World, result: Result<Seen, Box<Found>>) -> Seen {
    match result {
        Ok(seen) => {
            println!("{name}: {seen:?}");
            seen
        }
        Err(found) => panic!("{name}: {}", found.tell(world)),
    }
}

#[test]
fn walks_with_all_faults_find_nothing() {
    let mut world = World::new(settings(), FOUR, false);
    world.budget = Budget { crashes: 2, breaks: 2, moves: 2, retries: 3, time: 6 };
    expect("walk", &world, walk(&world, 0..200, 300));
}

#[test]
fn four_writes_without_faults() {
    let mut world = World::new(settings(), TWO, true);
    world.budget = Budget { moves: 1, ..Budget::default() };
    let seen = expect("moves", &world, breadth_first(&world, 100_000, 16));
    let _ = (seen, NONE);
}
