//! Large content by its SHA-256, in a folder or in an S3-compatible service; the database knows who refers to it.
//!
//! ```text
//! put:      [ row of the blob, owner ] -> upload, unless it is there -> [ present ]
//! release:  [ owner goes; without others: not present ] -> [ still nobody? object deleted, row deleted ]
//! ```
//!
//! Brackets are transactions, which hold the blob's row. So a put either comes before the last check, and the content stays, or waits until it is gone and
//! writes it again. A crash anywhere leaves content that nobody refers to ([`Blobs::sweep`]), never a reference to what is not there: what may be on its
//! way out is not present, and is uploaded by whoever puts it next.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fumehood_engine::execution::Artifact;
use futures::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{
    ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutPayload, RetryConfig, WriteMultipart,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use utoipa::ToSchema;

use crate::config::hex;

use super::{Columns as _, Database, Kind, StoreError, retry_contended};

/// What is larger is uploaded in parts of this size.
const PART: usize = 8 << 20;
/// A store that was not to be reached is not written to for so long: whoever has much to write does not wait for each anew.
const REST: Duration = Duration::from_secs(2);

/// Content in the blob store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct BlobRef {
    /// SHA-256 of the content, hexadecimal.
    pub sha256: String,
    /// Its length in bytes.
    pub size: u64,
}

impl BlobRef {
    /// What refers to `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self { sha256: hex(&Sha256::digest(content)), size: content.len() as u64 }
    }
}

impl From<&Artifact> for BlobRef {
    /// What an artifact is called by where files are shared: the host took its hash when it was collected.
    fn from(artifact: &Artifact) -> Self {
        Self { sha256: artifact.sha256.clone(), size: artifact.size }
    }
}

/// Where blobs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobPlace {
    /// Below this folder.
    Folder(PathBuf),
    /// In a bucket.
    S3(S3Config),
}

/// A bucket of an S3-compatible service.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Config {
    /// Its name.
    pub bucket: String,
    /// In front of every key; may be empty.
    pub prefix: String,
    /// Its region; `us-east-1` where the service has none.
    pub region: String,
    /// The service, for those that are not AWS; plain HTTP only when this says so.
    pub endpoint: Option<String>,
    /// Key and secret; without them those of the machine's role are asked for.
    pub credentials: Option<(String, String)>,
}

impl fmt::Debug for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

impl S3Config {
    /// Reads `s3://bucket/prefix?region=…&endpoint=…`.
    ///
    /// # Errors
    /// When it is something else; says what is wrong.
    pub fn parse(url: &str, credentials: Option<(String, String)>) -> Result<Self, StoreError> {
        let wrong = |why: &str| StoreError::Url(format!("must be s3://BUCKET/PREFIX?region=…&endpoint=…: {why}"));
        let url = reqwest::Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        if url.scheme() != "s3" {
            return Err(wrong("it does not begin with s3:"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("keys do not belong there"));
        }
        let bucket = url
            .host_str()
            .filter(|bucket| !bucket.is_empty())
            .ok_or_else(|| wrong("the bucket is missing"))?
            .to_owned();
        let prefix = url.path().trim_matches('/').to_owned();
        let (mut region, mut endpoint) = ("us-east-1".to_owned(), None);
        for (name, value) in url.query_pairs() {
            match &*name {
                "region" => region = value.into_owned(),
                "endpoint" if value.starts_with("http://") || value.starts_with("https://") => {
                    endpoint = Some(value.into_owned())
                }
                "endpoint" => return Err(wrong("the endpoint begins with neither http:// nor https://")),
                _ => return Err(wrong(&format!("there is no setting {name}"))),
            }
        }
        Ok(Self { bucket, prefix, region, endpoint, credentials })
    }
}

/// The blob store. Cheap to clone.
#[derive(Clone)]
pub struct Blobs {
    objects: Arc<dyn ObjectStore>,
    prefix: String,
    database: Arc<Database>,
    /// When it was last not to be reached.
    away: Arc<Mutex<Option<Instant>>>,
}

impl Blobs {
    /// Opens the store at `place`.
    ///
    /// # Errors
    /// When a folder cannot be made, or the service cannot be spoken to as configured. The service itself is not asked.
    pub fn open(place: &BlobPlace, database: Arc<Database>) -> Result<Self, StoreError> {
        match place {
            BlobPlace::Folder(folder) => Self::folder(folder, database),
            BlobPlace::S3(config) => Self::s3(config, database),
        }
    }

