//! A Ceph cluster, as `rbd:`, `rados:` and `ceph-local` see it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::local_ceph::LocalCeph;
use super::servers::{self, Listeners};
use super::{
    CAREFUL_FREE_PERCENT, CAREFUL_FULL_PERCENT, Context, Effect, Reach, TargetError, ceph_option, reach,
};
use crate::generator::{GeneratorError, Patience, output_of, output_while_it_moves};
use crate::leftovers;

/// A cluster that several targets may use in turns.
pub type Shared = Rc<RefCell<System>>;

/// Placement groups are peering again for a while after a pool's size was changed.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(300);
/// Monitors that do not answer in this time are not there; Ceph's programs would wait for five minutes.
const CONNECT_TIME_S: &str = "20";
/// The same for what asks with that time.
pub const CONNECTED_TIME_MAX: Duration = Duration::from_secs(30);
/// Hosts of which a daemon is asked for an option; the files of more are hardly ever of another kind.
const HOSTS_ASKED_MAX: usize = 16;
/// How long one of Ceph's programs may take: OSDs may be away for a while.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(300);
/// How long the removal of objects may take, and that of an image, however large, before it is a hundredth further: a cluster may be
/// without its OSDs.
pub const REMOVE_TIME_MAX: Duration = Duration::from_secs(300);

/// OSDs report every 5 s (`mgr_stats_period`): a manager that has just taken over knows in this time how much room there is.
const REPORT_TIME_MAX: Duration = Duration::from_secs(15);

/// How full an OSD is when it takes no more (`full_ratio`, hardly ever another one).
const FULL_PERCENT: f64 = 95.0;

/// The setting that bounds the caches of OSDs; 4 GiB of each by default.
const MEMORY_TARGET: &str = "osd_memory_target";

/// A Ceph cluster.
#[derive(Default)]
pub struct System {
    pub(super) is_local: bool,
    pub(super) local: Option<LocalCeph>,
    pub(super) conf: Option<String>,
    pub(super) pool: String,
    pub(super) user: String,
    version: String,
    pool_facts: Option<PoolFacts>,
    /// The folder of Ceph's programs; empty where they are found as usual.
    pub(super) programs: PathBuf,
    /// Addresses of monitors; none if they were not told.
    monitors: Vec<String>,
    /// Memory that OSDs try to stay within, most of it cache, as the cluster's settings have it; `None` if they were not told.
    memory_target: Option<String>,
    /// Daemons of a cluster that runs, if all of them are on this host.
    servers: Vec<u32>,
    /// How long a pool of a cluster that runs may be told to have no room.
    pub(super) report_time_max: Duration,
}

/// A new cluster on this machine, not yet started.
pub fn shared_local() -> Shared {
    Rc::new(RefCell::new(System { is_local: true, user: "admin".to_owned(), ..System::default() }))
}

/// A cluster that runs, found by Ceph's usual files.
pub fn running(pool: &str) -> Shared {
    // A list of files is left to those who look at the environment.
    let conf = std::env::var("CEPH_CONF").ok().filter(|conf| !conf.is_empty() && !conf.contains(','));
    Rc::new(RefCell::new(System {
        conf,
        pool: pool.to_owned(),
        user: "admin".to_owned(),
        report_time_max: REPORT_TIME_MAX,
        ..System::default()
    }))
}

#[derive(Clone, Copy, Deserialize)]
pub(super) struct PoolFacts {
    pub size: u32,
    pub min_size: u32,
}

#[derive(Deserialize)]
struct Df {
    pools: Vec<DfPool>,
}

#[derive(Deserialize)]
struct DfPool {
    name: String,
    stats: DfStats,
}

#[derive(Deserialize)]
struct DfStats {
    max_avail: u64,
}

#[derive(Deserialize)]
struct PgStat {
    num_pg_by_state: Vec<PgState>,
    num_pgs: u32,
}

#[derive(Deserialize)]
struct PgState {
    name: String,
    num: u32,
}

