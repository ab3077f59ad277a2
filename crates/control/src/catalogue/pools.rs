//! Pools: volumes of the same policy.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use coquina_base::{Nearest, check_name};
use coquina_cluster::{
    ClusterRecord, GroupId, MapView, OperationError, POOL_GROUPS_MAX, PoolId, PoolRecord, PoolState,
    VolumeRecord, VolumeState, operation,
};

use super::drives::takes_data;
use super::{Catalogue, CatalogueError, NAME_CLAIMS_MAX, check_room, step_back, while_last};
use crate::api::CreatePool;
use crate::map_service::ChangeError;

/// How long it is waited until the groups of a new pool are made.
const CREATE_TIME_MAX: Duration = Duration::from_secs(30);
/// How long it is waited until all nodes know that the volumes of a pool that is to go are gone.
const EMPTY_TIME_MAX: Duration = Duration::from_secs(30);
/// The pool that is made when nobody said anything.
const DEFAULT_NAME: &str = "default";
/// Copies of that pool, if there are so many failure domains.
const DEFAULT_COPIES_MAX: usize = 3;
/// Groups of a pool: at least, per drive, and at most, if nobody says otherwise.
const GROUPS_MIN: u32 = 64;
const GROUPS_PER_DRIVE: u32 = 16;
const GROUPS_MAX: u32 = 1024;

impl Catalogue {
    /// Makes a pool, and returns when volumes can be made in it.
    pub fn create_pool(&self, request: &CreatePool) -> Result<PoolRecord, CatalogueError> {
        self.create_pool_for(request, 0)
    }

    /// Makes a pool for a volume of a size: a volume that is refused for room leaves no pool behind.
    fn create_pool_for(&self, request: &CreatePool, size_bytes: u64) -> Result<PoolRecord, CatalogueError> {
        check_name(&request.name)?;
        let policy = policy(&self.map(), request);
        // What would be refused is refused before numbers are claimed.
        check(&self.map(), &policy)?;
        check_room(&self.map(), size_bytes, &policy)?;
        for attempt in 1..=NAME_CLAIMS_MAX {
            let claimed = Cell::new((PoolId(0), GroupId(0)));
            let is_first = !self.pool_claimed.load(Relaxed);
            self.change(&|map| {
                let (id, group_first, write) = operation::claim_pool(map, is_first)?;
                claimed.set((id, group_first));
                Ok(Some(write))
            })
            .map_err(super::only_claimed)?;
            self.pool_claimed.store(true, Relaxed);
            let (id, group_first) = claimed.get();
            let pool = PoolRecord { id, group_first, ..policy.clone() };
            let is_last = |cluster: &ClusterRecord| Some(cluster.pool_next) == id.0.checked_add(1);
            let map = self.change(&|map| match map.pool(id) {
                Some(_) => Ok(None),
                None => {
                    check_room(map, size_bytes, &pool)?;
                    Ok(while_last(map, is_last, operation::create_pool(map, &pool)?))
                }
            })?;
            if map.pool(id).is_some() {
                return self.wait_for_pool(&pool);
            }
            step_back(attempt, u64::from(id.0));
        }
        Err(CatalogueError::Change(ChangeError::Busy))
    }

    /// All pools, by number.
    pub fn pools(&self) -> Vec<PoolRecord> {
        self.map().pools().map(|pool| PoolRecord::clone(&pool.value)).collect()
    }

    /// One pool.
    pub fn pool(&self, name: &str) -> Result<PoolRecord, CatalogueError> {
        let (_, pool) = self.look_up(&|map| {
            let not_found = || {
                let names = map.pools().map(|pool| pool.value.name.as_str());
                CatalogueError::PoolNotFound { name: name.to_owned(), nearest: Nearest::of(name, names) }
            };
            map.pool_by_name(name).cloned().ok_or_else(not_found)
        })?;
        Ok(pool)
    }

    /// Removes a pool without volumes. Volumes that were removed before are waited for: they are in the map until all nodes know that they
    /// are gone.
    pub fn remove_pool(&self, name: &str) -> Result<PoolRecord, CatalogueError> {
        let pool = self.pool(name)?;
        let is_emptying = |map: &MapView| {
            let mut states = volumes_of(map, pool.id).peekable();
            states.peek().is_some() && states.all(|volume| volume.state == VolumeState::Removing)
        };
        if self.map.wait_for_map(EMPTY_TIME_MAX, |map| !is_emptying(map)).is_none() {
            self.check_usable()?;
            let volumes = volumes_of(&self.map(), pool.id).count();
            return Err(CatalogueError::PoolEmptying { name: pool.name, volumes, waited: EMPTY_TIME_MAX });
        }
        self.change(&|map| Ok(operation::remove_pool(map, pool.id)?))?;
        Ok(PoolRecord { state: PoolState::Removing, ..pool })
    }

