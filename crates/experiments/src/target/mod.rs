//! Targets: what is measured. One file each.
//!
//! To add one: a file here with a [`Target`], and a line in [`open`]. Load that fio can make needs only the options of its
//! engine ([`FioOptions`](crate::generator::fio::FioOptions)); see docs/benchmarks.md.
//!
//! Invariants:
//! - nothing that a target did not make itself is written to unless its name was spelled out;
//! - what a target made or started, it removes or stops, also when the run is interrupted;
//! - facts are what the target was asked or set to, never what is hoped.

mod ceph;
mod ceph_health;
mod ceph_option;
mod coquina;
mod device;
mod device_use;
mod file;
mod local_ceph;
mod local_coquina;
mod medium;
mod nbd;
mod rados;
mod rbd;
mod rbd_cache;
mod reach;
mod repeated;
mod servers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coquina_base::Nearest;

use crate::definition::Layout;
use crate::generator::{ANSWER_TIME_MAX, Command, GeneratorError, Load, Patience, fio};
use crate::leftovers;
use crate::report::{Point, TargetFacts};

pub use coquina::nodes_of;
pub use local_ceph::LocalCeph;
pub use local_coquina::LocalCoquina;
pub use medium::lies_in_memory;
pub use reach::{Reach, is_this_host};

/// Most files of `plain-files`.
const PLAIN_FILES_MAX: u32 = 64;

/// How full a store that others use may be made unasked. Ceph warns where an OSD is 85 % full.
pub const CAREFUL_FULL_PERCENT: u64 = 80;
/// Of what is free, where nobody tells how full it is.
pub const CAREFUL_FREE_PERCENT: u64 = 20;

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Its name is not understood.
    #[error(
        "{0:?} is not a target{nearest}; write coquina-local, coquina-local-nbd, ceph-local, coquina:VOLUME, coquina-nbd:VOLUME, \
         rbd:POOL/IMAGE, rados:POOL, nbd:URI, file:PATH, device:PATH, \
         plain-file or plain-files:N (up to 64)",
        nearest = nearest(.0)
    )]
    Unknown(String),
    /// It is named in a way that makes no sense.
    #[error("{spec}: {message}")]
    Wrong {
        /// The target as it was named.
        spec: String,
        /// What is wrong, and what to do.
        message: String,
    },
    /// There is no such thing, or it cannot be used.
    #[error("{spec}: {message}")]
    Unusable {
        /// The target as it was named.
        spec: String,
        /// What is wrong, and what to do.
        message: String,
    },
    /// It holds data that nobody has given up.
    #[error(
        "{spec}: {name} holds data or may hold some ({what}), which would be overwritten; \
         if it may be lost, add --destroy-data {}",
        leftovers::quoted(name)
    )]
    HoldsData {
        /// The target as it was named.
        spec: String,
        /// What has to be spelled out.
        name: String,
        /// What is there.
        what: String,
    },
    /// There is not enough room.
    #[error(
        "{spec}: {wanted} are needed, {free} are free; free some, name another --folder, or lower --volume-size or --store-size"
    )]
    NoSpace {
        /// The target as it was named.
        spec: String,
        /// How much is needed.
        wanted: String,
        /// How much there is.
        free: String,
    },
    /// A program that it needs failed.
    #[error("{spec}: {source}")]
    Program {
        /// The target as it was named.
        spec: String,
        /// What happened.
        source: GeneratorError,
    },
    /// The run was stopped.
    #[error("stopped")]
    Stopped,
}

impl TargetError {
    /// Whether the user stopped the run.
    pub fn is_stop(&self) -> bool {
        matches!(self, TargetError::Stopped | TargetError::Program { source: GeneratorError::Stopped, .. })
    }

    /// Whether the command is wrong, rather than what it found.
    pub fn is_wrong_usage(&self) -> bool {
        matches!(self, TargetError::Unknown(_) | TargetError::Wrong { .. })
    }
}

