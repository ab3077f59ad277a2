//! `rados:POOL`: whole objects of a Ceph pool, by `coquina bench io` and librados. fio's engine for RADOS does not look at what became
//! of an operation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::ceph::{self, REMOVE_TIME_MAX, Shared, System};
use super::{Context, Effect, OpenLoop, Reach, Target, TargetError, medium, name_prefix, reach};
use crate::definition::{Layout, OBJECTS_MAX};
use crate::generator::{Amount, Command, Format, GeneratorError, Load, Patience, coquina, output_of};
use crate::leftovers::{self, Note};
use crate::report::{Point, TargetFacts};

/// A pool of objects.
pub struct RadosTarget {
    spec: String,
    system: Shared,
    objects: Objects,
    program: PathBuf,
}

/// Objects of a run: of each size a set, whose names follow from its number of bytes.
#[derive(Debug)]
pub(super) struct Objects {
    /// What their names begin with. Those of two targets of a run differ.
    prefix: String,
    /// Sets that were written, by the size of an object.
    written: RefCell<BTreeMap<u64, Set>>,
}

#[derive(Debug)]
struct Set {
    bytes: u64,
    /// A cluster that was made for the run takes its objects along.
    note: Option<Note>,
}

impl Default for Objects {
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("{}{}-", name_prefix(), NEXT.fetch_add(1, Ordering::Relaxed));
        Objects { prefix, written: RefCell::default() }
    }
}

impl Objects {
    /// As `coquina bench io` names the objects of this size.
    fn target(&self, system: &System, object_bytes: u64) -> String {
        format!("rados:{}@{}/{}{object_bytes}-", system.user, system.pool, self.prefix)
    }

    /// The commands that read or write whole objects, which have the same names in each run of one size, so that those which were
    /// written are read.
    pub fn commands(&self, system: &System, program: &Path, load: &Load) -> Vec<Command> {
        let object_bytes = u64::from(load.block_bytes);
        let size_bytes = (load.size_bytes / object_bytes).clamp(1, OBJECTS_MAX) * object_bytes;
        let amount = match load.amount {
            // A fill writes each object once.
            Amount::Fill => Amount::Bytes(size_bytes),
            amount => amount,
        };
        if load.operation.writes() {
            self.will_be_written(system, program, object_bytes, size_bytes);
        }
        let load = Load { amount, size_bytes, ..load.clone() };
        let mut commands = coquina::commands(program, &[self.target(system, object_bytes)], &[], &load);
        commands.iter_mut().for_each(|command| command.environment = system.environment());
        commands
    }

    fn will_be_written(&self, system: &System, program: &Path, object_bytes: u64, size_bytes: u64) {
        let mut written = self.written.borrow_mut();
        if written.get(&object_bytes).is_some_and(|set| set.bytes >= size_bytes) {
            return;
        }
        let note = system.local.is_none().then(|| {
            let words = self.removal(system, object_bytes, size_bytes);
            let words: Vec<String> = words.iter().map(leftovers::quoted).collect();
            let (conf, program) = (system.shell_environment(), leftovers::quoted(program));
            leftovers::note(format!(
                "objects of the pool {}: {conf}{program} {}",
                system.pool,
                words.join(" ")
            ))
        });
        written.insert(object_bytes, Set { bytes: size_bytes, note });
    }

    /// What `coquina` is told to remove a set: by names, since a pool may hold a hundred million others.
    fn removal(&self, system: &System, object_bytes: u64, size_bytes: u64) -> Vec<String> {
        let (target, bs, size) =
            (self.target(system, object_bytes), object_bytes.to_string(), size_bytes.to_string());
        ["bench", "io", "--remove", "--target", &target, "--bs", &bs, "--size", &size]
            .map(str::to_owned)
            .into()
    }

    /// Removes what was written; others of the pool stay.
    pub fn remove(&self, system: &System, program: &Path) {
        let written = self.written.take();
        let mut answers = written.is_empty() || system.answers();
        for (object_bytes, set) in written {
            let words = self.removal(system, object_bytes, set.bytes);
            let remove = || {
                let patience = Patience::of(REMOVE_TIME_MAX);
                output_of(&program.to_string_lossy(), &words, &system.environment(), patience)
            };
            let removed = answers.then(remove);
            // There are no OSDs, and the next ones would take as long.
            answers &= !matches!(removed, Some(Err(GeneratorError::Slow { .. })));
            if let Some(note) = set.note.filter(|_| !matches!(removed, Some(Ok(_)))) {
                note.keep();
            }
        }
    }

    /// They go with their cluster.
    pub fn forget(&self) {
        self.written.take();
    }
}

impl RadosTarget {
    /// On a cluster that runs.
    pub fn running(spec: &str, pool: &str) -> Self {
        RadosTarget::of(spec, ceph::running(pool))
    }

    /// Objects of that cluster.
    pub fn of(spec: &str, system: Shared) -> Self {
        RadosTarget { spec: spec.to_owned(), system, objects: Objects::default(), program: PathBuf::new() }
    }
}

