//! `file:PATH[,PATH...]`: plain files, each a volume or a drive of its own, by fio with io_uring, or libaio where that may not be
//! used; at a rate by `coquina bench io`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{
    Context, ENGINE_SETTING, Reach, Target, TargetError, absolute, choose_engine, medium, need_room, reach,
    users_of,
};
use crate::definition::Layout;
use crate::generator::fio::{self, Engine, FioOptions};
use crate::generator::{Command, Load, coquina};
use crate::leftovers::{self, Note};
use crate::report::TargetFacts;

/// Plain files.
pub struct FileTarget {
    spec: String,
    named: Vec<PathBuf>,
    /// The files in use: those that were named, and more of the same name with a number if a scenario needs them.
    files: Vec<PathBuf>,
    /// Files that were made, each with a note, but in the run's own folder, which goes as a whole.
    made: Vec<(PathBuf, Option<Note>)>,
    /// What files that were there when the run began had on their disks then.
    found_bytes: BTreeMap<PathBuf, u64>,
    /// Files that were there and empty, and are so again in the end.
    emptied: Vec<(PathBuf, Note)>,
    engine: Engine,
    /// Most files of a scenario.
    files_max: usize,
    program: PathBuf,
}

impl FileTarget {
    /// `paths` is a list with commas.
    pub fn new(spec: &str, paths: &str) -> Self {
        Self::of(spec, absolute(paths))
    }

    /// These files.
    pub fn of(spec: &str, named: Vec<PathBuf>) -> Self {
        let files_max = named.len();
        FileTarget {
            spec: spec.to_owned(),
            named,
            files: Vec::new(),
            made: Vec::new(),
            found_bytes: BTreeMap::new(),
            emptied: Vec::new(),
            engine: Engine::default(),
            files_max,
            program: PathBuf::new(),
        }
    }

    fn unusable(&self, message: String) -> TargetError {
        TargetError::Unusable { spec: self.spec.clone(), message }
    }

    /// What each named file may have. All have the same size, so the fullest file system decides. It is the same for each scenario: what
    /// volumes of the run take counts as free.
    fn each_bytes(&self) -> Result<Option<u64>, TargetError> {
        let mut smallest = None;
        let all = self.all();
        for files in by_file_system(&all) {
            let named: Vec<&PathBuf> =
                files.iter().copied().filter(|path| self.named.contains(path)).collect();
            if named.is_empty() {
                continue;
            }
            let free =
                super::free_bytes(place_of(named[0])).map_err(|error| self.unusable(error.to_string()))?;
            let found_bytes =
                |path: &PathBuf| self.found_bytes.get(path).copied().unwrap_or_else(|| length_bytes(path));
            let own: u64 =
                files.iter().map(|path| length_bytes(path).saturating_sub(found_bytes(path))).sum();
            // Holes have to be written, too.
            let existing: u64 = named.iter().map(|path| found_bytes(path)).sum();
            // Half of what is free: others share the disk.
            let each = ((free + own) / 2 + existing) / named.len() as u64;
            smallest = Some(smallest.unwrap_or(each).min(each));
        }
        Ok(smallest)
    }

    fn numbered(&self, number: usize) -> PathBuf {
        match self.named.get(number) {
            Some(path) => path.clone(),
            None => {
                let mut path = self.named[0].clone().into_os_string();
                path.push(format!("-{number}"));
                path.into()
            }
        }
    }

    /// Files that scenarios may use.
    fn all(&self) -> Vec<PathBuf> {
        (0..self.files_max).map(|number| self.numbered(number)).collect()
    }