/// What targets may use.
#[derive(Clone)]
pub struct Context<'a> {
    /// A folder for files of targets, on the disk in question.
    pub folder: PathBuf,
    /// This program, for `coquina bench io` and `coquina up`.
    pub program: PathBuf,
    /// Options that name a Coquina server that runs already: `--dir DIR` or `--server ADDR`.
    pub server: Vec<String>,
    /// Size of each drive of stores that are made for the run.
    pub store_bytes: u64,
    /// Whether the experiment writes.
    pub writes: bool,
    /// Most volumes of a scenario.
    pub volumes_max: u32,
    /// Names of what may be overwritten.
    pub destroy: Vec<String>,
    /// Set when the run is to end.
    pub stopped: &'a dyn Fn() -> bool,
    /// Tells the user what happens.
    pub say: &'a dyn Fn(&str),
}

impl Context<'_> {
    /// Waits for a program so long, and no longer than until the run is stopped.
    pub fn patience(&self, time_max: Duration) -> Patience<'_> {
        Patience { time_max, stopped: self.stopped }
    }

    /// Whether this was spelled out with `--destroy-data`, as it was named or as a target.
    pub fn may_destroy(&self, spec: &str, name: &str) -> bool {
        self.destroy.iter().any(|given| given == name || given == spec)
    }

    /// The same for a file or device, which may be spelled out by any of its paths, but that a bare name may be one of something else.
    pub fn may_destroy_path(&self, spec: &str, path: &Path) -> bool {
        let real = path.canonicalize().ok();
        let means_it = |given: &String| {
            let named = given.strip_prefix("file:").or_else(|| given.strip_prefix("device:"));
            let is_path = ["/", "./", "../"].iter().any(|start| given.starts_with(start));
            let named = named.or_else(|| is_path.then_some(given.as_str()));
            named.is_some_and(|named| real.is_some() && Path::new(named).canonicalize().ok() == real)
        };
        self.may_destroy(spec, &path.to_string_lossy()) || self.destroy.iter().any(means_it)
    }
}

/// Who uses a block device, a part of it, or a file (as a device, as swap space, or with a lock), in words: writes to it would change what
/// is theirs. Loop devices count, which the kernel lets anybody write behind.
pub fn users_of(path: &Path) -> Vec<String> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let mut users = match std::fs::metadata(path) {
        Ok(found) if found.file_type().is_block_device() => {
            device_use::users(libc::major(found.rdev()), libc::minor(found.rdev()))
        }
        _ => device_use::users_of_file(path),
    };
    users.extend(device_use::is_locked(path).then(|| "another process has locked it".to_owned()));
    users
}

/// When a changed setting takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// For the next load.
    AtOnce,
    /// Perhaps for the next load, perhaps when the target is started again, which cannot be done here.
    Unsure,
    /// When the target is started again.
    AtStart,
}

/// What makes load at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenLoop {
    /// The generator that makes all of its load, `coquina bench io`: latency counts from when an operation was due.
    Native,
    /// The same one, in place of fio.
    InPlaceOfFio,
}

