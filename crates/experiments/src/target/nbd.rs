//! `nbd:URI[,URI...]`: NBD exports of any server, by fio; at a rate by `coquina bench io`.

use std::path::{Path, PathBuf};

use super::servers::Listeners;
use super::{Context, Reach, Target, TargetError, reach};
use crate::definition::Layout;
use crate::generator::fio::{self, FioOptions};
use crate::generator::{ANSWER_TIME_MAX, Command, Load, Patience, coquina, output_of};
use crate::report::TargetFacts;

/// NBD exports.
pub struct NbdTarget {
    spec: String,
    uris: Vec<String>,
    size_bytes: u64,
    /// All exports were given up.
    may_write: bool,
    program: PathBuf,
    /// Who listens, where that is on this host and can be seen.
    servers: Vec<u32>,
}

impl NbdTarget {
    /// `uris` is a list with commas.
    pub fn new(spec: &str, uris: &str) -> Self {
        let uris = uris.split(',').filter(|uri| !uri.is_empty()).map(str::to_owned).collect();
        NbdTarget {
            spec: spec.to_owned(),
            uris,
            size_bytes: 0,
            may_write: false,
            program: PathBuf::new(),
            servers: Vec::new(),
        }
    }

    /// Looks for who listens. None, if that of any export cannot be seen.
    fn look_for_servers(&mut self) {
        let listeners = Listeners::look();
        let found: Vec<Vec<u32>> = self.uris.iter().map(|uri| listeners.of_uri(uri)).collect();
        self.servers.clear();
        if found.iter().all(|servers| !servers.is_empty()) {
            self.servers = found.concat();
            self.servers.sort_unstable();
            self.servers.dedup();
        }
    }

    /// Size of an export, asked with `nbdinfo`, which comes with libnbd.
    fn size_of(&self, uri: &str, patience: Patience<'_>) -> Result<u64, TargetError> {
        let failed = |source| TargetError::Program { spec: self.spec.clone(), source };
        let printed =
            output_of("nbdinfo", &["--size".to_owned(), uri.to_owned()], &[], patience).map_err(failed)?;
        printed.trim().parse().map_err(|_| TargetError::Unusable {
            spec: self.spec.clone(),
            message: format!("nbdinfo gave no size for {uri}: {printed:?}"),
        })
    }
}

/// Whether a URI names its Unix socket by a path that depends on the current folder.
fn has_relative_socket(uri: &str) -> bool {
    let options = uri.split_once('?').map_or("", |(_, options)| options);
    let sockets = options.split(['&', ';']).filter_map(|option| option.strip_prefix("socket="));
    sockets.into_iter().any(|path| !path.starts_with('/') && !path.to_ascii_lowercase().starts_with("%2f"))
}

/// fio's options for NBD exports.
fn nbd_options(uris: &[String]) -> FioOptions {
    FioOptions {
        engine: "nbd".to_owned(),
        volumes: uris.iter().map(|uri| vec![("uri".to_owned(), uri.clone())]).collect(),
        ..FioOptions::default()
    }
}

/// Load on NBD exports: by fio, or at a rate by `coquina bench io`. Neither asks for each write to be durable (fio cannot).
pub(super) fn nbd_commands(program: &Path, uris: &[String], load: &Load) -> Vec<Command> {
    if load.rate_iops.is_some() {
        let targets: Vec<String> = uris.iter().map(|uri| format!("nbd:{uri}")).collect();
        return coquina::commands(program, &targets, &[], load);
    }
    vec![fio::command(&nbd_options(uris), load)]
}