/// Says where a cluster is looked for, when there is none; a program that is missing is another matter.
fn not_found(spec: &str, error: TargetError) -> TargetError {
    let TargetError::Program { source: GeneratorError::Failed { message: said, .. }, .. } = &error else {
        return error;
    };
    let looked = match std::env::var("CEPH_CONF") {
        Ok(conf) if !conf.is_empty() => format!("{conf} (the environment's CEPH_CONF)"),
        _ => "/etc/ceph/ceph.conf (or what the environment's CEPH_CONF names)".to_owned(),
    };
    let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let message = format!(
        "no Ceph cluster was found by {looked}: {}. Copy /etc/ceph/ceph.conf and /etc/ceph/ceph.client.admin.keyring from a node \
         of the cluster, or name its configuration with CEPH_CONF=PATH before the command; --target ceph-local needs neither",
        said.trim()
    );
    TargetError::Unusable { spec: spec.to_owned(), message }
}

/// How full the fullest OSD is, as `ceph osd df` tells it: `max_avail` of pools is what fits until that one takes no more.
fn fullest_percent(printed: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct OsdDf {
        nodes: Vec<Osd>,
    }
    #[derive(Deserialize)]
    struct Osd {
        utilization: f64,
        crush_weight: f64,
        reweight: f64,
    }
    let df: OsdDf = serde_json::from_str(printed).ok()?;
    // Others take no data.
    let taking = df.nodes.iter().filter(|osd| osd.crush_weight > 0.0 && osd.reweight > 0.0);
    taking.map(|osd| osd.utilization).reduce(f64::max)
}

/// What may be written of what fits, where the fullest OSD is so full.
fn careful_share(space_bytes: u64, fullest_percent: Option<f64>) -> u64 {
    let Some(percent) = fullest_percent else { return space_bytes / 100 * CAREFUL_FREE_PERCENT };
    let left = |until: f64| (until - percent).max(0.0);
    let share = left(CAREFUL_FULL_PERCENT as f64) / left(FULL_PERCENT).max(f64::MIN_POSITIVE);
    (space_bytes as f64 * share.min(1.0)) as u64
}

impl System {
    /// Starts or finds it.
    pub fn begin(&mut self, spec: &str, context: &Context<'_>) -> Result<(), TargetError> {
        if !self.version.is_empty() {
            return Ok(());
        }
        if self.is_local {
            let local = LocalCeph::start(spec, context)?;
            self.conf = Some(local.conf().to_owned());
            self.pool = local.pool().to_owned();
            self.local = Some(local);
        }
        let version = self.run(spec, "ceph", &["--version"], context)?;
        // `ceph version 16.2.15 (hash) pacific (stable)`
        let version = version.split_whitespace().nth(2).unwrap_or("of unknown version").to_owned();
        self.connect(spec, context)?;
        self.look_at_pool(spec, context)?;
        self.look_again(spec, context);
        let memory_target = self.run(spec, "ceph", &["config", "get", "osd", MEMORY_TARGET], context);
        self.memory_target = memory_target.ok().map(|value| value.trim().to_owned());
        self.version = version;
        Ok(())
    }

    /// Looks for the cluster, and for its pool.
    fn connect(&mut self, spec: &str, context: &Context<'_>) -> Result<(), TargetError> {
        #[derive(Deserialize)]
        struct Dump {
            mons: Vec<Monitor>,
        }
        #[derive(Deserialize)]
        struct Monitor {
            public_addr: String,
        }
        let dump = ["--connect-timeout", CONNECT_TIME_S, "mon", "dump", "--format", "json"];
        let printed = self.run(spec, "ceph", &dump, context).map_err(|error| not_found(spec, error))?;
        let dump = serde_json::from_str::<Dump>(&printed).ok();
        self.monitors =
            dump.map(|dump| dump.mons.into_iter().map(|one| one.public_addr).collect()).unwrap_or_default();
        let pools = self.run(spec, "ceph", &["osd", "pool", "ls"], context)?;
        if pools.lines().any(|pool| pool.trim() == self.pool) {
            return Ok(());
        }
        let there: Vec<&str> = pools.split_whitespace().collect();
        let message = format!(
            "there is no pool {}; there are: {}. `ceph osd pool create {0}` makes it",
            self.pool,
            if there.is_empty() { "none".to_owned() } else { there.join(", ") }
        );
        Err(TargetError::Unusable { spec: spec.to_owned(), message })
    }

    /// Looks for the daemons of a cluster that runs: some may have been started, or started again.
    pub fn look_again(&mut self, spec: &str, context: &Context<'_>) {
        self.servers = self.look_for_servers(spec, context).unwrap_or_default();
    }

