//! What a run of an experiment leaves: every figure of every round, what the machine was, and what was published.
//!
//! The field names are stable: programs read them, and `coquina bench show` and `compare` read files of other machines.
//!
//! Invariants:
//! - a report of an interrupted run says so, and holds what was measured up to then;
//! - figures of rounds are kept, not only their means, so that others can judge them.

use std::collections::BTreeMap;

use coquina_host::{DriveEnvironment, Environment};
use serde::{Deserialize, Deserializer, Serialize};

/// Version of the report's fields; raised when one changes its meaning.
pub const REPORT_VERSION: u32 = 1;

/// The report of one run of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// Version of this program.
    pub program_version: String,
    /// The command as it was typed.
    pub command: String,
    /// Which experiment.
    pub experiment: ExperimentFacts,
    /// `quick`, `default` or `full`.
    pub mode: String,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// How long it took.
    pub elapsed_s: f64,
    /// Why it ended early, if it did. The figures are those up to then.
    pub interrupted: Option<String>,
    /// Order of targets and offsets follow from it.
    pub seed: u64,
    /// How long and how often each case was run. Reports of older programs do not have it.
    #[serde(default)]
    pub timing: Option<TimingFacts>,
    /// What targets were made to look like in each scenario. Reports of older programs do not have it.
    #[serde(default)]
    pub layouts: Vec<LayoutFacts>,
    /// The machine on which the generators ran, but for those on `hosts`.
    pub environment: Environment,
    /// Hosts on which `fio --server` made load, as they were named; none if all load was made on this machine.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Its drives.
    pub drives: Vec<DriveEnvironment>,
    /// Versions of other programs: `fio`, `ceph`.
    pub versions: BTreeMap<String, String>,
    /// Settings of the operating system that matter, by key, such as `scheduler:vda`.
    pub settings: BTreeMap<String, String>,
    /// What was measured, in the order of the columns, as it was in the last scenario; see [`Report::facts_by_scenario`].
    pub targets: Vec<TargetFacts>,
    /// The cases, in the order of the experiment.
    pub cases: Vec<Case>,
    /// Targets, or settings, against each other.
    #[serde(default)]
    pub comparisons: Vec<TargetComparison>,
    /// Figures that others published for this experiment.
    pub published: Vec<PublishedRow>,
    /// What is worth knowing: where targets are unequal, where a curve stops growing, figures that contradict each other.
    pub findings: Vec<Finding>,
}

impl Report {
    /// What a target was in each scenario that it did not refuse, with the scenario's name. Of reports of older programs, and of a target
    /// that refused all, only what it was in the end is known.
    pub fn facts_by_scenario(&self, target: &TargetFacts) -> Vec<(&str, TargetFacts)> {
        let of_layout = |layout: &LayoutFacts| {
            let found = layout.targets.iter().find(|facts| facts.label == target.label)?.clone();
            let LaidOutFacts { label: _, copies, durable, cache, generator, settings } = found;
            Some(TargetFacts { copies, durable, cache, generator, settings, ..target.clone() })
        };
        let found =
            self.layouts.iter().filter_map(|layout| Some((layout.scenario.as_str(), of_layout(layout)?)));
        let found: Vec<(&str, TargetFacts)> = found.collect();
        if found.is_empty() { vec![("", target.clone())] } else { found }
    }
}

/// Which experiment a report is of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentFacts {
    /// Its name, such as `curve-vs-ceph`.
    pub name: String,
    /// One line.
    pub title: String,
    /// What the publication ran, and on what.
    pub published_setup: String,
    /// What the publication found.
    pub published_finding: String,
}

/// How long and how often each case was run on each target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimingFacts {
    /// Times that it was run.
    pub rounds: u32,
    /// Measured time of each, in seconds.
    pub runtime_s: f64,
    /// Load before that, in seconds.
    pub warmup_s: f64,
    /// The same where several clients had more than 512 operations in flight. 0: there was no such case, or it is the same.
    #[serde(default)]
    pub warmup_crowd_s: f64,
    /// Load of its own kind that each case of random writes began with on stores that were aged, in seconds, not measured, and as often
    /// again until throughput was steady, up to [`SETTLE_PASSES_MAX`](crate::definition::SETTLE_PASSES_MAX) times. 0: none, or no such store.
    #[serde(default)]
    pub settle_s: f64,
    /// How long the whole run was to take, in seconds: then stores settled less and cases had 3 rounds, where the time got short. 0: as long as it takes.
    #[serde(default)]
    pub time_s: f64,
    /// Times that each is repeated at most until throughput is steady, the first included.
    pub passes_max: u32,
}

