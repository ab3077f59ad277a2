//! `rbd:POOL/IMAGE` on a Ceph cluster that runs, and `ceph-local`, by fio's engine for RBD, or at a rate by `coquina bench io`;
//! whole objects by fio's engine for RADOS.

use std::cell::Cell;
use std::path::PathBuf;

use super::ceph::{self, Shared};
use super::rados::{objects, remove_objects};
use super::{Context, Effect, Target, TargetError, is_object};
use crate::definition::Layout;
use crate::generator::fio::{self, FioOptions};
use crate::generator::{Command, Load, coquina};
use crate::report::TargetFacts;

/// RBD images.
pub struct RbdTarget {
    spec: String,
    system: Shared,
    image: String,
    found: bool,
    made: Vec<String>,
    images: Vec<String>,
    layout: Option<Layout>,
    /// Whole objects were written besides.
    has_objects: Cell<bool>,
    program: PathBuf,
}

impl RbdTarget {
    /// On a cluster that is made for the run.
    pub fn local(spec: &str, system: Shared) -> Self {
        Self::new(spec, system, "disk")
    }

    /// `rest` is `POOL/IMAGE`.
    pub fn running(spec: &str, rest: &str) -> Result<Self, TargetError> {
        match rest.split_once('/') {
            Some((pool, image)) if !pool.is_empty() && !image.is_empty() => {
                Ok(Self::new(spec, ceph::running(pool), image))
            }
            _ => Err(TargetError::Unusable {
                spec: spec.to_owned(),
                message: "write it as rbd:POOL/IMAGE".to_owned(),
            }),
        }
    }

    fn new(spec: &str, system: Shared, image: &str) -> Self {
        RbdTarget {
            spec: spec.to_owned(),
            system,
            image: image.to_owned(),
            found: false,
            made: Vec::new(),
            images: Vec::new(),
            layout: None,
            has_objects: Cell::new(false),
            program: PathBuf::new(),
        }
    }

    fn path(&self, image: &str) -> String {
        format!("{}/{image}", self.system.borrow().pool)
    }

    fn remove_made(&mut self) {
        self.layout = None;
        self.images.clear();
        for image in std::mem::take(&mut self.made) {
            let path = self.path(&image);
            // A cluster that is gone takes its images along; there is nobody to tell.
            let _ = self.system.borrow().run(&self.spec, "rbd", &["rm", "--no-progress", &path]);
        }
    }
}

impl Target for RbdTarget {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn begin(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        self.program.clone_from(&context.program);
        self.system.borrow_mut().begin(&self.spec, context)?;
        let pool = self.system.borrow().pool.clone();
        let list = self.system.borrow().run(&self.spec, "rbd", &["ls", &pool])?;
        self.found = list.lines().any(|line| line.trim() == self.image);
        let name = self.path(&self.image);
        if self.found && !context.may_destroy(&self.spec, &name) {
            return Err(TargetError::HoldsData {
                spec: self.spec.clone(),
                name,
                what: "an image".to_owned(),
            });
        }
        Ok(())
    }

    fn facts(&self) -> TargetFacts {
        let system = self.system.borrow();
        let mut facts = TargetFacts {
            label: system.title(),
            spec: self.spec.clone(),
            system: system.title(),
            copies: system.copies(),
            // librbd without its cache answers a write when all OSDs of the acting set have it in their logs.
            durable: Some(true),
            cache: "librbd's off (rbd_cache = false); a read cache in the OSDs".to_owned(),
            generator: "fio rbd".to_owned(),
            settings: system.settings(),
            ..TargetFacts::default()
        };
        if let Some(stripe) = self.layout.as_ref().and_then(|layout| layout.stripe) {
            let text = format!("{} x {}", coquina_base::format_size_bytes(stripe.unit), stripe.count);
            facts.settings.insert("striping".to_owned(), text);
        }
        facts
    }

    fn space_bytes(&self, copies: Option<u32>) -> Result<Option<u64>, TargetError> {
        let system = self.system.borrow();
        let space = system.space_bytes(&self.spec)?;
        let own: u64 =
            self.layout.as_ref().map_or(0, |layout| layout.volume_bytes * u64::from(layout.volumes));
        // The pool's figure is for its present copies.
        let scaled = space.map(|bytes| match (system.copies(), copies) {
            (Some(now), Some(wanted)) if system.local.is_some() => {
                bytes * u64::from(now) / u64::from(wanted.max(1))
            }
            _ => bytes,
        });
        Ok(scaled.map(|bytes| bytes + own))
    }

    fn refuses(&self, layout: &Layout) -> Option<String> {
        let system = self.system.borrow();
        let copies = system.copies();
        if system.local.is_none() && layout.copies.is_some() && copies != layout.copies {
            let has = copies.map_or_else(|| "an unknown number of".to_owned(), |copies| copies.to_string());
            return Some(format!("the pool {} keeps {has} copies", system.pool));
        }
        None
    }

