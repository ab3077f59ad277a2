//! The protocol, model-checked: every order of everything that can happen, on the real code, in a small world.

#[path = "model/disk.rs"]
mod disk;
#[path = "model/healing.rs"]
mod healing;
#[path = "model/register.rs"]
mod register;
#[path = "model/search.rs"]
mod search;
#[path = "model/world.rs"]
mod world;

use coquina_replication::{CopyId, Settings};
use search::{Found, Seen, breadth_first, walk};
use world::{Budget, Operation, Step, World};

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
    let mut world = World::new(settings(), 3, FOUR, false);
    world.budget = Budget { crashes: 2, breaks: 2, moves: 2, retries: 3, time: 6 };
    let seen = expect("walk", &world, walk(&world, 0..2000, 400));
    for sight in world::SIGHTS {
        assert!(seen.sights.contains_key(sight), "the walks never saw: {sight}");
    }
}

/// A copy that said of an entry that it has it when only one before was durable was not found as long as everything in a log
/// became durable at once.
#[test]
fn what_is_logged_together_may_be_lost_in_part() {
    let mut world = World::new(settings(), 3, FOUR, false);
    world.syncs_in_parts = true;
    world.budget = Budget { crashes: 2, breaks: 2, moves: 2, retries: 3, time: 6 };
    expect("parts", &world, walk(&world, 0..2000, 400));
}

#[test]
fn an_addition_under_way_survives_everything() {
    let mut world = World::with_addition_proposed(settings(), TWO);
    world.budget = Budget { crashes: 1, breaks: 1, moves: 0, retries: 1, time: 3 };
    expect("addition", &world, breadth_first(&world, states_max(), 32));
    expect("addition, walks", &world, walk(&world, 0..2000, 200));
    world.budget = Budget { moves: 1, time: 2, ..QUIET };
    expect("addition, then a move", &world, breadth_first(&world, 5 * states_max(), 256));
    world.budget = Budget { crashes: 2, breaks: 2, moves: 2, retries: 1, time: 8 };
    expect("addition, walks", &world, walk(&world, 0..2000, 200));
}

#[test]
fn a_copy_that_returns_with_a_tail_is_cut_right() {
    let mut world = World::with_tail_to_cut(settings(), TWO);
    world.budget = Budget { crashes: 1, breaks: 1, moves: 0, retries: 1, time: 0 };
    expect("cut", &world, breadth_first(&world, states_max(), 32));
    world.budget = Budget { crashes: 2, breaks: 2, moves: 2, retries: 1, time: 8 };
    expect("cut, walks", &world, walk(&world, 0..2000, 200));
}

/// It was decided before anybody knew, and nobody may count on the copy before it has been compared.
#[test]
fn a_copy_that_lost_what_it_was_given_before_its_addition_is_known_is_not_added_by_it() {
    let mut world = World::with_addition_of_a_damaged_copy(settings(), TWO);
    world.budget = Budget { crashes: 1, breaks: 1, moves: 0, retries: 1, time: 3 };
    expect("damage", &world, breadth_first(&world, states_max(), 32));
    expect("damage, walks", &world, walk(&world, 0..500, 200));
    for restarts_first in [false, true] {
        let mut world = World::with_addition_of_a_damaged_copy(settings(), TWO);
        if restarts_first {
            world.take(Step::Restart(1)).expect("nothing is wrong yet");
        }
        world.decide_the_addition();
        world.heal().expect("it is removed, compared and added");
    }
}

/// Nothing was lost, so whoever was added is, though it has restarted since it was brought up.
#[test]
fn a_copy_that_restarts_between_the_last_of_the_stream_and_its_addition_is_added() {
    let mut world = World::with_addition_proposed(settings(), TWO);
    world.budget.crashes = 1;
    world.take(Step::Crash(1)).expect("nothing is wrong yet");
    world.take(Step::Restart(1)).expect("nothing is wrong yet");
    world.decide_the_addition();
    for step in [Step::Inform(1), Step::Sync(1)] {
        world.take(step).expect("nothing is wrong yet");
    }
    let config = world.copies[1].group.as_ref().map(|group| group.config().clone());
    assert_eq!(config, Some(world.coordinator.clone()));
    world.heal().expect("it stays");
}

fn states_max() -> usize {
    std::env::var("MODEL_STATES").ok().and_then(|states| states.parse().ok()).unwrap_or(30_000)
}