/// What all targets were made to look like in a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutFacts {
    /// Name of the scenario.
    pub scenario: String,
    /// Volumes, sets of objects or drives.
    pub volumes: u32,
    /// Size of each.
    pub volume_bytes: u64,
    /// Copies that were asked of targets which have copies.
    pub copies: Option<u32>,
    /// Bytes of a stripe's unit, and objects in a stripe.
    pub stripe: Option<(u64, u32)>,
    /// Whether they were written full, but for those of `kept`.
    pub fill: bool,
    /// Whether it is of whole objects, which are written before they are read, in place of volumes.
    #[serde(default)]
    pub objects: bool,
    /// Targets that were read only, and whose data nobody had given up: they hold whatever they held.
    #[serde(default)]
    pub kept: Vec<String>,
    /// Whether they were read once before each case that reads.
    pub warm_reads: bool,
    /// How the store was aged.
    pub aged: Option<AgedFacts>,
    /// What targets were in this scenario, but for those that refused it. Reports of older programs do not have it.
    #[serde(default)]
    pub targets: Vec<LaidOutFacts>,
}

/// What of a target may differ from scenario to scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaidOutFacts {
    /// Its label.
    pub label: String,
    /// As in [`TargetFacts`].
    pub copies: Option<u32>,
    /// As in [`TargetFacts`].
    pub durable: Option<bool>,
    /// As in [`TargetFacts`].
    pub cache: String,
    /// As in [`TargetFacts`].
    pub generator: String,
    /// As in [`TargetFacts`].
    pub settings: BTreeMap<String, String>,
}

impl From<&TargetFacts> for LaidOutFacts {
    fn from(facts: &TargetFacts) -> Self {
        LaidOutFacts {
            label: facts.label.clone(),
            copies: facts.copies,
            durable: facts.durable,
            cache: facts.cache.clone(),
            generator: facts.generator.clone(),
            settings: facts.settings.clone(),
        }
    }
}

/// How a store was aged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgedFacts {
    /// Part of the store's space that volumes took, in percent.
    pub full_percent: u32,
    /// Times that as much as they hold was written at random places.
    pub overwrites: u32,
    /// Size of each of these writes.
    pub block_bytes: u64,
}

/// One thing that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetFacts {
    /// Its name in tables, such as `Ceph 16.2.15`.
    pub label: String,
    /// As it was named on the command line, such as `rbd:bench/disk`.
    pub spec: String,
    /// The system and its version.
    pub system: String,
    /// Copies of each block; 1 for a plain drive. `None` where it cannot be known.
    pub copies: Option<u32>,
    /// Whether a write is on stable storage on all copies when it completes. `None` where it cannot be known.
    pub durable: Option<bool>,
    /// Caches between the generator and the drives, in words.
    pub cache: String,
    /// What makes the load: `fio rbd`, `coquina native`.
    pub generator: String,
    /// Everything else that was set, by name.
    pub settings: BTreeMap<String, String>,
    /// Processes that serve it, by name, when they run on this machine.
    pub server_processes: Vec<String>,
    /// Drives that hold it, when they are on this machine.
    pub drives: Vec<String>,
    /// Whether it is a plain file or drive, which stores are measured beside. Reports of older programs do not say.
    #[serde(default)]
    pub is_plain: Option<bool>,
    /// Drives of its own that can be added one by one, files too, whatever they lie on. Reports of older programs do not say.
    #[serde(default)]
    pub drive_count: Option<u32>,
}

impl TargetFacts {
    /// Whether it is a plain file or drive; of an older report those with one copy are taken for that.
    pub fn is_plain_drive(&self) -> bool {
        self.is_plain.unwrap_or(self.copies == Some(1))
    }
}

