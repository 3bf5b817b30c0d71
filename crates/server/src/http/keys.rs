//! `/v1/keys`: API keys of the asker's tenant; for operators, of all.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fumehood_engine::ids::TenantId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::auth::{Principal, unknown_tenant};
use super::body::JsonBody;
use super::error::{ApiError, ErrorBody};
use super::params::{NameParam, Pairs};
use super::submit::header_value;
use crate::ServerState;
use crate::openapi::Refusals;
use crate::store::{Key, KeyId, Scope, Scopes, Token};
use crate::tenancy::{Deed, now_ms, stamp};

/// A century.
const MOST_SECONDS: u64 = 100 * 366 * 24 * 3600;
/// A rotated key is valid for so long besides its successor, unless told otherwise.
const OVERLAP_SECONDS: u64 = 3600;

/// An API key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyInfo {
    /// Its id, which is no secret.
    id: KeyId,
    /// Whose it is.
    tenant: TenantId,
    /// What it is called.
    name: String,
    /// What it opens; `admin` opens what the others open too.
    #[schema(value_type = Vec<Scope>)]
    scopes: Scopes,
    /// Whether it opens anything now.
    valid: bool,
    /// When it was made, RFC 3339 UTC.
    created_at: String,
    /// From when on it is not valid.
    expires_at: Option<String>,
    /// When it was revoked.
    revoked_at: Option<String>,
    /// When it was used last, to about a minute.
    last_used_at: Option<String>,
}

impl KeyInfo {
    fn new(key: &Key, now_ms: i64) -> Self {
        Self {
            id: key.id.clone(),
            tenant: key.tenant.clone(),
            name: key.name.clone(),
            scopes: key.scopes.clone(),
            valid: key.is_valid(now_ms),
            created_at: stamp(key.created_ms),
            expires_at: key.expires_ms.map(stamp),
            revoked_at: key.revoked_ms.map(stamp),
            last_used_at: key.used_ms.map(stamp),
        }
    }
}

/// A new key.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewKey {
    /// The key itself, to be sent as `Authorization: Bearer KEY` or `X-API-Key: KEY`. It is told here and never again.
    #[schema(example = "fhk_01jd…_…")]
    key: String,
    /// About it.
    #[serde(flatten)]
    info: KeyInfo,
}

/// Body of `POST /v1/keys`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRequest {
    /// What it is for, in the words of whoever asks.
    name: String,
    /// What it opens; `run` and `read` by default.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Scope>>)]
    scopes: Option<Scopes>,
    /// Seconds that it is valid; for ever by default.
    #[serde(default)]
    expires_in_s: Option<u64>,
    /// For which tenant; the asker's own by default. Another one is for operators.
    #[serde(default)]
    tenant: Option<String>,
}

/// Body of `POST /v1/keys/{id}/rotate`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    /// Seconds that the old key is valid besides the new one; an hour by default, 0 for none.
    #[serde(default)]
    overlap_s: Option<u64>,
}

/// Keys.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyList {
    /// Oldest first, those that are not valid any more included.
    keys: Vec<KeyInfo>,
}

/// Makes an API key for the asker's tenant; operators for any.
#[utoipa::path(post, path = "/v1/keys", tag = "tenants", request_body = KeyRequest,
    responses((status = 201, description = "The key, told this once", body = NewKey,
        headers(("Location" = String, description = "Where to read about it"))), Refusals))]
pub(crate) async fn create(
    State(state): State<Shared>,
    principal: Principal,
    body: JsonBody<KeyRequest>,
) -> Result<Response, ApiError> {
    let KeyRequest { name, scopes, expires_in_s, tenant } = body.value;
    let tenant = principal.tenant_named(tenant.as_deref())?;
    Key::check_name(&name).map_err(|message| ApiError::invalid("name", message))?;
    let scopes = scopes.unwrap_or_else(|| [Scope::Run, Scope::Read].into_iter().collect());
    if scopes.is_empty() {
        return Err(ApiError::invalid("scopes", "must name at least one of run, read, admin"));
    }
    let lifetime = expires_in_s.map(|seconds| milliseconds("expires_in_s", seconds, 1)).transpose()?;
    state.store.tenants().get(&tenant).await?.ok_or_else(unknown_tenant)?;
    let issued = Key::issue(tenant, name, scopes, lifetime, state.now_ms());
    let (token, key) = issued.map_err(|error| ApiError::internal("make a key", &error))?;
    state.store.keys().add(&key).await?;
    let detail = format!("for {}: {} ({})", key.tenant, key.scopes, key.name);
    state.note(&principal, Deed::new("key.created", key.id.as_str()).detail(&detail));
    Ok(told(&token, &key, state.now_ms()))
}

