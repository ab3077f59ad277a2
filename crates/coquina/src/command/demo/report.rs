//! What the demo has shown.

use coquina_base::format_size_bytes;
use coquina_bench::{Findings, IoOutcome, IoReport, format_count, format_ns};
use serde::Serialize;

use crate::output::{self, format_duration};

/// What the demo has shown. The field names are stable.
#[derive(Debug, Serialize)]
pub struct DemoReport {
    /// Nodes, and copies of each block.
    pub nodes: u16,
    /// The load on a plain file, every write durable.
    pub plain_file: Measured,
    /// The same load on a volume through NBD.
    pub coquina: Measured,
    /// What the kill of one node did.
    pub failover: Option<FailoverReport>,
    /// What the kill of everything did.
    pub kill: KillReport,
}

/// What the kill of one node under load did.
#[derive(Debug, Serialize)]
pub struct FailoverReport {
    /// The node.
    pub node: String,
    /// Writes acknowledged by the load, before, while and after the node was gone.
    pub writes_acknowledged: u64,
    /// The longest that a write took, which is the pause that users see.
    pub pause_ns: u64,
    /// Time from the kill until the node served again.
    pub back_ns: u64,
    /// Time from then until all copies were whole again.
    pub catch_up_ns: u64,
    /// Bytes written to the volume while the node was gone, or its copies were not whole.
    pub written_bytes: u64,
    /// Bytes of blocks that were sent to make its copies whole.
    pub moved_bytes: u64,
}

/// Figures of one load.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Operations per second.
    pub iops: f64,
    /// Mean latency.
    pub latency_ns_mean: f64,
    /// Median latency.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// CPU time of the whole machine per operation, generator included.
    pub cpu_us_per_io: Option<f64>,
    /// Bytes written to the drive per byte of user data.
    pub write_amplification: Option<f64>,
    /// The size of an operation and how many were in flight.
    pub block_bytes: u32,
    /// Operations in flight.
    pub depth: u32,
}

/// What the kill did.
#[derive(Debug, Serialize)]
pub struct KillReport {
    /// Writes that were acknowledged before the server was killed, in the load that it was killed under.
    pub writes_acknowledged: u64,
    /// Blocks whose newest write was under way when the server was killed.
    pub blocks_uncertain: u64,
    /// Time until the server served again.
    pub restart_ns: u64,
    /// Blocks that were read back.
    pub blocks_verified: u64,
    /// Blocks that did not hold an acknowledged write.
    pub blocks_lost: u64,
    /// The first few of them.
    pub described: Vec<String>,
}

impl Measured {
    pub fn of(report: &IoReport) -> Measured {
        Measured {
            iops: report.total.iops,
            latency_ns_mean: report.total.latency_ns_mean,
            latency_ns_p50: report.total.latency_ns_p50,
            latency_ns_p99: report.total.latency_ns_p99,
            cpu_us_per_io: report.cpu.machine_us_per_io,
            write_amplification: report.write_amplification,
            block_bytes: report.config.block_bytes,
            depth: report.config.depth,
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        vec![
            name.to_owned(),
            format_count(self.iops),
            format_ns(self.latency_ns_mean),
            format_ns(self.latency_ns_p99 as f64),
            // Nothing is left if the machine was busier before the load than under it.
            self.cpu_us_per_io.map_or("-".to_owned(), |us| format!("{us:.1} us")),
            self.write_amplification.map_or("-".to_owned(), |factor| format!("{factor:.2}")),
        ]
    }
}

impl KillReport {
    pub fn new(killed: &IoOutcome, restart_ns: u64, findings: &[Findings]) -> KillReport {
        KillReport {
            writes_acknowledged: killed.report.total.operations,
            blocks_uncertain: killed.ledger.as_ref().map_or(0, |ledger| ledger.blocks_uncertain()),
            restart_ns,
            blocks_verified: findings.iter().map(|found| found.blocks_checked).sum(),
            blocks_lost: findings.iter().map(|found| found.mismatches).sum(),
            described: findings.iter().flat_map(|found| found.described.clone()).collect(),
        }
    }
}

impl FailoverReport {
    fn write(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            formatter,
            "killed {} under load: the longest write took {}; {} writes were acknowledged on the way",
            self.node,
            format_duration(self.pause_ns),
            format_count(self.writes_acknowledged as f64)
        )?;
        writeln!(
            formatter,
            "it was back after {} and whole again {} later: {} moved, {} written to the volume meanwhile\n",
            format_duration(self.back_ns),
            format_duration(self.catch_up_ns),
            format_size_bytes(self.moved_bytes),
            format_size_bytes(self.written_bytes)
        )
    }
}

impl DemoReport {
    /// Blocks that did not hold an acknowledged write.
    pub fn lost_writes(&self) -> u64 {
        self.kill.blocks_lost
    }
}

impl std::fmt::Display for DemoReport {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let load = &self.coquina;
        writeln!(
            formatter,
            "durable random writes of {}, {} in flight, in the same folder of the same disk",
            format_size_bytes(u64::from(load.block_bytes)),
            load.depth
        )?;
        let header = ["", "IOPS", "MEAN", "P99", "CPU PER I/O", "BYTES TO DRIVE PER BYTE"];
        let mut table = output::table(&header, 1);
        table.add_row(self.plain_file.row("plain file, O_DIRECT and O_DSYNC"));
        let name = match self.nodes {
            1 => "coquina volume, through NBD".to_owned(),
            nodes => format!("coquina volume, {nodes} copies on {nodes} nodes, through NBD"),
        };
        table.add_row(self.coquina.row(&name));
        writeln!(formatter, "{}\n", table.trim_fmt())?;
        if let Some(failover) = &self.failover {
            failover.write(formatter)?;
        }
        let kill = &self.kill;
        writeln!(
            formatter,
            "killed {} hard after {} acknowledged writes, serving again {} after the next start",
            if self.nodes == 1 { "the server" } else { "all nodes" },
            format_count(kill.writes_acknowledged as f64),
            format_duration(kill.restart_ns)
        )?;
        writeln!(
            formatter,
            "verified {} blocks ({} of them were being written at the kill): {} lost",
            format_count(kill.blocks_verified as f64),
            kill.blocks_uncertain,
            kill.blocks_lost
        )?;
        for line in &kill.described {
            writeln!(formatter, "  {line}")?;
        }
        Ok(())
    }
}
