//! What each request does. The table is in [`crate::api`].

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use coquina_base::{DriveId, Nearest, NodeId};
use coquina_cluster::{MapView, PoolRecord, VolumeRecord};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::error::{ApiError, Body, Name};
use super::guard::{HostNames, guard};
use super::samples::{self, Samples};
use super::{CHANGES_MAX, ServerConfig, internal};
use crate::api;
use crate::ask::for_each_at_once;
use crate::catalogue::{Catalogue, CatalogueError};
use crate::client::Client;
use crate::health;
use crate::metrics::render_metrics;
use crate::sample::{Moment, Sample};
use crate::view;

/// Longest wait for a connection to a node that is asked to begin a scrub, and for its answer: to begin takes moments.
const SCRUB_CONNECT_MAX: Duration = Duration::from_secs(5);
const SCRUB_BEGIN_MAX: Duration = Duration::from_secs(30);

const REQUEST_BYTES_MAX: usize = 64 << 10;
/// A heartbeat of a node with very many groups that all ask for something.
const HEARTBEAT_BYTES_MAX: usize = 16 << 20;
/// A removal of a drive that names each of very many volumes that may go with it.
const DRIVE_REMOVAL_BYTES_MAX: usize = 16 << 20;

pub(super) struct Shared {
    config: ServerConfig,
    http: String,
    pub(super) catalogue: Arc<Catalogue>,
    changes: Arc<Semaphore>,
    pub(super) samples: Samples,
}

type SharedState = State<Arc<Shared>>;
pub(super) type Answer<T> = Result<Json<T>, ApiError>;

impl Shared {
    pub(super) fn new(config: ServerConfig, http: String, catalogue: Arc<Catalogue>) -> Self {
        let changes = Arc::new(Semaphore::new(CHANGES_MAX));
        Shared { config, http, catalogue, changes, samples: Samples::default() }
    }

    /// What this process is called, be it a node or not.
    fn process_name(&self) -> String {
        match self.catalogue.node() {
            Some(node) => format!("node {}", view::node_name(&self.catalogue.map(), node)),
            None => format!("process {}", self.http),
        }
    }

    /// What this process counts.
    pub(super) fn local(&self) -> api::Local {
        let service = self.catalogue.map_service();
        let mut snapshot = self.catalogue.backend().snapshot();
        let state = service.state();
        snapshot.health.extend(health::of_process(&state, &self.process_name()));
        api::Local {
            cluster: service.cluster(),
            node: self.catalogue.node(),
            version: self.config.version.clone(),
            process: std::process::id(),
            map_revision: service.followed(),
            nbd: self.config.nbd.clone(),
            lost_layers: state.lost_layers,
            snapshot,
        }
    }

    fn moment(&self) -> Moment {
        Moment::take(&self.catalogue.map(), self.local(), true)
    }

    pub(super) fn sample(&self) -> Sample {
        Sample::take(&self.catalogue, self.local())
    }

    /// Without asking others.
    pub(super) fn sample_here(&self) -> Sample {
        Sample::take_here(&self.catalogue, self.local())
    }
}

pub(super) fn router(shared: Arc<Shared>) -> Router {
    let interface = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/volumes", get(list_volumes).post(create_volume))
        .route("/v1/volumes/{name}", get(show_volume))
        .route("/v1/volumes/{name}/resize", post(resize_volume))
        .route("/v1/volumes/{name}/rename", post(rename_volume))
        .route("/v1/volumes/{name}/remove", post(remove_volume))
        .route("/v1/pools", get(list_pools).post(create_pool))
        .route("/v1/pools/{name}/remove", post(remove_pool))
        .route("/v1/nodes", get(list_nodes))
        .route("/v1/nodes/remove", post(remove_node))
        .route("/v1/drives", get(list_drives))
        .route("/v1/drives/add", post(add_drive))
        .route("/v1/drives/reweight", post(reweight_drive))
        .route("/v1/drives/scrub", post(scrub_drives))
        .route("/v1/drives/remove", post(remove_drive).layer(DefaultBodyLimit::max(DRIVE_REMOVAL_BYTES_MAX)))
        .route("/v1/groups", get(list_groups))
        .route("/v1/cluster/overcommit", post(set_overcommit))
        .route("/v1/cluster/forget-lost", post(forget_lost))
        .route("/v1/shutdown", post(shutdown))
        .route("/v1/local", get(internal::local))
        .route("/v1/health", get(internal::leader_health))
        .route("/v1/leader/silence", get(internal::leader_silence))
        .route("/v1/heartbeat", post(internal::heartbeat).layer(DefaultBodyLimit::max(HEARTBEAT_BYTES_MAX)))
        .route("/v1/quiesce", post(internal::quiesce))
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(HostNames::of_this_host(), guard));
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(wrong_method)
        .merge(interface)
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(shared)
}