    /// Refuses what is no file, or holds something that nobody has given up. Whoever gives up what they named has not given up
    /// what is called so with a number.
    fn check(&self, path: &Path, context: &Context<'_>) -> Result<(), TargetError> {
        let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
        if !metadata.is_file() {
            return Err(self.unusable(format!(
                "{} is not a regular file; a block device is named device:PATH",
                path.display()
            )));
        }
        let name = path.to_string_lossy().into_owned();
        let users = users_of(path);
        if !users.is_empty() {
            return Err(self.unusable(format!("{name} is in use: {}; free it first", users.join(", "))));
        }
        let spec = if self.named.iter().any(|named| named == path) { self.spec.as_str() } else { &name };
        let is_ours = self.emptied.iter().any(|(emptied, _)| emptied == path);
        if metadata.len() > 0 && !is_ours && !context.may_destroy_path(spec, path) {
            let what = coquina_base::format_size_bytes(metadata.len());
            return Err(TargetError::HoldsData { spec: self.spec.clone(), name, what });
        }
        let opened = std::fs::File::options().write(true).open(path);
        opened
            .map(drop)
            .map_err(|error| self.unusable(format!("cannot write to {}: {error}", path.display())))
    }

    /// Makes a file, which must not be there.
    fn make(&mut self, path: &Path, size_bytes: u64, context: &Context<'_>) -> Result<(), TargetError> {
        let failed = |error| TargetError::Unusable {
            spec: self.spec.clone(),
            message: format!("cannot make {}: {error}", path.display()),
        };
        let file = std::fs::File::options().create_new(true).write(true).open(path).map_err(failed)?;
        let sized = file.set_len(size_bytes).map_err(failed);
        let note = (!path.starts_with(&context.folder))
            .then(|| leftovers::note(format!("the file {}: rm {}", path.display(), leftovers::quoted(path))));
        self.made.push((path.to_owned(), note));
        sized
    }

    /// Makes a file that is there as long as a volume. fio would remove a shorter one, or the link that leads to it, and make another in
    /// its place: with another owner, maybe on another drive, and what was there would be as it was.
    fn lengthen(&self, path: &Path, size_bytes: u64) -> Result<(), TargetError> {
        let lengthened = std::fs::File::options().write(true).open(path).and_then(|file| {
            if file.metadata()?.len() < size_bytes { file.set_len(size_bytes) } else { Ok(()) }
        });
        lengthened.map_err(|error| {
            let size = coquina_base::format_size_bytes(size_bytes);
            self.unusable(format!("cannot make {} as long as a volume, {size}: {error}", path.display()))
        })
    }

    fn remove_made(&mut self) {
        let mut hangs = false;
        for (path, note) in self.made.drain(..) {
            if !is_removed(&mut hangs, move || std::fs::remove_file(path)) {
                note.into_iter().for_each(Note::keep);
            }
        }
    }

    /// Files that were empty before the run are so after it.
    fn empty_again(&mut self) {
        let mut hangs = false;
        for (path, note) in self.emptied.drain(..) {
            let empty = move || std::fs::File::options().write(true).open(&path)?.set_len(0);
            if !is_removed(&mut hangs, empty) {
                note.keep();
            }
        }
    }
}

/// Removes a file, which may be gone already, but not when the drive of another one hangs: this one is on the same, mostly.
fn is_removed(hangs: &mut bool, remove: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> bool {
    let or_gone = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    };
    let removed = if *hangs { None } else { leftovers::removed(move || remove().or_else(or_gone)) };
    *hangs |= removed.is_none();
    removed == Some(true)
}

/// fio's options for direct, durable I/O on paths.
pub(super) fn direct_options(paths: &[PathBuf], engine: &Engine) -> FioOptions {
    let volumes = paths.iter().map(|path| {
        // fio takes colons in names as the ends of names.
        vec![("filename".to_owned(), path.to_string_lossy().replace(':', "\\:"))]
    });
    FioOptions {
        engine: engine.name.clone(),
        options: vec![
            ("sync".to_owned(), "dsync".to_owned()),
            // What is gone is an error: a file in its place would be another one, and in place of a device one in memory.
            ("allow_file_create".to_owned(), "0".to_owned()),
        ],
        volumes: volumes.collect(),
        ..FioOptions::default()
    }
}

/// Why the engine is not the usual one, if so.
pub(super) fn engine_settings(engine: &Engine) -> BTreeMap<String, String> {
    engine.note.iter().map(|note| (ENGINE_SETTING.to_owned(), note.clone())).collect()
}

/// The same load at a rate by `coquina bench io`, durable as well. `kind` is `file` or `device`.
pub(super) fn open_loop(program: &Path, kind: &str, paths: &[PathBuf], load: &Load) -> Vec<Command> {
    let targets: Vec<String> = paths.iter().map(|path| format!("{kind}:{}", path.display())).collect();
    coquina::commands(program, &targets, &["--durable".to_owned()], load)
}

