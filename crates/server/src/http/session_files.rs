//! `/v1/sessions/{id}/files`: the workspace of a session, streamed both ways.

use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::multipart::{Multipart, MultipartError, MultipartRejection};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use fumehood_engine::clock::stamp_of;
use fumehood_engine::files::{ArchiveFormat, Upload, Workspace};
use fumehood_engine::session::Session;
use fumehood_engine::spec::WorkspacePath;
use futures::{Stream, StreamExt};
use http_range_header::parse_range_header;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::io::ReaderStream;
use utoipa::ToSchema;

use super::artifacts::{content_headers, disposition, is_known};
use super::body::JsonBody;
use super::error::ApiError;
use super::params::{Pairs, SessionParam, wrong_path};
use super::sessions::flag;
use super::submit::header_value;
use crate::openapi::Refusals;

const CHUNK: usize = 256 << 10;
/// An upload that sends nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The path of a file in a session's workspace.
pub(crate) struct FileParam(WorkspacePath);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for FileParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, state: &S) -> Result<Self, ApiError> {
        let path: Result<Path<(String, String)>, PathRejection> = Path::from_request_parts(parts, state).await;
        let Path((_, path)) = path.map_err(|error| wrong_path(&error))?;
        WorkspacePath::parse(&path).map(Self).map_err(|message| ApiError::invalid("path", message))
    }
}

/// The workspace, waiting until the session has one.
async fn workspace(session: &Session) -> Result<Workspace, ApiError> {
    session.settled().await?;
    session.files().ok_or_else(|| ApiError::not_found("the session has no files any more"))
}

/// A folder as a client names it, relative to the workspace; `""` is the workspace itself.
fn folder_of(path: Option<&str>) -> Result<String, ApiError> {
    match path.map(|path| path.trim_end_matches('/')) {
        None | Some("" | "." | "/data") => Ok(String::new()),
        Some(path) => {
            Ok(WorkspacePath::parse(path).map_err(|message| ApiError::invalid("path", message))?.as_str().to_owned())
        }
    }
}

/// Does something that blocks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(refusal(&error)),
        Err(error) => Err(ApiError::internal("session file", &error)),
    }
}

fn refusal(error: &std::io::Error) -> ApiError {
    match error.kind() {
        ErrorKind::NotFound => ApiError::not_found("there is no such file in the session; links are not followed"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => ApiError::disk_full(),
        ErrorKind::ReadOnlyFilesystem => {
            ApiError::forbidden("shared is the operator's folder, which is read-only here")
        }
        ErrorKind::InvalidInput => {
            ApiError::invalid("path", "names something that is not a regular file; files:archive gives a folder")
        }
        ErrorKind::NotADirectory => ApiError::invalid("path", "names something that is no folder"),
        ErrorKind::PermissionDenied => ApiError::forbidden("the session's folders do not allow that"),
        ErrorKind::IsADirectory | ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => ApiError::conflict(
            "something else is in the way: a folder of that name, or a file or link where a folder is to be",
        ),
        ErrorKind::WouldBlock => ApiError::conflict(
            "the file is in use inside the sandbox: a program there holds a lease on it; try again, or end the program",
        ),
        _ => ApiError::invalid("path", format!("cannot be used: {error}")),
    }
}

/// A file of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileEntry {
    /// Relative to the workspace.
    path: String,
    /// `file`, `folder` or `other` (links, pipes), which cannot be read.
    kind: &'static str,
    /// Bytes.
    size: u64,
    /// When it was changed last, RFC 3339 UTC.
    modified_at: String,
}

/// What is in a folder.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileList {
    /// By path.
    files: Vec<FileEntry>,
    /// Nothing is missing.
    complete: bool,
}

/// What is in a folder of a session.
#[utoipa::path(get, path = "/v1/sessions/{id}/files", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session"),
        ("path" = Option<String>, Query, description = "Folder; the workspace itself by default"),
        ("recursive" = Option<bool>, Query, description = "With everything below it")),
    responses((status = 200, description = "Files and folders, at most 10,000 and 4 MiB of paths", body = FileList), Refusals))]