    fn folder(folder: &Path, database: Arc<Database>) -> Result<Self, StoreError> {
        std::fs::create_dir_all(folder).map_err(|error| StoreError::Unavailable(error.into()))?;
        // What a put has returned survives a power cut.
        let objects = LocalFileSystem::new_with_prefix(folder).map_err(StoreError::from)?.with_fsync(true);
        Ok(Self { objects: Arc::new(objects), prefix: String::new(), database, away: Arc::default() })
    }

    fn s3(config: &S3Config, database: Arc<Database>) -> Result<Self, StoreError> {
        // The HTTP client takes the process's; whoever was first, it is this one.
        rustls::crypto::ring::default_provider().install_default().ok();
        let plain = config.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let client = ClientOptions::new()
            .with_connect_timeout(Duration::from_secs(3))
            .with_timeout(Duration::from_secs(60))
            .with_allow_http(plain);
        let retries = RetryConfig { max_retries: 3, retry_timeout: Duration::from_secs(15), ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&config.bucket)
            .with_region(&config.region)
            .with_virtual_hosted_style_request(config.endpoint.is_none())
            .with_client_options(client)
            .with_allow_http(plain)
            .with_retry(retries)
            // Not every service has it.
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &config.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        if let Some((key, secret)) = &config.credentials {
            builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        }
        let objects = builder.build().map_err(StoreError::from)?;
        let prefix = if config.prefix.is_empty() { String::new() } else { format!("{}/", config.prefix) };
        Ok(Self { objects: Arc::new(objects), prefix, database, away: Arc::default() })
    }

    /// Keeps `content` for `owner` until [`Self::release`]. The same content is kept once, for all that own it.
    ///
    /// # Errors
    /// When it could not be written; then it may or may not be there, and releasing is right in either case.
    pub async fn put(&self, owner: &str, content: Bytes) -> Result<BlobRef, StoreError> {
        let blob = BlobRef::of(&content);
        let key = self.key(&blob.sha256);
        let upload = async move {
            self.objects.put(&key, PutPayload::from_bytes(content)).await?;
            Ok(())
        };
        self.keep(owner, &blob, upload).await?;
        Ok(blob)
    }

    /// The same for a file, which holds `blob` and does not change. Nothing is read when the store has it.
    ///
    /// # Errors
    /// When the file cannot be read, and as [`Self::put`].
    pub async fn put_file(&self, owner: &str, blob: &BlobRef, file: tokio::fs::File) -> Result<(), StoreError> {
        self.keep(owner, blob, self.upload(blob, file)).await
    }

    async fn upload(&self, blob: &BlobRef, mut file: tokio::fs::File) -> Result<(), StoreError> {
        let broken = |error: std::io::Error| StoreError::Unavailable(error.into());
        let key = self.key(&blob.sha256);
        if blob.size <= PART as u64 {
            let mut content = Vec::new();
            file.read_to_end(&mut content).await.map_err(broken)?;
            self.objects.put(&key, content.into()).await?;
            return Ok(());
        }
        let mut parts = WriteMultipart::new_with_chunk_size(self.objects.put_multipart(&key).await?, PART);
        let mut piece = vec![0; 1 << 20];
        loop {
            let read = match file.read(&mut piece).await {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) => {
                    parts.abort().await?;
                    return Err(broken(error));
                }
            };
            parts.wait_for_capacity(2).await?;
            parts.write(&piece[..read]);
        }
        parts.finish().await?;
        Ok(())
    }

    /// Notes that `owner` refers to the blob, then uploads it unless it is there.
    async fn keep(
        &self,
        owner: &str,
        blob: &BlobRef,
        upload: impl Future<Output = Result<(), StoreError>>,
    ) -> Result<(), StoreError> {
        if retry_contended(|| self.refer(owner, blob)).await? {
            return Ok(());
        }
        if self.away.lock().is_some_and(|since| since.elapsed() < REST) {
            return Err(StoreError::Unavailable("the blob store was not to be reached a moment ago".into()));
        }
        if let Err(error) = upload.await {
            *self.away.lock() = matches!(error, StoreError::Unavailable(_)).then(Instant::now);
            return Err(error);
        }
        retry_contended(async || {
            let update = self.database.query("UPDATE blobs SET present = 1 WHERE sha256 = ?").bind(&blob.sha256);
            update.execute(self.database.pool()).await?;
            Ok(())
        })
        .await
    }