impl Target for FileTarget {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn begin(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        self.program.clone_from(&context.program);
        if self.named.is_empty() {
            return Err(TargetError::Unknown(self.spec.clone()));
        }
        for path in &self.named {
            let folder = path.parent().unwrap_or(Path::new("/"));
            if !folder.is_dir() {
                return Err(self.unusable(format!("the folder {} does not exist; make it", folder.display())));
            }
        }
        self.files_max = self.named.len().max(context.volumes_max as usize);
        let all = self.all();
        all.iter().try_for_each(|path| self.check(path, context))?;
        self.found_bytes = all.into_iter().map(|path| (path.clone(), length_bytes(&path))).collect();
        self.engine = choose_engine(&self.spec, context)?;
        Ok(())
    }

    fn facts(&self) -> TargetFacts {
        TargetFacts {
            label: if self.named.len() > 1 { "plain files".to_owned() } else { "plain file".to_owned() },
            spec: self.spec.clone(),
            system: "file system".to_owned(),
            copies: Some(1),
            durable: medium::durable_at(&self.named, Some(true)),
            cache: format!("none: O_DIRECT, each write O_DSYNC{}", medium::memory_note(&self.named)),
            generator: format!("fio {}", self.engine.name),
            settings: engine_settings(&self.engine),
            ..TargetFacts::default()
        }
    }

    fn space_bytes(&self, _copies: Option<u32>, _context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        Ok(self.each_bytes()?.map(|each| each * self.named.len() as u64))
    }

    /// All named files are made, each as large as a volume, also where a scenario has fewer volumes.
    fn drive_bytes(&self) -> Option<u64> {
        if self.named.len() > 1 { self.each_bytes().ok().flatten() } else { None }
    }

    fn refuses(&self, layout: &Layout) -> Option<String> {
        if layout.stripe.is_some() {
            return Some("a plain file is not striped".to_owned());
        }
        layout.aged.map(|_| "a plain file does not age".to_owned())
    }

    fn lay_out(&mut self, layout: &Layout, context: &Context<'_>) -> Result<bool, TargetError> {
        self.remove_made();
        let count = (layout.volumes as usize).max(self.named.len());
        self.files = (0..count).map(|number| self.numbered(number)).collect();
        let new: Vec<PathBuf> = self.files.iter().filter(|path| !path.exists()).cloned().collect();
        for (files, place) in by_file_system(&self.files).iter().map(|files| (files, place_of(files[0]))) {
            // An empty file that is there takes as much as a new one.
            let wanted =
                files.iter().map(|path| layout.volume_bytes.saturating_sub(length_bytes(path))).sum();
            need_room(&self.spec, place, wanted)?;
        }
        // All before the first is made: what is there may have come since the run began.
        self.files.iter().try_for_each(|path| self.check(path, context))?;
        for path in &new {
            self.make(path, layout.volume_bytes, context)?;
        }
        for path in &self.files {
            let is_known = self.emptied.iter().any(|(emptied, _)| emptied == path);
            if !is_known && std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0) {
                let (name, quoted) = (path.display(), leftovers::quoted(path));
                let text = format!("data of the run in {name}, which was empty: truncate --size 0 {quoted}");
                self.emptied.push((path.clone(), leftovers::note(text)));
            }
            self.lengthen(path, layout.volume_bytes)?;
        }
        Ok(true)
    }

    fn commands(&self, load: &Load, volumes: &[u32]) -> Vec<Command> {
        let files: Vec<PathBuf> =
            volumes.iter().filter_map(|volume| self.files.get(*volume as usize)).cloned().collect();
        if load.rate_iops.is_some() {
            return open_loop(&self.program, "file", &files, load);
        }
        let files: Vec<PathBuf> = files.iter().map(|path| for_fio(path)).collect();
        vec![fio::command(&direct_options(&files, &self.engine), load)]
    }

    fn fio_engine(&self) -> Option<String> {
        Some(self.engine.name.clone())
    }

    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Before a scenario has chosen its files, all that may be used: the drives below are looked at before anything is laid out.
    fn places(&self) -> Vec<PathBuf> {
        if self.files.is_empty() { self.all() } else { self.files.clone() }
    }

    fn drives(&self) -> u32 {
        self.named.len() as u32
    }

    fn named_paths(&self) -> Vec<PathBuf> {
        self.all()
    }

    fn reach(&self) -> Reach {
        reach::of_path("file")
    }

    fn is_baseline(&self) -> bool {
        true
    }

    fn end(&mut self) {
        self.remove_made();
        self.empty_again();
    }
}

