//! `rados:POOL`: whole objects of a Ceph pool, by fio's engine for RADOS.

use std::cell::RefCell;
use std::path::PathBuf;

use super::ceph::{self, REMOVE_TIME_MAX, Shared, System};
use super::{Context, Effect, OpenLoop, Reach, Target, TargetError, medium, name_prefix};
use crate::definition::{Layout, OBJECTS_MAX};
use crate::generator::fio::{self, FioOptions};
use crate::generator::{Amount, Command, Load};
use crate::leftovers::{self, Note};
use crate::report::{Point, TargetFacts};

/// The engine of fio for whole objects.
pub(super) const ENGINE: &str = "rados";
/// Objects of one removal: each starts a program, which takes longer than to remove some.
const REMOVED_AT_ONCE: usize = 128;

/// A pool of objects.
pub struct RadosTarget {
    spec: String,
    system: Shared,
    written: Written,
}

/// Objects that a run has written, if it has.
#[derive(Debug, Default)]
pub(super) struct Written {
    note: RefCell<Option<Note>>,
}

impl Written {
    /// Load that writes objects is about to be made.
    pub fn begin(&self, system: &System) {
        // A cluster that was made for the run takes its objects along.
        if system.local.is_none() {
            self.note.borrow_mut().get_or_insert_with(|| {
                let (conf, pool) = (system.shell_environment(), leftovers::quoted(&system.pool));
                let prefix = name_prefix();
                leftovers::note(format!(
                    "objects of the pool {}: {conf}rados -p {pool} ls | grep '^{prefix}' | {conf}xargs -r -n 100 rados -p {pool} rm",
                    system.pool
                ))
            });
        }
    }

    /// Removes those objects; others of the pool stay.
    pub fn remove(&self, system: &System, spec: &str) {
        let Some(note) = self.note.borrow_mut().take() else { return };
        if !system.answers() || remove_objects(system, spec).is_err() {
            note.keep();
        }
    }
}

impl RadosTarget {
    /// On a cluster that runs.
    pub fn running(spec: &str, pool: &str) -> Self {
        RadosTarget::of(spec, ceph::running(pool))
    }

    /// Objects of that cluster.
    pub fn of(spec: &str, system: Shared) -> Self {
        RadosTarget { spec: spec.to_owned(), system, written: Written::default() }
    }
}

/// The command that reads or writes whole objects: each of fio's files is an object of the size of one operation.
pub(super) fn objects(system: &System, load: &Load) -> Command {
    let object_bytes = u64::from(load.block_bytes);
    let objects = (load.size_bytes / object_bytes).clamp(1, OBJECTS_MAX);
    // This engine does not look at the environment.
    let conf = system.conf_path().map(|conf| ("conf".to_owned(), conf));
    let named = vec![
        ("clientname".to_owned(), system.user.clone()),
        ("pool".to_owned(), system.pool.clone()),
        ("nrfiles".to_owned(), objects.to_string()),
        ("filesize".to_owned(), object_bytes.to_string()),
        ("file_service_type".to_owned(), "roundrobin:1".to_owned()),
        // Objects have the same names in each run of this size, so that those which were written are read.
        ("filename_format".to_owned(), format!("{}{object_bytes}-$filenum", name_prefix())),
    ];
    let options = FioOptions {
        engine: ENGINE.to_owned(),
        options: named.into_iter().chain(conf).collect(),
        volumes: vec![Vec::new()],
        environment: system.environment(),
        host: None,
    };
    let amount = match load.amount {
        // A fill writes each object once.
        Amount::Fill => Amount::Bytes(objects * object_bytes),
        amount => amount,
    };
    fio::command(&options, &Load { amount, size_bytes: objects * object_bytes, ..load.clone() })
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
        generator: "fio rados".to_owned(),
        settings: system.settings(),
        ..TargetFacts::default()
    }
}

fn remove_objects(system: &System, spec: &str) -> Result<(), TargetError> {
    let pool = &system.pool;
    let list = system.run_within(spec, "rados", &["-p", pool, "ls"], REMOVE_TIME_MAX)?;
    let made: Vec<&str> = list.lines().filter(|line| line.starts_with(name_prefix())).collect();
    made.chunks(REMOVED_AT_ONCE).try_for_each(|objects| {
        let remove = [&["-p", pool, "rm"], objects].concat();
        system.run_within(spec, "rados", &remove, REMOVE_TIME_MAX).map(drop)
    })
}

impl Target for RadosTarget {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn begin(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        self.system.borrow_mut().begin(&self.spec, context)
    }

    fn facts(&self) -> TargetFacts {
        let system = self.system.borrow();
        TargetFacts { label: format!("{}, objects", system.title()), ..facts_of_objects(&system, &self.spec) }
    }

    fn space_bytes(&self, _copies: Option<u32>, context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        self.system.borrow().space_bytes(&self.spec, context)
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
        self.system.borrow_mut().look_again(&self.spec, context);
        Ok(false)
    }

    fn commands(&self, load: &Load, _volumes: &[u32]) -> Vec<Command> {
        self.written.begin(&self.system.borrow());
        vec![objects(&self.system.borrow(), load)]
    }

    fn fio_engine(&self) -> Option<String> {
        Some(ENGINE.to_owned())
    }

    fn open_loop(&self) -> OpenLoop {
        OpenLoop::Fio
    }

    fn processes(&self) -> Vec<u32> {
        self.system.borrow().processes()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.system.borrow().places()
    }

    fn names(&self) -> Vec<String> {
        let system = self.system.borrow();
        std::iter::once(system.pool.clone()).chain(system.conf_path()).collect()
    }

    fn is_on_this_host(&self) -> bool {
        self.reach() != Reach::Anywhere || !self.processes().is_empty()
    }

    fn reach(&self) -> Reach {
        self.system.borrow().reach()
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
        self.written.remove(&self.system.borrow(), &self.spec);
    }
}

impl Drop for RadosTarget {
    fn drop(&mut self) {
        self.end();
    }
}
