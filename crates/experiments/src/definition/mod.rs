//! Experiments as data: TOML files, built in or written by users.
//!
//! The fields of a file are those of [`Experiment`], of its `[modes.quick]`, `[modes.default]` and `[modes.full]` ([`Mode`]), of each
//! `[[scenario]]` ([`Scenario`]) and `[[scenario.sweep]]` ([`Sweep`]), and of `[published]` ([`PublishedTable`]). Those without a default
//! must be there. Sizes are texts such as `"4KiB"`, `"1GiB"` or `"65536"` (bytes); names that end in `_s` are seconds.
//!
//! Invariants:
//! - unknown keys, empty lists and sizes that make no sense are refused with their place in the file;
//! - what a mode does not say, it takes from the mode `default`;
//! - a built-in experiment that does not parse does not pass the tests.

mod built_in;
mod expand;
mod published;
mod values;

use std::path::Path;

use coquina_base::Nearest;
use serde::{Deserialize, Serialize};

use crate::report::{Operation, Point};
use values::size;

pub use built_in::{BuiltIn, built_in, built_in_names};
pub use expand::{
    Layout, PlannedPoint, PlannedScenario, expand, identifier, object_set_bytes, published_outstanding,
};
pub use published::PublishedTable;

/// Rounds that each case has whatever the time: fewer show no differences.
pub const ROUNDS_MIN: u32 = 3;
/// Version of the file format.
pub const FORMAT: u32 = 1;
/// Most points that one experiment may have.
const POINTS_MAX: usize = 10_000;
/// Operations of several clients in flight above which [`Mode::warmup_crowd_s`] counts.
pub const CROWD: u32 = 512;
/// Times that a case's load settles an aged store at most, `settle_s` each.
pub const SETTLE_PASSES_MAX: u32 = 4;
/// Smallest volume that is worth measuring.
pub const VOLUME_BYTES_MIN: u64 = 16 << 20;
/// Whole objects of one size at most: fio keeps something for each. It is so on all targets, or caches would hold more of one than of
/// another.
pub const OBJECTS_MAX: u64 = 4096;
/// Operations in flight while whole objects are written before they are read, or a store is aged.
pub const PREPARE_DEPTH: u32 = 32;
/// More operations per second than any target serves.
pub const RATE_IOPS_MAX: u64 = 1_000_000_000;

/// Why an experiment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// The file cannot be read.
    #[error(
        "cannot read the experiment {path}: {source}{}; built in are: {}",
        Nearest::of(path, built_in_names()),
        built_in_names().join(", ")
    )]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Not TOML, or not of the right form.
    #[error("{path} is not an experiment: {message}")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong where.
        message: String,
    },
    /// It makes no sense.
    #[error("{path}: {message}")]
    Senseless {
        /// The file.
        path: String,
        /// What is wrong, and what to do.
        message: String,
    },
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Version of the file format: 1.
    pub format: u32,
    /// Its name in reports, of a-z, 0-9 and `-`. Reports of experiments of different names are not compared.
    pub name: String,
    /// One line that says what it shows.
    pub title: String,
    /// What the publication ran, and on what; text for the report. Default: none.
    #[serde(default)]
    pub published_setup: String,
    /// What it found; text for the report. Default: none.
    #[serde(default)]
    pub published_finding: String,
    /// What is measured if nothing is said: targets as on the command line. `plain-file` and `plain-files:N` stand for
    /// files in the folder of the run. Default: none, so that `--target` must be given.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Whether the host is checked against the advice for storage, too. Default: false.
    #[serde(default)]
    pub advice: bool,
    /// How long and how often, for each of the three modes; `quick` and `full` are as `default` where they are left out.
    pub modes: Modes,
    /// What is run, in this order; one at least.
    #[serde(rename = "scenario")]
    pub scenarios: Vec<Scenario>,
    /// Figures of the publication, which stand beside the measured ones. Default: none.
    #[serde(default)]
    pub published: PublishedTable,
}

