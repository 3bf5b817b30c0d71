//! `/v1/templates`: what code runs in, under a name, in versions that never change.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fumehood_engine::ids::TenantId;
use fumehood_engine::spec::FieldError;
use fumehood_engine::template::{TemplateInfo, TemplateSpec};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Shared;
use super::auth::Principal;
use super::body::JsonBody;
use super::error::{ApiError, ErrorBody};
use super::idempotency::KeyParam;
use super::params::{Pairs, wrong_path};
use super::sessions::flag;
use super::submit::{REPLAYED, header_value};
use crate::openapi::Refusals;
use crate::templates::{Applied, Mode, Written};
use crate::tenancy::Deed;

/// The `{name}` of a path.
type NameParam = Result<Path<String>, axum::extract::rejection::PathRejection>;

fn name_of(name: NameParam) -> Result<String, ApiError> {
    name.map(|Path(name)| name).map_err(|error| wrong_path(&error))
}

/// Makes a template.
#[utoipa::path(post, path = "/v1/templates", tag = "templates", request_body = TemplateSpec,
    params(("dry_run" = Option<bool>, Query, description = "`true`: says what would be made and makes nothing"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same body makes one template")),
    responses((status = 201, description = "The template", body = TemplateInfo,
            headers(("Location" = String, description = "Where to read it"))),
        (status = 200, description = "What would be made (`dry_run`)", body = TemplateInfo),
        (status = 409, description = "The name is taken (`conflict`)", body = ErrorBody), Refusals))]
pub(crate) async fn create(
    State(state): State<Shared>,
    principal: Principal,
    query: Pairs,
    key: KeyParam,
    body: JsonBody<TemplateSpec>,
) -> Result<Response, ApiError> {
    let dry = dry_run(query)?;
    let attempt = key.with_body(body.sha256).filter(|_| !dry);
    if let Some(attempt) = &attempt
        && let Some(earlier) = state.earlier(attempt).await?
    {
        if let Ok(info) = state.templates.show(&principal.tenant, &earlier, false).await {
            let mut headers = location(&info);
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
            return Ok((StatusCode::CREATED, headers, Json(info)).into_response());
        }
        // What it made was deleted since.
        state.store.idempotency().forget(&earlier).await?;
    }
    let written = state.templates.write(&principal.tenant, body.value, &author(&principal), Mode::Create, dry).await?;
    if let Some(attempt) = attempt {
        let made = format!("{}@{}", written.info.name, written.info.version);
        state.store.idempotency().take(&attempt, &made, state.jobs.now_ms()).await?;
    }
    note(&state, &principal, &written, dry);
    Ok(answer(written, dry))
}

/// Templates of this tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplatePage {
    /// The built-in ones first, then by name and version.
    templates: Vec<TemplateInfo>,
    /// Whether these are all.
    complete: bool,
}

/// Templates: the newest version of each.
#[utoipa::path(get, path = "/v1/templates", tag = "templates",
    params(("versions" = Option<bool>, Query, description = "`true`: every version")),
    responses((status = 200, description = "Templates", body = TemplatePage), Refusals))]
pub(crate) async fn list(
    State(state): State<Shared>,
    principal: Principal,
    query: Pairs,
) -> Result<Json<TemplatePage>, ApiError> {
    let [versions] = query.take(["versions"])?;
    let versions = flag("versions", versions.as_deref(), false)?;
    let (templates, complete) = state.templates.list(&principal.tenant, versions).await?;
    Ok(Json(TemplatePage { templates, complete }))
}

/// A template: the newest version of a name, or name@version.
#[utoipa::path(get, path = "/v1/templates/{name}", tag = "templates",
    params(("name" = String, Path, description = "Name, or name@version"),
        ("resolved" = Option<bool>, Query, description = "`true`: with all that it extends")),
    responses((status = 200, description = "The template", body = TemplateInfo), Refusals))]
pub(crate) async fn read(
    State(state): State<Shared>,
    principal: Principal,
    name: NameParam,
    query: Pairs,
) -> Result<Json<TemplateInfo>, ApiError> {
    let [resolved] = query.take(["resolved"])?;
    let resolved = flag("resolved", resolved.as_deref(), false)?;
    Ok(Json(state.templates.show(&principal.tenant, &name_of(name)?, resolved).await?))
}

