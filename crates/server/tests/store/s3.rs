//! As much of an S3 service as the blob store needs, in memory: objects of one bucket by path.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use parking_lot::Mutex;

type Parts = BTreeMap<u32, Bytes>;

#[derive(Default)]
pub(crate) struct Service {
    objects: Mutex<BTreeMap<String, Bytes>>,
    uploads: Mutex<HashMap<String, Parts>>,
    /// Objects that were written, parts counted once.
    pub(crate) writes: AtomicUsize,
    /// While set, every request is answered with 503.
    pub(crate) down: AtomicBool,
}

impl Service {
    /// Serves on a loopback port; its URL.
    pub(crate) async fn start() -> (Arc<Self>, String) {
        let service = Arc::new(Self::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .fallback(answer)
            .with_state(service.clone())
            .layer(axum::extract::DefaultBodyLimit::disable());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (service, url)
    }

    /// Names of objects, without the bucket.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }

    pub(crate) fn overwrite(&self, key: &str, content: &'static [u8]) {
        self.objects.lock().insert(key.to_owned(), Bytes::from_static(content));
    }
}

fn status(status: StatusCode) -> Response<Body> {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

async fn answer(
    State(service): State<Arc<Service>>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    if service.down.load(Ordering::Relaxed) {
        return status(StatusCode::SERVICE_UNAVAILABLE);
    }
    let signed = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if !signed
        .is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256 Credential=key/") && value.contains("/somewhere/s3/"))
    {
        return status(StatusCode::FORBIDDEN);
    }
    let Some(key) = uri.path().strip_prefix("/bucket/").map(str::to_owned) else {
        return status(StatusCode::NOT_FOUND);
    };
    let upload = query.get("uploadId").cloned();
    match method {
        Method::POST if query.contains_key("uploads") => {
            let id = format!("u{}", service.uploads.lock().len());
            service.uploads.lock().insert(id.clone(), Parts::new());
            let told =
                format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
            Response::new(Body::from(told))
        }
        Method::PUT if upload.is_some() => {
            let number = query["partNumber"].parse().unwrap();
            service.uploads.lock().get_mut(&upload.unwrap()).unwrap().insert(number, body);
            Response::builder().header(header::ETAG, format!("\"{number}\"")).body(Body::empty()).unwrap()
        }
        Method::POST if upload.is_some() => {
            let parts = service.uploads.lock().remove(&upload.unwrap()).unwrap();
            let whole = parts.into_values().collect::<Vec<_>>().concat();
            service.objects.lock().insert(key, whole.into());
            service.writes.fetch_add(1, Ordering::Relaxed);
            Response::new(Body::from(
                "<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>",
            ))
        }
        Method::PUT => {
            service.objects.lock().insert(key, body);
            service.writes.fetch_add(1, Ordering::Relaxed);
            Response::builder().header(header::ETAG, "\"e\"").body(Body::empty()).unwrap()
        }
        Method::DELETE => {
            service.objects.lock().remove(&key);
            status(StatusCode::NO_CONTENT)
        }
        Method::GET | Method::HEAD => {
            let Some(content) = service.objects.lock().get(&key).cloned() else { return status(StatusCode::NOT_FOUND) };
            let response = Response::builder()
                .header(header::ETAG, "\"e\"")
                .header(header::LAST_MODIFIED, "Thu, 01 Jan 2026 00:00:00 GMT");
            let range = headers
                .get(header::RANGE)
                .and_then(|value| value.to_str().ok())
                .and_then(|value| value.strip_prefix("bytes="));
            let Some((first, last)) = range.and_then(|range| range.split_once('-')) else {
                return response.header(header::CONTENT_LENGTH, content.len()).body(Body::from(content)).unwrap();
            };
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            response
                .status(StatusCode::PARTIAL_CONTENT)
                .header(header::CONTENT_RANGE, format!("bytes {first}-{last}/{}", content.len()))
                .body(Body::from(content.slice(first..=last)))
                .unwrap()
        }
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    }
}
