//! Answers of the server whose types are its own, as far as a client needs them, and requests as they are sent.

use fumehood_engine::execution::{Execution, Members};
use fumehood_engine::session::SessionInfo;
use fumehood_engine::template::TemplateInfo;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Answer of `GET /v1/executions`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExecutionPage {
    pub(crate) executions: Vec<Execution>,
    pub(crate) next_cursor: Option<String>,
}

/// Answer of `GET /v1/sessions`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionPage {
    pub(crate) sessions: Vec<SessionInfo>,
}

/// Answer of `GET /v1/templates`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TemplatePage {
    pub(crate) templates: Vec<TemplateInfo>,
    pub(crate) complete: bool,
}

/// Answer of `GET /v1/sessions/{id}/variables`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Variables {
    pub(crate) variables: Members,
}

/// Answer of `GET /v1/sessions/{id}/files`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FileList {
    pub(crate) files: Vec<FileEntry>,
    pub(crate) complete: bool,
}

/// What is in a folder of a session. Nothing of it is trusted: the names are the sandbox's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    pub(crate) path: String,
    pub(crate) kind: FileKind,
    pub(crate) size: u64,
    pub(crate) modified_at: String,
}

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileKind {
    /// Can be read.
    File,
    /// Can be listed.
    Folder,
    /// Neither: links, pipes.
    #[serde(other)]
    Other,
}

/// A request without what it leaves to the server, so that one of another version, with fewer fields, understands it too.
pub(crate) fn trimmed<T: Serialize>(request: &T) -> Value {
    let mut value = serde_json::to_value(request).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        if let Some(Value::Object(limits)) = fields.get_mut("limits") {
            limits.retain(|_, value| !value.is_null());
        }
        // An empty program is one, an empty input text is none.
        fields.retain(|name, value| name == "code" || !(is_nothing(value) || value == "default"));
    }
    value
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(said) => !said,
        Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use fumehood_engine::spec::{ExecutionRequest, SessionRequest};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_says_only_what_was_asked_for() {
        let mut request = ExecutionRequest::new("");
        request.limits.memory_mb = Some(64);
        request.env.insert("EMPTY".to_owned(), String::new());
        let kept = json!({"code": "", "language": "python", "isolation": "auto", "limits": {"memory_mb": 64},
            "env": {"EMPTY": ""}, "mode": "sync"});
        assert_eq!(trimmed(&request), kept);
        assert_eq!(trimmed(&SessionRequest::default()), json!({"isolation": "auto"}));
    }
}