    /// Its monitors, OSDs and manager, by where they listen. `None` if any of them is not on this host, or cannot be seen.
    fn look_for_servers(&self, spec: &str, context: &Context<'_>) -> Option<Vec<u32>> {
        #[derive(Deserialize)]
        struct OsdDump {
            osds: Vec<Osd>,
        }
        #[derive(Deserialize)]
        struct Osd {
            up: u32,
            public_addr: String,
        }
        #[derive(Deserialize)]
        struct ManagerDump {
            active_addr: String,
        }
        let all_here = self.monitors.iter().all(|address| servers::is_here(address));
        if self.is_local || self.monitors.is_empty() || !all_here {
            return None;
        }
        let dump = |of: &str| self.run(spec, "ceph", &[of, "dump", "--format", "json"], context).ok();
        let osds = serde_json::from_str::<OsdDump>(&dump("osd")?).ok()?.osds;
        let osds = osds.iter().filter(|osd| osd.up == 1).map(|osd| osd.public_addr.as_str());
        let listeners = Listeners::look();
        let mut found = listeners.at_all(self.monitors.iter().map(String::as_str).chain(osds))?;
        let manager = dump("mgr").and_then(|text| serde_json::from_str::<ManagerDump>(&text).ok());
        // Load does not go through it.
        found
            .extend(manager.and_then(|one| listeners.at_all([one.active_addr.as_str()])).unwrap_or_default());
        Some(found)
    }

    /// From where its monitors can be reached.
    pub fn reach(&self) -> Reach {
        if self.is_local {
            return reach::of_local_cluster();
        }
        // `127.0.0.1:6789/0` is written as in the URI of an export.
        let uris: Vec<String> = self.monitors.iter().map(|address| format!("ceph://{address}")).collect();
        reach::of_uris(uris.iter().map(String::as_str))
    }

    fn look_at_pool(&mut self, spec: &str, context: &Context<'_>) -> Result<(), TargetError> {
        let pool = self.pool.clone();
        let size = self.run(spec, "ceph", &["osd", "pool", "get", &pool, "size"], context)?;
        let min_size = self.run(spec, "ceph", &["osd", "pool", "get", &pool, "min_size"], context)?;
        let number = |text: &str| text.rsplit(' ').next().and_then(|number| number.trim().parse().ok());
        self.pool_facts = match (number(&size), number(&min_size)) {
            (Some(size), Some(min_size)) => Some(PoolFacts { size, min_size }),
            _ => None,
        };
        Ok(())
    }

    /// The configuration that is not the usual one, if so. What makes load runs in a folder of its own, so that the path is whole.
    pub fn conf_path(&self) -> Option<String> {
        let given = || std::env::var("CEPH_CONF").ok().filter(|conf| !conf.is_empty());
        let conf = self.conf.clone().or_else(given)?;
        let absolute = |part: &str| match std::path::absolute(part) {
            Ok(absolute) => absolute.to_string_lossy().into_owned(),
            Err(_) => part.to_owned(),
        };
        // It may be several, of which the first that is there counts.
        Some(conf.split(',').map(str::trim).map(absolute).collect::<Vec<_>>().join(","))
    }

    /// What goes before a command that is to be pasted into a shell.
    pub fn shell_environment(&self) -> String {
        let given = self.environment();
        given.iter().map(|(name, value)| format!("{name}={} ", leftovers::quoted(value))).collect()
    }

    /// Environment of Ceph's programs, and of what makes load.
    pub fn environment(&self) -> Vec<(String, String)> {
        self.conf_path().map(|conf| ("CEPH_CONF".to_owned(), conf)).into_iter().collect()
    }

    /// Whether its monitors answer: whoever asks a cluster that is gone for something else waits for minutes.
    pub fn answers(&self) -> bool {
        let ask = ["--connect-timeout", CONNECT_TIME_S, "mon", "stat"];
        self.run_within("", "ceph", &ask, CONNECTED_TIME_MAX).is_ok()
    }

    /// Runs one of Ceph's programs, until the run is to end.
    pub fn run(
        &self,
        spec: &str,
        program: &str,
        arguments: &[&str],
        context: &Context<'_>,
    ) -> Result<String, TargetError> {
        self.run_for(spec, program, arguments, context.patience(ANSWER_TIME_MAX))
    }