/// Something that is measured.
pub trait Target {
    /// As it was named on the command line.
    fn spec(&self) -> &str;
    /// Finds or starts it, and checks that it may be written to.
    fn begin(&mut self, context: &Context<'_>) -> Result<(), TargetError>;
    /// What it is and how it is set. Called after `lay_out`; of plain drives before it, too.
    fn facts(&self) -> TargetFacts;
    /// The same while a setting has a value that is tried.
    fn facts_with(&self, _key: &str, _value: &str) -> TargetFacts {
        self.facts()
    }
    /// What it is and how it is set in a scenario of whole objects.
    fn facts_of_objects(&self) -> TargetFacts {
        self.facts()
    }
    /// Bytes that all volumes together may have with so many copies. `None` if that cannot be known.
    fn space_bytes(&self, copies: Option<u32>, context: &Context<'_>) -> Result<Option<u64>, TargetError>;
    /// Bytes of its smallest drive, where each volume lies on one of several that were named.
    fn drive_bytes(&self) -> Option<u64> {
        None
    }
    /// Why it cannot do a scenario, if it cannot.
    fn refuses(&self, layout: &Layout) -> Option<String>;
    /// Why it cannot do a point, if it cannot.
    fn refuses_point(&self, _point: &Point) -> Option<String> {
        None
    }
    /// Makes the volumes of a scenario, instead of those of the scenario before. Says whether they must be written full
    /// and aged: not if another target has just done so with the same volumes.
    fn lay_out(&mut self, layout: &Layout, context: &Context<'_>) -> Result<bool, TargetError>;
    /// A scenario begins: volumes of the one before are no longer as they were laid out, even if the layout is the same.
    fn forget_layout(&mut self) {}
    /// Generators for one client's load on some of the volumes, to be run at the same time.
    fn commands(&self, load: &Load, volumes: &[u32]) -> Vec<Command>;
    /// The engine of fio that makes its load; `None` if fio does not make it.
    fn fio_engine(&self) -> Option<String> {
        None
    }
    /// The same for whole objects.
    fn fio_engine_of_objects(&self) -> Option<String> {
        self.fio_engine()
    }
    /// What makes load on it at a rate.
    fn open_loop(&self) -> OpenLoop {
        OpenLoop::InPlaceOfFio
    }
    /// The same for whole objects.
    fn open_loop_of_objects(&self) -> OpenLoop {
        self.open_loop()
    }
    /// Processes on this machine that serve it.
    fn processes(&self) -> Vec<u32>;
    /// Whether nothing else serves it. Who listens may have the work done by others.
    fn are_processes_all(&self) -> bool {
        self.is_baseline() || !self.processes().is_empty()
    }
    /// Files or devices on this machine that hold it.
    fn places(&self) -> Vec<PathBuf>;
    /// Whether it lies on drives of this host, as far as that can be known.
    fn is_on_this_host(&self) -> bool {
        !self.places().is_empty()
    }
    /// Drives that can be added one by one; 1 where there is nothing to add.
    fn drives(&self) -> u32 {
        1
    }
    /// Whether it is in a store that ran before, which others may use: it is not filled up unasked.
    fn is_store_shared(&self) -> bool {
        false
    }
    /// Bytes that all volumes together may have of such a store where nobody said that it may be filled up: no more than until it is
    /// [`CAREFUL_FULL_PERCENT`] full, whoever filled it. `None` if that cannot be known.
    fn careful_bytes(
        &self,
        _copies: Option<u32>,
        _context: &Context<'_>,
    ) -> Result<Option<u64>, TargetError> {
        Ok(None)
    }
    /// Whether it is a plain drive to compare with: nobody expects copies of it.
    fn is_baseline(&self) -> bool {
        false
    }
    /// When a setting takes effect, or why it cannot be tried. Changes nothing.
    fn effect(&self, _key: &str, _context: &Context<'_>) -> Result<Effect, TargetError> {
        Ok(Effect::AtOnce)
    }
    /// Files and devices that the user named, and those beside them that it would use: no other target may use them.
    fn named_paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Names that fio's jobs would hold.
    fn names(&self) -> Vec<String> {
        self.named_paths().iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }
    /// Whether it keeps what it holds: it is read only, and nobody gave it up, so that it is not written full before.
    fn keeps_its_data(&self) -> bool {
        false
    }
    /// From where it can be reached, as far as that is known yet.
    fn reach(&self) -> Reach {
        Reach::Anywhere
    }
    /// From where its whole objects can be reached.
    fn reach_of_objects(&self) -> Reach {
        self.reach()
    }
    /// Starts it again, with all that it holds, so that settings which are read at a start take effect.
    fn restart(&mut self, _context: &Context<'_>) -> Result<(), TargetError> {
        Err(TargetError::Unusable {
            spec: self.spec().to_owned(),
            message: "it was not started by this run, so that it is not started again".to_owned(),
        })
    }
    /// The value that a setting of it has; `None`: it is not set. Changes nothing.
    fn setting(&self, key: &str, _context: &Context<'_>) -> Result<Option<String>, TargetError> {
        Err(no_setting(self.spec(), key))
    }
    /// Changes a setting of it, also when the run is to end: settings are put back so. Where that fails, it may have been done all the same.
    fn set(&mut self, key: &str, _value: Option<&str>) -> Result<(), TargetError> {
        Err(no_setting(self.spec(), key))
    }
    /// What it says of itself that may be why a load on it failed or did not end, in a few words, if it says anything.
    fn ailment(&self, _context: &Context<'_>) -> Option<String> {
        None
    }
    /// Removes what it made and stops what it started.
    fn end(&mut self);
}

/// What the names of this run's objects and pools begin with. Nobody else's do, so that nothing of others is overwritten or removed: the
/// same process number is in use on other hosts, but not since the same nanosecond.
fn name_prefix() -> &'static str {
    static PREFIX: OnceLock<String> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{}{}-{:x}-", leftovers::FOLDER_PREFIX, std::process::id(), since_1970.as_nanos())
    })
}

