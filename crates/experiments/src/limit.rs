//! Names what held throughput back, from what the machine did meanwhile.
//!
//! Invariants:
//! - a limit that somebody set (an offered rate, a throttle) comes before what is busy because of it, and a shortage of
//!   CPU before a drive that only has something in flight;
//! - evidence lines carry the numbers, those of weak evidence say that they are weak;
//! - others are blamed only where all that serves the target is known: they may be its servers elsewhere;
//! - where nothing is near its limit, nor busy most of the time, the answer is `unknown` with the figures, not a guess.

mod rules;
#[cfg(test)]
mod tests;
mod text;

use coquina_host::Utilisation;
use coquina_host::sampler::Sample;
use serde::{Deserialize, Serialize};

use crate::generator::BusyHost;
use crate::report::{LimitFigures, Operation, UtilisationSample};

/// What is known of one target at one point of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// What the machine did in the measured time.
    pub utilisation: Utilisation,
    /// Whether all processes that serve the target are known and could be seen. If not, others may be among them, here or elsewhere.
    pub are_servers_known: bool,
    /// Other processes or hosts made the load (`--client`), which are not sampled.
    pub load_hosts: Option<LoadHosts>,
    /// What was done.
    pub operation: Operation,
    /// Size of one operation.
    pub block_bytes: u32,
    /// Operations that the load kept in flight; with an offered rate, at most.
    pub outstanding: u32,
    /// Operations per second.
    pub iops: f64,
    /// Mean latency.
    pub latency_ns_mean: f64,
    /// Bytes per second that the load read.
    pub read_bytes_per_s: f64,
    /// Bytes per second that the load wrote.
    pub write_bytes_per_s: f64,
    /// Operations per second at which load was offered; `None` for a closed loop.
    pub rate_iops: Option<f64>,
    /// Points of the same sweep of the same target, in any order; this one with the mean of its rounds among them, or none of as much in flight.
    pub neighbours: Vec<Neighbour>,
}

/// Hosts with `fio --server` that made the load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadHosts {
    /// As they were named.
    pub names: Vec<String>,
    /// The one whose jobs used most of their cores, if fio says so.
    pub busiest: Option<BusyHost>,
}

/// Another point of a sweep over depth, jobs or clients, on the same drives; over drives, too, where all are one disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Operations that it kept in flight.
    pub outstanding: u32,
    /// Operations per second.
    pub iops: f64,
    /// As many jobs and clients made the load, so that only its depth differs.
    pub has_same_threads: bool,
}

/// What held throughput back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitKind {
    /// All cores were busy, mostly with the benchmark.
    Cpu,
    /// One thread, or one core, was busy all the time, others were not.
    OneCore,
    /// Cores were busy with something else.
    Outside,
    /// A drive.
    Drive,
    /// A network interface.
    Network,
    /// A limit that a control group sets, or the machine's own host.
    Throttle,
    /// What makes the load could not make more.
    Generator,
    /// Each operation takes its time, and more of them at once would give more.
    Latency,
    /// No more was offered.
    Rate,
    /// A drive and the processors, each for most of the time and neither for all of it.
    Several,
    /// Nothing that is sampled.
    Unknown,
}

impl LimitKind {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            LimitKind::Cpu => "cpu",
            LimitKind::OneCore => "one-core",
            LimitKind::Outside => "outside",
            LimitKind::Drive => "drive",
            LimitKind::Network => "network",
            LimitKind::Throttle => "throttle",
            LimitKind::Generator => "generator",
            LimitKind::Latency => "latency",
            LimitKind::Rate => "rate",
            LimitKind::Several => "several",
            LimitKind::Unknown => "unknown",
        }
    }
}

/// What held throughput back, and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What it is.
    pub kind: LimitKind,
    /// As a person says it: `CPU: 1.9 of 2 cores`.
    pub text: String,
    /// What it rests on; the first lines matter most.
    pub evidence: Vec<String>,
}

impl From<Limit> for LimitFigures {
    fn from(limit: Limit) -> Self {
        LimitFigures { kind: limit.kind.name().to_owned(), text: limit.text, evidence: limit.evidence }
    }
}

impl From<Sample> for UtilisationSample {
    fn from(sample: Sample) -> Self {
        UtilisationSample {
            at_ms: sample.at_ms,
            busy_cores: sample.busy_cores,
            drive_busy: sample.drive_busy,
            read_bytes_per_s: sample.read_bytes_per_s,
            write_bytes_per_s: sample.write_bytes_per_s,
            network_bytes_per_s: sample.network_bytes_per_s,
        }
    }
}

/// Names what held throughput back.
pub fn name_limit(evidence: &Evidence) -> Limit {
    let mut limit =
        rules::ALL.iter().find_map(|rule| rule(evidence)).unwrap_or_else(|| rules::unknown(evidence));
    let may_serve = (!evidence.are_servers_known).then(|| text::others_may_serve(evidence));
    let not_sampled = evidence.load_hosts.as_ref().map(text::load_hosts);
    for line in may_serve.into_iter().chain(not_sampled).chain(text::summary(evidence)) {
        if !limit.evidence.contains(&line) {
            limit.evidence.push(line);
        }
    }
    limit
}
