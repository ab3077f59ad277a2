//! Errors as JSON: a status, a stable code, and a message for people.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use coquina_cluster::{OperationError, PlacementError};

use crate::api;
use crate::backend::BackendError;
use crate::catalogue::CatalogueError;
use crate::client::ClientError;
use crate::map_service::ChangeError;

#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, code, message: message.into() }
    }

    /// What is wrong, for people.
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = api::Error { code: self.code.to_owned(), message: self.message };
        (self.status, Json(body)).into_response()
    }
}

impl From<CatalogueError> for ApiError {
    fn from(error: CatalogueError) -> Self {
        let (status, code) = match &error {
            CatalogueError::Name(_) => (StatusCode::BAD_REQUEST, "bad_name"),
            CatalogueError::Duplicate { .. } => (StatusCode::CONFLICT, "volume_exists"),
            CatalogueError::NotFound { .. } => (StatusCode::NOT_FOUND, "volume_not_found"),
            CatalogueError::SizeZero | CatalogueError::SizeTooLarge { .. } => {
                (StatusCode::BAD_REQUEST, "bad_size")
            }
            CatalogueError::Striping(_) => (StatusCode::BAD_REQUEST, "bad_striping"),
            CatalogueError::NoRoom { .. } | CatalogueError::NoRoomElsewhere { .. } => {
                (StatusCode::INSUFFICIENT_STORAGE, "no_room")
            }
            CatalogueError::ShrinkNotConfirmed { .. } => (StatusCode::CONFLICT, "shrink_not_confirmed"),
            CatalogueError::Shrinking { .. } => (StatusCode::CONFLICT, "volume_shrinking"),
            CatalogueError::Attached { .. } => (StatusCode::CONFLICT, "volume_in_use"),
            CatalogueError::ConnectionsUnknown { .. } => (StatusCode::CONFLICT, "connections_unknown"),
            CatalogueError::PoolNotFound { .. } => (StatusCode::NOT_FOUND, "pool_not_found"),
            CatalogueError::PoolAmbiguous { .. } => (StatusCode::CONFLICT, "pool_ambiguous"),
            CatalogueError::PoolOtherCopies { .. } => (StatusCode::CONFLICT, "pool_other_copies"),
            CatalogueError::PoolPending { .. } => (StatusCode::SERVICE_UNAVAILABLE, "pool_pending"),
            CatalogueError::PoolEmptying { .. } => (StatusCode::SERVICE_UNAVAILABLE, "pool_emptying"),
            CatalogueError::DriveNotFound { .. } => (StatusCode::NOT_FOUND, "drive_not_found"),
            CatalogueError::DriveAmbiguous { .. } => (StatusCode::CONFLICT, "drive_ambiguous"),
            CatalogueError::DriveWorks { .. } => (StatusCode::CONFLICT, "drive_works"),
            CatalogueError::DriveLost { .. } => (StatusCode::CONFLICT, "drive_missing_with_data"),
            CatalogueError::DriveEmptying { .. } => (StatusCode::CONFLICT, "drive_emptying"),
            CatalogueError::NodeNotFound { .. } => (StatusCode::NOT_FOUND, "node_not_found"),
            CatalogueError::NodeAmbiguous { .. } => (StatusCode::CONFLICT, "node_ambiguous"),
            CatalogueError::Replaced { .. } => (StatusCode::CONFLICT, "volume_replaced"),
            CatalogueError::Resized { .. } => (StatusCode::CONFLICT, "volume_resized"),
            CatalogueError::OtherVolumesLost { .. } => (StatusCode::CONFLICT, "other_volumes_lost"),
            CatalogueError::NotLost { .. } => (StatusCode::CONFLICT, "not_lost"),
            CatalogueError::NodeAnswers { .. } => (StatusCode::CONFLICT, "node_answers"),
            CatalogueError::NodeHeard { .. } => (StatusCode::CONFLICT, "node_heard"),
            CatalogueError::NodeUnknown { .. } => (StatusCode::CONFLICT, "node_unknown"),
            CatalogueError::OtherNode { source, .. } => other_node_status(source),
            CatalogueError::Operation(error) => operation_status(error),
            CatalogueError::Change(error) => change_status(error),
            CatalogueError::Backend(error) => backend_status(error),
            CatalogueError::Random(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        ApiError::new(status, code, error.to_string())
    }
}

impl From<BackendError> for ApiError {
    fn from(error: BackendError) -> Self {
        let (status, code) = backend_status(&error);
        ApiError::new(status, code, error.to_string())
    }
}

fn operation_status(error: &OperationError) -> (StatusCode, &'static str) {
    match error {
        OperationError::Map(_) => (StatusCode::SERVICE_UNAVAILABLE, "map_unusable"),
        OperationError::Invalid(_) => (StatusCode::BAD_REQUEST, "bad_request"),
        OperationError::NameTaken { kind: "volume", .. } => (StatusCode::CONFLICT, "volume_exists"),
        OperationError::NameTaken { .. } => (StatusCode::CONFLICT, "name_taken"),
        OperationError::NodeLeaves(_) => (StatusCode::CONFLICT, "node_leaves"),
        OperationError::GoesWithNode { .. } => (StatusCode::CONFLICT, "goes_with_node"),
        OperationError::NodeNameTaken { .. } => (StatusCode::CONFLICT, "node_name_taken"),
        OperationError::OtherCluster { .. } => (StatusCode::CONFLICT, "other_cluster"),
        OperationError::VersionsApart { .. } => (StatusCode::CONFLICT, "versions_apart"),
        OperationError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
        OperationError::GivenUp(_) => (StatusCode::CONFLICT, "drive_given_up"),
        OperationError::Domains { source: PlacementError::NoDrives, .. } => {
            (StatusCode::INSUFFICIENT_STORAGE, "no_healthy_drive")
        }
        OperationError::Domains { .. } => (StatusCode::CONFLICT, "too_few_domains"),
        OperationError::LastGoodCopy { .. } => (StatusCode::CONFLICT, "last_good_copy"),
        OperationError::PoolNotReady(_) => (StatusCode::CONFLICT, "pool_not_ready"),
        OperationError::PoolInUse { .. } => (StatusCode::CONFLICT, "pool_in_use"),
        OperationError::NumbersUsedUp => (StatusCode::INSUFFICIENT_STORAGE, "numbers_used_up"),
    }
}

fn change_status(error: &ChangeError) -> (StatusCode, &'static str) {
    match error {
        ChangeError::Operation(error) => operation_status(error),
        ChangeError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unreachable"),
        ChangeError::NotSeen { .. } => (StatusCode::SERVICE_UNAVAILABLE, "change_not_seen"),
        ChangeError::OnlyClaimed { .. } => (StatusCode::SERVICE_UNAVAILABLE, "store_unreachable"),
        ChangeError::Refused(_) => (StatusCode::SERVICE_UNAVAILABLE, "map_unusable"),
        ChangeError::Busy => (StatusCode::CONFLICT, "conflict"),
        ChangeError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    }
}

fn backend_status(error: &BackendError) -> (StatusCode, &'static str) {
    match error {
        BackendError::Drive { .. } => (StatusCode::SERVICE_UNAVAILABLE, "drive_refused"),
        BackendError::UnknownDrive(_) => (StatusCode::NOT_FOUND, "drive_not_found"),
        BackendError::DriveMissing(_) => (StatusCode::SERVICE_UNAVAILABLE, "drive_missing"),
        BackendError::DriveRefused { .. } => (StatusCode::CONFLICT, "drive_unusable"),
        BackendError::NoNode => (StatusCode::CONFLICT, "no_node"),
        BackendError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    }
}

/// What the other node said, or that it said nothing.
fn other_node_status(error: &ClientError) -> (StatusCode, &'static str) {
    match error {
        ClientError::Refused { status, .. } => {
            (StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY), "other_node_refused")
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, "other_node_unreachable"),
    }
}

/// The name in a path, whose errors are JSON too.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Name(name)),
            Err(rejection) => Err(ApiError::new(rejection.status(), "bad_request", rejection.body_text())),
        }
    }
}

/// A JSON body whose errors are JSON too.
pub(super) struct Body<T>(pub(super) T);

impl<S, T> FromRequest<S> for Body<T>
where
    S: Send + Sync,
    Json<T>: FromRequest<S, Rejection = JsonRejection>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(Body(value)),
            Err(rejection) => {
                let code = match rejection.status() {
                    StatusCode::UNSUPPORTED_MEDIA_TYPE => "not_json",
                    StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
                    _ => "bad_request",
                };
                Err(ApiError::new(rejection.status(), code, rejection.body_text()))
            }
        }
    }
}