    /// The pool of a new volume: the one asked for, the only one that fits, or a new one.
    pub(super) fn pool_for(
        &self,
        name: Option<&str>,
        copies: Option<u32>,
        size_bytes: u64,
    ) -> Result<PoolRecord, CatalogueError> {
        if let Some(name) = name {
            return self.wait_for_copies(&self.pool(name)?, copies);
        }
        let map = self.map();
        let fits = |pool: &PoolRecord| {
            pool.state != PoolState::Removing && copies.is_none_or(|copies| copies == pool.copies)
        };
        let fitting: Vec<&PoolRecord> =
            map.pools().map(|pool| &*pool.value).filter(|pool| fits(pool)).collect();
        match fitting.as_slice() {
            [] => self.create_default(&map, copies, size_bytes),
            [pool] => self.wait_for_pool(pool),
            several => match several.iter().find(|pool| pool.name == DEFAULT_NAME) {
                Some(pool) => self.wait_for_pool(pool),
                None => {
                    let pools = several.iter().map(|pool| pool.name.clone()).collect();
                    Err(CatalogueError::PoolAmbiguous { pools })
                }
            },
        }
    }

    fn create_default(
        &self,
        map: &MapView,
        asked: Option<u32>,
        size_bytes: u64,
    ) -> Result<PoolRecord, CatalogueError> {
        let copies = asked.unwrap_or_else(|| default_copies(map));
        let name = match map.pool_by_name(DEFAULT_NAME) {
            None => DEFAULT_NAME.to_owned(),
            Some(_) => format!("copies-{copies}"),
        };
        let request = CreatePool { name: name.clone(), copies, ..CreatePool::default() };
        match self.create_pool_for(&request, size_bytes) {
            // Somebody else was faster, and may have wanted another number of copies.
            Err(CatalogueError::Operation(OperationError::NameTaken { .. })) => {
                let pool = self.pool(&name)?;
                match pool.name == DEFAULT_NAME && asked.is_some_and(|asked| asked != pool.copies) {
                    true => self.pool_for(None, asked, size_bytes),
                    false => self.wait_for_copies(&pool, asked),
                }
            }
            result => result,
        }
    }

    /// Waits for a pool that has as many copies as are asked for.
    fn wait_for_copies(&self, pool: &PoolRecord, asked: Option<u32>) -> Result<PoolRecord, CatalogueError> {
        match asked.filter(|asked| *asked != pool.copies) {
            Some(asked) => {
                let (pool, copies) = (pool.name.clone(), pool.copies);
                Err(CatalogueError::PoolOtherCopies { pool, copies, asked })
            }
            None => self.wait_for_pool(pool),
        }
    }

    fn wait_for_pool(&self, pool: &PoolRecord) -> Result<PoolRecord, CatalogueError> {
        let pending = || CatalogueError::PoolPending { name: pool.name.clone() };
        if pool.state == PoolState::Removing {
            return Err(OperationError::PoolNotReady(pool.name.clone()).into());
        }
        let made = |map: &MapView| map.pool(pool.id).is_none_or(|pool| pool.state != PoolState::Creating);
        let waited = self.map.wait_for_map(CREATE_TIME_MAX, made);
        self.check_usable()?;
        let map = waited.ok_or_else(pending)?;
        match map.pool(pool.id) {
            Some(pool) if pool.state == PoolState::Active => Ok(pool.clone()),
            _ => Err(OperationError::PoolNotReady(pool.name.clone()).into()),
        }
    }
}

/// The volumes of a pool, those that are being removed included.
fn volumes_of(map: &MapView, pool: PoolId) -> impl Iterator<Item = &VolumeRecord> {
    map.volumes().map(|volume| &*volume.value).filter(move |volume| volume.pool == pool)
}

/// Nodes and drives that take data.
fn members(map: &MapView) -> (usize, usize) {
    let drives: Vec<_> = map.drives().filter(|drive| takes_data(map, &drive.value)).collect();
    let nodes: BTreeSet<_> = drives.iter().map(|drive| drive.value.node).collect();
    (nodes.len(), drives.len())
}

fn default_copies(map: &MapView) -> u32 {
    let (nodes, drives) = members(map);
    let domains = if nodes > 1 { nodes } else { drives };
    domains.clamp(1, DEFAULT_COPIES_MAX) as u32
}

/// The record that a request asks for, without its numbers.
fn policy(map: &MapView, request: &CreatePool) -> PoolRecord {
    let (nodes, drives) = members(map);
    let copies = request.copies;
    let domain = || if nodes > 1 { "node" } else { "drive" }.to_owned();
    let groups = || {
        let wanted = u32::try_from(drives).unwrap_or(u32::MAX).saturating_mul(GROUPS_PER_DRIVE);
        wanted.clamp(GROUPS_MIN, GROUPS_MAX).next_power_of_two()
    };
    PoolRecord {
        id: PoolId(0),
        name: request.name.clone(),
        copies,
        // Of three copies one may be missing; of two, too, or two would serve worse than one.
        min_copies: request.min_copies.unwrap_or(if copies > 2 { copies / 2 + 1 } else { 1 }),
        domain: request.domain.clone().unwrap_or_else(domain),
        group_first: GroupId(0),
        group_count: request.groups.unwrap_or_else(groups),
        state: PoolState::Creating,
    }
}

/// Checks a pool before it has numbers, with numbers that nobody has.
fn check(map: &MapView, pool: &PoolRecord) -> Result<(), CatalogueError> {
    let unused = PoolRecord { id: PoolId(u32::MAX), group_first: GroupId(POOL_GROUPS_MAX), ..pool.clone() };
    operation::create_pool(map, &unused)?;
    Ok(())
}
