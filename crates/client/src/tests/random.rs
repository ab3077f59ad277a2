//! Random requests, answers, breaks and tables: every request completes exactly once, and what it did lasts.

use std::collections::HashMap;

use coquina_cluster::Striping;
use coquina_protocol::Status;

use super::world::{Life, World, config, drive, tags};
use crate::request::Window;
use crate::{ClientError, RequestKind};

const MS: u64 = 1_000_000;
const SECTORS: u64 = (16 << 20) / 512;

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// A request that is not finished.
struct Open {
    kind: RequestKind,
    first: u64,
    count: u64,
}

struct Campaign {
    world: World,
    random: Random,
    directed: bool,
    /// Mostly reads of whole blocks from other processes, with fewer accidents: their answers land in parts.
    reading: bool,
    open: HashMap<u64, Open>,
    /// What each sector must hold; none if a change of it failed.
    expected: HashMap<u64, Option<u64>>,
    next_token: u64,
    finished: u64,
    failed: u64,
}

impl Campaign {
    fn new(seed: u64, reading: bool) -> Campaign {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
        let nodes = 1 + random.below(4) as usize;
        let directed = random.below(2) == 0;
        let mut config = config(1 + random.below(nodes as u64) as usize);
        config.give_up_ns = random.pick(&[5_000, 200_000, 1_000_000]) * MS;
        config.copy_bytes_max = random.pick(&[1024, 16384, 1 << 20]);
        config.landing_bytes_min = random.pick(&[1, 4096, 1 << 20]);
        if directed && !reading {
            config.local = (0..nodes).filter(|_| random.below(2) == 0).map(|node| (drive(node), 7)).collect();
        }
        let stripe_unit_bytes = random.pick(&[4096, 16384, 4 << 20]);
        let striping = Striping { stripe_unit_bytes, stripe_count: random.pick(&[1, 2, 5]) };
        let groups = random.pick(&[1, 2, 8]);
        let mut world = World::new(config, nodes, groups, striping, directed);
        world.window = random.pick(&[3, 8, 2048]);
        world.core.window = Window::new(world.window);
        Campaign {
            world,
            random,
            directed,
            reading,
            open: HashMap::new(),
            expected: HashMap::new(),
            next_token: 1,
            finished: 0,
            failed: 0,
        }
    }

    fn submit(&mut self) {
        // Around the ends of chunks and units, and so that ranges meet often.
        let base = self.random.pick(&[0, 4096, 8192 - 40, 16384 - 20]);
        let mut first = base + self.random.below(100);
        let mut count = 1 + self.random.below(self.random.0 % 60 + 1);
        if self.reading || self.random.below(2) == 0 {
            // Whole blocks.
            first = first / 8 * 8;
            count = count.next_multiple_of(8);
        }
        let overlaps = |open: &Open| open.first < first + count && first < open.first + open.count;
        if first + count > SECTORS || self.open.values().any(overlaps) {
            return;
        }
        let kind = self.random.pick(&[
            RequestKind::Read,
            RequestKind::Write,
            RequestKind::Write,
            RequestKind::Discard,
            RequestKind::WriteZeroes { no_hole: true },
            RequestKind::Map,
        ]);
        let kind = if self.reading && self.random.below(4) > 0 { RequestKind::Read } else { kind };
        let token = self.next_token;
        self.next_token += 1;
        self.open.insert(token, Open { kind, first, count });
        self.world.submit(token, kind, first, count);
    }

    fn finish(&mut self) {
        for done in std::mem::take(&mut self.world.completions) {
            let open = self.open.remove(&done.token).expect("each request completes once");
            self.finished += 1;
            let sectors = open.first..open.first + open.count;
            let Ok(()) = done.result else {
                self.failed += 1;
                if open.kind.is_change() {
                    self.expected.extend(sectors.map(|sector| (sector, None)));
                }
                continue;
            };
            match open.kind {
                RequestKind::Read => {
                    let found = tags(&done.buffer[..open.count as usize * 512]);
                    for (sector, found) in sectors.zip(found) {
                        let expected = self.expected.get(&sector).copied().unwrap_or(Some(0));
                        assert!(expected.is_none_or(|expected| expected == found), "sector {sector}");
                    }
                }
                RequestKind::Map => {
                    let bytes: u64 = done.extents.iter().map(|extent| u64::from(extent.length_bytes)).sum();
                    assert_eq!(bytes, open.count * 512);
                }
                kind => {
                    let tag = if kind == RequestKind::Write { done.token } else { 0 };
                    self.expected.extend(sectors.map(|sector| (sector, Some(tag))));
                }
            }
        }
    }

