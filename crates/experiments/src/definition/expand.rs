//! From an experiment and a mode to the points that are run.

use crate::report::{AgedFacts, LayoutFacts, Point, format_block};

use super::{
    Aged, Experiment, ModeName, OBJECTS_MAX, PREPARE_DEPTH, Scenario, Size, Stripe, Sweep, VOLUME_BYTES_MIN,
};

/// What a target is to look like in a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Volumes.
    pub volumes: u32,
    /// Size of each. Smaller than published where the mode or the space is.
    pub volume_bytes: u64,
    /// Copies that are asked of targets which have copies.
    pub copies: Option<u32>,
    /// How volumes are striped.
    pub stripe: Option<Stripe>,
    /// Whether volumes are written full first.
    pub fill: bool,
    /// Whether volumes are read once before each case that reads.
    pub warm_reads: bool,
    /// How the store is aged.
    pub aged: Option<Aged>,
    /// Whether several jobs or clients write to one volume.
    pub is_shared: bool,
}

impl Layout {
    /// As a report tells it.
    pub fn facts(&self, scenario: &str) -> LayoutFacts {
        LayoutFacts {
            scenario: scenario.to_owned(),
            volumes: self.volumes,
            volume_bytes: self.volume_bytes,
            copies: self.copies,
            stripe: self.stripe.map(|stripe| (stripe.unit, stripe.count)),
            fill: self.fill,
            objects: false,
            kept: Vec::new(),
            warm_reads: self.warm_reads,
            aged: self.aged.map(|aged| AgedFacts {
                full_percent: aged.full_percent,
                overwrites: aged.overwrites,
                block_bytes: aged.block,
            }),
            targets: Vec::new(),
        }
    }
}

impl PlannedScenario {
    /// Whether several jobs or clients write to one volume at once.
    pub fn shares_volumes(&self) -> bool {
        let is_shared = |point: &Point| {
            let several = point.jobs > 1 || point.clients > point.volumes_on(1);
            several && point.operation.writes() && !point.operation.is_of_objects()
        };
        self.points.iter().any(|planned| is_shared(&planned.point))
    }

    /// Whether it reads or writes whole objects, in place of blocks of volumes.
    pub fn is_of_objects(&self) -> bool {
        self.points.iter().any(|planned| planned.point.operation.is_of_objects())
    }

    /// Bytes of as many whole objects as are in flight at once, whatever is done with them; 0 where there are none.
    pub fn objects_in_flight_bytes(&self) -> u64 {
        let objects = self.points.iter().filter(|planned| planned.point.operation.is_of_objects());
        let bytes = objects.map(|planned| {
            let in_flight = u64::from(planned.point.depth.max(PREPARE_DEPTH));
            in_flight * u64::from(planned.point.block_bytes)
        });
        bytes.max().unwrap_or(0).next_multiple_of(VOLUME_BYTES_MIN)
    }

    /// Makes the volumes of whole objects as large as the objects are: as many as are in flight at least, so that the same ones are
    /// written and read at all depths, and no more than [`OBJECTS_MAX`].
    pub fn fit_objects(&mut self) {
        let largest = self.points.iter().map(|planned| planned.point.block_bytes).max().unwrap_or(0);
        if self.is_of_objects() {
            let most = (OBJECTS_MAX * u64::from(largest)).max(VOLUME_BYTES_MIN);
            self.layout.volume_bytes = self.layout.volume_bytes.min(most).max(self.objects_in_flight_bytes());
        }
    }
}

/// Bytes of all whole objects of one size, on a target whose volumes are so large.
pub fn object_set_bytes(volume_bytes: u64, object_bytes: u32) -> u64 {
    let object_bytes = u64::from(object_bytes.max(1));
    (volume_bytes / object_bytes).clamp(1, OBJECTS_MAX) * object_bytes
}

/// A scenario of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedScenario {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub note: String,
    /// What targets are to look like.
    pub layout: Layout,
    /// The points with their identifiers, in order.
    pub points: Vec<PlannedPoint>,
}

/// A point of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPoint {
    /// Unique in the run.
    pub id: String,
    /// What is done.
    pub point: Point,
    /// Points of one ladder have the same number: steps of clients or drives which end when throughput stops growing.
    pub ladder: Option<u32>,
}

/// All scenarios that a mode runs, with their points.
pub fn expand(experiment: &Experiment, mode: ModeName) -> Vec<PlannedScenario> {
    let limits = experiment.modes.get(mode);
    let mut ladders = 0;
    let mut planned = Vec::new();
    for scenario in &experiment.scenarios {
        if !scenario.is_in(mode) {
            continue;
        }
        let volumes = match limits.volumes_max {
            0 => scenario.volumes,
            most => scenario.volumes.min(most),
        };
        let layout = Layout {
            volumes,
            volume_bytes: scenario.volume_size.min(limits.volume_bytes_max),
            copies: scenario.copies,
            stripe: scenario.stripe,
            fill: scenario.fill,
            warm_reads: scenario.warm_reads,
            aged: scenario.aged,
            is_shared: false,
        };
        let mut points: Vec<PlannedPoint> = Vec::new();
        for sweep in &scenario.sweeps {
            for planned_point in points_of(scenario, sweep, mode, volumes, &mut ladders) {
                if points.iter().all(|other| other.id != planned_point.id) {
                    points.push(planned_point);
                }
            }
        }
        if !points.is_empty() {
            let (name, note) = (scenario.name.clone(), scenario.note.clone());
            let mut scenario = PlannedScenario { name, note, layout, points };
            scenario.layout.is_shared = scenario.shares_volumes();
            planned.push(scenario);
        }
    }
    planned
}