/// Which of the three sizes of an experiment is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModeName {
    /// Minutes.
    Quick,
    /// Between the two.
    Default,
    /// As it was published.
    Full,
}

impl ModeName {
    /// As in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            ModeName::Quick => "quick",
            ModeName::Default => "default",
            ModeName::Full => "full",
        }
    }
}

/// The three modes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "ModesOfFile")]
pub struct Modes {
    /// Under ten minutes on a small machine.
    pub quick: Mode,
    /// What is run if nothing is said.
    pub default: Mode,
    /// Published durations.
    pub full: Mode,
}

/// The same as in files: `quick` and `full` are as `default` where they are left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModesOfFile {
    quick: Option<Mode>,
    default: Mode,
    full: Option<Mode>,
}

impl From<ModesOfFile> for Modes {
    fn from(file: ModesOfFile) -> Modes {
        let or_default = |mode: Option<Mode>| mode.unwrap_or_else(|| file.default.clone());
        Modes { quick: or_default(file.quick), full: or_default(file.full), default: file.default.clone() }
    }
}

impl Modes {
    /// One of them.
    pub fn get(&self, name: ModeName) -> &Mode {
        match name {
            ModeName::Quick => &self.quick,
            ModeName::Default => &self.default,
            ModeName::Full => &self.full,
        }
    }
}

/// How long and how often.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mode {
    /// Times that each case is run on each target, 1 to 1000. Fewer than 3 show no differences.
    pub rounds: u32,
    /// Measured time of each run, in seconds, 0.5 to 86400. Under 4 it is too short to tell whether throughput is steady.
    pub runtime_s: f64,
    /// Load before that, in seconds, 0 to 86400.
    pub warmup_s: f64,
    /// The same at least where several clients have more than [`CROWD`] operations in flight, unless there is none at all. Default: 1.2.
    #[serde(default = "warmup_crowd")]
    pub warmup_crowd_s: f64,
    /// Load of its own kind that each case of random writes begins with on stores that were aged, in seconds, 0 to 86400; it is not
    /// measured, and goes on for as long again until throughput was steady, up to [`SETTLE_PASSES_MAX`] times. What a store does just after
    /// another kind of load is not what it does in the long run. Sequential writes do not settle: they would lay the store out in order
    /// again, and undo its age. Default: 0.
    #[serde(default)]
    pub settle_s: f64,
    /// How long the whole run should take, in seconds, 0 to 604800. Where the time gets short aged stores settle less than [`SETTLE_PASSES_MAX`]
    /// times, and the report says which were not steady then; if that is not enough cases have 3 rounds where there would be more, and the
    /// report names them. Nothing else is cut. Default: 0, as long as it takes.
    #[serde(default)]
    pub time_s: f64,
    /// Times that a run is repeated until throughput is steady, the first included. Default: 1.
    #[serde(default = "one")]
    pub passes_max: u32,
    /// Largest size of a volume, object set or file, as a text such as `"1GiB"`; at least 16MiB.
    #[serde(deserialize_with = "size")]
    pub volume_bytes_max: u64,
    /// Most volumes of a scenario. Default: 0, as many as it says.
    #[serde(default)]
    pub volumes_max: u32,
}

/// A set-up, and what is run on it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name in tables and identifiers; unlike that of any other scenario.
    pub name: String,
    /// What it is about; text for `--plan`. Default: none.
    #[serde(default)]
    pub note: String,
    /// Volumes that take load, 1 to 10000. Default: 1. Where `drives` are added, each drive is a volume.
    #[serde(default = "one")]
    pub volumes: u32,
    /// Size of each as published, as a text such as `"1TiB"`; smaller where the mode or the space is.
    #[serde(deserialize_with = "size")]
    pub volume_size: u64,
    /// Copies that are asked of targets which have copies, 1 to 8. Default: those that the target has.
    pub copies: Option<u32>,
    /// How volumes are striped, as `{ unit = "64KiB", count = 64 }`. Default: not.
    pub stripe: Option<Stripe>,
    /// Whether volumes are written full first. Default: true.
    #[serde(default = "yes")]
    pub fill: bool,
    /// Whether volumes, or objects, are read once before each case that reads, so that what fits into the caches of servers is there.
    /// Default: false.
    #[serde(default)]
    pub warm_reads: bool,
    /// Ages the store before: volumes take so much of its space and are overwritten, as
    /// `{ full_percent = 75, overwrites = 3, block = "64KiB" }`. Default: not.
    pub aged: Option<Aged>,
    /// In which modes it is run: a list of `"quick"`, `"default"` and `"full"`. Default: all.
    pub modes: Option<Vec<ModeName>>,
    /// What is run; one at least.
    #[serde(rename = "sweep")]
    pub sweeps: Vec<Sweep>,
}