/// Reads, writes or both, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reads at random places.
    RandomRead,
    /// Writes at random places.
    RandomWrite,
    /// Reads one after the other.
    SequentialRead,
    /// Writes one after the other.
    SequentialWrite,
    /// 70 % reads and 30 % writes at random places.
    Mixed70,
    /// Whole objects are read.
    ObjectRead,
    /// Whole objects are written.
    ObjectWrite,
}

impl Operation {
    /// Whether it is of whole objects.
    pub fn is_of_objects(self) -> bool {
        matches!(self, Operation::ObjectRead | Operation::ObjectWrite)
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(
            self,
            Operation::RandomWrite | Operation::SequentialWrite | Operation::Mixed70 | Operation::ObjectWrite
        )
    }

    /// Whether an aged store settles under it: it writes, and the store stays as old as it was.
    pub fn settles(self) -> bool {
        matches!(self, Operation::RandomWrite | Operation::Mixed70)
    }

    /// Whether it reads.
    pub fn reads(self) -> bool {
        !matches!(self, Operation::RandomWrite | Operation::SequentialWrite | Operation::ObjectWrite)
    }

    /// As people say it: `random write`.
    pub fn title(self) -> &'static str {
        match self {
            Operation::RandomRead => "random read",
            Operation::RandomWrite => "random write",
            Operation::SequentialRead => "sequential read",
            Operation::SequentialWrite => "sequential write",
            Operation::Mixed70 => "70/30 read/write",
            Operation::ObjectRead => "object read",
            Operation::ObjectWrite => "object write",
        }
    }
}

/// One point of an experiment: what is done, how much of it at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Which scenario of the experiment, such as `one volume`.
    pub scenario: String,
    /// What is done.
    pub operation: Operation,
    /// Size of one operation.
    pub block_bytes: u32,
    /// Operations in flight per job.
    pub depth: u32,
    /// Jobs of each client.
    pub jobs: u32,
    /// Volumes of the scenario.
    pub volumes: u32,
    /// Volumes that each client loads, so that more clients are more load; `None` if clients share all of them out.
    #[serde(default)]
    pub volumes_per_client: Option<u32>,
    /// Processes that make load.
    pub clients: u32,
    /// Drives that take load, where drives are added group by group.
    pub drives: Option<u32>,
    /// Copies that the scenario asks for.
    pub copies: Option<u32>,
    /// How jobs lie on processors: `whole cores`, `siblings`.
    pub placement: Option<String>,
    /// Operations per second at which load is offered; `None` for a closed loop.
    pub rate_iops: Option<u64>,
}

impl Point {
    /// `4k random write`, as tables name the workload.
    pub fn workload(&self) -> String {
        format!("{} {}", format_block(self.block_bytes), self.operation.title())
    }

    /// Volumes that take load.
    pub fn loaded_volumes(&self) -> u32 {
        match self.volumes_per_client {
            Some(each) => self.volumes.min(self.clients.max(1).saturating_mul(each)),
            None => self.volumes,
        }
    }

    /// The same point on a target that has so many drives: where 0 stands for all, it is that number.
    pub fn on(&self, drives: u32) -> Point {
        let loaded = self.drives.map(|steps| if steps == 0 { drives } else { steps });
        Point { drives: loaded, ..self.clone() }
    }

    /// Volumes that take load on a target that has so many drives; where drives are added, each is one.
    pub fn volumes_on(&self, drives: u32) -> u32 {
        self.on(drives).drives.unwrap_or_else(|| self.loaded_volumes())
    }

    /// Operations that a closed loop keeps in flight, all clients together: one client or more per volume, or per drive where drives are
    /// added, whose volumes are then the only ones that take load. Where all drives are meant, how many that is must be known, see
    /// [`Point::on`].
    pub fn outstanding(&self) -> u32 {
        let loaded = self.drives.filter(|drives| *drives > 0).unwrap_or_else(|| self.loaded_volumes());
        let lanes = self.clients.max(loaded).max(1);
        self.depth.saturating_mul(self.jobs).saturating_mul(lanes)
    }
}

