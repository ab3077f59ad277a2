//! Placement: on which shards the copies of a pool's groups are to lie.
//!
//! A pure function of an explicit table: what lies well stays, so moves are as few as can be. What holds, each with a
//! test:
//! - **Domain rule**: no two copies of a group are in the same failure domain. Fewer domains than copies are refused.
//! - **Even by weight**: the best that the rule allows is *water-filling*. With `G` groups of `R` copies, a domain of
//!   weight `W` gets `min(G, x W)` copies, with `x` such that they add up to `R G`; its drives share that by weight, and
//!   their shards equally. Every domain, drive and shard gets exactly its share, rounded up or down. So a drive is less
//!   than one copy off the best: within 5 % from 20 copies a drive on, within one copy below.
//! - **Primaries**: of a shard's `c` copies, `c / R` rounded up or down are primaries.
//! - **Few moves**: shares are rounded to where the copies are, and a copy moves only from above its share to below it.
//!   The least that any placement with these shares needs is [`PlacementJob::moves_least`]. More is needed only where the
//!   domain rule forbids the direct way; then the cheapest chain of moves is taken. Tested: at most the least that shares
//!   and domain rule need, plus a fifth, plus one a shard; over many changes together within a tenth of the least.
//! - **Deterministic**: the same job gives the same table on any machine.
//! - **Spread**: the partners of a shard are many, so that a lost drive is rebuilt by many others; neighbouring groups
//!   lie on different drives. Not promised by numbers.
//!
//! Method: [`targets`] says how many copies each domain, drive and shard gets; [`assign`] fills and empties domains,
//! then shards within them; [`path`] finds chains where no direct move is left; [`primaries`] chooses who is first.

mod assign;
mod needs;
mod path;
mod primaries;
mod targets;

use std::collections::BTreeMap;

use coquina_base::DriveId;
use coquina_replication::GroupId;

use crate::group::ShardRef;
use crate::key::PoolId;
use crate::lookup::Domain;

/// Weight of a drive and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementDrive {
    /// The drive.
    pub drive: DriveId,
    /// How many shards it has.
    pub shards: u32,
    /// Its share of the data. 0 takes none.
    pub weight: u64,
    /// What no two copies may have in common.
    pub domain: Domain,
}

/// Everything that placement depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementJob {
    /// The pool.
    pub pool: PoolId,
    /// Copies of each group.
    pub copies: u32,
    /// The label of the failure domain, for messages.
    pub domain: String,
    /// Drives that take data.
    pub drives: Vec<PlacementDrive>,
    /// Drives that would take data if their nodes had the label.
    pub drives_unlabelled: usize,
    /// The groups and where their copies lie or are to lie, the primary first. Shards of drives that are not in
    /// `drives` have to be left. Empty for a new group.
    pub groups: Vec<(GroupId, Vec<ShardRef>)>,
}

/// Where copies are to lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The pool.
    pub pool: PoolId,
    /// Per group of the job, in its order: the shards, the primary first.
    pub wanted: Vec<(GroupId, Vec<ShardRef>)>,
    /// Copies that are to lie where the job has none of the same group.
    pub copies_moved: usize,
}

/// Why copies cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Nothing takes data.
    #[error(
        "no drive takes data; `coquina status` says what is wrong with the drives, add one with `coquina drive add`"
    )]
    NoDrives,
    /// The domain rule cannot be kept.
    #[error(
        "{copies} copies need drives in {copies} different failure domains of kind {domain:?}, and there are {domains}{}; {}",
        unlabelled(*drives_unlabelled),
        more_domains(domain)
    )]
    TooFewDomains {
        /// Copies of each group.
        copies: u32,
        /// Kind of failure domain.
        domain: String,
        /// Failure domains with drives that take data.
        domains: usize,
        /// Drives of nodes that have no such label.
        drives_unlabelled: usize,
    },
}

fn unlabelled(drives: usize) -> String {
    if drives == 0 { String::new() } else { format!(" ({drives} drives have no such label)") }
}

/// What to do about too few failure domains. Nodes and drives are domains by themselves, which cannot be labelled.
fn more_domains(domain: &str) -> String {
    match domain {
        "drive" => "add drives, or use a pool with fewer copies".to_owned(),
        "node" => "start more nodes with drives, or use a pool with fewer copies or with the failure domain \"drive\""
            .to_owned(),
        label => format!(
            "add drives in another {label}, label nodes with --domain {label}=NAME, or use a pool with fewer copies or a \
             narrower failure domain"
        ),
    }
}

/// A shard that takes data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) shard: ShardRef,
    pub(crate) domain: u32,
}

/// The tree of domains, drives and shards as numbers. Shards of a drive, and drives of a domain, are neighbours.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) leaves: Vec<Leaf>,
    /// Per drive: its weight and its leaves.
    pub(crate) drives: Vec<(u64, std::ops::Range<usize>)>,
    /// Per domain: its drives.
    pub(crate) domains: Vec<std::ops::Range<usize>>,
}

impl Layout {
    fn new(job: &PlacementJob) -> Layout {
        let mut drives: Vec<&PlacementDrive> =
            job.drives.iter().filter(|drive| drive.weight > 0 && drive.shards > 0).collect();
        drives.sort_by(|a, b| (&a.domain, a.drive).cmp(&(&b.domain, b.drive)));
        drives.dedup_by_key(|drive| drive.drive);
        let mut layout = Layout::default();
        let mut last = None;
        for (number, drive) in drives.into_iter().enumerate() {
            if last != Some(&drive.domain) {
                layout.domains.push(number..number);
                last = Some(&drive.domain);
            }
            let domain = layout.domains.len() - 1;
            layout.domains[domain].end = number + 1;
            let first = layout.leaves.len();
            layout.leaves.extend(
                (0..drive.shards).map(|shard| Leaf {
                    shard: ShardRef { drive: drive.drive, shard },
                    domain: domain as u32,
                }),
            );
            layout.drives.push((drive.weight, first..layout.leaves.len()));
        }
        layout
    }