pub(crate) async fn list(SessionParam(session): SessionParam, query: Pairs) -> Result<Json<FileList>, ApiError> {
    let [path, recursive] = query.take(["path", "recursive"])?;
    let recursive = flag("recursive", recursive.as_deref(), false)?;
    let folder = folder_of(path.as_deref())?;
    let workspace = workspace(&session).await?;
    let (entries, complete) = blocking(move || workspace.list(&folder, recursive)).await?;
    let files = entries.into_iter().map(|entry| FileEntry {
        path: entry.path,
        kind: entry.kind,
        size: entry.size,
        modified_at: stamp_of(entry.modified.0, entry.modified.1),
    });
    Ok(Json(FileList { files: files.collect(), complete }))
}

/// Content of a file of a session, or a range of it.
#[utoipa::path(get, path = "/v1/sessions/{id}/files/{path}", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session"),
        ("path" = String, Path, description = "Path in the workspace; may contain slashes"),
        ("Range" = Option<String>, Header, description = "One range of bytes")),
    responses((status = 200, description = "The file", body = [u8], content_type = "application/octet-stream"),
        (status = 206, description = "The range", body = [u8], content_type = "application/octet-stream"),
        (status = 304, description = "The client has it (`If-None-Match`)"),
        (status = 416, description = "The range is not within the file (`range_not_satisfiable`)", body = super::error::ErrorBody),
        Refusals))]
pub(crate) async fn read(
    SessionParam(session): SessionParam,
    FileParam(path): FileParam,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let workspace = workspace(&session).await?;
    let wanted = path.clone();
    let (mut file, metadata) = blocking(move || {
        let file = workspace.open(&wanted)?;
        let metadata = file.metadata()?;
        Ok((file, metadata))
    })
    .await?;
    let size = metadata.len();
    // Of the content nothing is known without reading it; this changes with every change.
    let tag = format!("{:x}-{size:x}-{:x}-{:x}", metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
    let mime = mime_guess::from_path(path.as_str()).first_or_octet_stream().to_string();
    let mut about = content_headers(path.as_str(), &mime, &tag);
    about.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if is_known(&headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, about).into_response());
    }
    let range = match headers.get(header::RANGE).and_then(|range| range.to_str().ok()) {
        // A form that is not understood is as none, and so are several ranges.
        Some(range) => match parse_range_header(range) {
            Ok(parsed) => match parsed.validate(size) {
                Ok(ranges) if ranges.len() == 1 => Some((*ranges[0].start(), *ranges[0].end())),
                Ok(_) => None,
                Err(_) => return Err(ApiError::bad_range(size)),
            },
            Err(_) => None,
        },
        None => None,
    };
    let (status, start, length) = match range {
        Some((start, end)) => {
            about.insert(header::CONTENT_RANGE, header_value(&format!("bytes {start}-{end}/{size}")));
            (StatusCode::PARTIAL_CONTENT, start, end - start + 1)
        }
        None => (StatusCode::OK, 0, size),
    };
    file.seek(SeekFrom::Start(start)).map_err(|error| refusal(&error))?;
    about.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    // A file that shrinks meanwhile breaks the answer off, which the client sees by its length.
    let content = ReaderStream::with_capacity(tokio::fs::File::from_std(file).take(length), CHUNK);
    Ok((status, about, Body::from_stream(content)).into_response())
}

/// What became of an upload.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stored {
    /// Relative to the workspace.
    path: String,
    /// Bytes.
    size: u64,
}

/// Stores the body as a file of a session, with the folders on the way. The file appears when it is whole.
#[utoipa::path(put, path = "/v1/sessions/{id}/files/{path}", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session"),
        ("path" = String, Path, description = "Path in the workspace; may contain slashes")),
    request_body(content = [u8], content_type = "application/octet-stream"),
    responses((status = 201, description = "It is new", body = Stored), (status = 200, description = "It took the place of another", body = Stored),
        (status = 507, description = "The session's disk is full (`insufficient_storage`)", body = super::error::ErrorBody),
        Refusals))]
