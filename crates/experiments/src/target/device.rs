//! `device:PATH[,PATH...]`: block devices, by fio with io_uring, or libaio where that may not be used; at a rate by
//! `coquina bench io`.
//!
//! A device that is written to must have been given up by name, however empty it looks: what holds data need not leave a mark at
//! its beginning.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::file::{direct_options, engine_settings, open_loop};
use super::{Context, Reach, Target, TargetError, absolute, choose_engine, device_use, medium, reach};
use crate::definition::Layout;
use crate::generator::fio::{self, Engine};
use crate::generator::{Command, Load};
use crate::report::{Point, TargetFacts};

/// Bytes at the start of a device that are looked at: partition tables and file systems leave something there.
const LOOK_BYTES: usize = 1 << 20;

/// Block devices.
pub struct DeviceTarget {
    spec: String,
    devices: Vec<PathBuf>,
    sizes_bytes: Vec<u64>,
    may_write: bool,
    engine: Engine,
    program: PathBuf,
}

impl DeviceTarget {
    /// `paths` is a list with commas.
    pub fn new(spec: &str, paths: &str) -> Self {
        DeviceTarget {
            spec: spec.to_owned(),
            devices: absolute(paths),
            sizes_bytes: Vec::new(),
            may_write: false,
            engine: Engine::default(),
            program: PathBuf::new(),
        }
    }