/// The file itself, which a link may lead to, or the folder in which it will be made.
fn place_of(path: &Path) -> &Path {
    if path.exists() { path } else { path.parent().unwrap_or(Path::new("/")) }
}

/// Where a path leads, unless fio would take that for something else: a link has a name that it takes. Whatever fio does to what it is
/// given, the link stays.
fn for_fio(path: &Path) -> PathBuf {
    let real = path.canonicalize().ok().filter(|real| fio::check_name(&real.to_string_lossy()).is_ok());
    real.unwrap_or_else(|| path.to_owned())
}

/// What a file has on its disk, holes not counted; 0 for one that is not there.
fn length_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len().min(metadata.blocks() * 512))
}

/// Files by the file system on which they lie or will lie; all of which that cannot be seen together.
fn by_file_system(files: &[PathBuf]) -> Vec<Vec<&PathBuf>> {
    let mut found: BTreeMap<Option<u64>, Vec<&PathBuf>> = BTreeMap::new();
    for path in files {
        let device = std::fs::metadata(place_of(path)).ok().map(|metadata| metadata.dev());
        found.entry(device).or_default().push(path);
    }
    found.into_values().collect()
}

impl Drop for FileTarget {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    use super::super::tests::{context, layout};
    use super::*;
    use crate::generator::{Amount, Running};
    use crate::report::Operation;

