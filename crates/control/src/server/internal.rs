//! What the processes of a cluster ask each other.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use coquina_cluster::Heartbeat;

use super::error::{ApiError, Body};
use super::routes::{Answer, Shared, blocking};
use super::samples;
use crate::api;

/// How long it is waited until the node follows the map of the question.
const FOLLOW_TIME_MAX: Duration = Duration::from_secs(10);

type SharedState = State<Arc<Shared>>;

fn not_leading(shared: &Shared) -> ApiError {
    let message = match shared.catalogue.map_service().leader() {
        Some(leader) => format!("this process does not lead; {} does", leader.http),
        None => "nobody leads at the moment".to_owned(),
    };
    ApiError::new(StatusCode::CONFLICT, "not_leading", message)
}

/// What this process counts.
pub(super) async fn local(State(shared): SharedState) -> Answer<api::Local> {
    Ok(Json(api::Local::clone(&samples::take_local(&shared).await?.sample)))
}

/// How the cluster is, as its leader sees it.
pub(super) async fn leader_health(State(shared): SharedState) -> Answer<api::LeaderHealth> {
    let health = blocking(shared.clone(), |shared| {
        shared.catalogue.coordinator().and_then(|coordinator| coordinator.health_blocking())
    });
    health.await?.map(Json).ok_or_else(|| not_leading(&shared))
}

/// How long the leader has been silent. Not on a blocking thread: who asks is in a hurry.
pub(super) async fn leader_silence(State(shared): SharedState) -> Answer<api::LeaderSilence> {
    let seen = shared.catalogue.map_service().leader_seen().ok_or_else(|| not_leading(&shared))?;
    let silent_ms = u64::try_from(seen.heard.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Json(api::LeaderSilence { term: seen.leader.term, silent_ms }))
}

/// Not on a blocking thread: heartbeats must not wait for operators' requests.
pub(super) async fn heartbeat(
    State(shared): SharedState,
    Body(heartbeat): Body<Heartbeat>,
) -> Answer<api::HeartbeatReply> {
    let reply = match shared.catalogue.coordinator() {
        Some(coordinator) => coordinator.heartbeat(heartbeat).await,
        None => None,
    };
    reply.map(Json).ok_or_else(|| not_leading(&shared))
}

/// Answers when nothing of a volume that was taken under an older map is under way here.
pub(super) async fn quiesce(
    State(shared): SharedState,
    Body(request): Body<api::Quiesce>,
) -> Answer<api::Quiesce> {
    let done = blocking(shared, move |shared| {
        let service = shared.catalogue.map_service();
        let known = service.wait_for_map(FOLLOW_TIME_MAX, |map| map.revision() >= request.map_revision);
        if known.is_none() || !service.wait_followed(request.map_revision, FOLLOW_TIME_MAX) {
            let message = "the map of this process is older; see whether the store answers it";
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "map_too_old", message));
        }
        shared.catalogue.backend().quiesce(request.volume)?;
        Ok(request)
    });
    Ok(Json(done.await??))
}