/// The long form: `MODEL_SEEDS=0..50000 cargo test -p coquina-replication --test model -- --ignored --nocapture`.
#[test]
#[ignore = "runs for as many seeds as MODEL_SEEDS says"]
fn campaign() {
    let seeds = std::env::var("MODEL_SEEDS").unwrap_or("10000..20000".into());
    let (from, to) = seeds.split_once("..").expect("MODEL_SEEDS is like 1..100");
    let seeds = from.parse().expect("a number")..to.parse().expect("a number");
    for members in [3, 2] {
        for budget in [
            Budget { crashes: 2, breaks: 2, moves: 2, retries: 3, time: 6 },
            Budget { crashes: 4, breaks: 4, moves: 6, retries: 6, time: 16 },
            Budget { crashes: 0, breaks: 8, moves: 8, retries: 4, time: 10 },
        ] {
            let mut world = World::new(settings(), members, FOUR, false);
            world.budget = budget;
            expect("campaign", &world, walk(&world, seeds.clone(), 600));
        }
    }
}

/// A small world that is explored breadth first.
struct Scenario {
    name: &'static str,
    members: usize,
    operations: [&'static [Operation]; 2],
    eager_sync: bool,
    budget: Budget,
}

const QUIET: Budget = Budget { crashes: 0, breaks: 0, moves: 0, retries: 0, time: 0 };
const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "two copies, a move",
        members: 2,
        operations: TWO,
        eager_sync: true,
        budget: Budget { moves: 1, ..QUIET },
    },
    Scenario {
        name: "two copies, a crash",
        members: 2,
        operations: TWO,
        eager_sync: false,
        budget: Budget { crashes: 1, ..QUIET },
    },
    Scenario {
        name: "two copies, a move, time",
        members: 2,
        operations: [&[(0, 1, false)], &[(0, 2, false)]],
        eager_sync: true,
        budget: Budget { moves: 1, time: 2, ..QUIET },
    },
    Scenario {
        name: "two copies, a move, a crash",
        members: 2,
        operations: [&[(0, 1, false)], NONE],
        eager_sync: false,
        budget: Budget { moves: 1, crashes: 1, time: 2, ..QUIET },
    },
    Scenario {
        name: "two copies, a move, a break",
        members: 2,
        operations: [&[(0, 1, false)], &[(0, 2, true)]],
        eager_sync: true,
        budget: Budget { moves: 1, breaks: 1, retries: 1, time: 2, ..QUIET },
    },
    Scenario {
        name: "three copies, a move",
        members: 3,
        operations: [&[(0, 1, false)], &[(0, 2, false)]],
        eager_sync: true,
        budget: Budget { moves: 1, ..QUIET },
    },
    Scenario {
        name: "three copies, a crash",
        members: 3,
        operations: [&[(0, 1, false)], NONE],
        eager_sync: false,
        budget: Budget { crashes: 1, moves: 1, ..QUIET },
    },
];

#[test]
fn every_order_nearby_is_right() {
    for scenario in SCENARIOS {
        let mut world = World::new(settings(), scenario.members, scenario.operations, scenario.eager_sync);
        world.budget = scenario.budget;
        expect(scenario.name, &world, breadth_first(&world, states_max(), 32));
    }
}

#[cfg(feature = "mutations")]
mod mutations {
    use super::*;
    use coquina_replication::Mutation;

    fn caught(mutation: Mutation, members: usize) {
        let settings = Settings { mutation: Some(mutation), ..settings() };
        let mut world = match mutation {
            Mutation::CommitWithoutJoining => World::with_addition_proposed(settings, TWO),
            _ => World::new(settings, members, FOUR, false),
        };
        world.budget = Budget { crashes: 2, breaks: 2, moves: 2, retries: 3, time: 6 };
        match walk(&world, 0..20000, 400) {
            Ok(seen) => panic!("{mutation:?} was not caught in {} states", seen.states),
            Err(found) => {
                let wrong: String = found.wrong.0.chars().take(150).collect();
                println!("{mutation:?}: {} states, {} steps: {wrong}", found.states, found.trace.len());
                if std::env::var_os("MODEL_TELL").is_some() {
                    println!("{}", found.tell(&world));
                }
            }
        }
    }

    #[test]
    fn answer_after_one_copy() {
        caught(Mutation::AnswerAfterOneCopy, 3);
    }
    #[test]
    fn ignore_epoch() {
        caught(Mutation::IgnoreEpoch, 3);
    }
    #[test]
    fn skip_takeover() {
        caught(Mutation::SkipTakeover, 3);
    }
    #[test]
    fn forget_promise() {
        caught(Mutation::ForgetPromise, 2);
    }
    #[test]
    fn read_after_lease() {
        caught(Mutation::ReadAfterLease, 3);
    }
    #[test]
    fn drop_cut() {
        caught(Mutation::DropCut, 3);
    }
    #[test]
    fn resurrect_trim() {
        caught(Mutation::ResurrectTrim, 3);
    }
    #[test]
    fn commit_without_joining() {
        caught(Mutation::CommitWithoutJoining, 3);
    }
    #[test]
    fn release_before_stopping() {
        caught(Mutation::ReleaseBeforeStopping, 3);
    }
}