    /// The same, also when the run is to end, but no longer than this.
    pub fn run_within(
        &self,
        spec: &str,
        program: &str,
        arguments: &[&str],
        time_max: Duration,
    ) -> Result<String, TargetError> {
        self.run_for(spec, program, arguments, Patience::of(time_max))
    }

    /// The same of one that tells how far it is, which has as much time again whenever it does.
    pub fn run_while_it_moves(
        &self,
        spec: &str,
        program: &str,
        arguments: &[&str],
        still_max: Duration,
    ) -> Result<String, TargetError> {
        let patience = Patience::of(still_max);
        self.run_by(spec, program, arguments, |program, all, environment| {
            output_while_it_moves(program, all, environment, patience)
        })
    }

    /// The same, as long as somebody waits for it.
    pub fn run_for(
        &self,
        spec: &str,
        program: &str,
        arguments: &[&str],
        patience: Patience<'_>,
    ) -> Result<String, TargetError> {
        self.run_by(spec, program, arguments, |program, all, environment| {
            output_of(program, all, environment, patience)
        })
    }

    fn run_by(
        &self,
        spec: &str,
        program: &str,
        arguments: &[&str],
        run: impl FnOnce(&str, &[String], &[(String, String)]) -> Result<String, GeneratorError>,
    ) -> Result<String, TargetError> {
        let mut all: Vec<String> = Vec::new();
        if let Some(conf) = &self.conf {
            all.extend(["-c".to_owned(), conf.clone()]);
        }
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let program = self.programs.join(program);
        run(&program.to_string_lossy(), &all, &self.environment())
            .map_err(|source| TargetError::Program { spec: spec.to_owned(), source })
    }

    /// Sets the number of copies of the pool of a cluster that was made for the run, and waits until it is so.
    pub fn set_copies(&mut self, spec: &str, copies: u32, context: &Context<'_>) -> Result<(), TargetError> {
        if self.local.is_none() || self.pool_facts.is_some_and(|facts| facts.size == copies) {
            return Ok(());
        }
        let pool = self.pool.clone();
        let (size, min_size) = (copies.to_string(), if copies > 1 { "2" } else { "1" });
        if copies == 1 {
            self.run(spec, "ceph", &["config", "set", "global", "mon_allow_pool_size_one", "true"], context)?;
        }
        // The smaller of the two first, or it is refused.
        let order = if self.pool_facts.is_some_and(|facts| facts.size > copies) {
            [("min_size", min_size), ("size", size.as_str())]
        } else {
            [("size", size.as_str()), ("min_size", min_size)]
        };
        for (name, value) in order {
            self.run(
                spec,
                "ceph",
                &["osd", "pool", "set", &pool, name, value, "--yes-i-really-mean-it"],
                context,
            )?;
        }
        self.wait_until_clean(spec, context)?;
        self.look_at_pool(spec, context)
    }

    fn wait_until_clean(&self, spec: &str, context: &Context<'_>) -> Result<(), TargetError> {
        let begin = Instant::now();
        loop {
            std::thread::sleep(POLL);
            if (context.stopped)() {
                return Err(TargetError::Stopped);
            }
            let printed = self.run(spec, "ceph", &["pg", "stat", "--format", "json"], context)?;
            #[derive(Deserialize)]
            struct Wrapped {
                pg_summary: Option<PgStat>,
            }
            let summary = serde_json::from_str::<Wrapped>(&printed)
                .ok()
                .and_then(|wrapped| wrapped.pg_summary)
                .or_else(|| serde_json::from_str(&printed).ok());
            let is_clean = summary.is_some_and(|stat| {
                let clean = stat.num_pg_by_state.iter().filter(|state| state.name == "active+clean");
                clean.map(|state| state.num).sum::<u32>() == stat.num_pgs
            });
            if is_clean {
                return Ok(());
            }
            if begin.elapsed() > SETTLE_TIME_MAX {
                return Err(TargetError::Unusable {
                    spec: spec.to_owned(),
                    message: format!(
                        "not all placement groups are active+clean after {} s; look at `ceph -s`",
                        SETTLE_TIME_MAX.as_secs()
                    ),
                });
            }
        }
    }

    /// Why other copies than those of the pool cannot be had.
    pub fn copies_text(&self) -> String {
        let has =
            self.copies().map_or_else(|| "an unknown number of".to_owned(), |copies| copies.to_string());
        format!("the pool {} keeps {has} copies", self.pool)
    }