/// Makes another version of a template; none when it says already what it is to say.
///
/// Versions made before stay as they are, under name@version.
#[utoipa::path(put, path = "/v1/templates/{name}", tag = "templates", request_body = TemplateSpec,
    params(("name" = String, Path, description = "Name"),
        ("dry_run" = Option<bool>, Query, description = "`true`: says what would be made and makes nothing")),
    responses((status = 201, description = "The new version", body = TemplateInfo,
            headers(("Location" = String, description = "Where to read it"))),
        (status = 200, description = "Nothing has changed, or nothing was to be made (`dry_run`)", body = TemplateInfo),
        (status = 409, description = "It is built in, or somebody else is changing it (`conflict`)", body = ErrorBody), Refusals))]
pub(crate) async fn replace(
    State(state): State<Shared>,
    principal: Principal,
    name: NameParam,
    query: Pairs,
    body: JsonBody<TemplateSpec>,
) -> Result<Response, ApiError> {
    let (name, dry) = (name_of(name)?, dry_run(query)?);
    if body.value.name != name {
        let message = format!("must be {name:?}, as in the address; a template keeps its name");
        return Err(FieldError::new("name", message).into());
    }
    let written = state.templates.write(&principal.tenant, body.value, &author(&principal), Mode::Replace, dry).await?;
    note(&state, &principal, &written, dry);
    Ok(answer(written, dry))
}

/// Deletes a template with all its versions; what runs with it goes on.
#[utoipa::path(delete, path = "/v1/templates/{name}", tag = "templates",
    params(("name" = String, Path, description = "Name"),
        ("force" = Option<bool>, Query, description = "`true`: also while it is in use")),
    responses((status = 204, description = "It is deleted"),
        (status = 409, description = "It is in use, and the message says by what, or it is built in (`conflict`)", body = ErrorBody), Refusals))]
pub(crate) async fn remove(
    State(state): State<Shared>,
    principal: Principal,
    name: NameParam,
    query: Pairs,
) -> Result<StatusCode, ApiError> {
    let [force] = query.take(["force"])?;
    let force = flag("force", force.as_deref(), false)?;
    let name = name_of(name)?;
    let users = open_sessions(&state, &principal.tenant, &name);
    state.templates.delete(&principal.tenant, &name, force, users).await?;
    state.note(&principal, Deed::new("template.removed", &name));
    Ok(StatusCode::NO_CONTENT)
}

/// The JSON Schema of a template.
#[utoipa::path(get, path = "/v1/templates/schema", tag = "templates",
    responses((status = 200, description = "A JSON Schema", body = Object), Refusals))]
pub(crate) async fn schema() -> Json<Value> {
    Json(fumehood_engine::template::schema())
}

fn dry_run(query: Pairs) -> Result<bool, ApiError> {
    let [dry] = query.take(["dry_run"])?;
    flag("dry_run", dry.as_deref(), false)
}

/// Who is written down as having made it.
fn author(principal: &Principal) -> String {
    principal.tenant.to_string()
}

fn location(info: &TemplateInfo) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::LOCATION, header_value(&format!("/v1/templates/{}@{}", info.name, info.version)));
    headers
}

/// Notes a version that was made in the audit log.
fn note(state: &Shared, principal: &Principal, Written { info, applied }: &Written, dry: bool) {
    let action = match applied {
        Applied::Created(_) => "template.created",
        Applied::Changed(_) => "template.changed",
        _ => return,
    };
    if !dry {
        state.note(principal, Deed::new(action, &format!("{}@{}", info.name, info.version)));
    }
}

fn answer(written: Written, dry: bool) -> Response {
    let Written { info, applied } = written;
    match applied {
        Applied::Created(_) | Applied::Changed(_) if !dry => {
            (StatusCode::CREATED, location(&info), Json(info)).into_response()
        }
        _ => Json(info).into_response(),
    }
}

/// Sessions of this server that are open and have the template.
fn open_sessions(state: &Shared, tenant: &TenantId, name: &str) -> Vec<String> {
    let sessions = state.engine.sessions().into_iter().filter(|session| {
        session.spec.base.owner == *tenant && session.spec.template.name == name && !session.state().is_final()
    });
    sessions.map(|session| format!("session {} runs in it", session.id)).collect()
}