pub(crate) async fn write(
    SessionParam(session): SessionParam,
    FileParam(path): FileParam,
    request: Request,
) -> Result<Response, ApiError> {
    let workspace = workspace(&session).await?;
    let (upload, size) = receive(&workspace, &path, request.into_body().into_data_stream()).await?;
    let new = blocking(move || upload.publish()).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(Stored { path: path.as_str().to_owned(), size })).into_response())
}

/// Writes what comes into a file that is nowhere to be seen yet, piece by piece; and how many bytes came.
async fn receive<E: std::fmt::Display>(
    workspace: &Workspace,
    path: &WorkspacePath,
    mut body: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<(Upload, u64), ApiError> {
    let (workspace, target) = (workspace.clone(), path.clone());
    let (upload, file) = blocking(move || {
        let upload = workspace.create(&target)?;
        let file = upload.file().try_clone()?;
        Ok((upload, file))
    })
    .await?;
    let mut file = tokio::io::BufWriter::with_capacity(CHUNK, tokio::fs::File::from_std(file));
    let mut size = 0;
    loop {
        match tokio::time::timeout(PATIENCE, body.next()).await {
            Err(_) => return Err(ApiError::body_timeout()),
            Ok(None) => break,
            Ok(Some(Err(error))) => return Err(ApiError::invalid("body", format!("did not arrive whole: {error}"))),
            Ok(Some(Ok(chunk))) => {
                size += chunk.len() as u64;
                file.write_all(&chunk).await.map_err(|error| refusal(&error))?;
            }
        }
    }
    file.flush().await.map_err(|error| refusal(&error))?;
    Ok((upload, size))
}

/// Files of one upload at most: each is open until all have come.
const MOST_UPLOADED: usize = 256;

/// What became of several files.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoredFiles {
    /// In the order in which they came.
    files: Vec<Stored>,
}

/// Stores several files (`multipart/form-data`, each part a file whose name is its path below `path`). They appear when all of them have come.
#[utoipa::path(post, path = "/v1/sessions/{id}/files:upload", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session"),
        ("path" = Option<String>, Query, description = "Folder to store them in; the workspace itself by default")),
    request_body(content = [u8], content_type = "multipart/form-data"),
    responses((status = 201, description = "All are stored", body = StoredFiles),
        (status = 507, description = "The session's disk is full (`insufficient_storage`); none is stored", body = super::error::ErrorBody),
        Refusals))]
pub(crate) async fn upload(
    SessionParam(session): SessionParam,
    query: Pairs,
    parts: Result<Multipart, MultipartRejection>,
) -> Result<Response, ApiError> {
    let [path] = query.take(["path"])?;
    let folder = folder_of(path.as_deref())?;
    let mut parts = parts.map_err(|error| ApiError::no_multipart(&error.body_text()))?;
    let workspace = workspace(&session).await?;
    let mut received = Vec::new();
    loop {
        let next = tokio::time::timeout(PATIENCE, parts.next_field()).await.map_err(|_| ApiError::body_timeout())?;
        let broken = |error: MultipartError| ApiError::invalid("body", format!("is wrong: {}", error.body_text()));
        let Some(mut part) = next.map_err(broken)? else { break };
        let place = format!("part {}", received.len() + 1);
        let Some(name) = part.file_name().map(ToOwned::to_owned) else {
            return Err(ApiError::invalid(place, "has no file name; each part is to be a file"));
        };
        if received.len() == MOST_UPLOADED {
            let message = format!("has more than {MOST_UPLOADED} files; send the others in another request");
            return Err(ApiError::invalid("body", message));
        }
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let path = WorkspacePath::parse(&path).map_err(|message| ApiError::invalid(place, message))?;
        let content = futures::stream::poll_fn(|cx| std::pin::Pin::new(&mut part).poll_next(cx));
        let (upload, size) = receive(&workspace, &path, content).await?;
        received.push((upload, Stored { path: path.as_str().to_owned(), size }));
    }
    if received.is_empty() {
        return Err(ApiError::invalid("body", "has no file; each part is to be one"));
    }
    let stored = blocking(move || {
        let publish = |(upload, stored): (Upload, Stored)| upload.publish().map(|_| stored);
        received.into_iter().map(publish).collect::<std::io::Result<Vec<_>>>()
    });
    Ok((StatusCode::CREATED, Json(StoredFiles { files: stored.await? })).into_response())
}

