//! `file:PATH[,PATH...]`: plain files, each a volume or a drive of its own, by fio with io_uring; at a rate by
//! `coquina bench io`.

use std::path::{Path, PathBuf};

use super::{Context, Target, TargetError, need_room};
use crate::definition::Layout;
use crate::generator::fio::{self, FioOptions};
use crate::generator::{Command, Load, coquina};
use crate::report::TargetFacts;

/// Plain files.
pub struct FileTarget {
    spec: String,
    named: Vec<PathBuf>,
    /// The files in use: those that were named, and more of the same name with a number if a scenario needs them.
    files: Vec<PathBuf>,
    made: Vec<PathBuf>,
    program: PathBuf,
}

impl FileTarget {
    /// `paths` is a list with commas.
    pub fn new(spec: &str, paths: &str) -> Self {
        let named: Vec<PathBuf> =
            paths.split(',').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
        FileTarget {
            spec: spec.to_owned(),
            named,
            files: Vec::new(),
            made: Vec::new(),
            program: PathBuf::new(),
        }
    }

    fn unusable(&self, message: String) -> TargetError {
        TargetError::Unusable { spec: self.spec.clone(), message }
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

    fn remove_made(&mut self) {
        for path in self.made.drain(..) {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// fio's options for direct, durable I/O on a path with io_uring.
pub(super) fn direct_options(paths: &[PathBuf]) -> FioOptions {
    let volumes = paths.iter().map(|path| {
        // fio takes colons in names as the ends of names.
        vec![("filename".to_owned(), path.to_string_lossy().replace(':', "\\:"))]
    });
    FioOptions {
        engine: "io_uring".to_owned(),
        options: vec![("sync".to_owned(), "dsync".to_owned())],
        volumes: volumes.collect(),
        ..FioOptions::default()
    }
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
        for path in &mut self.named {
            *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
        }
        for path in &self.named {
            let folder = path.parent().unwrap_or(Path::new("/"));
            if !folder.is_dir() {
                return Err(self.unusable(format!("the folder {} does not exist; make it", folder.display())));
            }
            match std::fs::metadata(path) {
                Ok(metadata) if !metadata.is_file() => {
                    return Err(self.unusable(format!(
                        "{} is not a regular file; a block device is named device:PATH",
                        path.display()
                    )));
                }
                Ok(metadata) if metadata.len() > 0 => {
                    let name = path.to_string_lossy().into_owned();
                    if !context.may_destroy(&self.spec, &name) {
                        let what = coquina_base::format_size_bytes(metadata.len());
                        return Err(TargetError::HoldsData { spec: self.spec.clone(), name, what });
                    }
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn facts(&self) -> TargetFacts {
        TargetFacts {
            label: if self.named.len() > 1 { "plain files".to_owned() } else { "plain file".to_owned() },
            spec: self.spec.clone(),
            system: "file system".to_owned(),
            copies: Some(1),
            durable: Some(true),
            cache: "none: O_DIRECT, each write O_DSYNC".to_owned(),
            generator: "fio io_uring".to_owned(),
            ..TargetFacts::default()
        }
    }

    fn space_bytes(&self, _copies: Option<u32>) -> Result<Option<u64>, TargetError> {
        let folder = self.named[0].parent().unwrap_or(Path::new("/"));
        let free = super::free_bytes(folder).map_err(|error| self.unusable(error.to_string()))?;
        let existing: u64 = self
            .named
            .iter()
            .filter_map(|path| std::fs::metadata(path).ok())
            .map(|metadata| metadata.len())
            .sum();
        // Half of what is free: others share the disk.
        Ok(Some(free / 2 + existing))
    }

    fn refuses(&self, layout: &Layout) -> Option<String> {
        if layout.stripe.is_some() {
            return Some("a plain file is not striped".to_owned());
        }
        layout.aged.map(|_| "a plain file does not age".to_owned())
    }

    fn lay_out(&mut self, layout: &Layout, _context: &Context<'_>) -> Result<bool, TargetError> {
        self.remove_made();
        let count = (layout.volumes as usize).max(self.named.len());
        self.files = (0..count).map(|number| self.numbered(number)).collect();
        let new: Vec<PathBuf> = self.files.iter().filter(|path| !path.exists()).cloned().collect();
        if let Some(folder) = self.files[0].parent() {
            need_room(&self.spec, folder, layout.volume_bytes * new.len() as u64)?;
        }
        for path in &self.files {
            let is_new = new.contains(path);
            let made = std::fs::File::options()
                .create(true)
                .write(true)
                .truncate(false)
                .open(path)
                .and_then(|file| if is_new { file.set_len(layout.volume_bytes) } else { Ok(()) });
            if is_new {
                self.made.push(path.clone());
            }
            made.map_err(|error| TargetError::Unusable {
                spec: self.spec.clone(),
                message: format!("cannot make {}: {error}", path.display()),
            })?;
        }
        Ok(true)
    }

    fn commands(&self, load: &Load, volumes: &[u32]) -> Vec<Command> {
        let files: Vec<PathBuf> =
            volumes.iter().filter_map(|volume| self.files.get(*volume as usize)).cloned().collect();
        if load.rate_iops.is_some() {
            return open_loop(&self.program, "file", &files, load);
        }
        vec![fio::command(&direct_options(&files), load)]
    }

    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    fn drives(&self) -> u32 {
        self.named.len() as u32
    }

    fn is_baseline(&self) -> bool {
        true
    }

    fn end(&mut self) {
        self.remove_made();
    }
}

impl Drop for FileTarget {
    fn drop(&mut self) {
        self.remove_made();
    }
}
