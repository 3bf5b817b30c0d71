//! Who may come in, and for what: holders of a key, or where none is demanded programs of this machine.
//!
//! ```text
//! request -> whose key? --------------> principal -> does it open this route? -> handler
//!              \--none, none needed--> the default tenant, everything open
//! ```

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fumehood_engine::ids::TenantId;

use super::error::ApiError;
use super::observe::RequestId;
use super::{Shared, table};
use crate::ServerState;
use crate::config::{ApiKey, ServerConfig};
use crate::store::{KeyId, Scope, Scopes, Token};
use crate::tenancy::{Account, Deed};

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: probes, and the description of the interface.
    Nothing,
    /// A key, unless `server.metrics_without_key`.
    Metrics,
    /// One scope for reading (`GET` and `HEAD`), another for everything else.
    Scopes(Scope, Scope),
}

impl Needs {
    /// Executions, sessions, files.
    pub(crate) const WORK: Self = Self::Scopes(Scope::Read, Scope::Run);
    /// A way in that looks like reading and is not.
    pub(crate) const RUN: Self = Self::Scopes(Scope::Run, Scope::Run);
    /// The tenant's own affairs.
    pub(crate) const READ: Self = Self::Scopes(Scope::Read, Scope::Read);
    /// Keys, tenants, the audit log.
    pub(crate) const ADMIN: Self = Self::Scopes(Scope::Admin, Scope::Admin);
}

/// The needs of every route. One that is not here, which a test rules out, is nobody's.
static NEEDS: LazyLock<HashMap<&'static str, Needs>> =
    LazyLock::new(|| table().into_iter().map(|(path, needs, _)| (path, needs)).collect());

/// Who asks, in which request: what one tenant names or owns, another never sees.
#[derive(Clone)]
pub(crate) struct Principal {
    /// On whose behalf. That of whoever comes without a key, where none is needed, is the default one.
    pub(crate) tenant: TenantId,
    /// With which key of the database.
    key: Option<KeyId>,
    /// What it opens.
    pub(crate) scopes: Scopes,
    /// What the tenant uses and may use.
    pub(crate) account: Arc<Account>,
    /// Id of the request.
    pub(crate) request_id: String,
}

impl Principal {
    /// The key's id, if there is one.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.key.as_ref().map(KeyId::as_str)
    }

    /// Whether all tenants are its affair: an administrator of the default tenant.
    pub(crate) fn is_operator(&self) -> bool {
        self.tenant == TenantId::default() && self.scopes.open(Scope::Admin)
    }

    /// The tenant that a request is about: its own, or for operators the one named.
    ///
    /// # Errors
    /// Another tenant's, for anybody else: as if there were none.
    pub(crate) fn tenant_named(&self, name: Option<&str>) -> Result<TenantId, ApiError> {
        let Some(name) = name else { return Ok(self.tenant.clone()) };
        let named = TenantId::parse(name).filter(|named| *named == self.tenant || self.is_operator());
        named.ok_or_else(unknown_tenant)
    }

    /// Refuses everybody but operators.
    ///
    /// # Errors
    /// For anybody else.
    pub(crate) fn must_operate(&self) -> Result<(), ApiError> {
        let message = "this is for administrators of the tenant 'default'";
        self.is_operator().then_some(()).ok_or_else(|| ApiError::forbidden(message))
    }
}

/// No tenant of this name, or none of the asker's business.
pub(crate) fn unknown_tenant() -> ApiError {
    ApiError::not_found("there is no tenant of this name")
}

impl<S: Send + Sync> FromRequestParts<S> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::of(parts)
    }
}

impl Principal {
    /// Whoever the gate let in.
    ///
    /// # Errors
    /// On a route before which there is no gate, or that needs nobody.
    pub(crate) fn of(parts: &Parts) -> Result<Self, ApiError> {
        let found = parts.extensions.get::<Self>().cloned();
        found.ok_or_else(|| ApiError::internal("principal", &"nobody passed the gate"))
    }
}

