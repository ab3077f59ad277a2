//! Keeps web pages in an administrator's browser from driving the server.
//!
//! - A page of another site may send requests blindly, but not with `Content-Type: application/json`, unless
//!   the server agrees, and it never does: every change must carry that type.
//! - A page can make its own name point to this server (DNS rebinding) and then count as the same site: so
//!   the name that a request was made to must be an address, `localhost` or this host's own name.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;

/// Names that requests may be made to, beside addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub(super) struct HostNames(Vec<String>);

impl HostNames {
    /// The name of this host.
    pub(super) fn of_this_host() -> Self {
        let name = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        HostNames(if name.is_empty() { Vec::new() } else { vec![name] })
    }

    fn allow(&self, host: &str) -> bool {
        let Some(name) = name_of_host(host) else { return false };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        address.parse::<std::net::IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.0.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Cuts the port off a `Host` header; `None` if it is malformed.
fn name_of_host(host: &str) -> Option<&str> {
    if host.starts_with('[') {
        let end = host.find(']')? + 1;
        let rest = &host[end..];
        return (rest.is_empty() || rest.starts_with(':')).then_some(&host[..end]);
    }
    match host.split_once(':') {
        None => Some(host),
        Some((name, port)) => port.bytes().all(|byte| byte.is_ascii_digit()).then_some(name),
    }
}

pub(super) async fn guard(State(names): State<HostNames>, request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match check(&names, request.headers(), is_read) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check(names: &HostNames, headers: &HeaderMap, is_read: bool) -> Result<(), ApiError> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| names.allow(host)) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "host_refused",
            "the request is not addressed to this host; use its IP address, localhost or its own name",
        ));
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = content_type.split(';').next().unwrap_or("").trim();
    if !is_read && !essence.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_json",
            "a change must be sent with the header Content-Type: application/json",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_can_point_here_are_allowed() {
        let names = HostNames(vec!["build-7".to_owned()]);
        for host in
            ["127.0.0.1:10810", "10.0.0.1", "[::1]:80", "[::1]", "localhost:1", "LOCALHOST", "Build-7:10810"]
        {
            assert!(names.allow(host), "{host}");
        }
        for host in
            ["evil.example:10810", "", "127.0.0.1.evil.example", "[::1", "[::1]x", "localhost:x", "a:b:c"]
        {
            assert!(!names.allow(host), "{host}");
        }
    }
}