    /// Bytes that fit into the pool, copies already counted. In a cluster that others use a pool without a figure has no room: it may be full.
    pub fn space_bytes(&self, spec: &str, context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        let begin = Instant::now();
        loop {
            let told = self.told_space_bytes(spec, context)?;
            if told.is_some() || self.is_local {
                return Ok(told);
            }
            if begin.elapsed() >= self.report_time_max {
                return Ok(Some(0));
            }
            if (context.stopped)() {
                return Err(TargetError::Stopped);
            }
            std::thread::sleep(POLL);
        }
    }

    /// What Ceph says of it; nothing if that is zero.
    fn told_space_bytes(&self, spec: &str, context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        let printed = self.run(spec, "ceph", &["df", "--format", "json"], context)?;
        let df: Df = serde_json::from_str(&printed).map_err(|error| TargetError::Unusable {
            spec: spec.to_owned(),
            message: format!("`ceph df` printed something unexpected: {error}"),
        })?;
        let mine = df.pools.iter().find(|pool| pool.name == self.pool);
        // Ceph's own figure lags behind; it is zero until the first report of an OSD.
        Ok(mine.map(|pool| pool.stats.max_avail).filter(|bytes| *bytes > 0))
    }

    /// What of these bytes, which fit into the pool until an OSD takes none any more, may be written until one is as full as others who use
    /// it may find it.
    pub fn careful_bytes(
        &self,
        spec: &str,
        space_bytes: u64,
        context: &Context<'_>,
    ) -> Result<u64, TargetError> {
        let ask = ["--connect-timeout", CONNECT_TIME_S, "osd", "df", "--format", "json"];
        match self.run_for(spec, "ceph", &ask, context.patience(CONNECTED_TIME_MAX)) {
            Ok(printed) => Ok(careful_share(space_bytes, fullest_percent(&printed))),
            Err(error) if error.is_stop() => Err(error),
            // Who does not permit that, or has no manager that could answer.
            Err(_) => Ok(careful_share(space_bytes, None)),
        }
    }

    /// Copies that the pool keeps.
    pub fn copies(&self) -> Option<u32> {
        self.pool_facts.map(|facts| facts.size)
    }