/// Runs what may block on a thread where that hurts nobody.
pub(super) async fn blocking<T: Send + 'static>(
    shared: Arc<Shared>,
    work: impl FnOnce(&Shared) -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(move || work(&shared)).await.map_err(|error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("the request failed: {error}"))
    })
}

/// The same for a change, which may wait for long for other threads: only so many at a time.
async fn changing<T: Send + 'static>(
    shared: Arc<Shared>,
    work: impl FnOnce(&Shared) -> T + Send + 'static,
) -> Result<T, ApiError> {
    // It is never closed. A client that goes away ends its handler, but not the work: that has the permit.
    let permit = shared.changes.clone().acquire_owned().await;
    let work = move |shared: &Shared| {
        let _permit = permit;
        work(shared)
    };
    blocking(shared, work).await
}

/// How long to measure.
#[derive(Deserialize)]
struct Interval {
    #[serde(default)]
    interval_ms: u64,
}

/// Takes a sample, over an interval if one is asked for.
async fn sample(shared: &Arc<Shared>, interval: &Interval) -> Result<Arc<Sample>, ApiError> {
    if interval.interval_ms > api::INTERVAL_MS_MAX {
        let message =
            format!("interval_ms is {}, the most is {}", interval.interval_ms, api::INTERVAL_MS_MAX);
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message));
    }
    let first = samples::take(shared).await?;
    if interval.interval_ms == 0 {
        return Ok(first.sample);
    }
    let left = Duration::from_millis(interval.interval_ms).saturating_sub(first.begun.elapsed());
    tokio::time::sleep(left.max(Duration::from_millis(10))).await;
    let second = samples::take(shared).await?;
    let before = Some((first.sample.now.clone(), second.begun.duration_since(first.begun)));
    Ok(Arc::new(Sample { before, ..Sample::clone(&second.sample) }))
}

/// Shows something of a sample of all processes.
async fn showing<T: Send + 'static>(
    shared: Arc<Shared>,
    show: impl FnOnce(&Shared, &MapView, &Sample) -> T + Send + 'static,
) -> Answer<T> {
    let sample = samples::take(&shared).await?.sample;
    Ok(Json(blocking(shared, move |shared| show(shared, &shared.catalogue.map(), &sample)).await?))
}

type IntervalQuery = Result<Query<Interval>, axum::extract::rejection::QueryRejection>;

fn interval(query: IntervalQuery) -> Result<Interval, ApiError> {
    let Query(interval) =
        query.map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "bad_request", error.body_text()))?;
    Ok(interval)
}

async fn status(State(shared): SharedState, query: IntervalQuery) -> Answer<api::Status> {
    let sample = sample(&shared, &interval(query)?).await?;
    let status = blocking(shared, move |shared| show_status(shared, &sample)).await?;
    Ok(Json(status))
}

