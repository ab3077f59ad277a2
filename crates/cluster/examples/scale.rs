//! Times placement and map updates at 500 nodes, 10,000 drives and up to 262,144 groups:
//! `cargo run --release -p coquina-cluster --example scale`.

#![allow(clippy::disallowed_types, reason = "a benchmark needs a clock")]

use std::time::Instant;

use coquina_base::{DriveId, Id128, NodeId};
use coquina_cluster::{Domain, GroupId, Placement, PlacementDrive, PlacementJob, PoolId};

fn drive(number: u128) -> PlacementDrive {
    PlacementDrive {
        drive: DriveId(Id128((number + 1).to_be_bytes())),
        shards: 1,
        weight: 1_000_000 + (number as u64 % 4) * 500_000,
        domain: Domain::Node(NodeId(Id128((number / 20 + 1).to_be_bytes()))),
    }
}

fn timed(name: &str, job: &PlacementJob) -> Placement {
    let least = job.moves_least();
    let start = Instant::now();
    let placed = job.place().unwrap_or_else(|error| panic!("{error}"));
    println!(
        "{name}: {} groups in {:.3} s, moved {} copies, the least is {least}",
        job.groups.len(),
        start.elapsed().as_secs_f64(),
        placed.copies_moved
    );
    placed
}

fn main() {
    for groups in [65_536, 262_144] {
        let mut job = PlacementJob {
            pool: PoolId(1),
            copies: 3,
            domain: "node".to_owned(),
            drives: (0..10_000).map(drive).collect(),
            drives_unlabelled: 0,
            groups: (0..groups).map(|group| (GroupId(group), Vec::new())).collect(),
        };
        job.groups = timed("initial", &job).wanted;
        job.groups = timed("nothing changed", &job).wanted;
        job.drives.push(drive(9_999 + 1));
        job.groups = timed("drive added", &job).wanted;
        job.drives.remove(4_321);
        job.groups = timed("drive removed", &job).wanted;
        job.drives.retain(|drive| drive.domain != Domain::Node(NodeId(Id128(100u128.to_be_bytes()))));
        job.groups = timed("node removed", &job).wanted;
        job.drives[77].weight *= 2;
        job.groups = timed("drive reweighted", &job).wanted;
        job.drives.extend((20_000..20_020).map(drive));
        timed("node added", &job);
    }
}