/// How a volume is striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stripe {
    /// Size of what goes to one object before the next of the stripe is used: a text, a power of two from `"4KiB"` on.
    #[serde(deserialize_with = "size")]
    pub unit: u64,
    /// Objects in a stripe, 1 or more.
    pub count: u32,
}

/// How a store is aged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aged {
    /// Part of the store's space that volumes take, in percent, 1 to 95.
    pub full_percent: u32,
    /// Times that as much as the volumes hold is written at random places.
    pub overwrites: u32,
    /// Size of each overwrite: a text, `"4KiB"` to `"16MiB"`.
    #[serde(deserialize_with = "size")]
    pub block: u64,
}

/// Points: each combination of its lists, those named first changing slowest. Each field is a value, a list, or a list for each mode:
/// `{ default = [1, 16, 128], quick = [128] }`, where a mode that is left out has the list of `default`. An empty list of `operation`,
/// `block`, `depth`, `jobs` or `clients` leaves the sweep out of a mode.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// What is done: `random_read`, `random_write`, `sequential_read`, `sequential_write`, `mixed70` (70 % reads, 30 % writes at random
    /// places), `object_read`, `object_write` (whole objects).
    pub operation: PerMode<Operation>,
    /// Sizes of operations: texts, multiples of 512 bytes up to `"16MiB"`.
    pub block: PerMode<Size>,
    /// Operations in flight per job, 1 to 4096. Default: 1.
    #[serde(default = "PerMode::one")]
    pub depth: PerMode<u32>,
    /// Jobs of each client on each of its volumes, 1 to 255. Default: 1.
    #[serde(default = "PerMode::one")]
    pub jobs: PerMode<u32>,
    /// Processes that make load, 1 to 1000; each takes its share of the volumes. Default: 1.
    #[serde(default = "PerMode::one")]
    pub clients: PerMode<u32>,
    /// Volumes that each client loads, 1 to 1000, so that more clients are more load, until all volumes are loaded. Default: clients share
    /// all volumes out, so that more clients than one are the same load made by more processes.
    pub volumes_per_client: Option<u32>,
    /// Drives that take load, where the target has several; 0 stands for all. Default: as many volumes as the scenario says.
    #[serde(default = "PerMode::none")]
    pub drives: PerMode<u32>,
    /// How jobs lie on processors: `whole-cores` or `siblings`. Default: they are not pinned.
    #[serde(default = "PerMode::none")]
    pub placement: PerMode<Placement>,
    /// Operations per second at which load is offered, by all clients together, whatever the target does. Default: a closed loop.
    #[serde(default = "PerMode::none")]
    pub rate: PerMode<u64>,
    /// Whether steps of `clients` or `drives` end for a target when its mean throughput was less than 5 % above that of a step in both
    /// steps after it. Default: false.
    #[serde(default)]
    pub until_flat: bool,
}

/// How jobs lie on processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// One job on each core; the other threads of the core stay idle.
    WholeCores,
    /// Two jobs on the two threads of each core.
    Siblings,
}

impl Placement {
    /// As in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Placement::WholeCores => "whole cores",
            Placement::Siblings => "siblings",
        }
    }
}

