//! Who may come in: holders of a key, or with no key configured only programs of this machine.

use std::net::IpAddr;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use fumehood_engine::ids::TenantId;

use super::Shared;
use super::error::ApiError;
use crate::config::{ApiKey, ServerConfig};

/// Routes that need no key; every other one does.
const PUBLIC: [&str; 3] = ["/health", "/ready", "/openapi.json"];

/// Who asks: what one tenant names or owns, another never sees.
#[derive(Debug, Clone, Default)]
pub(crate) struct Principal {
    /// On whose behalf. That of whoever comes without a key, where none is needed, is the default one.
    pub(crate) tenant: TenantId,
}

impl<S: Send + Sync> FromRequestParts<S> for Principal {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        // Every request has passed the gate.
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// Lets a request through or refuses it.
pub(crate) async fn gate(State(state): State<Shared>, mut request: Request, next: Next) -> Response {
    match admit(&state.config, &request) {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

fn admit(config: &ServerConfig, request: &Request) -> Result<Principal, ApiError> {
    if config.api_keys.is_empty() {
        return from_this_machine(request).map(|()| Principal::default());
    }
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    if PUBLIC.contains(&route) || (route == "/metrics" && config.metrics_without_key) {
        return Ok(Principal::default());
    }
    let key = ApiKey::of(presented(request.headers()).ok_or_else(ApiError::unauthorized)?);
    if key.is_among(&config.api_keys) { Ok(Principal::default()) } else { Err(ApiError::wrong_key()) }
}

fn presented(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(key.trim());
    }
    headers.get("x-api-key")?.to_str().ok()
}

/// Without a key, a web page must not reach this server through the browser of somebody on this machine: neither under a
/// name that its owner lets point to loopback (the Host is then that name), nor from its own origin.
fn from_this_machine(request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let in_target = request.uri().authority().cloned();
    let hosts = headers.get_all(header::HOST).iter().map(parse_authority).chain(in_target.map(Some));
    for host in hosts {
        if !host.as_ref().is_some_and(|host| is_loopback(host.host())) {
            return Err(ApiError::forbidden(
                "without an API key this server answers only under a loopback name: use http://localhost or http://127.0.0.1, \
                 or set server.api_keys",
            ));
        }
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let own = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let theirs = origin.as_bytes();
    let rest = theirs.strip_prefix(b"http://").or_else(|| theirs.strip_prefix(b"https://"));
    if rest.is_some() && rest == own {
        return Ok(());
    }
    Err(ApiError::forbidden(
        "without an API key this server answers no web page of another origin; set server.api_keys",
    ))
}

fn parse_authority(value: &HeaderValue) -> Option<Authority> {
    Authority::try_from(value.as_bytes()).ok()
}

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_loopback() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["localhost.evil.example", "evil.example", "127.0.0.1.evil.example", "0.0.0.0", "[::]", "", "192.168.0.1"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