    /// What was set, for the report.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::from([("pool".to_owned(), self.pool.clone())]);
        if let Some(facts) = self.pool_facts {
            settings.insert("min_size".to_owned(), facts.min_size.to_string());
        }
        settings.extend(self.memory_target.iter().map(|value| (MEMORY_TARGET.to_owned(), value.clone())));
        if let Some(local) = &self.local {
            settings.extend(local.settings());
        }
        settings
    }

    /// `Ceph 16.2.15`.
    pub fn title(&self) -> String {
        format!("Ceph {}", self.version)
    }

    /// Daemons on this machine.
    pub fn processes(&self) -> Vec<u32> {
        self.local.as_ref().map_or_else(|| self.servers.clone(), LocalCeph::processes)
    }

    /// Files of OSDs on this machine.
    pub fn places(&self) -> Vec<PathBuf> {
        self.local.as_ref().map(LocalCeph::places).unwrap_or_default()
    }

    /// When an option takes effect, or why it cannot be tried.
    pub fn effect(&self, spec: &str, key: &str, context: &Context<'_>) -> Result<Effect, TargetError> {
        let (_, option) = ceph_option::split(key);
        let printed = self
            .run(spec, "ceph", &["config", "help", option, "--format", "json"], context)
            .map_err(|error| match &error {
                TargetError::Program { source: GeneratorError::Failed { message, .. }, .. }
                    if message.contains("ENOENT") =>
                {
                    let message = format!("Ceph has no option {option}; `ceph config ls` lists all");
                    TargetError::Wrong { spec: spec.to_owned(), message }
                }
                _ => error,
            })?;
        let unusable = |message: String| TargetError::Unusable { spec: spec.to_owned(), message };
        let effect = ceph_option::effect(key, &printed, self.local.is_some()).map_err(unusable)?;
        let (section, option) = ceph_option::split(key);
        let dump = self.run(spec, "ceph", &["config", "dump", "--format", "json"], context)?;
        ceph_option::check_narrower(&dump, section, option).map_err(unusable)?;
        if ceph_option::is_of_load(section) {
            self.check_file(spec, option, context)?;
        }
        self.check_daemons(spec, section, option, context)?;
        Ok(effect)
    }

    /// Refuses an option that the configuration file of who makes load sets: that counts above what is set here.
    fn check_file(&self, spec: &str, option: &str, context: &Context<'_>) -> Result<(), TargetError> {
        let client = format!("client.{}", self.user);
        let lookup = ["--name", &client, "--lookup", option];
        match self.run_for(spec, "ceph-conf", &lookup, context.patience(CONNECTED_TIME_MAX)) {
            Ok(value) => {
                let usual = || "Ceph's configuration file (mostly /etc/ceph/ceph.conf)".to_owned();
                let file = self.conf_path().unwrap_or_else(usual);
                let message = ceph_option::set_in_file(&file, &client, option, &value);
                Err(TargetError::Unusable { spec: spec.to_owned(), message })
            }
            // It is in none of the sections for this client.
            Err(TargetError::Program { source: GeneratorError::Failed { status, .. }, .. })
                if status == "exit status: 1" =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses an option that daemons have from elsewhere, above what is set here. One daemon of a host is asked: the file of a host
    /// is that of all of them.
    fn check_daemons(
        &self,
        spec: &str,
        section: &str,
        option: &str,
        context: &Context<'_>,
    ) -> Result<(), TargetError> {
        if ceph_option::reader(section) == ceph_option::Reader::Clients {
            return Ok(());
        }
        let ask = |words: &[&str]| {
            let begin = ["--connect-timeout", CONNECT_TIME_S];
            let all = [&begin[..], words, &["--format", "json"][..]].concat();
            self.run_for(spec, "ceph", &all, context.patience(CONNECTED_TIME_MAX))
        };
        // Who does not permit that, or has no manager that could answer, may have nothing of the kind.
        let nodes = ask(&["node", "ls"]).unwrap_or_default();
        for host in ceph_option::daemons(&nodes, section).iter().take(HOSTS_ASKED_MAX) {
            for daemon in host {
                match ask(&["config", "show", daemon]) {
                    Ok(shown) => {
                        ceph_option::check_source(&shown, daemon, option)
                            .map_err(|message| TargetError::Unusable { spec: spec.to_owned(), message })?;
                        break;
                    }
                    Err(error) if error.is_stop() => return Err(error),
                    // The next one would take as long.
                    Err(TargetError::Program { source: GeneratorError::Slow { .. }, .. }) => return Ok(()),
                    // It is down, and another one of the host may be up.
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Starts the OSDs of a cluster that was made for the run again.
    pub fn restart(&mut self, spec: &str, context: &Context<'_>) -> Result<(), TargetError> {
        match &mut self.local {
            Some(local) => local.restart(spec, context),
            None => Err(TargetError::Unusable {
                spec: spec.to_owned(),
                message: "a cluster that was not made for the run is not started again".to_owned(),
            }),
        }
    }

    fn config(&self, spec: &str, arguments: &[&str], patience: Patience<'_>) -> Result<String, TargetError> {
        let all = [&["--connect-timeout", CONNECT_TIME_S, "config"], arguments].concat();
        self.run_for(spec, "ceph", &all, patience)
    }

    /// The value of an option for all OSDs, or for the section named in front: `client:rbd_cache`.
    pub fn setting(
        &self,
        spec: &str,
        key: &str,
        context: &Context<'_>,
    ) -> Result<Option<String>, TargetError> {
        let (section, option) = ceph_option::split(key);
        let dump = self.config(spec, &["dump", "--format", "json"], context.patience(ANSWER_TIME_MAX))?;
        ceph_option::value(&dump, section, option)
            .map_err(|message| TargetError::Unusable { spec: spec.to_owned(), message })
    }

    /// `ceph config set`, also when the run is to end. Monitors that take it may answer too late.
    pub fn set(&self, spec: &str, key: &str, value: Option<&str>) -> Result<(), TargetError> {
        let (section, option) = ceph_option::split(key);
        let patience = Patience::of(ANSWER_TIME_MAX);
        match value {
            Some(value) => self.config(spec, &["set", section, option, value], patience),
            None => self.config(spec, &["rm", section, option], patience),
        }
        .map(drop)
    }
}

#[cfg(test)]
pub(super) mod tests;