    fn lay_out(&mut self, layout: &Layout, context: &Context<'_>) -> Result<bool, TargetError> {
        self.remove_made();
        if let Some(copies) = layout.copies {
            self.system.borrow_mut().set_copies(&self.spec, copies, context)?;
        }
        for number in 0..layout.volumes {
            let image = if number == 0 { self.image.clone() } else { format!("{}-{number}", self.image) };
            if number > 0 || !self.found {
                let path = self.path(&image);
                let size = format!("{}B", layout.volume_bytes);
                let mut arguments = vec!["create", &path, "--size", &size];
                let stripe = layout.stripe.map(|stripe| (stripe.unit.to_string(), stripe.count.to_string()));
                if let Some((unit, count)) = &stripe {
                    arguments.extend(["--stripe-unit", unit, "--stripe-count", count]);
                }
                self.system.borrow().run(&self.spec, "rbd", &arguments)?;
                self.made.push(image.clone());
            }
            self.images.push(image);
        }
        self.layout = Some(layout.clone());
        Ok(true)
    }

    fn commands(&self, load: &Load, volumes: &[u32]) -> Vec<Command> {
        let system = self.system.borrow();
        if is_object(load.operation) {
            self.has_objects.set(true);
            return vec![objects(&system, load)];
        }
        let images = volumes.iter().filter_map(|volume| self.images.get(*volume as usize));
        if load.rate_iops.is_some() {
            let target = |image| format!("rbd:{}@{}/{image}", system.user, system.pool);
            let targets: Vec<String> = images.map(target).collect();
            let mut commands = coquina::commands(&self.program, &targets, &[], load);
            commands.iter_mut().for_each(|command| command.environment = system.environment());
            return commands;
        }
        let options = FioOptions {
            engine: "rbd".to_owned(),
            options: vec![
                ("clientname".to_owned(), system.user.clone()),
                ("pool".to_owned(), system.pool.clone()),
            ],
            volumes: images.map(|image| vec![("rbdname".to_owned(), image.clone())]).collect(),
            environment: system.environment(),
            host: None,
        };
        vec![fio::command(&options, load)]
    }

    fn processes(&self) -> Vec<u32> {
        self.system.borrow().processes()
    }

    fn places(&self) -> Vec<PathBuf> {
        self.system.borrow().places()
    }

    fn effect(&self, key: &str) -> Result<Effect, TargetError> {
        self.system.borrow().effect(&self.spec, key)
    }

    fn restart(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        self.system.borrow_mut().restart(&self.spec, context)
    }

    fn set(&mut self, key: &str, value: Option<&str>) -> Result<Option<String>, TargetError> {
        self.system.borrow().set(&self.spec, key, value)
    }

    fn end(&mut self) {
        if self.system.borrow().local.is_some() {
            // What was made goes with it, and if its OSDs did not start again, nobody would answer.
            self.made.clear();
        }
        self.remove_made();
        if self.has_objects.get() && self.system.borrow().local.is_none() {
            remove_objects(&self.system.borrow(), &self.spec);
        }
        self.system.borrow_mut().local = None;
    }
}

impl Drop for RbdTarget {
    fn drop(&mut self) {
        self.remove_made();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Amount;
    use crate::report::Operation;

    #[test]
    fn at_a_rate_images_get_load_by_librbd() {
        let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
        target.images = vec!["disk".to_owned(), "disk-1".to_owned()];
        target.system.borrow_mut().conf = Some("/c/ceph.conf".to_owned());
        let load = Load {
            operation: Operation::RandomWrite,
            block_bytes: 4096,
            depth: 8,
            jobs: 1,
            amount: Amount::Time { warmup_s: 0.0, runtime_s: 1.0 },
            size_bytes: 64 << 20,
            rate_iops: Some(101),
            seed: 1,
            processors: None,
        };
        let commands = target.commands(&load, &[0, 1]);
        let line = commands[1].arguments.join(" ");
        assert!(line.contains("--target rbd:admin@pool/disk-1 ") && line.ends_with("--rate 50"), "{line}");
        assert_eq!(commands[1].environment, [("CEPH_CONF".to_owned(), "/c/ceph.conf".to_owned())]);
        let closed = target.commands(&Load { rate_iops: None, ..load.clone() }, &[0, 1]);
        assert_eq!((closed.len(), closed[0].program.clone()), (1, PathBuf::from("fio")));
        let object = target.commands(&Load { operation: Operation::ObjectWrite, ..load }, &[0]);
        assert_eq!(object[0].program, PathBuf::from("fio"), "whole objects have fio only");
    }
}
