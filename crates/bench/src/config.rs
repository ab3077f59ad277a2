//! What to run: the target, the workload and how long.

use std::path::PathBuf;
use std::time::Duration;

use coquina_base::{BLOCK_BYTES, BUSY_POLL_NS, SECTOR_BYTES};
use coquina_host::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::target::nbd::uri;

/// Most operations that one job may have in flight.
pub const DEPTH_MAX: u32 = 4096;
/// Most jobs in one run.
pub const JOBS_MAX: u32 = 255;
/// Largest size of one operation.
pub const IO_BYTES_MAX: u32 = 16 << 20;
/// Largest range that can be verified: every 4 KiB block in it takes 16 bytes of memory.
pub const VERIFY_RANGE_BYTES_MAX: u64 = 256 << 30;
/// Most memory that the buffers of all jobs may take.
const BUFFER_BYTES_MAX: u64 = 4 << 30;

/// Where the load goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TargetSpec {
    /// A volume through the native protocol.
    Volume {
        /// Address of the server's native port, `HOST:PORT`.
        server: String,
        /// The volume's name.
        name: String,
    },
    /// An NBD export.
    Nbd {
        /// `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`.
        uri: String,
    },
    /// An RBD image of a Ceph cluster.
    Rbd {
        /// The client's name, without `client.`.
        user: String,
        /// The pool.
        pool: String,
        /// The image.
        image: String,
    },
    /// Whole objects of a pool of a Ceph cluster, each of the size of one operation.
    Rados {
        /// The client's name, without `client.`.
        user: String,
        /// The pool.
        pool: String,
        /// What their names begin with; a number follows.
        prefix: String,
    },
    /// A regular file, made if it is missing.
    File {
        /// Its path.
        path: PathBuf,
    },
    /// A block device.
    Device {
        /// Its path.
        path: PathBuf,
    },
}

impl TargetSpec {
    /// Reads `volume:NAME`, `nbd:URI`, `rbd:[USER@]POOL/IMAGE`, `rados:[USER@]POOL/PREFIX`, `file:PATH` or `device:PATH`; a
    /// bare NBD URI works too.
    ///
    /// `server` is the address for `volume:`; without one, volumes are refused.
    pub fn parse(text: &str, server: Option<&str>) -> Result<Self, ConfigError> {
        if text.starts_with("nbd://") || text.starts_with("nbd+unix://") {
            return Ok(TargetSpec::Nbd { uri: text.to_owned() });
        }
        let malformed = || ConfigError::Target(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(malformed)?;
        if rest.is_empty() {
            return Err(malformed());
        }
        match kind {
            "volume" => {
                let server = server.ok_or(ConfigError::NoServer)?.to_owned();
                Ok(TargetSpec::Volume { server, name: rest.to_owned() })
            }
            "nbd" => Ok(TargetSpec::Nbd { uri: rest.to_owned() }),
            "rbd" | "rados" => {
                let (user, path) = rest.split_once('@').unwrap_or(("admin", rest));
                let (pool, name) = path.split_once('/').ok_or_else(malformed)?;
                if user.is_empty() || pool.is_empty() || name.is_empty() {
                    return Err(malformed());
                }
                let (user, pool, name) = (user.to_owned(), pool.to_owned(), name.to_owned());
                Ok(match kind {
                    "rbd" => TargetSpec::Rbd { user, pool, image: name },
                    _ => TargetSpec::Rados { user, pool, prefix: name },
                })
            }
            "file" => Ok(TargetSpec::File { path: rest.into() }),
            "device" => Ok(TargetSpec::Device { path: rest.into() }),
            _ => Err(malformed()),
        }
    }

    /// Whether it is an NBD export of a server of this host that listens at these addresses, each `HOST:PORT` or `unix:PATH`.
    pub fn is_export_at(&self, addresses: &[String]) -> bool {
        let TargetSpec::Nbd { uri } = self else { return false };
        uri::parse(uri).is_ok_and(|(peer, _)| addresses.iter().any(|address| peer.is_at(address)))
    }
}

impl std::fmt::Display for TargetSpec {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TargetSpec::Volume { name, .. } => write!(formatter, "volume:{name}"),
            TargetSpec::Nbd { uri } => write!(formatter, "nbd:{uri}"),
            TargetSpec::Rbd { user, pool, image } => write!(formatter, "rbd:{user}@{pool}/{image}"),
            TargetSpec::Rados { user, pool, prefix } => write!(formatter, "rados:{user}@{pool}/{prefix}"),
            TargetSpec::File { path } => write!(formatter, "file:{}", path.display()),
            TargetSpec::Device { path } => write!(formatter, "device:{}", path.display()),
        }
    }
}