/// `4k`, `512k`, `4m`: the size of an operation as fio and the studies write it.
pub fn format_block(bytes: u32) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        bytes => format!("{bytes}"),
    }
}

/// A point, and what was measured at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Unique within the report, and the same in every report of the experiment:
    /// `one volume / 4k random write / depth 128`.
    pub id: String,
    /// What was done.
    pub point: Point,
    /// What came of it, by target.
    pub results: Vec<CaseResult>,
}

/// What one target showed at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Label of the target.
    pub target: String,
    /// Each round.
    pub rounds: Vec<Round>,
    /// For how long a store that was aged settled under this case's load before it was measured, in seconds; 0: not at all.
    #[serde(default)]
    pub settled_s: f64,
    /// Why there are no figures, where there are none.
    pub skipped: Option<String>,
}

impl CaseResult {
    /// Rounds whose figures count: those without a failed operation.
    pub fn good_rounds(&self) -> impl DoubleEndedIterator<Item = &Round> + Clone {
        self.rounds.iter().filter(|round| round.is_good())
    }

    /// Whether it was measured, and operations failed in each round, so that there are no figures.
    pub fn has_failed(&self) -> bool {
        !self.rounds.is_empty() && self.good_rounds().next().is_none()
    }
}

/// What one target showed at one point in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Which round, from 1.
    pub round: u32,
    /// When its measured time began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// Measured time.
    pub measured_s: f64,
    /// Of several generators at once, for how long within `measured_s` not all of them measured, in seconds; `None` where there was one, or
    /// where it cannot be known.
    #[serde(default)]
    pub skew_s: Option<f64>,
    /// What made the load: `fio` or `coquina bench io`. At a rate the latter counts latency from when an operation was due.
    #[serde(default)]
    pub generator: String,
    /// Reads and writes together.
    pub total: Figures,
    /// Reads, in mixed workloads.
    pub read: Option<Figures>,
    /// Writes, in mixed workloads.
    pub write: Option<Figures>,
    /// Operations per second over time.
    pub series: Vec<f64>,
    /// Distance of the values of `series`.
    pub series_interval_ms: u64,
    /// Whether throughput was steady, and why it is thought so.
    pub steadiness: String,
    /// Whether throughput was steady; `None` where the run was too short to tell.
    pub is_steady: Option<bool>,
    /// Times that the load was run until it was steady, the one that counts included.
    pub passes: u32,
    /// Physical cores that jobs were pinned to; two hardware threads of one count once. `None` where nothing was pinned, or on other
    /// hosts, and in reports of older programs.
    #[serde(default)]
    pub cores_pinned: Option<u32>,
    /// CPU time; `None` where it could not be seen.
    #[serde(default, deserialize_with = "seen_cpu")]
    pub cpu: Option<CpuFigures>,
    /// Share of the measured time in which all of this machine stood still, 0 to 1; `None` where that cannot be seen, and in reports of
    /// older programs.
    #[serde(default)]
    pub stood_still: Option<f64>,
    /// Drives of this machine during the measured time.
    pub drives: Vec<DriveFigures>,
    /// Network interfaces of this machine that moved anything, without loopback. Reports of older programs do not have them.
    #[serde(default)]
    pub networks: Vec<NetworkFigures>,
    /// How long after the load it was looked at what the load had left to be done, in seconds; `None` where it was not, and in reports of
    /// older programs.
    #[serde(default)]
    pub afterwards_s: Option<f64>,
    /// Whether the machine was quiet at the end of that; what was still to be done is in no figure of this round, and may be in others'.
    #[serde(default)]
    pub is_quiet_afterwards: Option<bool>,
    /// Bytes written to drives per byte written by users, what was written after the load included.
    pub drive_bytes_per_user_byte: Option<f64>,
    /// What held throughput back.
    pub limit: LimitFigures,
    /// The machine over time.
    pub utilisation: Vec<UtilisationSample>,
    /// Operations that failed; 1 at least where the generator gave up, or nothing was done. Then the figures of the round are kept, and
    /// are part of no mean, ratio or percentile.
    pub errors: u64,
    /// Where the figures contradict each other.
    pub contradictions: Vec<String>,
}

