//! What a host did in a window of time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a process has to do with a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It makes the load.
    Generator,
    /// It serves the load.
    Target,
    /// It runs the benchmark, and measures.
    Harness,
    /// Threads of the kernel, and interrupts.
    Kernel,
    /// It has nothing to do with it.
    Outside,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 5] = [Role::Generator, Role::Target, Role::Harness, Role::Kernel, Role::Outside];
}

/// What a host did in a window of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Utilisation {
    /// Length of the window.
    pub seconds: f64,
    /// Cores that are online.
    pub cores_online: u32,
    /// Cores on which watched processes may run, by number: what affinity and cpusets leave.
    pub cores_allowed: Vec<u32>,
    /// Cores that were busy on average. Stolen time is not busy time.
    pub busy_cores: f64,
    /// Numbers of the cores, in the order of `per_core_busy`.
    pub core_numbers: Vec<u32>,
    /// Share of the time in which each core was busy, 0 to 1.
    pub per_core_busy: Vec<f64>,
    /// Cores that the hypervisor gave to others on average.
    pub steal_cores: f64,
    /// Share of the time in which all of the machine stood still, 0 to 1, as far as that can be seen: its own host gives it so much processor
    /// time in each period and no more, or none for another reason. The kernel counts it neither as stolen nor as anything else.
    #[serde(default)]
    pub stood_still: Option<f64>,
    /// Cores that served interrupts on average, as far as the kernel accounts for them.
    pub interrupt_cores: f64,
    /// Share of the time in which each core did, 0 to 1, in the order of `per_core_busy`.
    #[serde(default)]
    pub per_core_interrupts: Vec<f64>,
    /// Busy cores by role. Short processes that no sample saw count as [`Role::Outside`].
    pub by_role: BTreeMap<Role, f64>,
    /// Every watched process, and others that used 1 % of a core or more; the busiest comes first.
    pub processes: Vec<ProcessUse>,
    /// CPU time of the kernel's own threads.
    pub kernel_threads_us: u64,
    /// Whether threads of the kernel could be seen. In a container they cannot, and count as [`Role::Outside`].
    pub sees_kernel_threads: bool,
    /// Drives and partitions.
    pub drives: Vec<DriveUse>,
    /// Network interfaces that moved anything, without loopback.
    pub networks: Vec<NetworkUse>,
    /// The loopback interface.
    pub loopback: Option<NetworkUse>,
    /// Limits that control groups set to watched processes.
    pub throttles: Vec<Throttle>,
    /// How much work waited, where the kernel counts it.
    pub pressures: Option<Pressures>,
    /// The window in steps.
    pub samples: Vec<Sample>,
    /// CPU time that sampling itself took, as cores.
    pub sampler_cores: f64,
}

impl Utilisation {
    /// Busy cores of a role.
    pub fn role_cores(&self, role: Role) -> f64 {
        self.by_role.get(&role).copied().unwrap_or(0.0)
    }

    /// Cores that a process used on average.
    pub fn process_cores(&self, process: &ProcessUse) -> f64 {
        process.cpu_us as f64 / 1e6 / self.seconds.max(1e-9)
    }
}

/// CPU time of a process in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Its number.
    pub pid: u32,
    /// Its short name.
    pub name: String,
    /// What it has to do with the benchmark.
    pub role: Role,
    /// CPU time of all its threads, and of children that no sample saw.
    pub cpu_us: u64,
    /// Cores that its busiest thread used, 0 to 1. `None` for a process that is not watched.
    pub busiest_thread_cores: Option<f64>,
    /// Cores on which it may run, by number. Empty where it is not watched.
    pub allowed_cores: Vec<u32>,
}

/// A drive or partition in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveUse {
    /// Name, such as `nvme0n1`.
    pub name: String,
    /// Whether it is known to spin. Only then does `busy` say how near it is to its limit: others serve many operations
    /// at once. Virtual drives say that they spin, and are not believed.
    pub is_rotational: bool,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// Reads per second, merged ones counted once.
    pub read_iops: f64,
    /// Writes per second, merged ones counted once.
    pub write_iops: f64,
    /// Share of the time in which anything was in flight, 0 to 1.
    pub busy: f64,
    /// Operations in flight on average.
    pub in_flight_mean: f64,
    /// Flushes of its write cache per second. `None` before Linux 5.5.
    pub flushes_per_s: Option<f64>,
    /// Share of the time in which a flush was under way, 0 to 1: by each hardware queue the kernel sends a drive one at a time, whatever else is
    /// in flight. Where there are several, times of flushes that went on at once are added up, as far as the drive was busy: it is less, or as
    /// much.
    pub flushing: Option<f64>,
    /// Hardware queues: ways by which the kernel hands it requests at once. 0 where that is not known.
    #[serde(default)]
    pub hardware_queues: u32,
    /// Share of the time in which it ended nothing for 100 ms and more though operations were in flight, 0 to 1; `None` where that was not
    /// watched.
    #[serde(default)]
    pub stalled: Option<f64>,
}

/// A network interface in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkUse {
    /// Name, such as `eth0`.
    pub name: String,
    /// Bytes received per second.
    pub in_bytes_per_s: f64,
    /// Bytes sent per second.
    pub out_bytes_per_s: f64,
    /// Speed of the link in each direction, where it is known.
    pub speed_bits_per_s: Option<u64>,
}

/// What a control group limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleKind {
    /// Bytes read per second.
    ReadBytes,
    /// Bytes written per second.
    WriteBytes,
    /// Reads per second.
    ReadOperations,
    /// Writes per second.
    WriteOperations,
    /// CPU time, in cores.
    Cpu,
}

/// A limit that a control group sets to watched processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttle {
    /// What is limited.
    pub kind: ThrottleKind,
    /// The drive, or `cpu`.
    pub subject: String,
    /// The control group.
    pub group: String,
    /// The limit: bytes per second, operations per second, or cores.
    pub limit: f64,
    /// What the group used in the window, in the same unit. `None` where it is not counted.
    pub used: Option<f64>,
    /// Share of the periods of a CPU quota in which the group had to wait, 0 to 1.
    pub throttled_share: Option<f64>,
    /// The setting as it was read.
    pub evidence: String,
}

/// Share of the window in which work waited, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressures {
    /// Some task waited for a core.
    pub cpu_some: f64,
    /// Some task waited for a drive.
    pub io_some: f64,
    /// All tasks that were not idle waited for a drive.
    pub io_full: f64,
}

/// A step of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// End of the step, since the window began.
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