/// What kind of operations, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Writes at uniformly random aligned offsets.
    RandWrite,
    /// Reads at uniformly random aligned offsets.
    RandRead,
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Reads and writes at uniformly random aligned offsets.
    Mix {
        /// Share of reads, 0 to 100.
        read_percent: u8,
    },
}

impl Workload {
    /// Whether it issues reads.
    pub fn reads(self) -> bool {
        match self {
            Workload::RandRead | Workload::Read => true,
            Workload::RandWrite | Workload::Write => false,
            Workload::Mix { read_percent } => read_percent > 0,
        }
    }

    /// Whether it issues writes.
    pub fn writes(self) -> bool {
        match self {
            Workload::RandRead | Workload::Read => false,
            Workload::RandWrite | Workload::Write => true,
            Workload::Mix { read_percent } => read_percent < 100,
        }
    }

    /// Share of reads, 0 to 1.
    pub(crate) fn read_share(self) -> f64 {
        match self {
            Workload::Mix { read_percent } => f64::from(read_percent) / 100.0,
            _ => f64::from(u8::from(self.reads())),
        }
    }

    /// Whether offsets follow each other.
    pub fn is_sequential(self) -> bool {
        matches!(self, Workload::Read | Workload::Write)
    }
}

impl std::str::FromStr for Workload {
    type Err = ConfigError;
    /// Reads `randwrite`, `randread`, `read`, `write`, `mix` (70 % reads) or `mix:PERCENT`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let malformed = || ConfigError::Workload(text.to_owned());
        Ok(match text {
            "randwrite" => Workload::RandWrite,
            "randread" => Workload::RandRead,
            "read" => Workload::Read,
            "write" => Workload::Write,
            "mix" => Workload::Mix { read_percent: 70 },
            _ => {
                let percent = text.strip_prefix("mix:").ok_or_else(malformed)?;
                let read_percent = percent.trim_end_matches('%').parse().map_err(|_| malformed())?;
                if read_percent > 100 {
                    return Err(malformed());
                }
                Workload::Mix { read_percent }
            }
        })
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Workload::RandWrite => formatter.write_str("randwrite"),
            Workload::RandRead => formatter.write_str("randread"),
            Workload::Read => formatter.write_str("read"),
            Workload::Write => formatter.write_str("write"),
            Workload::Mix { read_percent } => write!(formatter, "mix:{read_percent}"),
        }
    }
}

/// One run of the load generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoBenchConfig {
    /// Where the load goes. What is in the range is overwritten by workloads that write.
    pub target: TargetSpec,
    /// What kind of operations.
    pub workload: Workload,
    /// Size of one operation: a multiple of 512, at most [`IO_BYTES_MAX`].
    pub block_bytes: u32,
    /// Operations in flight per job.
    pub depth: u32,
    /// Threads, each with its own connection or ring, seed and (when sequential) part of the range.
    pub jobs: u32,
    /// Measured time.
    #[serde(rename = "runtime_s", with = "seconds")]
    pub runtime: Duration,
    /// Load before the measured time.
    #[serde(rename = "warmup_s", with = "seconds")]
    pub warmup: Duration,
    /// How long the idle machine is looked at before the load begins; 0: not at all, then CPU is all that was busy.
    #[serde(rename = "baseline_s", with = "seconds", default = "baseline")]
    pub baseline: Duration,
    /// When the load begins, by [`monotonic_ns`], so that several generators begin at once; when all jobs are ready, if that is later
    /// or nothing is given.
    #[serde(default)]
    pub start_at_ns: Option<u64>,
    /// Ends when so many bytes were read or written in the measured time, if that is not out before. They may be a little more.
    #[serde(default)]
    pub end_after_bytes: Option<u64>,
    /// Size of the range, or 0 for all of the target behind `offset_bytes`.
    pub size_bytes: u64,
    /// Start of the range.
    pub offset_bytes: u64,
    /// Each write is on stable storage before it counts: `RWF_DSYNC` for files and devices, FUA for NBD. Volumes
    /// are always durable.
    pub durable: bool,
    /// How long a client of volumes may look for an answer before it sleeps.
    pub busy_poll_ns: u64,
    /// Open loop: operations start by the clock at this total rate, and latency counts from the time at which one
    /// should have started. `None`: closed loop, `depth` operations always in flight.
    pub rate_iops: Option<u64>,
    /// Offsets and payload follow from it.
    pub seed: u64,
    /// Writes the whole range sequentially first.
    pub fill: bool,
    /// Keeps a record of what was written where, checks every read against it, and reads everything back at the
    /// end. Each job then keeps to its own part of the range.
    pub verify: bool,
    /// Processes whose CPU time is reported beside that of the generator: the servers.
    pub cpu_pids: Vec<u32>,
}