    /// Leaves of a domain.
    pub(crate) fn leaves_of(&self, domain: usize) -> std::ops::Range<usize> {
        let drives = &self.domains[domain];
        self.drives[drives.start].1.start..self.drives[drives.end - 1].1.end
    }

    fn leaf_numbers(&self) -> BTreeMap<ShardRef, u32> {
        self.leaves.iter().enumerate().map(|(number, leaf)| (leaf.shard, number as u32)).collect()
    }
}

impl PlacementJob {
    fn check(&self, layout: &Layout) -> Result<(), PlacementError> {
        if layout.leaves.is_empty() && self.drives_unlabelled == 0 {
            return Err(PlacementError::NoDrives);
        }
        if layout.domains.len() < self.copies as usize {
            return Err(PlacementError::TooFewDomains {
                copies: self.copies,
                domain: self.domain.clone(),
                domains: layout.domains.len(),
                drives_unlabelled: self.drives_unlabelled,
            });
        }
        Ok(())
    }

    /// Whether copies can be placed at all.
    pub fn check_domains(&self) -> Result<(), PlacementError> {
        self.check(&Layout::new(self))
    }

    /// Finds the table. Takes about a second for 65,536 groups on 10,000 drives, so it may be run on another thread.
    pub fn place(&self) -> Result<Placement, PlacementError> {
        let layout = Layout::new(self);
        self.check(&layout)?;
        let salt = u64::from(self.pool.0);
        let present = self.present(&layout);
        let copies = self.copies as usize;
        let targets = targets::Targets::new(&layout, copies, &present, salt);
        let mut table = assign::Table::new(&layout, copies, present, targets, salt);
        table.fill_and_balance();
        let firsts = primaries::choose(&table);
        Ok(self.placement(&layout, &table, &firsts))
    }

    /// Per group, the leaves that its copies may stay on, padded with [`assign::NONE`].
    fn present(&self, layout: &Layout) -> Vec<u32> {
        let numbers = layout.leaf_numbers();
        let copies = self.copies as usize;
        let mut present = vec![assign::NONE; copies * self.groups.len()];
        for ((_, shards), slots) in self.groups.iter().zip(present.chunks_mut(copies)) {
            let mut used = 0;
            for leaf in shards.iter().filter_map(|shard| numbers.get(shard)) {
                let domain = layout.leaves[*leaf as usize].domain;
                let apart = slots[..used].iter().all(|other| layout.leaves[*other as usize].domain != domain);
                if used < copies && apart {
                    slots[used] = *leaf;
                    used += 1;
                }
            }
        }
        present
    }

    fn placement(&self, layout: &Layout, table: &assign::Table<'_>, firsts: &[u32]) -> Placement {
        let mut copies_moved = 0;
        let mut wanted = Vec::with_capacity(self.groups.len());
        for (number, (group, before)) in self.groups.iter().enumerate() {
            let leaves = table.group(number);
            let mut shards: Vec<ShardRef> = leaves
                .iter()
                .filter(|leaf| **leaf != assign::NONE)
                .map(|leaf| layout.leaves[*leaf as usize].shard)
                .collect();
            // Who stays keeps its rank, who is new comes last, and the primary goes first.
            let rank =
                |shard: &ShardRef| before.iter().position(|other| other == shard).unwrap_or(usize::MAX);
            shards.sort_by_key(|shard| (rank(shard), *shard));
            if let Some(first) = layout.leaves.get(firsts[number] as usize)
                && let Some(index) = shards.iter().position(|shard| *shard == first.shard)
            {
                shards[..=index].rotate_right(1);
            }
            copies_moved += shards.iter().filter(|shard| !before.contains(shard)).count();
            wanted.push((*group, shards));
        }
        Placement { pool: self.pool, wanted, copies_moved }
    }

    /// The best that the domain rule allows: copies per drive by water-filling, in the order of `drives`. 0 for a drive
    /// without weight.
    pub fn shares(&self) -> Vec<f64> {
        let layout = Layout::new(self);
        let shares = targets::shares(&layout, self.copies as usize, self.groups.len());
        let of_drive: BTreeMap<DriveId, f64> = layout
            .drives
            .iter()
            .zip(shares.drives)
            .map(|((_, leaves), share)| (layout.leaves[leaves.start].shard.drive, share))
            .collect();
        self.drives.iter().map(|drive| of_drive.get(&drive.drive).copied().unwrap_or(0.0)).collect()
    }

    /// The fewest copies that have to move to bring every drive to its share, rounded up or down: what drives lack, or
    /// what has no place and what drives have too much. Where the domain rule is tight, more may be needed.
    pub fn moves_least(&self) -> u64 {
        let mut held: BTreeMap<DriveId, u64> = BTreeMap::new();
        for shard in self.groups.iter().flat_map(|(_, shards)| shards) {
            *held.entry(shard.drive).or_default() += 1;
        }
        let (mut lacking, mut staying) = (0, 0);
        for (drive, share) in self.drives.iter().zip(self.shares()) {
            let held = held.get(&drive.drive).copied().unwrap_or(0);
            lacking += (share.floor() as u64).saturating_sub(held);
            staying += held.min(share.ceil() as u64);
        }
        let copies = u64::from(self.copies) * self.groups.len() as u64;
        lacking.max(copies.saturating_sub(staying))
    }
}
