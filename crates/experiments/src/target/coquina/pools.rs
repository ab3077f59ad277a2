//! Pools that a run makes, where a cluster that runs has none for its volumes.
//!
//! Invariants:
//! - the server is never left to make one: it would have a name that the cluster's own pool is to have (`default`), and stay, with the
//!   run's number of copies for good;
//! - a pool has a name that nobody else gives, so that none but the run's own is removed;
//! - volumes are made in one when all of its placement groups are clean, as those of a pool that was there before are.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{Df, System};
use crate::generator::{Patience, output_of};
use crate::leftovers::{self, FOLDER_PREFIX, Note};
use crate::target::{CAREFUL_FREE_PERCENT, CAREFUL_FULL_PERCENT, Context, TargetError, name_prefix};

/// The pool that the server takes if several are possible.
const DEFAULT_NAME: &str = "default";
/// How long the placement groups of a new pool may take until they are clean.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(120);
/// How long its removal may take: the server waits until all nodes know that its volumes are gone, and then until its groups are.
const REMOVE_TIME_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);
/// Looks in a row at which they are: in between a new pool can be clean, before it is placed over all drives.
const LOOKS: u32 = 5;

/// A pool that the run made, or tried to make.
pub(super) struct OwnPool {
    name: String,
    copies: u32,
    /// A cluster that was made for the run takes its pools along, and there are no notes of them.
    left: Option<Note>,
}

#[derive(Deserialize)]
struct PoolList {
    pools: Vec<Pool>,
}

#[derive(Deserialize)]
struct Pool {
    name: String,
    copies: u32,
    #[serde(default)]
    state: String,
    #[serde(default)]
    groups: u64,
    /// If the leader could be asked.
    #[serde(default)]
    states: Option<Groups>,
}

#[derive(Deserialize)]
struct Groups {
    active_clean: u64,
}

impl Pool {
    fn is_clean(&self) -> bool {
        self.states.as_ref().is_some_and(|states| states.active_clean == self.groups)
    }
}

/// Whether a run made a pool of this name, this one or another: it goes with that.
fn is_of_a_run(name: &str) -> bool {
    let parts: Vec<&str> = name.strip_prefix(FOLDER_PREFIX).unwrap_or_default().split('-').collect();
    let is_number = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_hexdigit());
    parts.len() == 3 && parts.iter().all(is_number)
}

impl Df {
    /// What may be written until drives are as full as others who use them may find them, where the volumes of the run take so much.
    pub(super) fn careful_bytes(&self, own_bytes: u64) -> u64 {
        match (self.capacity_bytes, self.used_bytes) {
            (Some(capacity), Some(used)) => {
                (capacity / 100 * CAREFUL_FULL_PERCENT).saturating_sub(used.saturating_sub(own_bytes))
            }
            _ => self.free_bytes / 100 * CAREFUL_FREE_PERCENT + own_bytes,
        }
    }
}

impl System {
    /// What the volumes of the run take, all copies.
    pub(super) fn own_bytes(&self) -> u64 {
        self.layout.as_ref().map_or(0, |layout| {
            let copies = self.copies.or(layout.copies).unwrap_or(1);
            layout.volume_bytes * u64::from(layout.volumes) * u64::from(copies)
        })
    }

    /// Copies that volumes have or will get.
    pub(super) fn copies_of_volumes(
        &self,
        spec: &str,
        copies: Option<u32>,
        df: &Df,
        context: &Context<'_>,
    ) -> Result<u64, TargetError> {
        let copies = match self.found.map(|found| found.copies).or(copies) {
            Some(copies) => copies,
            None => self.copies_by_default(spec, df, context)?,
        };
        Ok(u64::from(copies.max(1)))
    }

    fn pools(&self, spec: &str, context: &Context<'_>) -> Result<Vec<Pool>, TargetError> {
        let list: PoolList = self.ask(spec, &["pool", "list"], context)?;
        Ok(list.pools)
    }

    /// The pools of the cluster itself.
    fn pools_of_others(&self, spec: &str, context: &Context<'_>) -> Result<Vec<Pool>, TargetError> {
        let mut pools = self.pools(spec, context)?;
        pools.retain(|pool| !is_of_a_run(&pool.name) && !pool.state.eq_ignore_ascii_case("removing"));
        Ok(pools)
    }

    /// Copies of a volume for which no number is asked for: those of the only pool, or as many as the server would give the first one.
    /// Where there are several pools, none is made without the name of one.
    pub(super) fn copies_by_default(
        &self,
        spec: &str,
        df: &Df,
        context: &Context<'_>,
    ) -> Result<u32, TargetError> {
        let pools = self.pools_of_others(spec, context)?;
        Ok(pools.iter().map(|pool| pool.copies).max().unwrap_or_else(|| df.copies_by_default()))
    }

