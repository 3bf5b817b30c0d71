//! Entrances of the fuzz targets (`fuzz/`), for nobody else.

use fumehood_engine::execution::JsonText;
use fumehood_engine::spec::{ExecutionRequest, ExecutionSpec, FieldError, LimitPolicy, SessionRequest};
use serde_json::Value;

use crate::http::{body, disposition, exec_spec, tags, wrong_ask};

/// Body of `POST /v1/executions`.
///
/// # Errors
/// The field that is wrong.
pub fn execution(bytes: &[u8]) -> Result<ExecutionRequest, FieldError> {
    body::parse(bytes)
}

/// Body of `POST /v1/sessions`.
///
/// # Errors
/// The field that is wrong.
pub fn session(bytes: &[u8]) -> Result<SessionRequest, FieldError> {
    body::parse(bytes)
}

/// Body of `POST /exec`.
///
/// # Errors
/// The field that is wrong.
pub fn exec(bytes: &[u8], policy: &LimitPolicy) -> Result<ExecutionSpec, FieldError> {
    exec_spec(bytes, policy)
}

/// A message over a WebSocket: the field that is wrong.
///
/// # Errors
/// The field that is wrong.
pub fn ask(bytes: &[u8]) -> Result<(), FieldError> {
    wrong_ask(bytes)
}

/// Output as it is sent in chunks, in one text.
#[must_use]
pub fn escape<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    let mut escaper = tags::Escaper::default();
    let mut all: String = pieces.into_iter().map(|piece| escaper.push(piece)).collect();
    all.push_str(&escaper.finish());
    all
}

/// An image as it stands in a chunk.
#[must_use]
pub fn image(content: &str) -> Option<String> {
    tags::image(content)
}

/// The last chunk.
///
/// # Errors
/// When it is no JSON, which a [`Value`] excludes.
pub fn result_chunk(value: &Value) -> serde_json::Result<String> {
    tags::result_chunk(value)
}

/// A value of the guest's as plain JSON.
#[must_use]
pub fn flatten(value: &JsonText) -> JsonText {
    crate::tagged::flatten(value)
}

/// `Content-Disposition` of a file.
#[must_use]
pub fn attachment(path: &str) -> String {
    disposition(path)
}