fn no_setting(spec: &str, key: &str) -> TargetError {
    TargetError::Wrong {
        spec: spec.to_owned(),
        message: format!("it has no setting {key:?} that can be changed while it runs"),
    }
}

/// Refuses targets on which these hosts cannot make load.
pub fn check_reach(targets: &[Box<dyn Target>], hosts: &[String]) -> Result<(), TargetError> {
    targets.iter().try_for_each(|target| refuse_unreached(target.as_ref(), &target.reach(), hosts))
}

/// The same where whole objects are read or written.
pub fn check_reach_of_objects(targets: &[Box<dyn Target>], hosts: &[String]) -> Result<(), TargetError> {
    targets.iter().try_for_each(|target| refuse_unreached(target.as_ref(), &target.reach_of_objects(), hosts))
}

fn refuse_unreached(target: &dyn Target, reach: &Reach, hosts: &[String]) -> Result<(), TargetError> {
    let wrong = |message| TargetError::Wrong { spec: target.spec().to_owned(), message };
    reach::refusal(reach, hosts).map_or(Ok(()), |message| Err(wrong(message)))
}

/// Refuses names that fio would not take as they are; `folder` is where its jobs lie.
pub fn check_names(targets: &[Box<dyn Target>], folder: &Path) -> Result<(), TargetError> {
    let wrong = |spec: &str, message| TargetError::Wrong { spec: spec.to_owned(), message };
    for target in targets.iter().filter(|target| target.fio_engine().is_some()) {
        fio::check_name(&folder.to_string_lossy()).map_err(|message| wrong("--folder", message))?;
        for name in target.names() {
            fio::check_name(&name).map_err(|message| wrong(target.spec(), message))?;
        }
    }
    Ok(())
}

/// Refuses a file or device that is named twice, by one target or by two.
pub fn check_repeated(targets: &[Box<dyn Target>]) -> Result<(), TargetError> {
    let named: Vec<(&str, PathBuf)> = targets
        .iter()
        .flat_map(|target| target.named_paths().into_iter().map(|path| (target.spec(), path)))
        .collect();
    let paths: Vec<&Path> = named.iter().map(|(_, path)| path.as_path()).collect();
    let Some((earlier, later)) = repeated::find(&paths) else { return Ok(()) };
    let (first, second) = (&named[earlier], &named[later]);
    let same = match first.1 == second.1 {
        true => format!("{} is named twice", first.1.display()),
        false => format!("{} and {} are the same, or overlap", first.1.display(), second.1.display()),
    };
    let by = if first.0 == second.0 { String::new() } else { format!(", the first by {}", first.0) };
    let message = format!("{same}{by}; name each file or device once");
    Err(TargetError::Wrong { spec: second.0.to_owned(), message })
}