fn show_status(shared: &Shared, sample: &Sample) -> api::Status {
    let (map, config) = (shared.catalogue.map(), &shared.config);
    let node = shared.catalogue.node();
    let own = sample.now.processes().find(|local| local.process == std::process::id() && local.node == node);
    let snapshot = own.map(|local| local.snapshot.clone()).unwrap_or_default();
    api::Status {
        health: view::health(&map, sample, &config.health),
        cluster: api::ClusterSummary {
            id: shared.catalogue.map_service().cluster(),
            feature_level: map.cluster().map_or(0, |cluster| cluster.feature_level),
            revision: map.revision(),
        },
        node: api::NodeSummary {
            id: node.unwrap_or_default(),
            name: node.map(|node| view::node_name(&map, node)).unwrap_or_default(),
            process_name: shared.process_name(),
            version: config.version.clone(),
            process: std::process::id(),
            uptime_ns: snapshot.uptime_ns,
        },
        services: api::Services {
            http: shared.http.clone(),
            nbd: config.nbd.clone(),
            native: config.native.clone(),
            nbd_connections: snapshot.nbd_connections,
            native_connections: snapshot.native_connections,
            dropped_connections: snapshot.dropped_connections,
        },
        data: view::data(&map, sample),
        drives: view::drives(&map, sample),
        rates: view::total_rates(sample),
        reactors: view::reactors(&snapshot),
        nodes: view::nodes(&map, sample),
        groups: sample.leader_health.as_ref().map(|leader| leader.health.groups),
        pools: view::pools(&map, sample),
        recovery: view::recovery(&map, sample),
        store: view::store(sample),
    }
}

async fn list_volumes(State(shared): SharedState, query: IntervalQuery) -> Answer<api::VolumeList> {
    let sample = sample(&shared, &interval(query)?).await?;
    let volumes = blocking(shared, move |shared| {
        let map = shared.catalogue.map();
        shared.catalogue.list().iter().map(|record| view::volume(&map, record, &sample)).collect()
    });
    Ok(Json(api::VolumeList { volumes: volumes.await? }))
}

/// Runs an operation of the catalogue and answers with the volume.
async fn change(
    shared: Arc<Shared>,
    operation: impl FnOnce(&Catalogue) -> Result<VolumeRecord, CatalogueError> + Send + 'static,
) -> Answer<api::Volume> {
    let volume = changing(shared, move |shared| {
        let record = operation(&shared.catalogue)?;
        Ok::<_, ApiError>(view::volume(&shared.catalogue.map(), &record, &shared.sample_here()))
    });
    Ok(Json(volume.await??))
}

async fn create_volume(
    State(shared): SharedState,
    Body(request): Body<api::CreateVolume>,
) -> Result<(StatusCode, Json<api::Volume>), ApiError> {
    let created = change(shared, move |catalogue| catalogue.create(&request)).await?;
    Ok((StatusCode::CREATED, created))
}

/// A volume by its name. What is known here is not waited for; the store is asked about others as if that were a change, so that
/// many who do leave threads for what processes ask each other.
async fn find_volume(shared: &Arc<Shared>, name: String) -> Result<VolumeRecord, ApiError> {
    if let Some(known) = shared.catalogue.map().volume_by_name(&name) {
        return Ok(VolumeRecord::clone(&known.value));
    }
    Ok(changing(shared.clone(), move |shared| shared.catalogue.info(&name)).await??)
}

async fn show_volume(State(shared): SharedState, Name(name): Name) -> Answer<api::Volume> {
    let record = find_volume(&shared, name).await?;
    showing(shared, move |_, map, sample| view::volume(map, &record, sample)).await
}

async fn resize_volume(
    State(shared): SharedState,
    Name(name): Name,
    Body(request): Body<api::ResizeVolume>,
) -> Answer<api::Volume> {
    let api::ResizeVolume { size_bytes, allow_shrink, force } = request;
    change(shared, move |catalogue| catalogue.resize(&name, size_bytes, allow_shrink, force)).await
}

async fn rename_volume(
    State(shared): SharedState,
    Name(name): Name,
    Body(request): Body<api::RenameVolume>,
) -> Answer<api::Volume> {
    change(shared, move |catalogue| catalogue.rename(&name, &request.new_name)).await
}

async fn remove_volume(
    State(shared): SharedState,
    Name(name): Name,
    Body(request): Body<api::RemoveVolume>,
) -> Answer<api::Volume> {
    change(shared, move |catalogue| catalogue.remove(&name, request.force)).await
}

async fn list_pools(State(shared): SharedState) -> Answer<api::PoolList> {
    showing(shared, |_, map, sample| api::PoolList { pools: view::pools(map, sample) }).await
}

