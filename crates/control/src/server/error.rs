//! Errors as JSON: a status, a stable code, and a message for people.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::api;
use crate::backend::BackendError;
use crate::catalogue::CatalogueError;
use crate::coordinator::CoordinatorError;

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
            CatalogueError::SizeZero
            | CatalogueError::SizeUnaligned { .. }
            | CatalogueError::SizeTooLarge { .. } => (StatusCode::BAD_REQUEST, "bad_size"),
            CatalogueError::NoRoom { .. } => (StatusCode::INSUFFICIENT_STORAGE, "no_room"),
            CatalogueError::ShrinkNotConfirmed { .. } => (StatusCode::CONFLICT, "shrink_not_confirmed"),
            CatalogueError::Shrinking { .. } => (StatusCode::CONFLICT, "volume_shrinking"),
            CatalogueError::Attached { .. } => (StatusCode::CONFLICT, "volume_in_use"),
            CatalogueError::DriveNotFound { .. } => (StatusCode::NOT_FOUND, "drive_not_found"),
            CatalogueError::DriveAmbiguous { .. } => (StatusCode::CONFLICT, "drive_ambiguous"),
            CatalogueError::DriveInUse { .. } => (StatusCode::CONFLICT, "drive_in_use"),
            CatalogueError::DriveLost { .. } => (StatusCode::CONFLICT, "drive_missing_with_data"),
            CatalogueError::DriveEmptying { .. } => (StatusCode::CONFLICT, "drive_emptying"),
            CatalogueError::DriveLast { .. } => (StatusCode::CONFLICT, "drive_last"),
            CatalogueError::Placement(_) => (StatusCode::INSUFFICIENT_STORAGE, "no_healthy_drive"),
            CatalogueError::Coordinator(CoordinatorError::Conflict { .. }) => {
                (StatusCode::CONFLICT, "conflict")
            }
            CatalogueError::Coordinator(_) => (StatusCode::INTERNAL_SERVER_ERROR, "state_not_changed"),
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

fn backend_status(error: &BackendError) -> (StatusCode, &'static str) {
    match error {
        BackendError::Attached { .. } => (StatusCode::CONFLICT, "volume_in_use"),
        BackendError::Drive { .. } => (StatusCode::SERVICE_UNAVAILABLE, "drive_refused"),
        BackendError::UnknownDrive(_) => (StatusCode::NOT_FOUND, "drive_not_found"),
        BackendError::DriveMissing(_) => (StatusCode::SERVICE_UNAVAILABLE, "drive_missing"),
        BackendError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
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