/// A size, written like `4KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// A value or list, the same for all modes or one for each.
#[derive(Clone, Debug, PartialEq)]
pub enum PerMode<T> {
    /// One value for all modes.
    One(T),
    /// A list for all modes.
    Many(Vec<T>),
    /// A list for each mode; `quick` and `full` are `default`'s if they are left out.
    Each(Each<T>),
}

/// A list for each mode.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Each<T> {
    /// For `default`, and for the others if they say nothing.
    pub default: Vec<T>,
    /// For `--quick`.
    pub quick: Option<Vec<T>>,
    /// For `--full`.
    pub full: Option<Vec<T>>,
}

impl<T: Copy> PerMode<T> {
    /// The values for a mode.
    pub fn get(&self, mode: ModeName) -> Vec<T> {
        match self {
            PerMode::One(value) => vec![*value],
            PerMode::Many(values) => values.clone(),
            PerMode::Each(each) => match mode {
                ModeName::Quick => each.quick.clone(),
                ModeName::Default => None,
                ModeName::Full => each.full.clone(),
            }
            .unwrap_or_else(|| each.default.clone()),
        }
    }

    fn none() -> Self {
        PerMode::Many(Vec::new())
    }
}

impl PerMode<u32> {
    fn one() -> Self {
        PerMode::One(1)
    }
}