    /// The pool of a scenario's volumes: the one that the server would take, or one that is made for the run. `None`: the server is to
    /// say which there are.
    pub(super) fn pool_for(
        &mut self,
        spec: &str,
        copies: Option<u32>,
        context: &Context<'_>,
    ) -> Result<Option<String>, TargetError> {
        let mut fitting = self.pools_of_others(spec, context)?;
        fitting.retain(|pool| copies.is_none_or(|copies| copies == pool.copies));
        match fitting.as_slice() {
            [] => {}
            [pool] => return Ok(Some(pool.name.clone())),
            several => {
                let is_default = several.iter().any(|pool| pool.name == DEFAULT_NAME);
                return Ok(is_default.then(|| DEFAULT_NAME.to_owned()));
            }
        }
        let copies = match copies {
            Some(copies) => copies,
            None => self.ask::<Df>(spec, &["df"], context)?.copies_by_default(),
        };
        if let Some(own) = self.own_pools.iter().find(|own| own.copies == copies) {
            return Ok(Some(own.name.clone()));
        }
        self.make_pool(spec, copies, context).map(Some)
    }

    /// The pool of the volumes that were made on a cluster that runs, for the report: names that are another in each run say nothing.
    pub(super) fn pool_text(&self) -> Option<String> {
        let pool = self.pool.as_ref().filter(|_| !self.is_local)?;
        let is_own = self.own_pools.iter().any(|own| own.name == *pool);
        Some(if is_own { "made for the run".to_owned() } else { pool.clone() })
    }

    fn make_pool(&mut self, spec: &str, copies: u32, context: &Context<'_>) -> Result<String, TargetError> {
        // Volumes of several names in one run have pools of their own, which each removes with its volumes.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}{}", name_prefix(), MADE.fetch_add(1, Ordering::Relaxed));
        if (context.stopped)() {
            return Err(TargetError::Stopped);
        }
        // Before it is made: that may be interrupted or fail, and the pool be there all the same. Nobody else gives such a name.
        let left = (!self.is_local).then(|| leftovers::note(self.pool_left_text(&name)));
        self.own_pools.push(OwnPool { name: name.clone(), copies, left });
        let create = ["pool", "create", &name, "--copies", &copies.to_string()];
        self.ask::<serde_json::Value>(spec, &create, context)?;
        self.wait_until_clean(spec, &name, context)?;
        Ok(name)
    }

    fn wait_until_clean(&self, spec: &str, name: &str, context: &Context<'_>) -> Result<(), TargetError> {
        let begin = Instant::now();
        let mut looks = 0;
        while looks < LOOKS {
            let pools = self.pools(spec, context)?;
            let is_clean = pools.iter().any(|pool| pool.name == name && pool.is_clean());
            looks = if is_clean { looks + 1 } else { 0 };
            if begin.elapsed() > SETTLE_TIME_MAX {
                let seconds = SETTLE_TIME_MAX.as_secs();
                return Err(TargetError::Unusable {
                    spec: spec.to_owned(),
                    message: format!(
                        "not all placement groups of the pool {name}, which was made for the run, are clean after {seconds} s; look at \
                         `coquina status`"
                    ),
                });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// What is left if a pool is not removed, and how it is.
    fn pool_left_text(&self, name: &str) -> String {
        let server: Vec<String> = self.server.iter().map(leftovers::quoted).collect();
        format!("the pool {name}, once it holds no volumes: coquina pool remove {name} {}", server.join(" "))
    }

    /// Removes the pools that the run made, after its volumes; not from a server that does not answer. The server refuses it for one into
    /// which others have put volumes: it stays, and is told.
    pub(super) fn remove_pools(&mut self, answers: bool) {
        for pool in std::mem::take(&mut self.own_pools) {
            let Some(note) = pool.left else { continue };
            let remove = ["pool", "remove", &pool.name].map(str::to_owned);
            let arguments = [&remove[..], &self.server[..]].concat();
            let program = self.program.to_string_lossy();
            let run = || output_of(&program, &arguments, &[], Patience::of(REMOVE_TIME_MAX));
            // It may never have been made, or somebody else may have removed it.
            let is_gone = answers && (run().is_ok() || self.has_pool(&pool.name) == Some(false));
            if !is_gone {
                note.keep();
            }
        }
    }

    /// Whether the server has a pool of this name, if it answers.
    fn has_pool(&self, name: &str) -> Option<bool> {
        let arguments = [&["pool", "list", "--json"].map(str::to_owned)[..], &self.server[..]].concat();
        let printed =
            output_of(&self.program.to_string_lossy(), &arguments, &[], Patience::of(REMOVE_TIME_MAX));
        let list: PoolList = serde_json::from_str(&printed.ok()?).ok()?;
        Some(list.pools.iter().any(|pool| pool.name == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_runs_are_told_by_their_names() {
        assert!(is_of_a_run(&format!("{}3", name_prefix())), "{}", name_prefix());
        coquina_base::check_name(&format!("{}{}", name_prefix(), u32::MAX)).unwrap();
        for name in ["default", "copies-2", "coquina-bench-", "coquina-bench-nvme", "coquina-bench-1-2-x"] {
            assert!(!is_of_a_run(name), "{name}");
        }
    }
}