/// Runs an operation of the catalogue and answers with the pool.
async fn change_pool(
    shared: Arc<Shared>,
    operation: impl FnOnce(&Catalogue) -> Result<PoolRecord, CatalogueError> + Send + 'static,
) -> Answer<api::Pool> {
    let pool = changing(shared, move |shared| {
        let record = operation(&shared.catalogue)?;
        Ok::<_, ApiError>(view::pool(&shared.catalogue.map(), &record, &shared.sample_here()))
    });
    Ok(Json(pool.await??))
}

async fn create_pool(
    State(shared): SharedState,
    Body(request): Body<api::CreatePool>,
) -> Result<(StatusCode, Json<api::Pool>), ApiError> {
    let created = change_pool(shared, move |catalogue| catalogue.create_pool(&request)).await?;
    Ok((StatusCode::CREATED, created))
}

async fn remove_pool(
    State(shared): SharedState,
    Name(name): Name,
    Body(api::RemovePool {}): Body<api::RemovePool>,
) -> Answer<api::Pool> {
    change_pool(shared, move |catalogue| catalogue.remove_pool(&name)).await
}

async fn list_nodes(State(shared): SharedState) -> Answer<api::NodeList> {
    showing(shared, |_, map, sample| api::NodeList { nodes: view::nodes(map, sample) }).await
}

async fn remove_node(
    State(shared): SharedState,
    Body(request): Body<api::RemoveNode>,
) -> Answer<api::RemovedNode> {
    let removed = changing(shared, move |shared| {
        let removal = shared.catalogue.remove_node(&request)?;
        Ok::<_, ApiError>(api::RemovedNode {
            id: removal.node.id,
            name: removal.node.name,
            drives: removal.drives,
            drives_leaving: removal.drives_leaving,
            groups_left: removal.groups_left,
            dry_run: request.dry_run,
        })
    });
    Ok(Json(removed.await??))
}

fn show_drives(shared: &Shared) -> Vec<api::Drive> {
    view::drives(&shared.catalogue.map(), &shared.sample())
}

fn show_drive(shared: &Shared, id: DriveId) -> Result<api::Drive, ApiError> {
    let (map, sample) = (shared.catalogue.map(), shared.sample());
    let not_found = || CatalogueError::DriveNotFound { text: id.to_string(), nearest: Nearest::default() };
    let record = map.drive(id).ok_or_else(not_found)?;
    Ok(view::drive(&map, record, &sample, &view::shares(&map)))
}

async fn list_drives(State(shared): SharedState) -> Answer<api::DriveList> {
    showing(shared, |_, map, sample| api::DriveList { drives: view::drives(map, sample) }).await
}

/// Has another node do something.
fn at_node<T>(
    shared: &Shared,
    node: NodeId,
    ask: impl FnOnce(&Client) -> Result<T, crate::client::ClientError>,
) -> Result<T, CatalogueError> {
    at_node_with(shared, node, Client::new, ask)
}

/// The same with a client that is made as it says.
fn at_node_with<T>(
    shared: &Shared,
    node: NodeId,
    client: impl FnOnce(&str) -> Result<Client, crate::client::ClientError>,
    ask: impl FnOnce(&Client) -> Result<T, crate::client::ClientError>,
) -> Result<T, CatalogueError> {
    let map = shared.catalogue.map();
    let (name, http) =
        map.node(node).map(|node| (node.name.clone(), node.addresses.http.clone())).unwrap_or_default();
    let answer = client(&http).and_then(|client| ask(&client));
    answer.map_err(|source| CatalogueError::OtherNode { name, source })
}

async fn add_drive(State(shared): SharedState, Body(request): Body<api::AddDrive>) -> Answer<api::Drive> {
    let drive = changing(shared, move |shared| {
        let catalogue = &shared.catalogue;
        let node = request.node.as_deref().map(|text| catalogue.find_node(text)).transpose()?;
        if let Some(node) = node.filter(|node| Some(node.id) != catalogue.node()) {
            return Ok(at_node(shared, node.id, |client| client.add_drive(&request))?);
        }
        let id = catalogue.backend().drive_add(&request.path, request.force)?;
        let known = |map: &MapView| map.drive(id).is_some();
        catalogue.map_service().wait_for_map(Duration::from_secs(5), known);
        show_drive(shared, id)
    });
    Ok(Json(drive.await??))
}