fn warmup_crowd() -> f64 {
    1.2
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

impl Experiment {
    /// Reads a built-in experiment by its name, or a file by its path.
    pub fn load(name_or_path: &str) -> Result<Self, DefinitionError> {
        if let Some(found) = built_in(name_or_path) {
            return Experiment::parse(found.toml, found.name);
        }
        let text = std::fs::read_to_string(Path::new(name_or_path))
            .map_err(|source| DefinitionError::Read { path: name_or_path.to_owned(), source })?;
        Experiment::parse(&text, name_or_path)
    }

    /// Reads the text of a file; `path` is for messages.
    pub fn parse(text: &str, path: &str) -> Result<Self, DefinitionError> {
        let experiment: Experiment = toml::from_str(text).map_err(|error| DefinitionError::Malformed {
            path: path.to_owned(),
            message: format!("{}{}", in_words(error.to_string().trim_end()), misspelt(error.message())),
        })?;
        match experiment.nonsense() {
            Some(message) => Err(DefinitionError::Senseless { path: path.to_owned(), message }),
            None => Ok(experiment),
        }
    }

    /// What makes no sense, if anything.
    fn nonsense(&self) -> Option<String> {
        if self.format != FORMAT {
            return Some(format!("format {} is not known; this program reads format {FORMAT}", self.format));
        }
        if self.name.is_empty()
            || !self.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        {
            return Some(format!("the name {:?} must be of a-z, 0-9 and '-'", self.name));
        }
        let modes = [&self.modes.quick, &self.modes.default, &self.modes.full];
        if let Some(message) = modes.iter().find_map(|mode| mode.nonsense()) {
            return Some(message);
        }
        if self.scenarios.is_empty() {
            return Some("there is no [[scenario]]; add one".to_owned());
        }
        for (index, scenario) in self.scenarios.iter().enumerate() {
            if self.scenarios[..index].iter().any(|other| other.name == scenario.name) {
                return Some(format!("two scenarios are called {:?}; give each its own name", scenario.name));
            }
            if let Some(message) = scenario.nonsense() {
                return Some(format!("scenario {:?}: {message}", scenario.name));
            }
        }
        if let Err(message) = self.published.rows() {
            return Some(message);
        }
        for mode in [ModeName::Quick, ModeName::Default, ModeName::Full] {
            // Before they are made, for they take memory.
            let sweeps =
                self.scenarios.iter().filter(|scenario| scenario.is_in(mode)).flat_map(|found| &found.sweeps);
            let combinations = sweeps.map(|sweep| sweep.combinations(mode)).fold(0, usize::saturating_add);
            if combinations > POINTS_MAX {
                return Some(format!(
                    "mode {} has {combinations} combinations of its lists; there must be 1 to {POINTS_MAX}",
                    mode.as_str()
                ));
            }
            let points: usize = expand(self, mode).iter().map(|planned| planned.points.len()).sum();
            if points == 0 {
                return Some(format!(
                    "mode {} has {points} points; there must be 1 to {POINTS_MAX}",
                    mode.as_str()
                ));
            }
        }
        None
    }
}

/// What may be meant by a key or value that is not known, of a message such as "unknown field `dept`, expected `depth` or `jobs`".
fn misspelt(message: &str) -> Nearest {
    if !message.starts_with("unknown field") && !message.starts_with("unknown variant") {
        return Nearest::default();
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    quoted.next().map_or_else(Nearest::default, |found| Nearest::of(found, quoted))
}

/// Names of types as those who write files know them.
fn in_words(message: &str) -> String {
    let words = [
        ("expected f64", "expected a number"),
        ("expected u32", "expected a whole number from 0"),
        ("expected u64", "expected a whole number from 0"),
    ];
    words.into_iter().fold(message.to_owned(), |text, (from, to)| text.replace(from, to))
}

impl Mode {
    /// Load before a point is measured, in seconds. Several clients with much in flight fill a slow target's queues for longer than one: one
    /// that answers each operation after half a second has to be full before it counts.
    pub fn warmup_s_of(&self, point: &Point) -> f64 {
        match point.clients > 1 && point.outstanding() > CROWD && self.warmup_s > 0.0 {
            true => self.warmup_s.max(self.warmup_crowd_s),
            false => self.warmup_s,
        }
    }

    fn nonsense(&self) -> Option<String> {
        let is_within =
            |seconds: f64, least: f64, most: f64| seconds.is_finite() && (least..=most).contains(&seconds);
        let is_time = |seconds: f64, least: f64| is_within(seconds, least, 86_400.0);
        if !is_within(self.time_s, 0.0, 604_800.0) {
            return Some(format!("time_s = {} must be 0 to 604800", self.time_s));
        }
        if self.rounds == 0 || self.rounds > 1000 {
            return Some(format!("rounds = {} must be 1 to 1000", self.rounds));
        }
        if !is_time(self.runtime_s, 0.5) {
            return Some(format!("runtime_s = {} must be 0.5 to 86400", self.runtime_s));
        }
        if !is_time(self.warmup_crowd_s, 0.0) {
            return Some(format!("warmup_crowd_s = {} must be 0 to 86400", self.warmup_crowd_s));
        }
        if !is_time(self.warmup_s, 0.0) {
            return Some(format!("warmup_s = {} must be 0 to 86400", self.warmup_s));
        }
        if !is_time(self.settle_s, 0.0) {
            return Some(format!("settle_s = {} must be 0 to 86400", self.settle_s));
        }
        if self.passes_max == 0 {
            return Some("passes_max must be at least 1".to_owned());
        }
        (self.volume_bytes_max < VOLUME_BYTES_MIN)
            .then(|| format!("volume_bytes_max = {} must be at least 16MiB", self.volume_bytes_max))
    }
}

impl Scenario {
    /// Whether a mode runs it.
    fn is_in(&self, mode: ModeName) -> bool {
        self.modes.as_ref().is_none_or(|modes| modes.contains(&mode))
    }

    fn nonsense(&self) -> Option<String> {
        if self.name.is_empty() {
            return Some("it needs a name".to_owned());
        }
        if self.name.chars().any(char::is_control) {
            return Some("its name holds a line's end or another control character".to_owned());
        }
        if self.volume_size < VOLUME_BYTES_MIN {
            return Some("volume_size must be at least 16MiB".to_owned());
        }
        if self.volumes == 0 || self.volumes > 10_000 {
            return Some(format!("volumes = {} must be 1 to 10000", self.volumes));
        }
        if self.copies.is_some_and(|copies| !(1..=8).contains(&copies)) {
            return Some("copies must be 1 to 8".to_owned());
        }
        if let Some(stripe) = self.stripe
            && (stripe.count == 0 || stripe.unit < 4096 || !stripe.unit.is_power_of_two())
        {
            return Some(
                "stripe needs a unit that is a power of two of at least 4KiB, and a count".to_owned(),
            );
        }
        if let Some(aged) = self.aged
            && (!(1..=95).contains(&aged.full_percent)
                || !(4096..=16 << 20).contains(&aged.block)
                || aged.block % 512 != 0)
        {
            return Some(
                "aged needs full_percent of 1 to 95 and a block of 4KiB to 16MiB, a multiple of 512"
                    .to_owned(),
            );
        }
        if self.sweeps.is_empty() {
            return Some("there is no [[scenario.sweep]]; add one".to_owned());
        }
        let is_of_objects = |operation: &Operation| operation.is_of_objects();
        let all = [ModeName::Quick, ModeName::Default, ModeName::Full];
        let operations = || {
            let of = |sweep: &Sweep| all.map(|mode| sweep.operation.get(mode).to_vec()).concat();
            self.sweeps.iter().flat_map(of).collect::<Vec<Operation>>()
        };
        if operations().iter().any(is_of_objects) && !operations().iter().all(is_of_objects) {
            return Some("whole objects and blocks of volumes need scenarios of their own".to_owned());
        }
        self.sweeps.iter().find_map(Sweep::nonsense)
    }
}

impl Sweep {
    /// How many points its lists give, those that are alike counted each.
    fn combinations(&self, mode: ModeName) -> usize {
        let each = [
            self.operation.get(mode).len(),
            self.block.get(mode).len(),
            self.depth.get(mode).len(),
            self.jobs.get(mode).len(),
            self.clients.get(mode).len(),
            // An empty list of these is one point without it.
            self.drives.get(mode).len().max(1),
            self.placement.get(mode).len().max(1),
            self.rate.get(mode).len().max(1),
        ];
        each.into_iter().fold(1, usize::saturating_mul)
    }

    fn nonsense(&self) -> Option<String> {
        let all = [ModeName::Quick, ModeName::Default, ModeName::Full];
        let is_left_out = |mode: &ModeName| {
            let numbers = [&self.depth, &self.jobs, &self.clients];
            self.operation.get(*mode).is_empty()
                || self.block.get(*mode).is_empty()
                || numbers.iter().any(|list| list.get(*mode).is_empty())
        };
        if all.iter().all(is_left_out) {
            return Some(
                "a [[scenario.sweep]] has an empty list in each mode, so that nothing of it is run; fill the list, or leave the \
                 sweep out"
                    .to_owned(),
            );
        }
        for mode in [ModeName::Quick, ModeName::Default, ModeName::Full] {
            let blocks = self.block.get(mode);
            if let Some(Size(bytes)) =
                blocks.iter().find(|Size(bytes)| !(512..=16 << 20).contains(bytes) || bytes % 512 != 0)
            {
                return Some(format!("block = {bytes} bytes must be a multiple of 512 of at most 16MiB"));
            }
            if self.depth.get(mode).iter().any(|depth| !(1..=4096).contains(depth)) {
                return Some("each depth must be 1 to 4096".to_owned());
            }
            if self.jobs.get(mode).iter().any(|jobs| !(1..=255).contains(jobs)) {
                return Some("each number of jobs must be 1 to 255".to_owned());
            }
            if self.clients.get(mode).iter().any(|clients| !(1..=1000).contains(clients)) {
                return Some("each number of clients must be 1 to 1000".to_owned());
            }
            if self.volumes_per_client.is_some_and(|volumes| !(1..=1000).contains(&volumes)) {
                return Some("volumes_per_client must be 1 to 1000".to_owned());
            }
            if self.rate.get(mode).contains(&0) {
                return Some("a rate of 0 is no load; leave it out for a closed loop".to_owned());
            }
            if self.rate.get(mode).iter().any(|rate_iops| *rate_iops > RATE_IOPS_MAX) {
                return Some(format!("each rate must be 1 to {RATE_IOPS_MAX}"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