/// Targets that a run uses, and the systems that they share.
pub struct Opener {
    folder: PathBuf,
    /// By the name of the first volume: two ways to one volume measure the same data, which is made and removed once.
    volumes: BTreeMap<String, coquina::Shared>,
    coquina: Option<coquina::Shared>,
    ceph: Option<ceph::Shared>,
}

impl Opener {
    /// `plain-file` and `plain-files:N` will be files in this folder.
    pub fn new(folder: &Path) -> Self {
        Opener { folder: folder.to_owned(), volumes: BTreeMap::new(), coquina: None, ceph: None }
    }

    fn plain_files(&self, spec: &str, count: u32) -> Box<dyn Target> {
        // Targets of one run have files of their own.
        let paths = (1..=count).map(|number| self.folder.join(format!("drive{number}of{count}")));
        Box::new(file::FileTarget::of(spec, paths.collect()))
    }

    /// Opens a target by its name.
    pub fn open(&mut self, spec: &str) -> Result<Box<dyn Target>, TargetError> {
        let unknown = || TargetError::Unknown(spec.to_owned());
        match spec {
            "coquina-local" => {
                return Ok(Box::new(coquina::CoquinaTarget::local(spec, self.local_coquina(), false)));
            }
            "coquina-local-nbd" => {
                return Ok(Box::new(coquina::CoquinaTarget::local(spec, self.local_coquina(), true)));
            }
            "plain-file" => {
                return Ok(Box::new(file::FileTarget::of(spec, vec![self.folder.join("drive")])));
            }
            "ceph-local" => return Ok(Box::new(rbd::RbdTarget::local(spec, self.local_ceph()))),
            _ => {}
        }
        let (kind, rest) = spec.split_once(':').ok_or_else(unknown)?;
        if rest.is_empty() {
            return Err(unknown());
        }
        Ok(match kind {
            "plain-files" => match rest.parse() {
                Ok(count @ 1..=PLAIN_FILES_MAX) => self.plain_files(spec, count),
                _ => return Err(unknown()),
            },
            "coquina" => Box::new(coquina::CoquinaTarget::running(spec, self.volume(rest), false)),
            "coquina-nbd" => Box::new(coquina::CoquinaTarget::running(spec, self.volume(rest), true)),
            "rbd" => Box::new(rbd::RbdTarget::running(spec, rest)?),
            "rados" => Box::new(rados::RadosTarget::running(spec, rest)),
            // `nbd://...` is a URI already; `nbd:` stands before one.
            "nbd" if rest.starts_with("//") => Box::new(nbd::NbdTarget::new(spec, spec)),
            "nbd" => Box::new(nbd::NbdTarget::new(spec, rest)),
            "nbd+unix" => Box::new(nbd::NbdTarget::new(spec, spec)),
            "file" => Box::new(file::FileTarget::new(spec, rest)),
            "device" => Box::new(device::DeviceTarget::new(spec, rest)),
            _ => return Err(unknown()),
        })
    }

    fn volume(&mut self, name: &str) -> coquina::Shared {
        self.volumes.entry(name.to_owned()).or_insert_with(|| coquina::shared_running(name)).clone()
    }

    fn local_coquina(&mut self) -> coquina::Shared {
        self.coquina.get_or_insert_with(coquina::shared_local).clone()
    }

    fn local_ceph(&mut self) -> ceph::Shared {
        self.ceph.get_or_insert_with(ceph::shared_local).clone()
    }
}