/// Body of `POST /v1/sessions/{id}/files:archive`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArchiveRequest {
    /// The folder; the workspace itself by default.
    #[serde(default)]
    path: Option<String>,
    /// The form.
    #[serde(default)]
    format: ArchiveFormat,
}

/// A folder of a session as an archive: its folders and regular files, as they are when they are reached.
#[utoipa::path(post, path = "/v1/sessions/{id}/files:archive", tag = "sessions", request_body = ArchiveRequest,
    params(("id" = String, Path, description = "Id of the session")),
    responses((status = 200, description = "The archive", content(([u8] = "application/gzip"), ([u8] = "application/zip"))), Refusals))]
pub(crate) async fn archive(
    SessionParam(session): SessionParam,
    body: JsonBody<ArchiveRequest>,
) -> Result<Response, ApiError> {
    let ArchiveRequest { path, format } = body.value;
    let folder = folder_of(path.as_deref())?;
    let workspace = workspace(&session).await?;
    let name = match folder.rsplit('/').next() {
        None | Some("") => session.id.as_str(),
        Some(name) => name,
    };
    let file_name = format!("{name}.{}", format.suffix());
    let archive = blocking({
        let folder = folder.clone();
        move || workspace.archive(&folder)
    })
    .await?;
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        let mut chunks = Chunks { sender, runtime: tokio::runtime::Handle::current(), buffer: BytesMut::new() };
        if let Err(error) = archive.write(format, &mut chunks) {
            // The answer breaks off, which its reader sees.
            tracing::debug!(%error, "an archive broke off");
            chunks.send(Err(error)).ok();
        }
    });
    let mut about = HeaderMap::new();
    about.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.mime()));
    about.insert(header::CONTENT_DISPOSITION, header_value(&disposition(&file_name)));
    let content = futures::stream::unfold(receiver, async |mut receiver: tokio::sync::mpsc::Receiver<_>| {
        Some((receiver.recv().await?, receiver))
    });
    Ok((about, Body::from_stream(content)).into_response())
}

/// Passes on what is written, in pieces, to a body that is read elsewhere.
struct Chunks {
    sender: tokio::sync::mpsc::Sender<std::io::Result<Bytes>>,
    runtime: tokio::runtime::Handle,
    buffer: BytesMut,
}

impl Chunks {
    fn send(&self, chunk: std::io::Result<Bytes>) -> std::io::Result<()> {
        // A client that reads nothing for so long must not keep a thread.
        let sent = tokio::time::timeout(PATIENCE, self.sender.send(chunk));
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ErrorKind::BrokenPipe.into()),
            Err(_) => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl std::io::Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = self.buffer.split().freeze();
        self.send(Ok(chunk))
    }
}

/// Removes a file, or a folder with everything in it.
#[utoipa::path(delete, path = "/v1/sessions/{id}/files/{path}", tag = "sessions",
    params(("id" = String, Path, description = "Id of the session"),
        ("path" = String, Path, description = "Path in the workspace; may contain slashes")),
    responses((status = 204, description = "It is gone"), Refusals))]
pub(crate) async fn remove(
    SessionParam(session): SessionParam,
    FileParam(path): FileParam,
) -> Result<StatusCode, ApiError> {
    let workspace = workspace(&session).await?;
    blocking(move || workspace.remove(&path)).await?;
    Ok(StatusCode::NO_CONTENT)
}
