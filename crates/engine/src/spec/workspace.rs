//! The workspace: where it is, which paths are in it, what is written there first and collected from it.

use std::collections::BTreeSet;

use base64::Engine as _;
use bytes::Bytes;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::FieldError;

/// Where the workspace is inside a sandbox; also the working directory.
pub const WORKSPACE: &str = "/data";
/// Other names of the workspace (links), accepted in paths.
pub const WORKSPACE_ALIASES: [&str; 2] = ["/workspace", "/mnt/data"];
/// Places besides the workspace that are writable inside a sandbox.
pub const WRITABLE: [&str; 2] = ["/tmp", "/home/sandbox"];

/// A file to write into the workspace before the code runs: exactly one of the two contents.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRequest {
    /// Relative to the workspace, or absolute below `/data`.
    pub path: String,
    /// Text content.
    pub content: Option<String>,
    /// Binary content in base64.
    pub content_base64: Option<String>,
}

/// A file of the workspace by its path relative to it: no `..`, no empty part, no NUL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkspacePath(String);

impl WorkspacePath {
    /// Reads a path given by a client.
    ///
    /// # Errors
    /// A sentence on what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut relative = text;
        if text.starts_with('/') {
            relative = std::iter::once(WORKSPACE)
                .chain(WORKSPACE_ALIASES)
                .find_map(|root| text.strip_prefix(root)?.strip_prefix('/'))
                .ok_or_else(|| {
                    format!("{text:?} is outside the workspace; use a relative path or one below {WORKSPACE}")
                })?;
        }
        let parts = relative.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>();
        if parts.is_empty() {
            return Err(format!("{text:?} names no file"));
        }
        for part in &parts {
            if *part == ".." {
                return Err(format!("{text:?} must not contain '..'"));
            }
            if part.contains('\0') {
                return Err("must not contain a NUL byte".to_owned());
            }
            if part.len() > 255 {
                return Err(format!("has a part of {} bytes; a file name has at most 255", part.len()));
            }
        }
        if relative.ends_with('/') {
            return Err(format!("{text:?} names a folder, not a file"));
        }
        let path = parts.join("/");
        if path.len() > 4000 {
            return Err(format!("has {} bytes; at most 4000 are possible", path.len()));
        }
        Ok(Self(path))
    }

    /// Relative to the workspace, parts separated by `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A file to write before the run.
#[derive(Debug, Clone)]
pub struct InputFile {
    /// Where.
    pub path: WorkspacePath,
    /// What.
    pub content: Bytes,
}

