//! What a Ceph cluster says ails it, where a load on it failed or did not end.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::Context;
use super::TargetError;
use super::ceph::System;
use crate::generator::GeneratorError;

/// Nobody wants to wait much longer after a load that hung.
const HEALTH_TIME_MAX: Duration = Duration::from_secs(15);
const CONNECT_TIME_S: &str = "10";
/// Warnings that may be why reads or writes wait or fail; beside others load goes on.
const IN_THE_WAY: [&str; 5] = ["OSD_DOWN", "OSD_FULL", "PG_AVAILABILITY", "POOL_FULL", "SLOW_OPS"];

#[derive(Deserialize)]
struct Health {
    /// By their codes.
    checks: BTreeMap<String, Check>,
}

#[derive(Deserialize)]
struct Check {
    severity: String,
    summary: Summary,
}

#[derive(Deserialize)]
struct Summary {
    message: String,
}

impl System {
    /// What it says, if that may be why a load failed.
    pub fn ailment(&self, spec: &str, context: &Context<'_>) -> Option<String> {
        let ask = ["--connect-timeout", CONNECT_TIME_S, "health", "detail", "--format", "json"];
        match self.run_for(spec, "ceph", &ask, context.patience(HEALTH_TIME_MAX)) {
            Ok(printed) => told(&printed),
            Err(TargetError::Program { source, .. }) if is_silence(&source) => {
                Some("Ceph's monitors do not answer".to_owned())
            }
            // Who does not permit that may be well.
            Err(_) => None,
        }
    }
}

fn is_silence(error: &GeneratorError) -> bool {
    match error {
        GeneratorError::Slow { .. } => true,
        GeneratorError::Failed { message, .. } => message.contains("connecting to"),
        _ => false,
    }
}

/// Errors first, then warnings that may be in the way.
fn told(printed: &str) -> Option<String> {
    let checks = serde_json::from_str::<Health>(printed).ok()?.checks;
    let (errors, warnings): (Vec<_>, Vec<_>) =
        checks.iter().partition(|(_, check)| check.severity == "HEALTH_ERR");
    let warnings = warnings.into_iter().filter(|(code, _)| IN_THE_WAY.contains(&code.as_str()));
    let messages: Vec<&str> =
        errors.into_iter().chain(warnings).map(|(_, check)| check.summary.message.as_str()).collect();
    (!messages.is_empty()).then(|| format!("Ceph says: {}", messages.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::super::ceph;
    use super::*;
    use crate::target::Target;

    /// As Ceph 16.2.15 prints it.
    const FULL: &str = r#"
{"status":"HEALTH_ERR","checks":{"POOL_FULL":{"severity":"HEALTH_WARN","summary":{"message":"1 pool(s) full","count":1},
"detail":[{"message":"pool 'bench' is full (no space)"}],"muted":false},"OSD_FULL":{"severity":"HEALTH_ERR","summary":
{"message":"3 full osd(s)","count":3},"detail":[{"message":"osd.0 is full"}],"muted":false},"POOL_NO_REDUNDANCY":
{"severity":"HEALTH_WARN","summary":{"message":"1 pool(s) have no replicas configured","count":1},"detail":[],"muted":false}},
"mutes":[]}"#;

    #[test]
    fn what_is_in_the_way_of_a_load_is_told_and_errors_first() {
        assert_eq!(told(FULL).as_deref(), Some("Ceph says: 3 full osd(s); 1 pool(s) full"));
        let slow = FULL.replace("OSD_FULL", "SLOW_OPS").replace("HEALTH_ERR", "HEALTH_WARN");
        assert_eq!(told(&slow).as_deref(), Some("Ceph says: 1 pool(s) full; 3 full osd(s)"));
        assert_eq!(told(r#"{"status":"HEALTH_OK","checks":{},"mutes":[]}"#), None);
        assert_eq!(told("something else"), None);
    }

    #[test]
    fn images_and_objects_of_a_cluster_that_is_full_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let context = crate::target::tests::context(folder.path());
        let ailment = |script: &str| {
            ceph::tests::install(folder.path(), script, &["ceph"]);
            let system = ceph::running("pool");
            system.borrow_mut().programs = folder.path().to_owned();
            system.borrow_mut().conf = Some("/c/ceph.conf".to_owned());
            let objects = crate::target::rados::RadosTarget::of("rados:pool", system.clone());
            let images = crate::target::rbd::RbdTarget::local("ceph-local", system);
            let told = [objects.ailment(&context), images.ailment(&context)];
            assert_eq!(told[0], told[1]);
            told[0].clone()
        };
        let full = format!("[ \"$1 $2\" = '-c /c/ceph.conf' ] || exit 1\ncat <<'END'\n{FULL}\nEND\n");
        assert_eq!(ailment(&full).as_deref(), Some("Ceph says: 3 full osd(s); 1 pool(s) full"));
        let gone = "echo '[errno 110] RADOS timed out (error connecting to the cluster)' >&2; exit 1\n";
        assert_eq!(ailment(gone).as_deref(), Some("Ceph's monitors do not answer"));
        assert_eq!(ailment("echo 'Error EACCES: access denied' >&2; exit 13\n"), None);
        let stopped = crate::target::Context { stopped: &|| true, ..context };
        assert_eq!(ceph::running("pool").borrow().ailment("rados:pool", &stopped), None);
    }
}