async fn reweight_drive(
    State(shared): SharedState,
    Body(request): Body<api::ReweightDrive>,
) -> Answer<api::Drive> {
    let drive = changing(shared, move |shared| {
        let record = shared.catalogue.reweight_drive(&request.drive, request.weight)?;
        show_drive(shared, record.id)
    });
    Ok(Json(drive.await??))
}

async fn scrub_drives(
    State(shared): SharedState,
    Body(request): Body<api::ScrubDrives>,
) -> Answer<api::ScrubBegun> {
    let begun = changing(shared, move |shared| {
        let failed = scrub(shared, &request)?;
        let drives = if request.local_only { Vec::new() } else { show_drives(shared) };
        Ok::<_, ApiError>(api::ScrubBegun { drives, failed })
    });
    Ok(Json(begun.await??))
}

/// Starts a scrub of a drive or of all, here and at other nodes, all at the same time. Returns where it did not begin; an error if
/// it began nowhere.
fn scrub(shared: &Shared, request: &api::ScrubDrives) -> Result<Vec<api::ScrubFailed>, ApiError> {
    let catalogue = &shared.catalogue;
    let drive = request.drive.as_deref().map(|text| catalogue.find_drive(text)).transpose()?;
    let here = drive.as_ref().is_none_or(|drive| Some(drive.node) == catalogue.node());
    let mut results: Vec<(NodeId, Result<(), ApiError>)> = Vec::new();
    if here && catalogue.node().is_some() || request.local_only {
        let begun = catalogue.backend().scrub_start(drive.as_ref().map(|drive| drive.id));
        results.push((catalogue.node().unwrap_or_default(), begun.map_err(ApiError::from)));
    }
    let map = catalogue.map();
    let is_asked = |node: &NodeId| {
        !request.local_only
            && Some(*node) != catalogue.node()
            && drive.as_ref().is_none_or(|drive| drive.node == *node)
    };
    let others: Vec<NodeId> = map.nodes().map(|node| node.value.id).filter(is_asked).collect();
    let asked = for_each_at_once(&others, |node| {
        let drive = drive.as_ref().map(|drive| drive.id.to_string());
        let request = api::ScrubDrives { drive, local_only: true };
        // A node that hangs must not keep whoever asks from what the others say.
        let client = |address: &str| Client::with_patience(address, SCRUB_CONNECT_MAX, SCRUB_BEGIN_MAX);
        at_node_with(shared, *node, client, |client| client.scrub_drives(&request)).map(drop)
    });
    let asked = others.into_iter().zip(asked).filter_map(|(node, asked)| Some((node, asked?)));
    results.extend(asked.map(|(node, asked)| (node, asked.map_err(ApiError::from))));
    let nowhere = results.iter().all(|(_, begun)| begun.is_err());
    let mut failed = Vec::new();
    for (node, begun) in results {
        match begun {
            Ok(()) => {}
            Err(error) if nowhere => return Err(error),
            Err(error) => {
                let (name, reason) = (view::node_name(&map, node), error.message().to_owned());
                failed.push(api::ScrubFailed { node, name, reason });
            }
        }
    }
    Ok(failed)
}

async fn remove_drive(
    State(shared): SharedState,
    Body(request): Body<api::RemoveDrive>,
) -> Answer<api::RemovedDrive> {
    let removed = changing(shared, move |shared| {
        let removal = shared.catalogue.remove_drive(&request)?;
        Ok::<_, ApiError>(api::RemovedDrive {
            id: removal.drive.id,
            path: removal.drive.path,
            volumes_lost: removal.volumes_lost,
            volume_ids_lost: removal.volume_ids_lost,
            dry_run: request.dry_run,
            groups_left: removal.groups_left,
            silent_ms: removal.silent_ms,
        })
    });
    Ok(Json(removed.await??))
}

/// Which groups to list.
#[derive(Deserialize)]
struct GroupQuery {
    volume: Option<String>,
}