/// The load begins no later than this after its start time was given.
const START_WAIT_MAX: Duration = Duration::from_secs(600);

fn baseline() -> Duration {
    Duration::from_secs(1)
}

impl IoBenchConfig {
    /// 4 KiB random writes, depth 1, one job, 10 s after 1 s of warm-up, over the whole target.
    pub fn new(target: TargetSpec) -> Self {
        IoBenchConfig {
            target,
            workload: Workload::RandWrite,
            block_bytes: BLOCK_BYTES as u32,
            depth: 1,
            jobs: 1,
            runtime: Duration::from_secs(10),
            warmup: Duration::from_secs(1),
            baseline: baseline(),
            start_at_ns: None,
            end_after_bytes: None,
            size_bytes: 0,
            offset_bytes: 0,
            durable: false,
            busy_poll_ns: BUSY_POLL_NS,
            rate_iops: None,
            seed: 1,
            fill: false,
            verify: false,
            cpu_pids: Vec::new(),
        }
    }

    /// Whether data in the target is overwritten.
    pub fn is_destructive(&self) -> bool {
        self.fill || self.workload.writes()
    }

    /// Checks everything that can be checked without the target.
    pub fn check(&self) -> Result<(), ConfigError> {
        let block = u64::from(self.block_bytes);
        if block == 0 || !block.is_multiple_of(SECTOR_BYTES as u64) || self.block_bytes > IO_BYTES_MAX {
            return Err(ConfigError::BlockBytes(self.block_bytes));
        }
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return Err(ConfigError::Depth(self.depth));
        }
        if self.jobs == 0 || self.jobs > JOBS_MAX {
            return Err(ConfigError::Jobs(self.jobs));
        }
        let buffer_bytes = block * u64::from(self.depth) * u64::from(self.jobs) * 2;
        if buffer_bytes > BUFFER_BYTES_MAX {
            return Err(ConfigError::BufferMemory { wanted: buffer_bytes, most: BUFFER_BYTES_MAX });
        }
        if self.runtime.is_zero() || self.runtime > Duration::from_secs(30 * 86_400) {
            return Err(ConfigError::Runtime);
        }
        let now_ns = monotonic_ns();
        if self
            .start_at_ns
            .is_some_and(|at_ns| at_ns.saturating_sub(now_ns) > START_WAIT_MAX.as_nanos() as u64)
        {
            return Err(ConfigError::StartAt);
        }
        if let Workload::Mix { read_percent } = self.workload
            && read_percent > 100
        {
            return Err(ConfigError::Workload(self.workload.to_string()));
        }
        if self.rate_iops == Some(0) {
            return Err(ConfigError::Rate);
        }
        if !self.offset_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(ConfigError::Offset(self.offset_bytes));
        }
        if self.verify && !block.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(ConfigError::VerifyBlock);
        }
        if matches!(self.target, TargetSpec::Rados { .. }) {
            if self.size_bytes == 0 {
                return Err(ConfigError::ObjectsSize);
            }
            if self.fill || self.verify {
                return Err(ConfigError::ObjectsFill);
            }
        }
        Ok(())
    }

    /// Ranges are multiples of it.
    fn unit_bytes(&self) -> u64 {
        let unit = u64::from(self.block_bytes).max(BLOCK_BYTES as u64);
        if unit.is_multiple_of(BLOCK_BYTES as u64) { unit } else { unit * BLOCK_BYTES as u64 }
    }

    /// The smallest range in which each job has the operations that it needs.
    pub fn range_bytes_min(&self) -> u64 {
        let per_job = if self.verify { u64::from(self.depth) * 4 } else { 1 };
        let needed = per_job * u64::from(self.jobs) * u64::from(self.block_bytes);
        needed.next_multiple_of(self.unit_bytes())
    }

    /// The range that is used of a target of `target_bytes`, cut to whole operations for each job.
    pub(crate) fn range(&self, target_bytes: u64) -> Result<Range, ConfigError> {
        let behind = target_bytes.saturating_sub(self.offset_bytes);
        let wanted = if self.size_bytes == 0 { behind } else { self.size_bytes };
        if wanted > behind {
            return Err(ConfigError::PastEnd { end: self.offset_bytes.saturating_add(wanted), target_bytes });
        }
        let unit = self.unit_bytes();
        let length = wanted / unit * unit;
        if length < self.range_bytes_min() {
            return Err(ConfigError::RangeTooSmall { length, jobs: self.jobs, depth: self.depth });
        }
        if self.verify && length > VERIFY_RANGE_BYTES_MAX {
            return Err(ConfigError::VerifyRange { length, most: VERIFY_RANGE_BYTES_MAX });
        }
        Ok(Range { offset_bytes: self.offset_bytes, length_bytes: length })
    }
}