    /// Something happens.
    fn step(&mut self) {
        let world = &mut self.world;
        let links = world.wires();
        let link = if links.is_empty() { None } else { Some(self.random.pick(&links)) };
        let event = match self.random.below(100) {
            55..100 if self.reading && self.random.below(8) > 0 => self.random.below(70),
            event => event,
        };
        match (event, link) {
            (0..15, _) => self.submit(),
            (15..30, Some(link)) => {
                world.serve(link);
            }
            (30..45, Some(link)) => {
                let bytes_max = match self.reading {
                    true => self.random.pick(&[100, 200, 2000, 10_000, usize::MAX]),
                    false => self.random.pick(&[1, 100, usize::MAX, usize::MAX, usize::MAX]),
                };
                world.deliver(link, bytes_max);
            }
            (45..55, Some(link)) => world.finish_send(link),
            (55..58, Some(link)) => world.break_wire(link),
            (58..60, Some(link)) => world.notify(link),
            (60..68, _) if !world.connecting.is_empty() => {
                let index = self.random.below(world.connecting.len() as u64) as usize;
                world.connect(index);
            }
            (68..78, _) if !world.local_answers.is_empty() && self.random.below(2) == 0 => {
                let index = self.random.below(world.local_answers.len() as u64) as usize;
                world.answer_local(index);
            }
            (68..78, _) if !world.answering().is_empty() => {
                let index = self.random.pick(&world.answering());
                match self.random.below(4) {
                    0 => world.execute_local(index),
                    _ => world.serve_local(index),
                }
            }
            (78..82, _) => self.change_map(),
            (82..84, _) => {
                let node = self.random.below(world.lives.len() as u64) as usize;
                let is_local = world.local.contains(&node);
                let life = self.random.pick(&[
                    Life::Up,
                    Life::Up,
                    Life::Up,
                    Life::Stopped,
                    Life::Dead,
                    Life::CutOff,
                ]);
                // The thread that a shard of this process is on may hang.
                let local_life = if life == Life::Dead { Life::Stopped } else { Life::Up };
                world.lives[node] = if is_local { local_life } else { life };
            }
            (87..88, _) if self.directed => {
                let is_open = self.random.below(2) == 0;
                world.core.set_open(is_open, world.now_ns);
            }
            (84..88, _) if world.refusals.len() < 2 => {
                let status = self.random.pick(&[
                    Status::Busy,
                    Status::NotServing,
                    Status::ShuttingDown,
                    Status::TooFewCopies,
                    Status::StaleHandle,
                    Status::ChecksumMismatch,
                    Status::NoSpace,
                ]);
                world.refusals.push_back(Some(status));
            }
            (90, _) => {
                let token = self.random.below(self.next_token);
                world.core.withdraw(|one| one == token);
            }
            (91, _) => {
                let group = self.random.below(world.primaries.len() as u64) as usize;
                if world.refusing_groups.remove(&group).is_none() {
                    world.refusing_groups.insert(group, Status::TooFewCopies);
                }
            }
            (88..90, _) if self.directed => {
                world.tell_table();
            }
            _ => {
                world.now_ns += self.random.pick(&[0, 1, 15, 300]) * MS;
                if world.core.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= world.now_ns) {
                    world.core.tick(world.now_ns);
                }
            }
        }
        self.world.pump();
        self.finish();
    }

    fn change_map(&mut self) {
        let world = &mut self.world;
        let (nodes, groups) = (world.lives.len() as u64, world.primaries.len() as u64);
        if self.random.below(3) == 0 {
            let table = world.table();
            world.lagging.insert(self.random.below(nodes) as usize, table);
        } else {
            world.lagging.remove(&(self.random.below(nodes) as usize));
        }
        let node = (self.random.below(10) > 0).then(|| self.random.below(nodes) as usize);
        world.promote(self.random.below(groups) as usize, node);
        if self.directed && self.random.below(2) == 0 {
            world.tell_table();
        }
    }

    /// Everything works again, but for threads of this process that hang, of which others have the groups: all that is outstanding must
    /// finish.
    fn heal(&mut self) {
        let world = &mut self.world;
        world.refusals.clear();
        world.refusing_groups.clear();
        world.lagging.clear();
        let hangs = |node: usize| world.local.contains(&node) && world.lives[node] == Life::Stopped;
        let (hung, up): (Vec<usize>, Vec<usize>) = (0..world.lives.len()).partition(|node| hangs(*node));
        let up = if up.is_empty() { &hung } else { &up };
        up.iter().for_each(|node| world.lives[*node] = Life::Up);
        for group in 0..world.primaries.len() {
            if world.primaries[group].is_none_or(|primary| world.lives[primary] != Life::Up) {
                world.promote(group, Some(up[group % up.len()]));
            }
        }
        world.version += 1;
        if self.directed {
            world.tell_table();
        }
        world.pass(20_000 * MS);
        self.finish();
        assert!(self.open.is_empty(), "all requests are finished, but {}", self.open.len());
        assert_eq!(self.world.core.outstanding(), 0);
        assert!(self.world.core.window.numbers().next().is_none() && self.world.core.parked.is_empty());
    }

    /// Threads of this process that hung go on, and do what they were handed before. How much that is.
    fn wake(&mut self) -> usize {
        let late = self.world.local_parts.len();
        self.world.lives.fill(Life::Up);
        self.world.settle();
        assert!(self.world.local_parts.is_empty() && self.world.completions.is_empty());
        late
    }
}