/// Lets a request through or refuses it, and notes refusals.
pub(crate) async fn gate(State(state): State<Shared>, mut request: Request, next: Next) -> Response {
    let request_id = request.extensions().get::<RequestId>().map_or_else(String::new, |id| id.0.clone());
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let what = format!("{} {route}", request.method());
    let (mut tenant, mut key) = (TenantId::default(), None);
    let admitted = match Asked::of(&state.config, &request) {
        Ok(Some(asked)) => admit(&state, asked, &request_id).await.map(Some),
        Ok(None) => Ok(None),
        Err(error) => Err((error, None)),
    };
    let response = match admitted {
        Ok(principal) => {
            if let Some(principal) = principal {
                (tenant, key) = (principal.tenant.clone(), principal.key.clone());
                request.extensions_mut().insert(principal);
            }
            next.run(request).await
        }
        Err((error, known)) => {
            if let Some(known) = known {
                (tenant, key) = (known.tenant, known.key);
            }
            error.into_response()
        }
    };
    if let Some((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS, code)) =
        response.extensions().get::<ApiError>().map(ApiError::kind)
    {
        let deed = Deed::new("request.refused", &what).outcome(code);
        state.tenancy.journal.note_refusal(&tenant, key.as_ref().map(KeyId::as_str), &request_id, deed);
    }
    response
}

/// What a request brings to the gate. The request itself cannot be looked at while others are waited for.
struct Asked {
    needs: Option<Option<Needs>>,
    /// Whether it only reads.
    reads: bool,
    /// The key that it presents, if it is one of this server's kind.
    key: Option<String>,
}

type Refused = (ApiError, Option<Principal>);

impl Asked {
    /// `None` for what needs nobody.
    fn of(config: &ServerConfig, request: &Request) -> Result<Option<Self>, ApiError> {
        let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let needs = route.map(|route| NEEDS.get(route).copied());
        let key = presented(request.headers());
        // Others' keys are ignored where none is needed: their clients always send one.
        let key = key.filter(|key| config.demands_key() || Token::looks_like_one(key)).map(str::to_owned);
        if !config.demands_key() && key.is_none() {
            from_this_machine(request)?;
        }
        let free = match needs {
            Some(Some(Needs::Nothing)) => true,
            Some(Some(Needs::Metrics)) => config.metrics_without_key,
            _ => false,
        };
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        Ok((!free).then_some(Self { needs, reads, key }))
    }
}

async fn admit(state: &ServerState, asked: Asked, request_id: &str) -> Result<Principal, Refused> {
    let principal = identify(state, asked.key.as_deref(), request_id).await.map_err(|error| (error, None))?;
    match asked.needs {
        // No such route: told to whoever may come in at all.
        None | Some(Some(Needs::Nothing | Needs::Metrics)) => Ok(principal),
        Some(None) => Err((ApiError::internal("route", &"it has no needs"), Some(principal))),
        Some(Some(Needs::Scopes(reading, writing))) => {
            let scope = if asked.reads { reading } else { writing };
            if principal.scopes.open(scope) {
                return Ok(principal);
            }
            Err((ApiError::out_of_scope(scope), Some(principal)))
        }
    }
}

/// Whose key this is.
async fn identify(state: &ServerState, key: Option<&str>, request_id: &str) -> Result<Principal, ApiError> {
    let (tenant, key, scopes) = match key {
        None if !state.config.demands_key() => (TenantId::default(), None, Scopes::all()),
        None => return Err(ApiError::unauthorized()),
        Some(text) if ApiKey::of(text).is_among(&state.config.api_keys) => (TenantId::default(), None, Scopes::all()),
        Some(text) => {
            let token = Token::parse(text).ok_or_else(ApiError::wrong_key)?;
            let key = state.tenancy.keys.find(&token).await?.ok_or_else(ApiError::wrong_key)?;
            (key.tenant.clone(), Some(key.id.clone()), key.scopes.clone())
        }
    };
    // The keys of a tenant that was removed are revoked.
    let account = state.tenancy.ledger.open(&tenant).await?.ok_or_else(ApiError::wrong_key)?;
    Ok(Principal { tenant, key, scopes, account, request_id: request_id.to_owned() })
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
                 or send a key",
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
    Err(ApiError::forbidden("without an API key this server answers no web page of another origin; send a key"))
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