/// A part of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// Start.
    pub offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
}

impl Range {
    /// One past the last byte.
    pub fn end_bytes(self) -> u64 {
        self.offset_bytes + self.length_bytes
    }
}

/// Durations as seconds in JSON.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let value = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(value).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_targets_and_workloads() {
        let parse = |text| TargetSpec::parse(text, Some("127.0.0.1:7000"));
        assert_eq!(parse("file:/tmp/x"), Ok(TargetSpec::File { path: "/tmp/x".into() }));
        assert_eq!(parse("nbd://h/e"), Ok(TargetSpec::Nbd { uri: "nbd://h/e".into() }));
        assert_eq!(parse("nbd:nbd://h/e"), Ok(TargetSpec::Nbd { uri: "nbd://h/e".into() }));
        assert!(matches!(parse("volume:v"), Ok(TargetSpec::Volume { .. })));
        assert_eq!(TargetSpec::parse("volume:v", None), Err(ConfigError::NoServer));
        let image = |user: &str| TargetSpec::Rbd { user: user.into(), pool: "p".into(), image: "i".into() };
        assert_eq!(parse("rbd:p/i"), Ok(image("admin")));
        assert_eq!(parse("rbd:me@p/i"), Ok(image("me")));
        assert_eq!(image("me").to_string(), "rbd:me@p/i");
        let objects = TargetSpec::Rados { user: "me".into(), pool: "p".into(), prefix: "o-".into() };
        assert_eq!((objects.to_string().as_str(), parse("rados:me@p/o-")), ("rados:me@p/o-", Ok(objects)));
        assert!(["rados:p", "rados:p/"].into_iter().all(|text| parse(text).is_err()));
        assert!(["rbd:p", "rbd:p/", "rbd:@p/i", "rbd:/i"].into_iter().all(|text| parse(text).is_err()));
        assert!(parse("tape:0").is_err());
        assert!(parse("file:").is_err());
        assert_eq!("mix:30%".parse(), Ok(Workload::Mix { read_percent: 30 }));
        assert!("mix:101".parse::<Workload>().is_err());
        assert_eq!("randread".parse::<Workload>().map(|w| w.to_string()), Ok("randread".to_owned()));
    }

    #[test]
    fn refuses_what_cannot_run() {
        let good = IoBenchConfig::new(TargetSpec::File { path: "/x".into() });
        assert_eq!(good.check(), Ok(()));
        let bad = |change: fn(&mut IoBenchConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().is_err()
        };
        assert!(bad(|c| c.block_bytes = 0));
        assert!(bad(|c| c.block_bytes = 1000));
        assert!(bad(|c| c.depth = 0));
        assert!(bad(|c| c.jobs = 0));
        assert!(bad(|c| c.runtime = Duration::ZERO));
        assert!(bad(|c| c.rate_iops = Some(0)));
        assert!(bad(|c| c.offset_bytes = 100));
        assert!(bad(|c| (c.block_bytes, c.verify) = (512, true)));
        assert!(bad(|c| (c.block_bytes, c.depth, c.jobs) = (16 << 20, 4096, 1)));
    }

    #[test]
    fn cuts_the_range_to_whole_operations() {
        let mut config = IoBenchConfig::new(TargetSpec::File { path: "/x".into() });
        config.block_bytes = 8192;
        assert_eq!(config.range(20_000).map(|range| range.length_bytes), Ok(16_384));
        assert_eq!(config.range_bytes_min(), 8192);
        let small = IoBenchConfig { block_bytes: 512, jobs: 9, ..config.clone() };
        assert_eq!(small.range_bytes_min(), 8192);
        assert!(small.range(8192).is_ok() && small.range(8191).is_err());
        config.size_bytes = 1 << 20;
        assert!(matches!(config.range(4096), Err(ConfigError::PastEnd { .. })));
        config.size_bytes = 8192;
        config.jobs = 2;
        assert!(matches!(config.range(1 << 20), Err(ConfigError::RangeTooSmall { .. })));
    }

    #[test]
    fn is_kept_by_json() {
        let config = IoBenchConfig::new(TargetSpec::Nbd { uri: "nbd://h/e".into() });
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<IoBenchConfig>(&text).unwrap(), config);
    }
}