/// The answer that shows a key.
fn told(token: &Token, key: &Key, now_ms: i64) -> Response {
    let location = header_value(&format!("/v1/keys/{}", key.id));
    let headers = HeaderMap::from_iter([
        (header::LOCATION, location),
        // Nobody in between keeps it.
        (header::CACHE_CONTROL, header_value("no-store")),
    ]);
    let body = NewKey { key: token.reveal().to_owned(), info: KeyInfo::new(key, now_ms) };
    (StatusCode::CREATED, headers, Json(body)).into_response()
}

fn milliseconds(field: &str, seconds: u64, least: u64) -> Result<i64, ApiError> {
    if !(least..=MOST_SECONDS).contains(&seconds) {
        return Err(ApiError::invalid(field, format!("must be between {least} and {MOST_SECONDS}, got {seconds}")));
    }
    Ok(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
}

/// Keys of the asker's tenant; for operators, of all or of one.
#[utoipa::path(get, path = "/v1/keys", tag = "tenants",
    params(("tenant" = Option<String>, Query, description = "Only those of this tenant")),
    responses((status = 200, description = "Keys, at most 10,000", body = KeyList), Refusals))]
pub(crate) async fn list(
    State(state): State<Shared>,
    principal: Principal,
    query: Pairs,
) -> Result<Json<KeyList>, ApiError> {
    let [tenant] = query.take(["tenant"])?;
    let tenant = match tenant {
        None if principal.is_operator() => None,
        named => Some(principal.tenant_named(named.as_deref())?),
    };
    let now = state.now_ms();
    let keys = state.store.keys().list(tenant.as_ref()).await?;
    Ok(Json(KeyList { keys: keys.iter().map(|key| KeyInfo::new(key, now)).collect() }))
}

/// About a key.
#[utoipa::path(get, path = "/v1/keys/{id}", tag = "tenants",
    params(("id" = String, Path, description = "Id of the key")),
    responses((status = 200, description = "The key, without its secret", body = KeyInfo), Refusals))]
pub(crate) async fn read(
    State(state): State<Shared>,
    principal: Principal,
    NameParam(id): NameParam,
) -> Result<Json<KeyInfo>, ApiError> {
    let key = state.own_key(&principal, &id).await?;
    Ok(Json(KeyInfo::new(&key, state.now_ms())))
}

/// Revokes a key: it opens nothing any more, on this server at once, on others of the same database within seconds.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "tenants",
    params(("id" = String, Path, description = "Id of the key")),
    responses((status = 200, description = "The key as it is now", body = KeyInfo), Refusals))]
pub(crate) async fn revoke(
    State(state): State<Shared>,
    principal: Principal,
    NameParam(id): NameParam,
) -> Result<Json<KeyInfo>, ApiError> {
    let key = state.own_key(&principal, &id).await?;
    if state.store.keys().revoke(&key.id, state.now_ms()).await? {
        state.note(&principal, Deed::new("key.revoked", key.id.as_str()));
    }
    state.tenancy.keys.forget();
    let key = state.own_key(&principal, &id).await?;
    Ok(Json(KeyInfo::new(&key, state.now_ms())))
}

/// Makes a key in place of another: for the same, with another secret. The old one is valid for a while longer.
#[utoipa::path(post, path = "/v1/keys/{id}/rotate", tag = "tenants", request_body = Rotation,
    params(("id" = String, Path, description = "Id of the old key")),
    responses((status = 201, description = "The new key, told this once", body = NewKey,
        headers(("Location" = String, description = "Where to read about it"))),
        (status = 409, description = "The old key is not valid any more (`conflict`)", body = ErrorBody), Refusals))]
pub(crate) async fn rotate(
    State(state): State<Shared>,
    principal: Principal,
    NameParam(id): NameParam,
    body: JsonBody<Rotation>,
) -> Result<Response, ApiError> {
    let overlap = milliseconds("overlap_s", body.value.overlap_s.unwrap_or(OVERLAP_SECONDS), 0)?;
    let old = state.own_key(&principal, &id).await?;
    let now = state.now_ms();
    if !old.is_valid(now) {
        return Err(ApiError::conflict("the key is not valid any more; create a new one"));
    }
    let (token, key) = old.successor(now).map_err(|error| ApiError::internal("make a key", &error))?;
    state.store.keys().add(&key).await?;
    state.store.keys().expire(&old.id, now.saturating_add(overlap)).await?;
    state.tenancy.keys.forget();
    let detail = format!("{} takes its place", key.id);
    state.note(&principal, Deed::new("key.rotated", old.id.as_str()).detail(&detail));
    Ok(told(&token, &key, now))
}

impl ServerState {
    /// A key of the asker's tenant, or for operators of any.
    async fn own_key(&self, asker: &Principal, id: &str) -> Result<Key, ApiError> {
        let found = match KeyId::parse(id) {
            Some(id) => self.store.keys().get(&id).await?,
            None => None,
        };
        let own = found.filter(|key| key.tenant == asker.tenant || asker.is_operator());
        own.ok_or_else(|| ApiError::not_found("there is no key of this id"))
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        now_ms(&**self.engine.clock())
    }
}