async fn list_groups(
    State(shared): SharedState,
    query: Result<Query<GroupQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer<api::GroupList> {
    let Query(query) =
        query.map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "bad_request", error.body_text()))?;
    let volume = match query.volume {
        Some(name) => Some(find_volume(&shared, name).await?),
        None => None,
    };
    showing(shared, move |_, map, sample| api::GroupList {
        groups: view::groups(map, volume.as_ref(), sample),
    })
    .await
}

async fn set_overcommit(
    State(shared): SharedState,
    Body(request): Body<api::SetOvercommit>,
) -> Answer<api::DataSummary> {
    let data = changing(shared, move |shared| {
        shared.catalogue.set_overcommit(request.percent)?;
        Ok::<_, ApiError>(view::data(&shared.catalogue.map(), &shared.sample()))
    });
    Ok(Json(data.await??))
}

async fn forget_lost(
    State(shared): SharedState,
    Body(request): Body<api::ForgetLost>,
) -> Answer<api::LostData> {
    let lost = changing(shared, move |shared| {
        let lost = view::lost(&shared.catalogue.map(), &shared.moment(), request.dry_run);
        if !request.dry_run {
            shared.catalogue.forget_lost()?;
        }
        Ok::<_, ApiError>(lost)
    });
    Ok(Json(lost.await??))
}

async fn shutdown(
    State(shared): SharedState,
    Body(api::Shutdown {}): Body<api::Shutdown>,
) -> Answer<api::Shutdown> {
    (shared.config.shutdown)();
    Ok(Json(api::Shutdown {}))
}

async fn health(State(shared): SharedState) -> Result<(StatusCode, Json<api::Health>), ApiError> {
    let show =
        |shared: &Shared, map: &MapView, sample: &Sample| view::health(map, sample, &shared.config.health);
    let Json(health) = showing(shared, show).await?;
    let works = health.state != api::HealthState::Error;
    Ok((if works { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(health)))
}

async fn metrics(State(shared): SharedState) -> Result<Response, ApiError> {
    let sample = samples::take_here(&shared).await?.sample;
    let text = blocking(shared, move |shared| {
        let map = shared.catalogue.map();
        render_metrics(&map, &sample, &shared.config.health, shared.config.metrics)
    });
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((content_type, text.await?).into_response())
}

async fn not_found() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is nothing at this path; docs/rest.md has a table of all",
    )
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path does not take that method")
}

#[cfg(test)]
mod tests {
    /// Requests that operators may make, as `GET /v1/volumes/NAME`.
    fn routed() -> Vec<String> {
        let mut requests = Vec::new();
        for line in include_str!("routes.rs").lines() {
            let Some(route) =
                line.trim().strip_prefix(".route(\"").filter(|route| !route.contains("internal::"))
            else {
                continue;
            };
            let (path, methods) = route.split_once('"').expect("a path between quotes");
            for (method, name) in [("get(", "GET"), ("post(", "POST")] {
                if methods.contains(method) {
                    requests.push(format!("{name} {}", path.replace("{name}", "NAME")));
                }
            }
        }
        requests.sort();
        requests
    }

    #[test]
    fn the_document_has_all_paths_and_no_others() {
        let document = include_str!("../../../../docs/rest.md");
        let mut documented: Vec<_> = document
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .filter_map(|row| Some(row.split_once('`')?.0.split('?').next()?.to_owned()))
            .filter(|request| request.contains(" /"))
            .collect();
        documented.sort();
        assert!(documented.len() > 20);
        assert_eq!(documented, routed());
    }

    #[test]
    fn the_document_has_all_codes_of_errors() {
        let document = include_str!("../../../../docs/rest.md");
        let source = concat!(include_str!("error.rs"), include_str!("guard.rs"));
        let mut codes = 0;
        for found in source.split("StatusCode::").skip(1) {
            let Some((_, rest)) = found.split_once(", \"") else { continue };
            let Some((code, _)) = rest.split_once('"') else { continue };
            if found.find(", \"").is_some_and(|at| at < 40) {
                assert!(document.contains(&format!("`{code}`")), "{code}");
                codes += 1;
            }
        }
        assert!(codes > 50, "{codes}");
    }
}