/// What campaigns did.
#[derive(Debug, Default)]
struct Counts {
    finished: u64,
    failed: u64,
    retries: usize,
    tables: u64,
    landed: usize,
    /// Parts with which threads of this process hung to the end.
    late: usize,
}

fn run(seed: u64, reading: bool) -> Counts {
    let mut campaign = Campaign::new(seed, reading);
    if campaign.directed {
        campaign.world.tell_table();
    }
    for _ in 0..1500 {
        campaign.step();
    }
    campaign.heal();
    if campaign.world.core.volume().is_none() {
        // Nobody could be asked in time.
        assert!(matches!(campaign.world.core.failure(), Some(ClientError::GivenUp { .. })));
        return Counts { finished: campaign.finished, ..Counts::default() };
    }
    assert_eq!(campaign.world.core.failure(), None);
    // And everything can be read.
    for first in [0, 4096, 8192 - 40, 16384 - 20] {
        let token = campaign.next_token;
        campaign.next_token += 1;
        campaign.open.insert(token, Open { kind: RequestKind::Read, first, count: 170 });
        campaign.world.submit(token, RequestKind::Read, first, 170);
    }
    campaign.heal();
    let late = campaign.wake();
    Counts {
        late,
        finished: campaign.finished,
        failed: campaign.failed,
        retries: campaign.world.arrivals.iter().filter(|arrival| arrival.is_retry).count(),
        tables: campaign.world.version,
        landed: campaign.world.landed,
    }
}

fn run_all(reading: bool) -> Counts {
    let mut all = Counts::default();
    for seed in 0..400 {
        let Ok(counts) = std::panic::catch_unwind(|| run(seed, reading)) else { panic!("seed {seed}") };
        all.finished += counts.finished;
        all.failed += counts.failed;
        all.retries += counts.retries;
        all.tables += counts.tables;
        all.landed += counts.landed;
        all.late += counts.late;
    }
    println!("{all:?}");
    all
}

#[test]
fn every_request_completes_exactly_once_and_what_it_did_lasts() {
    let Counts { finished, failed, retries, tables, late, .. } = run_all(false);
    assert!(
        finished > 20_000 && failed > 1_000 && failed < finished / 2 && retries > 2_000 && tables > 5_000
    );
    assert!(late > 50);
}

#[test]
fn answers_that_land_in_parts_are_what_was_asked_for() {
    let Counts { finished, retries, tables, landed, .. } = run_all(true);
    assert!(finished > 20_000 && retries > 500 && tables > 1_000 && landed > 1_000);
}