    /// Opens a device that nobody else uses.
    fn open(&self, device: &Path) -> Result<File, TargetError> {
        let unusable = |message: String| TargetError::Unusable { spec: self.spec.clone(), message };
        let metadata = std::fs::metadata(device).map_err(|error| {
            let path = device.display();
            unusable(match error.kind() {
                ErrorKind::NotFound => format!("there is no device {path}; lsblk lists those of this host"),
                _ => format!("cannot use {path}: {error}"),
            })
        })?;
        if !metadata.file_type().is_block_device() {
            return Err(unusable(format!(
                "{} is not a block device; a file is named file:PATH",
                device.display()
            )));
        }
        // O_EXCL on a device fails while it, or a part of it, is mounted, used for swap, or a part of another device.
        let opened = File::options().read(true).custom_flags(libc::O_EXCL).open(device);
        let users = device_use::users(libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        let in_use = || {
            let how = match users.is_empty() {
                true => "mounted, swap, or a part of another device".to_owned(),
                false => users.join(", "),
            };
            unusable(format!(
                "{} is in use: {how}; unmount or free it first (see lsblk {})",
                device.display(),
                device.display()
            ))
        };
        let file = opened.map_err(|error| match (error.raw_os_error(), error.kind()) {
            (Some(libc::EBUSY), _) => in_use(),
            (_, ErrorKind::PermissionDenied) => {
                unusable(format!(
                    "{} cannot be opened: {error}; run this as root, and where you are root in a container, give it the device",
                    device.display()
                ))
            }
            _ => unusable(format!("{} cannot be opened: {error}", device.display())),
        })?;
        if users.is_empty() { Ok(file) } else { Err(in_use()) }
    }

    /// Its size, and whether it may be written to.
    fn look_at(&self, device: &Path, context: &Context<'_>) -> Result<(u64, bool), TargetError> {
        let mut file = self.open(device)?;
        let unusable = |message: String| TargetError::Unusable { spec: self.spec.clone(), message };
        let failed = |error: std::io::Error| unusable(format!("cannot read {}: {error}", device.display()));
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut head = Vec::new();
        file.take(LOOK_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
        let name = device.to_string_lossy().into_owned();
        let may_destroy = context.may_destroy_path(&self.spec, device);
        if context.writes && !may_destroy {
            let head = match head.iter().all(|byte| *byte == 0) {
                true => "its first MiB is empty, which says nothing of the rest",
                false => "its first MiB is not empty",
            };
            let what = format!("{}, {head}", coquina_base::format_size_bytes(size_bytes));
            return Err(TargetError::HoldsData { spec: self.spec.clone(), name, what });
        }
        Ok((size_bytes, may_destroy))
    }
}

impl Target for DeviceTarget {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn begin(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        self.program.clone_from(&context.program);
        if self.devices.is_empty() {
            return Err(TargetError::Unknown(self.spec.clone()));
        }
        let looked: Result<Vec<(u64, bool)>, TargetError> =
            self.devices.iter().map(|device| self.look_at(device, context)).collect();
        let looked = looked?;
        self.may_write = looked.iter().all(|(_, may_write)| *may_write);
        self.sizes_bytes = looked.into_iter().map(|(size_bytes, _)| size_bytes).collect();
        self.engine = choose_engine(&self.spec, context)?;
        Ok(())
    }

    fn facts(&self) -> TargetFacts {
        let mut facts = TargetFacts {
            label: if self.devices.len() > 1 { "raw drives".to_owned() } else { "raw drive".to_owned() },
            spec: self.spec.clone(),
            system: "block device".to_owned(),
            copies: Some(1),
            durable: medium::durable_at(&self.devices, Some(true)),
            cache: format!("none: O_DIRECT, each write O_DSYNC{}", medium::memory_note(&self.devices)),
            generator: format!("fio {}", self.engine.name),
            settings: engine_settings(&self.engine),
            ..TargetFacts::default()
        };
        if !self.may_write {
            let note = "no: only reads, and nobody gave the data up; blocks never written may be read without the medium";
            facts.settings.insert("written full before".to_owned(), note.to_owned());
        }
        facts
    }

    fn space_bytes(&self, _copies: Option<u32>, _context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        // The smallest decides, since all get the same.
        Ok(Some(self.drive_bytes().unwrap_or(0) * self.devices.len() as u64))
    }

    fn drive_bytes(&self) -> Option<u64> {
        self.sizes_bytes.iter().copied().min()
    }

    fn refuses(&self, layout: &Layout) -> Option<String> {
        if layout.stripe.is_some() {
            return Some("a plain device is not striped".to_owned());
        }
        if layout.volumes as usize > self.devices.len() {
            return Some(format!("{} devices are needed, {} were named", layout.volumes, self.devices.len()));
        }
        layout.aged.map(|_| "a plain device is not aged by this".to_owned())
    }

    fn refuses_point(&self, point: &Point) -> Option<String> {
        let devices = point.drives.filter(|drives| *drives > 0).unwrap_or(point.volumes);
        let is_shared = point.rate_iops.is_some() && point.operation.writes() && point.clients > devices;
        is_shared.then(|| {
            format!(
                "at a rate each client has its device for itself: {} clients need as many devices, or take a closed loop",
                point.clients
            )
        })
    }

    fn lay_out(&mut self, _layout: &Layout, _context: &Context<'_>) -> Result<bool, TargetError> {
        // Somebody may have mounted one since the run began.
        self.devices.iter().try_for_each(|device| self.open(device).map(drop))?;
        Ok(self.may_write)
    }

    fn commands(&self, load: &Load, volumes: &[u32]) -> Vec<Command> {
        let devices: Vec<PathBuf> =
            volumes.iter().filter_map(|volume| self.devices.get(*volume as usize)).cloned().collect();
        if load.rate_iops.is_some() {
            return open_loop(&self.program, "device", &devices, load);
        }
        let mut options = direct_options(&devices, &self.engine);
        // fio refuses to write to a mounted device as well.
        options.options.push(("allow_mounted_write".to_owned(), "0".to_owned()));
        vec![fio::command(&options, load)]
    }

    fn fio_engine(&self) -> Option<String> {
        Some(self.engine.name.clone())
    }

    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.devices.clone()
    }

    fn drives(&self) -> u32 {
        self.devices.len() as u32
    }

    fn named_paths(&self) -> Vec<PathBuf> {
        self.devices.clone()
    }

    fn keeps_its_data(&self) -> bool {
        !self.may_write
    }

    fn reach(&self) -> Reach {
        reach::of_path("block device")
    }

    fn is_baseline(&self) -> bool {
        true
    }

    fn end(&mut self) {}
}
