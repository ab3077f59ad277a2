//! What each request does. The table is in [`crate::api`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde::Deserialize;

use super::ServerConfig;
use super::error::{ApiError, Body};
use super::guard::{HostNames, guard};
use crate::api;
use crate::backend::NodeSnapshot;
use crate::catalogue::{Catalogue, CatalogueError, RemoveOptions};
use crate::metrics::render_metrics;
use crate::state::VolumeRecord;
use crate::view::{self, Sample};

const REQUEST_BYTES_MAX: usize = 64 << 10;

pub(super) struct Shared {
    config: ServerConfig,
    http: String,
    catalogue: Arc<Catalogue>,
}

type SharedState = State<Arc<Shared>>;
type Answer<T> = Result<Json<T>, ApiError>;

impl Shared {
    pub(super) fn new(config: ServerConfig, http: String, catalogue: Arc<Catalogue>) -> Self {
        Shared { config, http, catalogue }
    }

    fn snapshot(&self) -> NodeSnapshot {
        self.catalogue.backend().snapshot()
    }

    fn view_volume(&self, record: &VolumeRecord) -> api::Volume {
        let sample = Sample { now: self.snapshot(), before: None };
        view::volume(&self.catalogue.map(), record, &sample)
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
        .route("/v1/drives", get(list_drives))
        .route("/v1/drives/scrub", post(scrub_drives))
        .route("/v1/drives/remove", post(remove_drive))
        .route("/v1/shutdown", post(shutdown))
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(HostNames::of_this_host(), guard));
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .merge(interface)
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(shared)
}

/// Runs what may block on a thread where that hurts nobody.
async fn blocking<T: Send + 'static>(
    shared: Arc<Shared>,
    work: impl FnOnce(&Shared) -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(move || work(&shared)).await.map_err(|error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("the request failed: {error}"))
    })
}

/// How long to measure.
#[derive(Deserialize)]
struct Interval {
    #[serde(default)]
    interval_ms: u64,
}

/// Takes a sample, over an interval if one is asked for.
async fn sample(shared: &Arc<Shared>, interval: &Interval) -> Result<Sample, ApiError> {
    if interval.interval_ms > api::INTERVAL_MS_MAX {
        let message =
            format!("interval_ms is {}, the most is {}", interval.interval_ms, api::INTERVAL_MS_MAX);
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message));
    }
    let mut before = None;
    if interval.interval_ms > 0 {
        let snapshot = blocking(shared.clone(), Shared::snapshot).await?;
        let start = Instant::now();
        tokio::time::sleep(Duration::from_millis(interval.interval_ms)).await;
        before = Some((snapshot, start));
    }
    let now = blocking(shared.clone(), Shared::snapshot).await?;
    Ok(Sample { now, before: before.map(|(snapshot, start)| (snapshot, start.elapsed())) })
}

type IntervalQuery = Result<Query<Interval>, axum::extract::rejection::QueryRejection>;

fn interval(query: IntervalQuery) -> Result<Interval, ApiError> {
    let Query(interval) =
        query.map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "bad_request", error.body_text()))?;
    Ok(interval)
}

async fn status(State(shared): SharedState, query: IntervalQuery) -> Answer<api::Status> {
    let sample = sample(&shared, &interval(query)?).await?;
    let map = shared.catalogue.map();
    let config = &shared.config;
    let node = map.nodes.get(&shared.catalogue.node_id());
    let status = api::Status {
        health: view::health(&map, &sample.now, &config.health),
        cluster: api::ClusterSummary {
            id: map.cluster.value.id,
            feature_level: map.cluster.value.feature_level,
            revision: map.revision,
        },
        node: api::NodeSummary {
            id: shared.catalogue.node_id(),
            name: node.map(|node| node.value.name.clone()).unwrap_or_default(),
            version: config.version.clone(),
            process: std::process::id(),
            uptime_ns: sample.now.uptime_ns,
        },
        services: api::Services {
            http: shared.http.clone(),
            nbd: config.nbd.clone(),
            native: config.native.clone(),
            nbd_connections: sample.now.nbd_connections,
            native_connections: sample.now.native_connections,
            dropped_connections: sample.now.dropped_connections,
        },
        data: view::data(&map, &sample.now),
        drives: view::drives(&map, &sample.now),
        rates: view::total_rates(&sample),
        reactors: view::reactors(&sample.now),
    };
    Ok(Json(status))
}

async fn list_volumes(State(shared): SharedState, query: IntervalQuery) -> Answer<api::VolumeList> {
    let sample = sample(&shared, &interval(query)?).await?;
    let map = shared.catalogue.map();
    let volumes = shared.catalogue.list().iter().map(|record| view::volume(&map, record, &sample)).collect();
    Ok(Json(api::VolumeList { volumes }))
}