    /// On a drive: file systems in memory may be without `O_DIRECT`.
    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    /// What files are, and how they are called: number, mode, names and length.
    fn identities(folder: &Path) -> Vec<(PathBuf, (u64, u32, u64, u64))> {
        let mut found: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let of = std::fs::metadata(&path).unwrap();
                (path, (of.ino(), of.mode(), of.nlink(), of.len()))
            })
            .collect();
        found.sort();
        found
    }

    /// fio took files away that were shorter than a volume, or the links to them, and made others in their place: with another owner and
    /// mode, where the links had been.
    #[test]
    fn what_is_there_is_written_to_as_it_is_and_whatever_leads_to_it_stays() {
        let folder = folder();
        let (links, there, scratch) =
            (folder.path().join("links"), folder.path().join("there"), folder.path().join("scratch"));
        [&links, &there, &scratch].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
        // fio would take the name of the last one for another.
        for (name, data) in [("short", "data"), ("empty", ""), ("odd#1", "data")] {
            std::fs::write(there.join(name), data).unwrap();
            std::fs::set_permissions(there.join(name), std::fs::Permissions::from_mode(0o640)).unwrap();
            symlink(there.join(name), links.join(name.trim_end_matches("#1"))).unwrap();
        }
        std::fs::hard_link(there.join("short"), there.join("hard")).unwrap();
        let named = |name: &str| links.join(name).to_string_lossy().into_owned();
        let paths = [named("short"), named("empty"), named("odd")].join(",");
        let spec = format!("file:{paths}");
        let context = Context { destroy: vec![spec.clone()], volumes_max: 3, ..context(&scratch) };
        let mut target = FileTarget::new(&spec, &paths);
        target.begin(&context).unwrap();
        const VOLUME_BYTES: u64 = 16 << 20;
        let before = identities(&there);
        target.lay_out(&Layout { volume_bytes: VOLUME_BYTES, ..layout(3) }, &context).unwrap();
        let fill = Load {
            operation: Operation::SequentialWrite,
            block_bytes: 1 << 20,
            depth: 4,
            jobs: 1,
            amount: Amount::Fill,
            size_bytes: VOLUME_BYTES,
            rate_iops: None,
            seed: 1,
            processors: None,
        };
        let in_order = Load {
            jobs: 3,
            amount: Amount::Time { warmup_s: 0.0, runtime_s: 0.5 },
            block_bytes: 4096,
            ..fill.clone()
        };
        for load in [fill, in_order] {
            for command in target.commands(&load, &[0, 1, 2]) {
                let running = Running::start(&command, &scratch).unwrap();
                let outcome = running.finish(Duration::from_secs(120), &|| false).unwrap();
                assert_eq!((outcome.errors, outcome.first_error), (0, None));
            }
            for ((path, (number, mode, names, _)), (_, after)) in before.iter().zip(identities(&there)) {
                assert_eq!(after, (*number, *mode, *names, VOLUME_BYTES), "{}, {load:?}", path.display());
                assert!(
                    std::fs::metadata(path).unwrap().blocks() * 512 >= VOLUME_BYTES,
                    "{}",
                    path.display()
                );
            }
        }
        assert!(["short", "empty", "odd"].iter().all(|name| links.join(name).is_symlink()));
        target.end();
        let length = |name: &str| std::fs::metadata(there.join(name)).unwrap().len();
        assert_eq!((length("empty"), length("short")), (0, VOLUME_BYTES));
        assert_eq!(identities(&links).len(), 3);
    }

    #[test]
    fn room_is_looked_for_where_a_link_leads() {
        let (folder, small) = (folder(), tempfile::tempdir_in("/dev/shm").unwrap());
        std::fs::write(small.path().join("disk"), "").unwrap();
        let link = folder.path().join("disk");
        symlink(small.path().join("disk"), &link).unwrap();
        let free = super::super::free_bytes(small.path()).unwrap();
        let each = FileTarget::of("file:disk", vec![link]).each_bytes().unwrap().unwrap();
        // Others use it meanwhile.
        assert!(each <= free / 2 + free / 10, "{each} of half of {free}");
    }

    /// The scenario behind one with several files had smaller volumes, and behind one with a file that was lengthened larger ones.
    #[test]
    fn volumes_of_the_run_take_no_room_from_its_next_scenario() {
        const VOLUME_BYTES: u64 = 48 << 20;
        let (scratch, small) = (folder(), tempfile::tempdir_in("/dev/shm").unwrap());
        for found_bytes in [None, Some(VOLUME_BYTES / 2), Some(0)] {
            let path = small.path().join("disk");
            if let Some(bytes) = found_bytes {
                std::fs::write(&path, vec![1; bytes as usize]).unwrap();
            }
            let spec = format!("file:{}", path.display());
            let context = Context { destroy: vec![spec.clone()], volumes_max: 3, ..context(scratch.path()) };
            let mut target = FileTarget::new(&spec, &path.to_string_lossy());
            target.begin(&context).unwrap();
            let before = target.space_bytes(None, &context).unwrap().unwrap();
            target.lay_out(&Layout { volume_bytes: VOLUME_BYTES, ..layout(3) }, &context).unwrap();
            for file in &target.files {
                std::fs::write(file, vec![1; VOLUME_BYTES as usize]).unwrap();
            }
            let after = target.space_bytes(None, &context).unwrap().unwrap();
            // Others use it meanwhile.
            let moved = after.abs_diff(before);
            assert!(moved < VOLUME_BYTES / 8, "{found_bytes:?}: {before} became {after}");
            target.end();
            let _ = std::fs::remove_file(&path);
        }
    }

    /// A server's drive file that was given up by mistake; `coquina bench io` refused it, and `bench run` wrote to it.
    #[test]
    fn a_file_that_another_process_has_locked_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        std::fs::write(&path, "data").unwrap();
        let spec = format!("file:{}", path.display());
        let context = Context { destroy: vec![spec.clone()], ..context(folder.path()) };
        let target = FileTarget::new(&spec, &path.to_string_lossy());
        assert!(target.check(&path, &context).is_ok());
        let locked = std::fs::File::open(&path).unwrap();
        locked.lock().unwrap();
        let error = target.check(&path, &context).unwrap_err().to_string();
        assert!(error.contains("is in use: another process has locked it; free it first"), "{error}");
        drop(locked);
        assert!(target.check(&path, &context).is_ok());
    }
}