impl Target for NbdTarget {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn begin(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        let again = self.uris.iter().enumerate().find(|(index, uri)| self.uris[..*index].contains(uri));
        if let Some((_, uri)) = again {
            let message = format!("{uri} is named twice; name each export once");
            return Err(TargetError::Wrong { spec: self.spec.clone(), message });
        }
        if let Some(uri) = self.uris.iter().find(|uri| has_relative_socket(uri)) {
            let message =
                format!("the socket of {uri} needs its whole path: nbd+unix:///EXPORT?socket=/FOLDER/SOCKET");
            return Err(TargetError::Wrong { spec: self.spec.clone(), message });
        }
        self.program.clone_from(&context.program);
        let patience = context.patience(ANSWER_TIME_MAX);
        let sizes: Result<Vec<u64>, TargetError> =
            self.uris.iter().map(|uri| self.size_of(uri, patience)).collect();
        self.size_bytes = sizes?.into_iter().min().unwrap_or(0);
        self.look_for_servers();
        // Whether an export holds something cannot be asked in general.
        let kept = self.uris.iter().find(|uri| !context.may_destroy(&self.spec, uri));
        self.may_write = kept.is_none();
        match kept {
            Some(uri) if context.writes => Err(TargetError::HoldsData {
                spec: self.spec.clone(),
                name: uri.clone(),
                what: "whatever the export holds".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn facts(&self) -> TargetFacts {
        TargetFacts {
            label: "NBD export".to_owned(),
            spec: self.spec.clone(),
            system: "NBD".to_owned(),
            copies: None,
            durable: None,
            cache: "the server's, whatever it is".to_owned(),
            generator: "fio nbd".to_owned(),
            ..TargetFacts::default()
        }
    }

    fn space_bytes(&self, _copies: Option<u32>, _context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        Ok(Some(self.size_bytes * self.uris.len() as u64))
    }

    fn drive_bytes(&self) -> Option<u64> {
        Some(self.size_bytes)
    }

    fn refuses(&self, layout: &Layout) -> Option<String> {
        if layout.volumes as usize > self.uris.len() {
            return Some(format!("{} exports are needed, {} were named", layout.volumes, self.uris.len()));
        }
        if layout.stripe.is_some() {
            return Some("an export is striped by its server, or not".to_owned());
        }
        layout.aged.map(|_| "how full the store behind an export is cannot be known".to_owned())
    }

    fn lay_out(&mut self, _layout: &Layout, _context: &Context<'_>) -> Result<bool, TargetError> {
        // It may have been started again.
        self.look_for_servers();
        Ok(self.may_write)
    }

    fn names(&self) -> Vec<String> {
        self.uris.clone()
    }

    fn keeps_its_data(&self) -> bool {
        !self.may_write
    }

    fn commands(&self, load: &Load, volumes: &[u32]) -> Vec<Command> {
        let uris: Vec<String> =
            volumes.iter().filter_map(|volume| self.uris.get(*volume as usize)).cloned().collect();
        nbd_commands(&self.program, &uris, load)
    }

    fn fio_engine(&self) -> Option<String> {
        Some("nbd".to_owned())
    }

    fn processes(&self) -> Vec<u32> {
        self.servers.clone()
    }

    fn are_processes_all(&self) -> bool {
        false
    }

    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn is_on_this_host(&self) -> bool {
        // Who listens here on an address that others reach may pass on what it gets.
        self.uris.iter().all(|uri| reach::of_uris([uri.as_str()]) != Reach::Anywhere)
    }

    fn reach(&self) -> Reach {
        reach::of_uris(self.uris.iter().map(String::as_str))
    }

    fn end(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::servers::tests::wait_for;

    #[test]
    fn a_stop_does_not_wait_for_a_server_that_says_nothing() {
        // libnbd's tools need not be there.
        if std::process::Command::new("nbdinfo").arg("--version").output().is_err() {
            return;
        }
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("nbd://{}/x", server.local_addr().unwrap());
        let mut target = NbdTarget::new("nbd", &uri);
        crate::target::tests::check_stop(&mut target, Path::new("/nonexistent"), Path::new(""));
        let error = target.size_of(&uri, Patience::of(std::time::Duration::from_millis(200))).unwrap_err();
        let wanted =
            format!("nbd: nbdinfo --size {uri} did not answer within 0 s and was ended; whoever listens");
        assert!(error.to_string().starts_with(&wanted), "{error}");
    }

    #[test]
    fn a_server_on_this_host_is_seen_but_may_not_be_all() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = format!("nbd://{}/a", server.local_addr().unwrap());
        let seen = |uris: &str| {
            let mut target = NbdTarget::new("nbd", uris);
            target.look_for_servers();
            assert!(!target.are_processes_all());
            (target.processes(), target.is_on_this_host())
        };
        wait_for(&(vec![std::process::id()], true), || seen(&here));
        assert_eq!(seen(&format!("{here},nbd://192.0.2.1/b")), (vec![], false), "a part is not the whole");
    }

    #[test]
    fn drives_of_this_host_tell_nothing_of_a_server_that_may_pass_on_what_it_gets() {
        let is_here = |uris: &str, servers: &[u32]| {
            let mut target = NbdTarget::new("nbd", uris);
            target.servers = servers.to_vec();
            target.is_on_this_host()
        };
        assert!(!is_here("nbd://192.0.2.1/a", &[7]), "though its process is known");
        assert!(is_here("nbd://127.0.0.1/a", &[]) && is_here("nbd+unix:///a?socket=/s", &[]));
        assert!(!is_here("nbd://127.0.0.1/a,nbd://192.0.2.1/b", &[7]));
    }
}