/// From where whole objects are read and written.
pub(super) fn reach_of_objects(system: &System) -> Reach {
    match system.reach() {
        Reach::Anywhere => reach::of_objects(),
        here => here,
    }
}

/// What a cluster is where whole objects are read and written.
pub(super) fn facts_of_objects(system: &System, spec: &str) -> TargetFacts {
    let memory_note = medium::memory_note(&system.places());
    TargetFacts {
        label: system.title(),
        spec: spec.to_owned(),
        system: system.title(),
        copies: system.copies(),
        durable: medium::durable_at(&system.places(), Some(true)),
        cache: format!("none in the client; a read cache in the OSDs{memory_note}"),
        generator: Format::Coquina.generator().to_owned(),
        settings: system.settings(),
        ..TargetFacts::default()
    }
}

impl Target for RadosTarget {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn begin(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        self.program.clone_from(&context.program);
        if self.system.borrow().pool.contains('/') {
            return Err(TargetError::Wrong {
                spec: self.spec.clone(),
                message: "write it as rados:POOL".to_owned(),
            });
        }
        self.system.borrow_mut().begin(&self.spec, context)
    }

    fn facts(&self) -> TargetFacts {
        let system = self.system.borrow();
        TargetFacts { label: format!("{}, objects", system.title()), ..facts_of_objects(&system, &self.spec) }
    }

    fn space_bytes(&self, _copies: Option<u32>, context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        self.system.borrow().space_bytes(&self.spec, context)
    }

    fn is_store_shared(&self) -> bool {
        !self.system.borrow().is_local
    }

    fn careful_bytes(&self, _copies: Option<u32>, context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        let system = self.system.borrow();
        let Some(space_bytes) = system.space_bytes(&self.spec, context)? else { return Ok(None) };
        system.careful_bytes(&self.spec, space_bytes, context).map(Some)
    }

    fn refuses(&self, layout: &Layout) -> Option<String> {
        let system = self.system.borrow();
        if layout.copies.is_some() && system.copies() != layout.copies {
            return Some(system.copies_text());
        }
        None
    }

    fn refuses_point(&self, point: &Point) -> Option<String> {
        (!point.operation.is_of_objects())
            .then(|| "rados: takes whole objects only; name rbd:POOL/IMAGE".to_owned())
    }

    fn lay_out(&mut self, _layout: &Layout, context: &Context<'_>) -> Result<bool, TargetError> {
        self.objects.remove(&self.system.borrow(), &self.program);
        self.system.borrow_mut().look_again(&self.spec, context);
        Ok(false)
    }

    fn commands(&self, load: &Load, _volumes: &[u32]) -> Vec<Command> {
        self.objects.commands(&self.system.borrow(), &self.program, load)
    }

    fn open_loop(&self) -> OpenLoop {
        OpenLoop::Native
    }

    fn processes(&self) -> Vec<u32> {
        self.system.borrow().processes()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.system.borrow().places()
    }

    fn is_on_this_host(&self) -> bool {
        self.system.borrow().reach() != Reach::Anywhere || !self.processes().is_empty()
    }

    fn reach(&self) -> Reach {
        reach_of_objects(&self.system.borrow())
    }

    fn effect(&self, key: &str, context: &Context<'_>) -> Result<Effect, TargetError> {
        self.system.borrow().effect(&self.spec, key, context)
    }

    fn setting(&self, key: &str, context: &Context<'_>) -> Result<Option<String>, TargetError> {
        self.system.borrow().setting(&self.spec, key, context)
    }

    fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), TargetError> {
        self.system.borrow().set(&self.spec, key, value)
    }

    fn ailment(&self, context: &Context<'_>) -> Option<String> {
        self.system.borrow().ailment(&self.spec, context)
    }

    fn end(&mut self) {
        self.objects.remove(&self.system.borrow(), &self.program);
    }
}

impl Drop for RadosTarget {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Operation;
    use crate::target::Opener;

    fn of_writes() -> Load {
        Load {
            operation: Operation::ObjectWrite,
            block_bytes: 65536,
            depth: 4,
            jobs: 1,
            amount: Amount::Fill,
            size_bytes: 1 << 20,
            rate_iops: None,
            seed: 1,
            processors: None,
        }
    }