/// Runs an operation of the catalogue and answers with the volume.
async fn change(
    shared: Arc<Shared>,
    operation: impl FnOnce(&Catalogue) -> Result<VolumeRecord, CatalogueError> + Send + 'static,
) -> Answer<api::Volume> {
    let volume = blocking(shared, move |shared| {
        operation(&shared.catalogue).map(|record| shared.view_volume(&record))
    });
    Ok(Json(volume.await??))
}

async fn create_volume(
    State(shared): SharedState,
    Body(request): Body<api::CreateVolume>,
) -> Result<(StatusCode, Json<api::Volume>), ApiError> {
    let created =
        change(shared, move |catalogue| catalogue.create(&request.name, request.size_bytes)).await?;
    Ok((StatusCode::CREATED, created))
}

async fn show_volume(State(shared): SharedState, Path(name): Path<String>) -> Answer<api::Volume> {
    change(shared, move |catalogue| catalogue.info(&name)).await
}

async fn resize_volume(
    State(shared): SharedState,
    Path(name): Path<String>,
    Body(request): Body<api::ResizeVolume>,
) -> Answer<api::Volume> {
    change(shared, move |catalogue| catalogue.resize(&name, request.size_bytes, request.allow_shrink)).await
}

async fn rename_volume(
    State(shared): SharedState,
    Path(name): Path<String>,
    Body(request): Body<api::RenameVolume>,
) -> Answer<api::Volume> {
    change(shared, move |catalogue| catalogue.rename(&name, &request.new_name)).await
}

async fn remove_volume(
    State(shared): SharedState,
    Path(name): Path<String>,
    Body(request): Body<api::RemoveVolume>,
) -> Answer<api::Volume> {
    change(shared, move |catalogue| catalogue.remove(&name, RemoveOptions { force: request.force })).await
}

async fn list_drives(State(shared): SharedState) -> Answer<api::DriveList> {
    let drives = blocking(shared, |shared| view::drives(&shared.catalogue.map(), &shared.snapshot())).await?;
    Ok(Json(api::DriveList { drives }))
}

async fn scrub_drives(
    State(shared): SharedState,
    Body(request): Body<api::ScrubDrives>,
) -> Answer<api::DriveList> {
    let drives = blocking(shared, move |shared| {
        let drive = request.drive.as_deref().map(|text| shared.catalogue.find_drive(text)).transpose()?;
        shared.catalogue.backend().scrub_start(drive.map(|drive| drive.id))?;
        Ok::<_, ApiError>(view::drives(&shared.catalogue.map(), &shared.snapshot()))
    });
    Ok(Json(api::DriveList { drives: drives.await?? }))
}

async fn remove_drive(
    State(shared): SharedState,
    Body(request): Body<api::RemoveDrive>,
) -> Answer<api::RemovedDrive> {
    let removed = blocking(shared, move |shared| {
        let catalogue = &shared.catalogue;
        let id = catalogue.find_drive(&request.drive)?.id;
        let removal = if request.dry_run {
            catalogue.plan_drive_removal(id, request.lose_data)?
        } else {
            catalogue.remove_drive(id, request.lose_data)?
        };
        Ok::<_, ApiError>(api::RemovedDrive {
            id,
            path: removal.drive.path,
            volumes_lost: removal.volumes_lost,
            dry_run: request.dry_run,
        })
    });
    Ok(Json(removed.await??))
}

async fn shutdown(
    State(shared): SharedState,
    Body(api::Shutdown {}): Body<api::Shutdown>,
) -> Answer<api::Shutdown> {
    (shared.config.shutdown)();
    Ok(Json(api::Shutdown {}))
}

async fn health(State(shared): SharedState) -> Result<(StatusCode, Json<api::Health>), ApiError> {
    let health = blocking(shared, |shared| {
        view::health(&shared.catalogue.map(), &shared.snapshot(), &shared.config.health)
    });
    let health = health.await?;
    let works = health.state != api::HealthState::Error;
    Ok((if works { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(health)))
}

async fn metrics(State(shared): SharedState) -> Result<Response, ApiError> {
    let text = blocking(shared, |shared| {
        let (map, snapshot) = (shared.catalogue.map(), shared.snapshot());
        let health = view::health(&map, &snapshot, &shared.config.health);
        render_metrics(&map, &snapshot, &health.entries, shared.config.metrics)
    });
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((content_type, text.await?).into_response())
}

async fn not_found() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is nothing at this path; see the table of /v1 paths",
    )
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path does not take that method")
}
