//! How a world goes on when all goes well: to find what is stuck for ever, and to get to where searches begin.

use coquina_replication::{CopyId, Group, Settings};

use super::disk::BLOCKS;
use super::world::{Budget, COPIES, Operation, Step, World, Wrong};

impl World {
    /// Delivers, syncs and restarts until nothing of that is left.
    fn quiesce(&mut self) -> Result<(), Wrong> {
        let quiet = |step: &Step| {
            matches!(
                step,
                Step::Deliver(..)
                    | Step::Sync(_)
                    | Step::RecoveryRead(_)
                    | Step::Decide(_)
                    | Step::Inform(_)
                    | Step::Restart(_)
            )
        };
        for _ in 0..2_000 {
            let Some(step) = self.steps().into_iter().find(quiet) else { return Ok(()) };
            self.take(step)?;
        }
        Err(Wrong("never quiet: messages go on without any cause".into()))
    }

    /// Lets everything go well for some time; with clients that try again.
    pub fn settle(&mut self, rounds: usize, requests: bool) -> Result<(), Wrong> {
        self.quiesce()?;
        for _ in 0..rounds {
            self.take(Step::Advance)?;
            for copy in 0..COPIES {
                self.take(Step::Tick(copy))?;
            }
            self.quiesce()?;
            for client in (0..if requests { 2 } else { 0 }).rev() {
                let serves = |copy: &usize| self.copies[*copy].group.as_ref().is_some_and(Group::is_serving);
                let serving = (0..COPIES).rev().find(serves);
                let state = &self.clients[client];
                if let (Some(copy), true) = (serving, state.current < state.operations.len()) {
                    self.take(Step::Request { client, operation: state.current, copy })?;
                    self.quiesce()?;
                }
            }
        }
        Ok(())
    }

    /// Two members; copy 1 was removed, has caught up, and the proposal to add it is on its way.
    pub fn with_addition_proposed(settings: Settings, operations: [&'static [Operation]; 2]) -> World {
        let mut world = World::new(settings, 2, operations, false);
        world.budget.moves = 1;
        world.take(Step::Remove(1)).expect("nothing is wrong yet");
        let quiet = |step: &Step| {
            matches!(step, Step::Deliver(..) | Step::Sync(_) | Step::RecoveryRead(_) | Step::Inform(_))
        };
        while world.proposals.is_empty() {
            let step = world.steps().into_iter().find(quiet).expect("a copy that is out comes back");
            world.take(step).expect("nothing is wrong yet");
        }
        world
    }

    /// Two members; copy 1 was removed, was sent the block that it missed, and the proposal to add it is on its way when it
    /// crashes. Its log is found damaged there: it has not got that block any more.
    pub fn with_addition_of_a_damaged_copy(
        settings: Settings,
        operations: [&'static [Operation]; 2],
    ) -> World {
        let mut world = World::new(settings, 2, operations, false);
        world.budget = Budget { moves: 1, crashes: 1, ..Budget::default() };
        for step in [
            Step::Remove(1),
            Step::Inform(0),
            Step::Sync(0),
            Step::Request { client: 0, operation: 0, copy: 0 },
            Step::Sync(0),
        ] {
            world.take(step).expect("nothing is wrong yet");
        }
        let quiet = |step: &Step| {
            matches!(step, Step::Deliver(..) | Step::Sync(_) | Step::RecoveryRead(_) | Step::Inform(_))
        };
        let adds = |world: &World| world.proposals.iter().any(|config| config.is_in_sync(CopyId(1)));
        while !adds(&world) {
            let step = world.steps().into_iter().find(quiet).expect("a copy that is out comes back");
            world.take(step).expect("nothing is wrong yet");
        }
        world.take(Step::Crash(1)).expect("nothing is wrong yet");
        let had = world.copies[1].disk.blocks;
        world.copies[1].disk.damage();
        assert_ne!(world.copies[1].disk.blocks, had, "a block is lost");
        assert_eq!(world.copies[1].disk.last, world.copies[0].disk.last, "and no entry");
        world
    }

    /// Lets the coordinator decide on the proposal to add copy 1.
    pub fn decide_the_addition(&mut self) {
        let adds = self.proposals.iter().position(|config| config.is_in_sync(CopyId(1)));
        self.take(Step::Decide(adds.expect("it was proposed"))).expect("nothing is wrong yet");
    }

    /// Two members; copy 0 was removed with a change that copy 1 never saw, and copy 1 has just asked it back.
    pub fn with_tail_to_cut(settings: Settings, operations: [&'static [Operation]; 2]) -> World {
        let mut world = World::new(settings, 2, operations, false);
        world.budget.moves = 1;
        for step in [
            Step::Request { client: 0, operation: 0, copy: 0 },
            Step::Sync(0),
            Step::Remove(0),
            Step::Break(0, 1),
            Step::Inform(1),
            Step::Sync(1),
            Step::Advance,
            Step::Advance,
            Step::Tick(1),
        ] {
            world.budget.breaks = 1;
            world.take(step).expect("nothing is wrong yet");
        }
        world.budget = Budget::default();
        assert!(world.copies[1].group.as_ref().is_some_and(Group::is_serving), "copy 1 serves");
        world
    }

    /// Everything heals: all requests must be answered, and all copies come back and be equal.
    pub fn heal(&self) -> Result<(), Wrong> {
        let mut world = self.clone();
        world.budget = Budget::default();
        world.proposals.retain(|proposal| !self.withdrawn.contains(proposal));
        world.settle(16, true)?;
        let answered = world.clients.iter().all(|client| client.current == client.operations.len());
        if !answered || !world.coordinator.others.is_empty() {
            return Err(Wrong(format!("stuck for ever, answered: {answered}: {world:?}")));
        }
        let disk = &world.copies[world.coordinator.in_sync[0].0 as usize].disk;
        for number in 0..BLOCKS {
            let primary = world.coordinator.in_sync[0].0 as usize;
            if world.readable(primary, number).is_none() {
                return Err(Wrong("stuck for ever: a quiet primary does not read".into()));
            }
        }
        for copy in world.coordinator.in_sync.iter().map(|copy| &world.copies[copy.0 as usize]) {
            if copy.disk.blocks != disk.blocks || copy.disk.last != disk.last {
                return Err(Wrong("quiet copies differ".into()));
            }
            let committed = copy.group.as_ref().map_or(0, Group::committed);
            if committed != disk.last {
                return Err(Wrong(format!("a quiet copy knows of {committed} commits of {}", disk.last)));
            }
        }
        Ok(())
    }
}