    async fn refer(&self, owner: &str, blob: &BlobRef) -> Result<bool, StoreError> {
        // Either way the row is held afterwards.
        let (held, once) = match self.database.kind() {
            Kind::Mysql => ("ON DUPLICATE KEY UPDATE present = present", "ON DUPLICATE KEY UPDATE owner = owner"),
            Kind::Sqlite | Kind::Postgres => (
                "ON CONFLICT (sha256) DO UPDATE SET size_bytes = EXCLUDED.size_bytes",
                "ON CONFLICT (sha256, owner) DO NOTHING",
            ),
        };
        let mut transaction = self.database.begin().await?;
        let insert =
            self.database.query(&format!("INSERT INTO blobs (sha256, size_bytes, present) VALUES (?, ?, 0) {held}"));
        let size = i64::try_from(blob.size).unwrap_or(i64::MAX);
        insert.bind(&blob.sha256).bind(size).execute(&mut *transaction).await?;
        let insert = self.database.query(&format!("INSERT INTO blob_owners (sha256, owner) VALUES (?, ?) {once}"));
        insert.bind(&blob.sha256).bind(owner).execute(&mut *transaction).await?;
        let row = self.database.query("SELECT present FROM blobs WHERE sha256 = ?").bind(&blob.sha256);
        let present = row.fetch_one(&mut *transaction).await?.number("present")? == 1;
        transaction.commit().await?;
        Ok(present)
    }

    /// All of it, verified.
    ///
    /// # Errors
    /// When it is missing or is not what was put.
    pub async fn read(&self, blob: &BlobRef) -> Result<Bytes, StoreError> {
        let pieces: Vec<Bytes> = self.get(blob, None).await?.try_collect().await?;
        Ok(match <[Bytes; 1]>::try_from(pieces) {
            Ok([only]) => only,
            Err(pieces) => pieces.concat().into(),
        })
    }