/// Targets by their whole names, and kinds of those that are followed by `:` and what is meant.
const NAMES: [&str; 4] = ["coquina-local", "coquina-local-nbd", "ceph-local", "plain-file"];
const KINDS: [&str; 9] =
    ["plain-files", "coquina", "coquina-nbd", "rbd", "rados", "nbd", "nbd+unix", "file", "device"];

/// The target that a misspelt one may mean.
fn nearest(spec: &str) -> Nearest {
    let Some((kind, rest)) = spec.split_once(':') else { return Nearest::of(spec, NAMES) };
    let nearest = Nearest::of(kind, KINDS.into_iter().filter(|known| *known != kind));
    match nearest.name() {
        Some(meant) if !rest.is_empty() => Nearest::from(format!("{meant}:{rest}")),
        _ => Nearest::default(),
    }
}

/// The paths of a list with commas. Load is made by processes in folders of their own, where others would mean something else.
fn absolute(paths: &str) -> Vec<PathBuf> {
    let paths = paths.split(',').filter(|path| !path.is_empty());
    // It fails only where there is no current folder.
    paths.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into())).collect()
}

/// Whether a target is started and removed by the run, with all its settings.
pub fn is_made_for_the_run(spec: &str) -> bool {
    matches!(spec, "coquina-local" | "coquina-local-nbd" | "ceph-local")
}

/// Name of the setting that says why files are not used by io_uring.
pub const ENGINE_SETTING: &str = "engine";

/// The engine for files and devices, and tells the user if it is not the usual one.
fn choose_engine(spec: &str, context: &Context<'_>) -> Result<fio::Engine, TargetError> {
    let engine = fio::for_files("fio", &context.folder, context.patience(ANSWER_TIME_MAX))
        .map_err(|source| TargetError::Program { spec: spec.to_owned(), source })?;
    if let Some(note) = &engine.note {
        (context.say)(&format!("{spec}: fio uses {note}"));
    }
    Ok(engine)
}

/// Bytes that are free where a folder lies.
pub(crate) fn free_bytes(folder: &Path) -> std::io::Result<u64> {
    let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes())?;
    // SAFETY: all-zero is a valid value of this plain structure, which is only written to by the call below.
    #[allow(unsafe_code)]
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in a zero byte and `found` is a valid place for the answer.
    #[allow(unsafe_code)]
    let failed = unsafe { libc::statvfs(path.as_ptr(), &mut found) };
    if failed != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(found.f_bavail * found.f_frsize)
}

/// Refuses what does not fit on the disk under a folder.
fn need_room(spec: &str, folder: &Path, wanted_bytes: u64) -> Result<(), TargetError> {
    let free = free_bytes(folder).map_err(|error| TargetError::Unusable {
        spec: spec.to_owned(),
        message: format!("cannot ask for the free space of {}: {error}", folder.display()),
    })?;
    // A disk that is filled to the last byte is slow, and others need some, too.
    if wanted_bytes.saturating_add(wanted_bytes / 20) > free {
        return Err(TargetError::NoSpace {
            spec: spec.to_owned(),
            wanted: coquina_base::format_size_bytes(wanted_bytes),
            free: coquina_base::format_size_bytes(free),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod misspelt_tests {
    use super::*;

    #[test]
    fn a_misspelt_target_gets_the_one_that_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let said = |spec: &str| Opener::new(folder.path()).open(spec).err().unwrap().to_string();
        for (spec, meant) in [
            ("coquina-locl", "coquina-local"),
            ("cephlocal", "ceph-local"),
            ("coqiuna:disk", "coquina:disk"),
            ("flie:/srv/a:b", "file:/srv/a:b"),
            ("rbdd:pool/image", "rbd:pool/image"),
        ] {
            let said = said(spec);
            assert!(said.contains(&format!("is not a target; did you mean {meant:?}?; write ")), "{said}");
        }
        for spec in ["tape:0", "coquina:", "plain-files:65", "x"] {
            assert!(!said(spec).contains("did you mean"), "{spec}: {}", said(spec));
        }
    }
}