impl Round {
    /// Whether its figures are those of operations that worked. A failure is often faster than what was asked for.
    pub fn is_good(&self) -> bool {
        self.errors == 0
    }

    /// The share by which one operation more or fewer changes what follows from their number: 1 / operations, 0 if there were none.
    pub fn counting_step(&self) -> f64 {
        if self.total.operations == 0 { 0.0 } else { 1.0 / self.total.operations as f64 }
    }
}

/// The largest [`Round::counting_step`] of some rounds.
pub fn counting_step<'a>(rounds: impl Iterator<Item = &'a Round>) -> f64 {
    rounds.map(Round::counting_step).fold(0.0, f64::max)
}

/// Throughput and latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Operations in the measured time.
    pub operations: u64,
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Mean latency.
    pub latency_ns_mean: f64,
    /// Median latency.
    pub latency_ns_p50: u64,
    /// 90th percentile.
    pub latency_ns_p90: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// 99.9th percentile.
    pub latency_ns_p99_9: u64,
    /// 99.99th percentile.
    pub latency_ns_p99_99: u64,
    /// Largest latency.
    pub latency_ns_max: u64,
    /// The histogram as (highest value of the bucket in ns, operations); adding those of several rounds merges them.
    pub latency_histogram: Vec<(u64, u64)>,
}

/// CPU time over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuFigures {
    /// Busy time of the idle machine before the experiment, in microseconds per second. Subtracted below.
    pub idle_us_per_s: f64,
    /// Busy time per operation of the generator, the servers and the kernel's threads, less the idle share; of the whole
    /// machine where the servers cannot be seen. `None` where others kept the machine so busy that this cannot be told.
    pub machine_us_per_io: Option<f64>,
    /// Cores that were busy on average.
    pub busy_cores: f64,
    /// The part of it that was used when the load had ended, until the machine was quiet, for what the load had left to be done: it is part
    /// of the servers' and the kernel's below, too. `None` where it could not be seen, and in reports of older programs.
    #[serde(default)]
    pub afterwards_us_per_io: Option<f64>,
    /// CPU time of the generator per operation.
    pub client_us_per_io: f64,
    /// CPU time of the target's servers per operation, all together; `None` where they could not be seen.
    pub servers_us_per_io: Option<f64>,
    /// CPU time of kernel threads per operation; `None` where they could not be seen.
    pub kernel_threads_us_per_io: Option<f64>,
    /// Each process, by name and number, during the load.
    pub processes: Vec<ProcessFigures>,
}

/// Earlier versions wrote zeros where nothing was seen; a machine under load is never idle.
fn seen_cpu<'de, D: Deserializer<'de>>(source: D) -> Result<Option<CpuFigures>, D::Error> {
    let read = Option::<CpuFigures>::deserialize(source)?;
    Ok(read.filter(|cpu| cpu.busy_cores > 0.0 || cpu.machine_us_per_io > Some(0.0)))
}

/// CPU time of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessFigures {
    /// Its name.
    pub name: String,
    /// Its number.
    pub pid: u32,
    /// CPU time per operation.
    pub us_per_io: f64,
}

/// A drive over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveFigures {
    /// Its name, such as `nvme0n1`.
    pub name: String,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// Share of the time in which it had something to do, 0 to 1.
    pub busy: f64,
    /// Share of the time in which it ended none of it for 100 ms and more; `None` where unseen, and of older programs.
    #[serde(default)]
    pub stalled: Option<f64>,
}

/// A network interface over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkFigures {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Bytes received per second.
    pub in_bytes_per_s: f64,
    /// Bytes sent per second.
    pub out_bytes_per_s: f64,
    /// Speed of the link in each direction, where it is known.
    pub speed_bits_per_s: Option<u64>,
}

/// What held throughput back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitFigures {
    /// `cpu`, `drive`, `network`, `latency`, `generator`, `throttle`, `rate` or `unknown`.
    pub kind: String,
    /// As a person says it: `CPU: 1.9 of 2 cores`.
    pub text: String,
    /// What it rests on.
    pub evidence: Vec<String>,
}