    #[test]
    fn objects_have_names_that_nobody_else_gives() {
        let load = of_writes();
        let target = Opener::new(Path::new("/nonexistent")).open("rados:pool").unwrap();
        let line = |target: &dyn Target, load: &Load| {
            let commands = target.commands(load, &[0]);
            assert_eq!((commands.len(), commands[0].format), (1, Format::Coquina));
            commands[0].arguments.join(" ")
        };
        let fill = line(target.as_ref(), &load);
        let name =
            fill.split(' ').find_map(|word| word.strip_prefix("rados:admin@pool/coquina-bench-")).unwrap();
        let parts: Vec<&str> = name.split('-').collect();
        assert_eq!((parts[0], parts[3], parts[4]), (&*std::process::id().to_string(), "65536", ""), "{name}");
        assert!(u128::from_str_radix(parts[1], 16).is_ok(), "{name}");
        let end = " --size 1048576 --rw write --bs 65536 --depth 4 --jobs 1 --bytes 1048576 --warmup 0";
        assert!(fill.ends_with(end), "each of the 16 is written once: {fill}");
        let of_read = Load {
            operation: Operation::ObjectRead,
            amount: Amount::Time { warmup_s: 0.5, runtime_s: 2.0 },
            depth: 128,
            ..load.clone()
        };
        let read = line(target.as_ref(), &of_read);
        assert!(read.contains(name) && read.contains(" --size 1048576 --rw read --bs 65536"), "{read}");
        let other = Opener::new(Path::new("/nonexistent")).open("rbd:pool/image").unwrap();
        assert!(!line(other.as_ref(), &of_read).contains(name), "another target of the run has its own");
    }

    fn leftovers_of(pool: &str) -> Vec<String> {
        leftovers::all().into_iter().filter(|note| note.contains(pool)).collect()
    }

    #[test]
    fn objects_that_were_written_are_told_with_the_command_that_removes_them() {
        let target = Opener::new(Path::new("/nonexistent")).open("rados:of-notes").unwrap();
        let load =
            |operation, block_bytes, size_bytes| Load { operation, block_bytes, size_bytes, ..of_writes() };
        target.commands(&load(Operation::ObjectRead, 65536, 1 << 20), &[0]);
        assert_eq!(leftovers_of("of-notes"), Vec::<String>::new(), "who reads leaves nothing");
        target.commands(&load(Operation::ObjectWrite, 65536, 1 << 20), &[0]);
        target.commands(&load(Operation::ObjectWrite, 65536, 1 << 20), &[0]);
        target.commands(&load(Operation::ObjectWrite, 4 << 20, 64 << 20), &[0]);
        let notes = leftovers_of("of-notes");
        assert_eq!(notes.len(), 2, "one of each size: {notes:?}");
        assert!(
            notes[0].starts_with("objects of the pool of-notes: ") && !notes[0].contains("rados ls"),
            "{notes:?}"
        );
        assert!(
            notes[0].contains(" bench io --remove --target rados:admin@of-notes/coquina-bench-"),
            "{notes:?}"
        );
        assert!(notes[0].ends_with("-65536- --bs 65536 --size 1048576"), "{notes:?}");
        assert!(notes[1].ends_with("-4194304- --bs 4194304 --size 67108864"), "{notes:?}");
    }

    /// A cluster that answers, or not, and a `coquina` that notes what it is told, and fails if a file says so.
    fn stand_in(folder: &Path) -> RadosTarget {
        let folder_text = folder.display();
        let script = format!(
            "case \"$(basename \"$0\")\" in\nceph) [ ! -e {folder_text}/no-cluster ] ;;\n\
             *) echo \"$*\" >>{folder_text}/calls; [ ! -e {folder_text}/fails ] ;;\nesac\n"
        );
        ceph::tests::install(folder, &script, &["ceph", "coquina"]);
        let system = ceph::running("of-removal");
        system.borrow_mut().programs = folder.to_owned();
        let mut target = RadosTarget::of("rados:of-removal", system);
        target.program = folder.join("coquina");
        target
    }

    #[test]
    fn objects_are_removed_once_by_name_and_told_where_that_fails() {
        let folder = tempfile::tempdir().unwrap();
        let calls = || std::fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
        let notes = || leftovers_of(&folder.path().display().to_string()).len();
        let mut target = stand_in(folder.path());
        target.end();
        assert_eq!((calls().as_str(), notes()), ("", 0), "nothing was written");
        target.commands(&of_writes(), &[0]);
        assert_eq!(notes(), 1);
        target.end();
        target.end();
        let removal = format!(
            "bench io --remove --target rados:admin@of-removal/{}65536- --bs 65536 --size 1048576\n",
            target.objects.prefix
        );
        assert_eq!((calls(), notes()), (removal.clone(), 0));
        std::fs::write(folder.path().join("fails"), "").unwrap();
        target.commands(&of_writes(), &[0]);
        target.end();
        assert_eq!((calls(), notes()), (removal.repeat(2), 1), "it may be there still");
        std::fs::write(folder.path().join("no-cluster"), "").unwrap();
        target.commands(&of_writes(), &[0]);
        target.end();
        assert_eq!((calls(), notes()), (removal.repeat(2), 2), "nobody answers");
    }

    #[test]
    fn a_pool_is_named_without_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut target = Opener::new(folder.path()).open("rados:pool/prefix").unwrap();
        let context = crate::target::tests::context(folder.path());
        let error = target.begin(&context).unwrap_err().to_string();
        assert!(error.contains("write it as rados:POOL"), "{error}");
    }
}