pub(super) fn files(given: Vec<FileRequest>, max_files: usize) -> Result<Vec<InputFile>, FieldError> {
    if given.len() > max_files {
        return Err(FieldError::new("files", format!("has {} entries; at most {max_files} are accepted", given.len())));
    }
    let files = given
        .into_iter()
        .enumerate()
        .map(|(index, file)| {
            let path = WorkspacePath::parse(&file.path)
                .map_err(|message| FieldError::new(format!("files[{index}].path"), message))?;
            let content = match (file.content, file.content_base64) {
                (Some(text), None) => Bytes::from(text),
                (None, Some(encoded)) => base64::engine::general_purpose::STANDARD
                    .decode(encoded.trim_ascii())
                    .map_err(|error| {
                        FieldError::new(format!("files[{index}].content_base64"), format!("is not base64: {error}"))
                    })?
                    .into(),
                _ => {
                    let message = "needs exactly one of 'content' and 'content_base64'";
                    return Err(FieldError::new(format!("files[{index}]"), message));
                }
            };
            Ok(InputFile { path, content })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for (index, file) in files.iter().enumerate() {
        let mut path = file.path.as_str();
        while let Some((folder, _)) = path.rsplit_once('/') {
            if paths.contains(folder) {
                let message = format!("lies below {folder:?}, which is a file of this request too");
                return Err(FieldError::new(format!("files[{index}].path"), message));
            }
            path = folder;
        }
    }
    Ok(files)
}

pub(super) fn globs(patterns: &[String]) -> Result<Option<GlobSet>, FieldError> {
    const MOST: usize = 100;
    if patterns.is_empty() {
        return Ok(None);
    }
    if patterns.len() > MOST {
        return Err(FieldError::new("collect", format!("has {} globs; at most {MOST} are accepted", patterns.len())));
    }
    let mut set = GlobSetBuilder::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let relative = std::iter::once(WORKSPACE)
            .chain(WORKSPACE_ALIASES)
            .find_map(|root| pattern.strip_prefix(root)?.strip_prefix('/'))
            .unwrap_or(pattern);
        let wrong = |message: String| FieldError::new(format!("collect[{index}]"), message);
        if relative.starts_with('/') || relative.split('/').any(|part| part == "..") {
            return Err(wrong(format!("{pattern:?} is outside the workspace")));
        }
        // `*.csv` means the files of the workspace itself; `**/*.csv` those below it too.
        let glob = GlobBuilder::new(relative.trim_start_matches("./")).literal_separator(true).build();
        set.add(glob.map_err(|error| wrong(format!("is no glob: {}", error.kind())))?);
    }
    set.build().map(Some).map_err(|error| FieldError::new("collect", error.to_string()))
}

pub(super) fn working_directory(given: Option<&str>) -> Result<String, FieldError> {
    let Some(given) = given.filter(|cwd| !cwd.is_empty()) else { return Ok(WORKSPACE.to_owned()) };
    let refuse = |why: &str| {
        let places = format!("{WORKSPACE}, {}", WRITABLE.join(", "));
        FieldError::new("cwd", format!("{given:?} {why}; use a relative path or one below {places}"))
    };
    if given.contains('\0') || given.split('/').any(|part| part == "..") || given.len() > 1000 {
        return Err(refuse("must not contain '..' or NUL"));
    }
    let absolute = if given.starts_with('/') { given.to_owned() } else { format!("{WORKSPACE}/{given}") };
    let inside = std::iter::once(WORKSPACE)
        .chain(WORKSPACE_ALIASES)
        .chain(WRITABLE)
        .any(|root| absolute.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    inside.then_some(absolute).ok_or_else(|| refuse("is outside the sandbox's writable places"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::refused;
    use super::super::{ExecutionRequest, LimitPolicy};
    use super::*;

    #[test]
    fn the_working_directory_stays_in_writable_places() {
        for bad in ["/etc", "/", "../x", "/data/../etc", "/datax", "/tmp/../root"] {
            assert_eq!(refused(|r| r.cwd = Some(bad.to_owned())), "cwd", "{bad}");
        }
        for good in ["", "sub", "/data", "/data/a", "/tmp", "/workspace/x", "/home/sandbox"] {
            let request = ExecutionRequest { cwd: Some(good.to_owned()), ..ExecutionRequest::new("1") };
            assert!(request.validate(&LimitPolicy::default()).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_file_needs_exactly_one_content() {
        let file = |content: Option<&str>, base64: Option<&str>| FileRequest {
            path: "a".to_owned(),
            content: content.map(str::to_owned),
            content_base64: base64.map(str::to_owned),
        };
        assert_eq!(refused(|r| r.files = vec![file(None, None)]), "files[0]");
        assert_eq!(refused(|r| r.files = vec![file(Some("x"), Some("eA=="))]), "files[0]");
        assert_eq!(refused(|r| r.files = vec![file(None, Some("%%"))]), "files[0].content_base64");
    }

    #[test]
    fn a_file_lies_below_no_other() {
        let file =
            |path: &str| FileRequest { path: path.to_owned(), content: Some(String::new()), content_base64: None };
        assert_eq!(refused(|r| r.files = vec![file("a/b"), file("ab"), file("a")]), "files[0].path");
        assert_eq!(refused(|r| r.files = vec![file("/data/a/b/c"), file("a/b")]), "files[0].path");
        let apart = vec![file("a"), file("ab"), file("b/a"), file("b/ab")];
        let request = ExecutionRequest { files: apart, ..ExecutionRequest::new("1") };
        assert!(request.validate(&LimitPolicy::default()).is_ok());
    }

    proptest! {
        #[test]
        fn a_workspace_path_never_leaves_the_workspace(text in "[a./\\x00-]{0,20}") {
            if let Ok(path) = WorkspacePath::parse(&text) {
                prop_assert!(!path.as_str().starts_with('/'));
                prop_assert!(path.as_str().split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
            }
        }
    }
}