/// An empty list stands for one point without that property.
fn or_none<T: Copy>(values: Vec<T>) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.into_iter().map(Some).collect() }
}

fn points_of(
    scenario: &Scenario,
    sweep: &Sweep,
    mode: ModeName,
    volumes: u32,
    ladders: &mut u32,
) -> Vec<PlannedPoint> {
    let (clients, drives) = (sweep.clients.get(mode), or_none(sweep.drives.get(mode)));
    let (placements, rates) = (or_none(sweep.placement.get(mode)), or_none(sweep.rate.get(mode)));
    let mut points = Vec::new();
    for operation in sweep.operation.get(mode) {
        for Size(block_bytes) in sweep.block.get(mode) {
            for depth in sweep.depth.get(mode) {
                for placement in &placements {
                    for jobs in sweep.jobs.get(mode) {
                        for rate_iops in &rates {
                            *ladders += 1;
                            for clients in &clients {
                                // Where there are both, drives are the steps: a curve for each number of clients.
                                *ladders += u32::from(!sweep.drives.get(mode).is_empty());
                                for drives in &drives {
                                    let point = Point {
                                        scenario: scenario.name.clone(),
                                        operation,
                                        block_bytes: block_bytes as u32,
                                        depth,
                                        jobs,
                                        volumes,
                                        volumes_per_client: sweep.volumes_per_client,
                                        clients: *clients,
                                        drives: *drives,
                                        copies: scenario.copies,
                                        placement: placement.map(|placement| placement.as_str().to_owned()),
                                        rate_iops: *rate_iops,
                                    };
                                    let ladder = sweep.until_flat.then_some(*ladders);
                                    points.push(PlannedPoint { id: identifier(&point), point, ladder });
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    points
}

/// The value of a list in which all are the same.
fn only<T: Copy + PartialEq>(values: &[T]) -> Option<T> {
    let first = *values.first()?;
    values.iter().all(|value| *value == first).then_some(first)
}

/// Operations that were in flight in a publication at this depth with a workload such as `4k random write`, if its scenario tells: with
/// all its volumes, and the jobs, clients and drives of the mode `full`. `None` where there are several of these, all drives, or a rate.
pub fn published_outstanding(scenario: &Scenario, workload: &str, depth: u32) -> Option<u32> {
    let mode = ModeName::Full;
    let mut found = Vec::new();
    for sweep in &scenario.sweeps {
        let point = |operation, block_bytes| {
            let drives = only(&or_none(sweep.drives.get(mode))).filter(|drives| *drives != Some(0))?;
            let is_closed_loop = sweep.rate.get(mode).is_empty();
            is_closed_loop.then_some(Point {
                scenario: scenario.name.clone(),
                operation,
                block_bytes,
                depth,
                jobs: only(&sweep.jobs.get(mode))?,
                volumes: scenario.volumes,
                volumes_per_client: sweep.volumes_per_client,
                clients: only(&sweep.clients.get(mode))?,
                drives,
                copies: scenario.copies,
                placement: None,
                rate_iops: None,
            })
        };
        for operation in sweep.operation.get(mode) {
            for Size(block_bytes) in sweep.block.get(mode) {
                let block_bytes = block_bytes as u32;
                if format!("{} {}", format_block(block_bytes), operation.title()) == workload {
                    found.push(point(operation, block_bytes)?.outstanding());
                }
            }
        }
    }
    only(&found)
}

/// `one volume / 4k random write / depth 128`, and more where it is not the usual.
pub fn identifier(point: &Point) -> String {
    let mut text = format!("{} / {} / depth {}", point.scenario, point.workload(), point.depth);
    match point.jobs {
        1 if point.placement.is_some() => text += " / 1 job",
        0 | 1 => {}
        jobs => text += &format!(" / {jobs} jobs"),
    }
    if let Some(placement) = &point.placement {
        text += &format!(" on {placement}");
    }
    if point.clients > 1 {
        text += &format!(" / {} clients", point.clients);
    }
    if let Some(volumes) = point.volumes_per_client {
        text += &match volumes {
            1 => " / a volume each".to_owned(),
            volumes => format!(" / {volumes} volumes each"),
        };
    }
    match point.drives {
        Some(0) => text += " / all drives",
        Some(1) => text += " / 1 drive",
        Some(drives) => text += &format!(" / {drives} drives"),
        None => {}
    }
    if let Some(rate_iops) = point.rate_iops {
        text += &format!(" / {rate_iops} per second");
    }
    text
}
