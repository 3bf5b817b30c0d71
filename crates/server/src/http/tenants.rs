//! `/v1/tenants`: who owns things. For operators: administrators of the tenant `default`; others read about their own.

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
use super::params::NameParam;
use super::submit::header_value;
use crate::openapi::Refusals;
use crate::store::{Quotas, Tenant, TenantSettings};
use crate::tenancy::{Deed, stamp};

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantInfo {
    /// Its name.
    name: TenantId,
    /// What the operator decided.
    #[serde(flatten)]
    settings: TenantSettings,
    /// When it was made, RFC 3339 UTC; `null` for the one that was always there.
    created_at: Option<String>,
}

impl From<Tenant> for TenantInfo {
    fn from(tenant: Tenant) -> Self {
        let created_at = (tenant.created_ms > 0).then(|| stamp(tenant.created_ms));
        Self { name: tenant.name, settings: tenant.settings, created_at }
    }
}

/// Tenants.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantList {
    /// By name.
    tenants: Vec<TenantInfo>,
}

/// Body of `POST /v1/tenants`. What is left out is as the configuration says (`tenants`).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantRequest {
    /// 1 to 63 lower-case letters, digits and dashes; never given twice.
    name: String,
    /// How much it may use.
    #[serde(default)]
    quotas: Option<Quotas>,
    /// Days that its entries of the audit log are kept; 0 for ever.
    #[serde(default)]
    audit_keep_days: Option<u64>,
    /// Whether the audit log keeps its code, not only the hash of it.
    #[serde(default)]
    keep_code: Option<bool>,
}

/// Body of `PUT /v1/tenants/{id}`: all of its settings; what is left out has no bound.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantUpdate {
    /// How much it may use.
    #[serde(default)]
    quotas: Quotas,
    /// Days that its entries of the audit log are kept; 0 for ever.
    #[serde(default)]
    audit_keep_days: Option<u64>,
    /// Whether the audit log keeps its code, not only the hash of it.
    #[serde(default)]
    keep_code: bool,
}

/// All tenants, for operators; for others, their own.
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants",
    responses((status = 200, description = "Tenants", body = TenantList), Refusals))]
pub(crate) async fn list(State(state): State<Shared>, principal: Principal) -> Result<Json<TenantList>, ApiError> {
    let mut tenants = state.store.tenants().list().await?;
    tenants.retain(|tenant| principal.is_operator() || tenant.name == principal.tenant);
    Ok(Json(TenantList { tenants: tenants.into_iter().map(TenantInfo::from).collect() }))
}

/// Makes a tenant. Keys for it are made with `POST /v1/keys`.
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", request_body = TenantRequest,
    responses((status = 201, description = "The tenant", body = TenantInfo,
        headers(("Location" = String, description = "Where to read it"))),
        (status = 409, description = "The name is taken, or was (`conflict`)", body = ErrorBody), Refusals))]
pub(crate) async fn create(
    State(state): State<Shared>,
    principal: Principal,
    body: JsonBody<TenantRequest>,
) -> Result<Response, ApiError> {
    principal.must_operate()?;
    let TenantRequest { name, quotas, audit_keep_days, keep_code } = body.value;
    let message = "must be 1 to 63 lower-case letters, digits and dashes, and begin with a letter or a digit";
    let name = TenantId::parse(&name).ok_or_else(|| ApiError::invalid("name", message))?;
    let given = state.config.new_tenants.clone();
    let settings = TenantSettings {
        quotas: quotas.unwrap_or(given.quotas),
        audit_keep_days: audit_keep_days.or(given.audit_keep_days),
        keep_code: keep_code.unwrap_or(given.keep_code),
    };
    let tenant = Tenant { name, settings, created_ms: state.now_ms() };
    state.store.tenants().create(&tenant).await?;
    let detail = serde_json::to_string(&tenant.settings).unwrap_or_default();
    state.note(&principal, Deed::new("tenant.created", tenant.name.as_str()).detail(&detail));
    let location = header_value(&format!("/v1/tenants/{}", tenant.name));
    let headers = HeaderMap::from_iter([(header::LOCATION, location)]);
    Ok((StatusCode::CREATED, headers, Json(TenantInfo::from(tenant))).into_response())
}

/// A tenant.
#[utoipa::path(get, path = "/v1/tenants/{id}", tag = "tenants",
    params(("id" = String, Path, description = "Name of the tenant")),
    responses((status = 200, description = "The tenant", body = TenantInfo), Refusals))]
pub(crate) async fn read(
    State(state): State<Shared>,
    principal: Principal,
    NameParam(name): NameParam,
) -> Result<Json<TenantInfo>, ApiError> {
    let name = principal.tenant_named(Some(&name))?;
    let tenant = state.store.tenants().get(&name).await?.ok_or_else(unknown_tenant)?;
    Ok(Json(tenant.into()))
}

/// Replaces the settings of a tenant; on this server at once, on others of the same database within seconds.
#[utoipa::path(put, path = "/v1/tenants/{id}", tag = "tenants", request_body = TenantUpdate,
    params(("id" = String, Path, description = "Name of the tenant")),
    responses((status = 200, description = "The tenant", body = TenantInfo), Refusals))]
pub(crate) async fn update(
    State(state): State<Shared>,
    principal: Principal,
    NameParam(name): NameParam,
    body: JsonBody<TenantUpdate>,
) -> Result<Json<TenantInfo>, ApiError> {
    let name = principal.tenant_named(Some(&name))?;
    principal.must_operate()?;
    let TenantUpdate { quotas, audit_keep_days, keep_code } = body.value;
    let settings = TenantSettings { quotas, audit_keep_days, keep_code };
    if !state.store.tenants().update(&name, &settings).await? {
        return Err(unknown_tenant());
    }
    let detail = serde_json::to_string(&settings).unwrap_or_default();
    state.note(&principal, Deed::new("tenant.updated", name.as_str()).detail(&detail));
    state.tenancy.ledger.renew(&name).await?;
    let tenant = state.store.tenants().get(&name).await?.ok_or_else(unknown_tenant)?;
    Ok(Json(tenant.into()))
}

/// Removes a tenant: revokes its keys, ends what runs and closes its sessions on this server. Usage and audit log stay.
#[utoipa::path(delete, path = "/v1/tenants/{id}", tag = "tenants",
    params(("id" = String, Path, description = "Name of the tenant")),
    responses((status = 204, description = "It is gone"),
        (status = 409, description = "The tenant `default` stays (`conflict`)", body = ErrorBody), Refusals))]
pub(crate) async fn delete(
    State(state): State<Shared>,
    principal: Principal,
    NameParam(name): NameParam,
) -> Result<StatusCode, ApiError> {
    let name = principal.tenant_named(Some(&name))?;
    principal.must_operate()?;
    if name == TenantId::default() {
        return Err(ApiError::conflict("the tenant 'default' cannot be removed: it is whose keys manage the others"));
    }
    if !state.store.tenants().remove(&name, state.now_ms()).await? {
        return Err(unknown_tenant());
    }
    state.tenancy.keys.forget();
    state.tenancy.ledger.renew(&name).await?;
    state.engine.end_all_of(&name, "its tenant was removed");
    state.note(&principal, Deed::new("tenant.removed", name.as_str()));
    Ok(StatusCode::NO_CONTENT)
}