    /// The content in pieces, or the bytes in `range` of it. Without a range it is verified: when it is not what was put, the last item is an error.
    ///
    /// # Errors
    /// When it is missing or cannot be reached.
    pub async fn get(
        &self,
        blob: &BlobRef,
        range: Option<Range<u64>>,
    ) -> Result<BoxStream<'static, Result<Bytes, StoreError>>, StoreError> {
        let range = range.map(|range| range.start..range.end.min(blob.size));
        if range.as_ref().is_some_and(Range::is_empty) {
            return Ok(futures::stream::empty().boxed());
        }
        let verify = range.is_none();
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let found = self.objects.get_opts(&self.key(&blob.sha256), options).await?;
        let pieces = found.into_stream().map_err(StoreError::from);
        if verify { Ok(verified(pieces.boxed(), blob.clone())) } else { Ok(pieces.boxed()) }
    }

    /// `owner` refers to nothing any more; content that nobody else refers to is deleted. May be repeated.
    ///
    /// # Errors
    /// When not all could be released; the rest still belongs to `owner`, or is found by [`Self::sweep`].
    pub async fn release(&self, owner: &str) -> Result<(), StoreError> {
        let rows = self.database.query("SELECT sha256 FROM blob_owners WHERE owner = ?").bind(owner);
        for row in rows.fetch_all(self.database.pool()).await? {
            self.release_one(owner, &row.text("sha256")?).await?;
        }
        Ok(())
    }

    /// The same for one blob of `owner`'s.
    ///
    /// # Errors
    /// As [`Self::release`].
    pub async fn release_one(&self, owner: &str, sha256: &str) -> Result<(), StoreError> {
        let orphan = retry_contended(|| self.disown(owner, sha256)).await?;
        if orphan { self.collect(sha256).await } else { Ok(()) }
    }

    /// Whether nobody refers to it any more; then it does not count as present.
    async fn disown(&self, owner: &str, sha256: &str) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        let row = self.database.query("SELECT present FROM blobs WHERE sha256 = ? {hold}").bind(sha256);
        row.fetch_optional(&mut *transaction).await?;
        let delete =
            self.database.query("DELETE FROM blob_owners WHERE sha256 = ? AND owner = ?").bind(sha256).bind(owner);
        delete.execute(&mut *transaction).await?;
        let others = self.database.query("SELECT 1 AS one FROM blob_owners WHERE sha256 = ? LIMIT 1").bind(sha256);
        let orphan = others.fetch_optional(&mut *transaction).await?.is_none();
        if orphan {
            let update = self.database.query("UPDATE blobs SET present = 0 WHERE sha256 = ?").bind(sha256);
            update.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(orphan)
    }

    /// Deletes what nobody refers to; while that lasts, its row is held, and whoever puts the same content waits.
    async fn collect(&self, sha256: &str) -> Result<(), StoreError> {
        retry_contended(|| self.try_collect(sha256)).await
    }

    async fn try_collect(&self, sha256: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let row = self.database.query("SELECT present FROM blobs WHERE sha256 = ? {hold}").bind(sha256);
        if row.fetch_optional(&mut *transaction).await?.is_none() {
            return Ok(());
        }
        let owners = self.database.query("SELECT 1 AS one FROM blob_owners WHERE sha256 = ? LIMIT 1").bind(sha256);
        if owners.fetch_optional(&mut *transaction).await?.is_some() {
            return Ok(());
        }
        match self.objects.delete(&self.key(sha256)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.database.query("DELETE FROM blobs WHERE sha256 = ?").bind(sha256).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Deletes what nobody refers to because a process ended at the wrong moment; how many there were. Cheap when there is nothing.
    ///
    /// # Errors
    /// When the database or the store is not to be reached.
    pub async fn sweep(&self) -> Result<usize, StoreError> {
        let text = "SELECT sha256 FROM blobs WHERE NOT EXISTS (SELECT 1 FROM blob_owners WHERE blob_owners.sha256 = blobs.sha256)";
        let rows = self.database.query(text).fetch_all(self.database.pool()).await?;
        for row in &rows {
            self.collect(&row.text("sha256")?).await?;
        }
        Ok(rows.len())
    }

    /// Some who refer to something, whose names come before `before`, and for whom `known` has no row: a table with a column `id`.
    ///
    /// # Errors
    /// When the database is not to be reached.
    pub async fn owners_unknown_to(&self, known: &str, before: &str) -> Result<Vec<String>, StoreError> {
        let text = format!(
            "SELECT DISTINCT owner FROM blob_owners WHERE owner < ? AND NOT EXISTS (SELECT 1 FROM {known} WHERE {known}.id = blob_owners.owner) LIMIT 500"
        );
        let rows = self.database.query(&text).bind(before).fetch_all(self.database.pool()).await?;
        rows.iter().map(|row| row.text("owner")).collect()
    }

    /// Sharded, so that no folder has too many entries.
    fn key(&self, sha256: &str) -> Key {
        let (first, second) = (sha256.get(..2).unwrap_or_default(), sha256.get(2..4).unwrap_or_default());
        Key::from(format!("{}{first}/{second}/{sha256}", self.prefix))
    }
}

impl From<object_store::Error> for StoreError {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error;
        match error {
            // Asked for only because the database says that it is there.
            Error::NotFound { .. } => Self::Corrupt { table: "blobs", cause: Box::new(error) },
            Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. } => Self::Refused(Box::new(error)),
            _ => Self::Unavailable(Box::new(error)),
        }
    }
}

/// `pieces`, and an error at their end when together they are not `blob`.
fn verified(
    pieces: BoxStream<'static, Result<Bytes, StoreError>>,
    blob: BlobRef,
) -> BoxStream<'static, Result<Bytes, StoreError>> {
    let begin = (pieces, Sha256::new(), Some(blob));
    futures::stream::unfold(begin, |(mut pieces, mut hash, blob)| async move {
        let wanted = blob?;
        match pieces.next().await {
            Some(Ok(piece)) => {
                hash.update(&piece);
                Some((Ok(piece), (pieces, hash, Some(wanted))))
            }
            Some(Err(error)) => Some((Err(error), (pieces, hash, None))),
            None if hex(&hash.clone().finalize()) == wanted.sha256 => None,
            None => {
                let cause = format!("the content of blob {} is not what was put there", wanted.sha256).into();
                Some((Err(StoreError::Corrupt { table: "blobs", cause }), (pieces, hash, None)))
            }
        }
    })
    .boxed()
}
