//! The control plane beside a node, a gateway or the supervisor: heartbeats, coordinator, catalogue and interface.

use std::sync::Arc;

use coquina_base::NodeId;
use coquina_control::{
    Catalogue, ControlListener, ControlServer, CoordinatorConfig, CoordinatorService, HealthCode,
    HealthEntry, HeartbeatService, MapService, MetricsOptions, NativeTrimmer, NodeBackend, ServerConfig,
    ServerFile, Severity,
};

use super::address::open_interfaces;
use crate::arguments::Running;
use crate::error::CliError;
use crate::output;

/// What the control plane is for.
pub struct ControlSpec {
    /// The map.
    pub maps: Arc<MapService>,
    /// What is served here.
    pub backend: Arc<dyn NodeBackend>,
    /// The node, if this process is one.
    pub node: Option<NodeId>,
    /// Whether it may lead the cluster.
    pub may_lead: bool,
    /// Where NBD is served.
    pub nbd: Vec<String>,
    /// Where the native protocol is served; empty if it is not.
    pub native: String,
}

/// The running control plane.
pub struct Control {
    server: ControlServer,
    heartbeat: Option<HeartbeatService>,
    coordinator: Option<Arc<CoordinatorService>>,
    /// Where this process listens.
    pub file: ServerFile,
}

impl Control {
    /// Starts it. `stop` asks for a clean stop of the process.
    pub fn start(
        spec: ControlSpec,
        listener: ControlListener,
        running: &Running,
        stop: impl Fn() + Send + Sync + 'static,
    ) -> Result<Control, CliError> {
        let thread = |error: std::io::Error| CliError::failed(format!("cannot start a thread: {error}"));
        let http = listener.address().to_owned();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let file = ServerFile {
            version: version.clone(),
            process: std::process::id(),
            http: http.clone(),
            nbd: spec.nbd,
            native: spec.native,
        };
        let listened = [&[http.clone(), file.native.clone()], file.nbd.as_slice()].concat();
        let health = open_entries(&listened);
        health
            .iter()
            .for_each(|entry| output::tell(format_args!("warning: {}; {}", entry.message, entry.advice)));
        let coordinator = spec.may_lead.then(|| {
            let config =
                CoordinatorConfig { http: http.clone(), node: spec.node, trimmer: Arc::new(NativeTrimmer) };
            CoordinatorService::start(spec.maps.clone(), config)
        });
        let coordinator = coordinator.transpose().map_err(thread)?;
        let heartbeat = spec.node.map(|node| {
            HeartbeatService::start(spec.maps.clone(), spec.backend.clone(), node, coordinator.clone())
        });
        let heartbeat = heartbeat.transpose().map_err(thread)?;
        let catalogue = Arc::new(Catalogue::new(spec.maps, spec.backend, spec.node, coordinator.clone()));
        let config = ServerConfig {
            version,
            nbd: file.nbd.clone(),
            native: file.native.clone(),
            metrics: MetricsOptions { per_volume: !running.no_volume_metrics },
            health,
            shutdown: Box::new(stop),
        };
        let server = ControlServer::start(listener, config, catalogue)?;
        Ok(Control { server, heartbeat, coordinator, file })
    }

    /// Whether this node was removed from the cluster.
    pub fn was_removed(&self) -> bool {
        self.heartbeat.as_ref().is_some_and(HeartbeatService::was_removed)
    }

    /// Stops it. As long as `leaves` says so, other nodes take over what this one answers for, while it still serves;
    /// otherwise its copies stay in sync, as when everything stops together.
    pub fn stop(self, leaves: &dyn Fn() -> bool) {
        if let Some(heartbeat) = self.heartbeat {
            heartbeat.stop(leaves);
        }
        self.server.stop();
        if let Some(coordinator) = self.coordinator {
            coordinator.stop();
        }
    }
}

/// A health entry for each address that other hosts can reach: nothing asks them who they are.
fn open_entries(addresses: &[String]) -> Vec<HealthEntry> {
    let entry = |address: String| {
        let message =
            format!("{address} can be reached from other hosts, and nothing asks them who they are");
        HealthEntry::new(HealthCode::OpenInterface, Severity::Warning, format!("address {address}"), message)
    };
    open_interfaces(addresses).into_iter().map(entry).collect()
}
