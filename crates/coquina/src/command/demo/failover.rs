//! The demo's second act: a node is killed under load, comes back and catches up, while the load goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use coquina_base::BLOCK_BYTES;
use coquina_bench::Phase;
use coquina_control::api;

use super::report::FailoverReport;
use super::server::Server;
use super::{HEALTHY_TIME_MAX, KILL_AFTER, Load, POLL, Stage, VOLUME_NAME, complete};
use crate::command::up::plan::node_name;
use crate::error::CliError;

/// The node that is killed. The first one most likely leads.
const KILLED_NODE: u16 = 2;
/// Length of the load: the supervisor starts the node again after 3 s.
const LOAD: Duration = Duration::from_secs(8);

/// What happened to the node while the load ran.
struct Watched {
    back: Duration,
    catch_up: Duration,
    written_bytes: u64,
    moved_bytes: u64,
}

impl Stage<'_> {
    /// The load on the second part, in the middle of which a node is killed.
    pub(super) fn fail_over(&self, server: &Server) -> Result<(Load, FailoverReport), CliError> {
        let mut config = self.part(server, 1);
        config.warmup = Duration::ZERO;
        config.runtime = LOAD;
        let (began, begin) = mpsc::channel();
        let over = AtomicBool::new(false);
        let (outcome, watched) = std::thread::scope(|scope| {
            let over_for_watcher = &over;
            let watcher = scope.spawn(move || watch(server, &begin, over_for_watcher));
            let mut began = Some(began);
            let outcome = self.run("coquina, a node killed", &config, None, &mut |state| {
                if state.phase == Phase::Measure {
                    began = None;
                }
            });
            // A load that failed must not be waited for.
            drop(began);
            over.store(outcome.is_err() || self.stop.load(Ordering::Relaxed), Ordering::Relaxed);
            let watched = watcher.join().map_err(|_| CliError::failed("the demo's watcher panicked"));
            (outcome, watched)
        });
        let outcome = outcome?;
        let watched = watched??;
        complete(&outcome, "the volume, with a node killed")?;
        let total = &outcome.report.total;
        let report = FailoverReport {
            node: node_name(usize::from(KILLED_NODE)),
            writes_acknowledged: total.operations,
            pause_ns: total.latency_ns_max,
            back_ns: nanoseconds(watched.back),
            catch_up_ns: nanoseconds(watched.catch_up),
            written_bytes: watched.written_bytes,
            moved_bytes: watched.moved_bytes,
        };
        Ok((Load { config, outcome }, report))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Kills the node a while after the load began, and sees it come back.
fn watch(server: &Server, begin: &mpsc::Receiver<()>, over: &AtomicBool) -> Result<Watched, CliError> {
    // The sender is dropped when the load begins.
    let _ = begin.recv();
    std::thread::sleep(KILL_AFTER);
    let client = server.client()?;
    let before = server.node_process(KILLED_NODE);
    let (written_before, moved_before) = (written_bytes(server, false), moved_bytes(server));
    let killed = Instant::now();
    server.kill_node(KILLED_NODE)?;
    let wait = |what: &str, happened: &mut dyn FnMut() -> bool| {
        while !happened() {
            if over.load(Ordering::Relaxed) || killed.elapsed() > HEALTHY_TIME_MAX {
                return Err(CliError::failed(format!("{} {what}", node_name(usize::from(KILLED_NODE)))));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    };
    let is_back = || server.node_process(KILLED_NODE).is_some_and(|process| Some(process) != before);
    wait("does not come back", &mut { is_back })?;
    let back = killed.elapsed();
    wait("does not catch up", &mut || client.status(0).is_ok_and(|status| is_whole(&status)))?;
    Ok(Watched {
        back,
        catch_up: killed.elapsed().saturating_sub(back),
        written_bytes: written_bytes(server, true).saturating_sub(written_before),
        moved_bytes: moved_bytes(server).saturating_sub(moved_before),
    })
}

/// Bytes that nodes have written to the volume for users. The counters of the killed node begin anew with its return.
fn written_bytes(server: &Server, with_killed: bool) -> u64 {
    let nodes = (1..=server.nodes()).filter(|number| with_killed || *number != KILLED_NODE);
    let local = nodes.filter_map(|number| server.node_client(number).ok()?.local().ok());
    let volumes = local.flat_map(|local| local.snapshot.volumes);
    volumes.filter(|volume| volume.name == VOLUME_NAME).map(|volume| volume.counters.write_bytes).sum()
}

/// Bytes that the nodes that stay have sent to make copies whole.
fn moved_bytes(server: &Server) -> u64 {
    let nodes = (1..=server.nodes()).filter(|number| *number != KILLED_NODE);
    let local = nodes.filter_map(|number| server.node_client(number).ok()?.local().ok());
    let blocks: u64 = local
        .flat_map(|local| local.snapshot.drives)
        .flat_map(|drive| drive.shards)
        .flat_map(|shard| shard.groups)
        .map(|group| group.recovered_blocks)
        .sum();
    blocks * BLOCK_BYTES as u64
}

/// Whether every placement group has all its copies.
pub(super) fn is_whole(status: &api::Status) -> bool {
    status.groups.is_some_and(|groups| groups.total > 0 && groups.active_clean == groups.total)
}
