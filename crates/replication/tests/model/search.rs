//! How the world is explored: breadth first up to a number of states, and by walks that go deeper.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::HashSet;

use super::world::{COPIES, Step, World, Wrong};

/// A hash that is the same in every run.
type Hashing = foldhash::fast::FixedState;

/// What a search saw.
#[derive(Debug, Default)]
pub struct Seen {
    pub states: usize,
    pub depth: usize,
    /// States from which everything was healed.
    pub healed: usize,
    /// Whether no state within the budget was left out.
    pub complete: bool,
    /// How often something rare was seen, in walks.
    pub sights: BTreeMap<&'static str, usize>,
}

/// A way to something wrong.
#[derive(Debug)]
pub struct Found {
    pub wrong: Wrong,
    pub states: usize,
    pub trace: Vec<Step>,
}

impl Found {
    /// The way in words.
    pub fn tell(&self, start: &World) -> String {
        let mut world = start.clone();
        let mut story = String::new();
        for step in &self.trace {
            story += &format!("\n  {step:?} {}", world.describe(*step));
            if world.take(*step).is_err() {
                break;
            }
        }
        let end = if self.wrong.0.starts_with("stuck") { format!("\n{world:?}") } else { String::new() };
        format!("{} after {} states by {} steps:{story}{end}", self.wrong.0, self.states, self.trace.len())
    }
}

fn trace(parents: &[(u32, Step)], mut state: usize, last: Option<Step>) -> Vec<Step> {
    let mut trace: Vec<Step> = last.into_iter().collect();
    while state > 0 {
        let (parent, step) = parents[state];
        trace.push(step);
        state = parent as usize;
    }
    trace.reverse();
    trace
}

/// Visits all states within the budget, nearest first, until there are `states_max`. Heals from every state without a
/// next one, and from one in `heal_every`.
pub fn breadth_first(start: &World, states_max: usize, heal_every: u64) -> Result<Seen, Box<Found>> {
    let hashing = Hashing::default();
    let mut visited: HashSet<u64, Hashing> = HashSet::with_hasher(Hashing::default());
    let mut parents = vec![(0, Step::Advance)];
    let mut seen = Seen { states: 1, complete: true, ..Seen::default() };
    visited.insert(hashing.hash_one(start));
    let mut frontier = vec![(0usize, start.clone())];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        seen.depth += 1;
        for (state, world) in frontier {
            let found =
                |wrong, step, states| Box::new(Found { wrong, states, trace: trace(&parents, state, step) });
            let mut news = Vec::new();
            let steps = world.steps();
            let sample = hashing.hash_one((&world, 1u8)) % heal_every == 0;
            if sample || steps.is_empty() {
                seen.healed += 1;
                world.heal().map_err(|wrong| found(wrong, None, seen.states))?;
            }
            if seen.states >= states_max {
                seen.complete = false;
                continue;
            }
            for step in steps {
                let mut after = world.clone();
                after.take(step).map_err(|wrong| found(wrong, Some(step), seen.states))?;
                if visited.insert(hashing.hash_one(&after)) {
                    seen.states += 1;
                    news.push((step, after));
                }
            }
            for (step, after) in news {
                parents.push((state as u32, step));
                next.push((parents.len() - 1, after));
            }
        }
        frontier = next;
    }
    Ok(seen)
}

/// Takes random steps up to `steps_max`, then heals; repeats for each seed.
pub fn walk(start: &World, seeds: std::ops::Range<u64>, steps_max: usize) -> Result<Seen, Box<Found>> {
    let hashing = Hashing::default();
    let mut visited: HashSet<u64, Hashing> = HashSet::with_hasher(Hashing::default());
    let mut seen = Seen::default();
    for seed in seeds {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut world = start.clone();
        let mut trace = Vec::new();
        let mut cut_off = None;
        for _ in 0..steps_max {
            let mut steps = world.steps();
            let mut pick = |bound: usize| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random >> 11) as usize % bound
            };
            // Now and then a copy is cut off for a while, so that others go on without it.
            if pick(25) == 0 {
                cut_off = Some(pick(COPIES + 3));
            }
            if let Some(copy) = cut_off {
                steps.retain(|step| !World::is_remote(step, copy));
            }
            // Faults are many and would use up the budget at once.
            let faults = |step: &Step| {
                matches!(
                    step,
                    Step::Advance | Step::Remove(_) | Step::Promote(_) | Step::Break(..) | Step::Crash(_)
                )
            };
            let (rare, common): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(faults);
            let from = if common.is_empty() || (!rare.is_empty() && pick(12) == 0) { &rare } else { &common };
            if from.is_empty() {
                if cut_off.take().is_none() {
                    break;
                }
                continue;
            }
            let step = from[pick(from.len())];
            trace.push(step);
            if let Some(sight) = world.sight(step) {
                *seen.sights.entry(sight).or_default() += 1;
            }
            let states = seen.states;
            if let Err(wrong) = world.take(step) {
                return Err(Box::new(Found { wrong, states, trace }));
            }
            seen.states += usize::from(visited.insert(hashing.hash_one(&world)));
        }
        seen.depth = seen.depth.max(trace.len());
        seen.healed += 1;
        let states = seen.states;
        world.heal().map_err(|wrong| Box::new(Found { wrong, states, trace }))?;
    }
    Ok(seen)
}