/// The machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UtilisationSample {
    /// Since the measured time began; below 0 is warm-up.
    pub at_ms: i64,
    /// Busy cores.
    pub busy_cores: f64,
    /// Busiest drive, 0 to 1.
    pub drive_busy: f64,
    /// Bytes read from all drives per second.
    pub read_bytes_per_s: f64,
    /// Bytes written to all drives per second.
    pub write_bytes_per_s: f64,
    /// Bytes sent and received per second on the busiest interface but loopback.
    pub network_bytes_per_s: f64,
}

/// One target, or setting, against another one in one case, from rounds in which both took turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetComparison {
    /// The case's id.
    pub case: String,
    /// `iops`, `latency` (its mean) or `cpu` (of the machine, per operation).
    pub metric: String,
    /// Label of what is compared.
    pub target: String,
    /// Label of what it is compared with.
    pub reference: String,
    /// Its figure divided by that of the reference.
    pub ratio: f64,
    /// Lower end of the 95 % interval of the ratio; `None` where the rounds are too few to say.
    pub ratio_low: Option<f64>,
    /// Upper end.
    pub ratio_high: Option<f64>,
    /// `better`, `worse` or `no difference shown`, corrected for the number of comparisons of this metric in the report.
    pub verdict: String,
    /// In words, such as `better by 8 to 12 %`.
    pub text: String,
}

/// A figure that others published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedRow {
    /// The scenario that it belongs to, as in [`Point`].
    pub scenario: String,
    /// `4k random write`.
    pub workload: String,
    /// Queue depth or concurrency.
    pub depth: Option<u32>,
    /// Copies.
    pub copies: Option<u32>,
    /// Which client, where clients were reported one by one.
    pub client: Option<u32>,
    /// How jobs lay on processors, as in [`Point`]: the figures are of these cases only.
    #[serde(default)]
    pub placement: Option<String>,
    /// Whose figure it is.
    pub system: String,
    /// Operations per second.
    pub iops: Option<f64>,
    /// Operations per second by physical cores.
    #[serde(default)]
    pub iops_per_core: Option<f64>,
    /// Bandwidth in MiB/s.
    pub bandwidth_mib_s: Option<f64>,
    /// Mean latency in microseconds; that of reads, in a mix.
    pub latency_us_mean: Option<f64>,
    /// Mean latency of the writes of a mix, in microseconds.
    pub latency_us_mean_write: Option<f64>,
}

/// Something worth knowing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// `verdict`, `copies`, `contradiction`, `unequal`, `stops-growing`, `scaling`, `limit`, `advice`, `not-steady`, `not-settled`, `rate-not-reached`
    /// or `note`; `open-loop` in older reports.
    pub kind: String,
    /// What it is about: a case's id, a target's label, or a publication.
    pub subject: String,
    /// What was found.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_that_nobody_saw_is_not_0_also_in_older_reports() {
        let round = Round { round: 2, ..Round::default() };
        let json = serde_json::to_value(&round).unwrap();
        assert!(json["cpu"].is_null(), "{json}");
        assert_eq!(serde_json::from_value::<Round>(json.clone()).unwrap(), round);
        let older = |machine_us_per_io: f64| {
            let mut json = json.clone();
            json["cpu"] = serde_json::json!({
                "idle_us_per_s": 0.0, "machine_us_per_io": machine_us_per_io, "busy_cores": machine_us_per_io / 10.0,
                "client_us_per_io": 1.5, "servers_us_per_io": 2.5, "kernel_threads_us_per_io": 0.5, "processes": []
            });
            serde_json::from_value::<Round>(json).unwrap().cpu
        };
        assert_eq!(older(0.0), None);
        let cpu = older(5.0).unwrap();
        assert_eq!((cpu.machine_us_per_io, cpu.servers_us_per_io), (Some(5.0), Some(2.5)));
        let mut without = json;
        without.as_object_mut().unwrap().remove("cpu");
        assert_eq!(serde_json::from_value::<Round>(without).unwrap().cpu, None);
    }
}
