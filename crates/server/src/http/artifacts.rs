//! Files that executions left: sent as they are, never rendered by a browser under this server's origin.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fumehood_engine::execution::Artifact;
use tokio_util::io::ReaderStream;

use super::Shared;
use super::auth::Principal;
use super::error::ApiError;
use super::params::{IdParam, wrong_path};
use super::submit::header_value;
use crate::openapi::Refusals;
use crate::store::{BlobRef, StoreError};

const CHUNK: usize = 64 << 10;

/// Content of a file that an execution left and that was collected.
#[utoipa::path(
    get,
    path = "/v1/executions/{id}/artifacts/{path}",
    tag = "executions",
    params(
        ("id" = String, Path, description = "Id of the execution"),
        ("path" = String, Path, description = "`path` of the artifact; may contain slashes"),
    ),
    responses(
        (status = 200, description = "The file", body = [u8], content_type = "application/octet-stream", headers(
            ("ETag" = String, description = "SHA-256 of the content"),
            ("Content-Disposition" = String, description = "Always an attachment"),
        )),
        (status = 304, description = "The client has it (`If-None-Match`)"),
        Refusals,
    ),
)]
pub(crate) async fn artifact(
    State(state): State<Shared>,
    principal: Principal,
    IdParam(id): IdParam,
    headers: HeaderMap,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path((_, path)) = path.map_err(|error| wrong_path(&error))?;
    let unknown = || ApiError::not_found("no artifact of this path is kept here");
    let engine = state.engine.clone();
    let kept = state.jobs.find(&id, Some(&principal.tenant)).await?.ok_or_else(unknown)?;
    let index = kept.execution.artifacts.iter().position(|artifact| artifact.path == path).ok_or_else(unknown)?;
    let artifact = kept.execution.artifacts[index].clone();
    let about = describe(&artifact);
    if is_known(&headers, &artifact.sha256) {
        return Ok((StatusCode::NOT_MODIFIED, about).into_response());
    }
    let opened = tokio::task::spawn_blocking(move || engine.artifacts().open_artifact(&id, index)).await;
    let opened = opened.map_err(|error| ApiError::internal("open artifact", &error))?;
    let content = match (opened, state.store.shared_files()) {
        (Ok(file), _) => Body::from_stream(ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK)),
        // Of an execution that ran on another server, or long ago.
        (Err(_), Some(blobs)) => match blobs.get(&BlobRef::from(&artifact), None).await {
            Ok(pieces) => Body::from_stream(pieces),
            Err(StoreError::Corrupt { .. }) => return Err(unknown()),
            Err(error) => return Err(error.into()),
        },
        (Err(_), None) => return Err(unknown()),
    };
    let length = [(header::CONTENT_LENGTH, artifact.size)];
    let length = length.map(|(name, size)| (name, HeaderValue::from(size)));
    Ok((about, length, content).into_response())
}

fn describe(artifact: &Artifact) -> HeaderMap {
    content_headers(&artifact.path, &artifact.mime, &artifact.sha256)
}

/// Headers of a file that untrusted code may have made.
pub(crate) fn content_headers(path: &str, mime: &str, tag: &str) -> HeaderMap {
    let mime = HeaderValue::from_str(mime).unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    HeaderMap::from_iter([
        (header::CONTENT_TYPE, mime),
        (header::ETAG, header_value(&format!("\"{tag}\""))),
        (header::CONTENT_DISPOSITION, header_value(&disposition(path))),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        // The content is the work of untrusted code: no script, no origin, no embedding elsewhere.
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'")),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    ])
}

/// `attachment` with the file's name, in ASCII and (RFC 5987) as it is.
pub(crate) fn disposition(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let plain = |c: char| if c.is_ascii_alphanumeric() || " .-_()".contains(c) { c } else { '_' };
    let mut exact = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b".-_".contains(&byte) {
            exact.push(char::from(byte));
        } else {
            exact.push_str(&format!("%{byte:02X}"));
        }
    }
    format!("attachment; filename=\"{}\"; filename*=UTF-8''{exact}", name.chars().map(plain).collect::<String>())
}

/// Whether the client has what this tag stands for.
pub(crate) fn is_known(headers: &HeaderMap, sha256: &str) -> bool {
    let tags = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    tags.split(',').any(|tag| {
        let tag = tag.trim();
        tag == "*" || tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"') == sha256
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_never_breaks_the_header() {
        assert_eq!(disposition("a/b.csv"), "attachment; filename=\"b.csv\"; filename*=UTF-8''b.csv");
        assert_eq!(
            disposition("é\"\r\nX: 1.html"),
            "attachment; filename=\"____X_ 1.html\"; filename*=UTF-8''%C3%A9%22%0D%0AX%3A%201.html"
        );
    }
}
