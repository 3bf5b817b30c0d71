//! Blobs: kept once, verified, and gone when nobody refers to them; in a folder and in an S3-compatible service.

use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use fumehood_server::store::{BlobPlace, BlobRef, Blobs, Columns as _, Database, DatabaseConfig, S3Config, StoreError};
use futures::TryStreamExt as _;

use crate::on_every_database;
use crate::s3::Service;

/// All files below `folder`.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

pub(crate) fn s3(endpoint: &str) -> BlobPlace {
    let url = format!("s3://bucket/some/prefix/?region=somewhere&endpoint={endpoint}");
    BlobPlace::S3(S3Config::parse(&url, Some(("key".to_owned(), "secret".to_owned()))).unwrap())
}

struct Kept {
    blobs: Blobs,
    database: Arc<Database>,
    _folder: tempfile::TempDir,
}

async fn kept(place: Option<BlobPlace>) -> Kept {
    let folder = tempfile::tempdir().unwrap();
    let database = Arc::new(Database::connect(&DatabaseConfig::sqlite(&folder.path().join("db"))).await.unwrap());
    let place = place.unwrap_or_else(|| BlobPlace::Folder(folder.path().join("blobs")));
    let blobs = Blobs::open(&place, database.clone()).unwrap();
    Kept { blobs, database, _folder: folder }
}

/// What `put_file` takes.
fn file_of(content: &[u8]) -> tokio::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file.rewind().unwrap();
    file.into()
}

async fn the_whole_life_of_a_blob(place: Option<BlobPlace>) {
    let Kept { blobs, database, _folder } = kept(place).await;
    let content = Bytes::from_static(b"figures and numbers");
    let blob = blobs.put("exe_1", content.clone()).await.unwrap();
    assert_eq!(blob, BlobRef::of(&content));
    assert_eq!(blobs.read(&blob).await.unwrap(), content);
    let part: Vec<Bytes> = blobs.get(&blob, Some(8..11)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(part.concat(), b"and");
    let rest: Vec<Bytes> = blobs.get(&blob, Some(12..999)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(rest.concat(), b"numbers");
    let none: Vec<Bytes> = blobs.get(&blob, Some(99..999)).await.unwrap().try_collect().await.unwrap();
    assert!(none.is_empty());
    let empty = blobs.put("exe_1", Bytes::new()).await.unwrap();
    assert_eq!(blobs.read(&empty).await.unwrap(), Bytes::new());

    // From a file: the same content is the same blob, and the file is not read; what is large goes in parts.
    blobs.put_file("exe_2", &blob, file_of(b"not read")).await.unwrap();
    assert_eq!(blobs.read(&blob).await.unwrap(), content);
    let large: Vec<u8> = (0..300_u32 << 16).map(|index| u8::try_from((index >> 16) % 251).unwrap()).collect();
    let large_blob = BlobRef::of(&large);
    blobs.put_file("exe_2", &large_blob, file_of(&large)).await.unwrap();
    assert_eq!(blobs.read(&large_blob).await.unwrap(), large);

    // It stays for as long as somebody refers to it.
    blobs.release("exe_1").await.unwrap();
    blobs.release("exe_1").await.unwrap();
    assert_eq!(blobs.read(&blob).await.unwrap(), content);
    assert!(matches!(blobs.read(&empty).await.unwrap_err(), StoreError::Corrupt { .. }));
    blobs.release_one("exe_2", &blob.sha256).await.unwrap();
    assert!(matches!(blobs.read(&blob).await.unwrap_err(), StoreError::Corrupt { .. }));
    blobs.release("exe_2").await.unwrap();
    let row = database.query("SELECT COUNT(*) AS n FROM blobs").fetch_one(database.pool()).await.unwrap();
    assert_eq!(row.number("n").unwrap(), 0);
    assert_eq!(blobs.sweep().await.unwrap(), 0);
}

#[tokio::test]
async fn blobs_in_a_folder() {
    the_whole_life_of_a_blob(None).await;
}

#[tokio::test]
async fn blobs_in_a_bucket() {
    let (service, url) = Service::start().await;
    the_whole_life_of_a_blob(Some(s3(&url))).await;
    assert_eq!(service.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn a_bucket_holds_each_content_once_below_its_prefix() {
    let (service, url) = Service::start().await;
    let Kept { blobs, _folder, .. } = kept(Some(s3(&url))).await;
    let blob = blobs.put("a", Bytes::from_static(b"x")).await.unwrap();
    blobs.put("b", Bytes::from_static(b"x")).await.unwrap();
    let sha256 = &blob.sha256;
    assert_eq!(service.keys(), [format!("some/prefix/{}/{}/{sha256}", &sha256[..2], &sha256[2..4])]);
    assert_eq!(service.writes.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_bucket_that_is_not_to_be_reached_is_an_outage() {
    let (service, url) = Service::start().await;
    let Kept { blobs, _folder, .. } = kept(Some(s3(&url))).await;
    let blob = blobs.put("a", Bytes::from_static(b"before")).await.unwrap();
    service.down.store(true, Ordering::Relaxed);
    let error = blobs.put("a", Bytes::from_static(b"during")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let error = blobs.read(&blob).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    service.down.store(false, Ordering::Relaxed);
    // What could not be uploaded does not count as there. A store that was away is left alone for a moment.
    let blob = loop {
        match blobs.put("b", Bytes::from_static(b"during")).await {
            Ok(blob) => break blob,
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            Err(error) => panic!("{error:?}"),
        }
    };
    assert_eq!(blobs.read(&blob).await.unwrap(), "during");
}

#[tokio::test]
async fn keys_that_a_bucket_refuses_are_no_outage() {
    let (_service, url) = Service::start().await;
    let place = format!("s3://bucket?region=somewhere&endpoint={url}");
    let place = BlobPlace::S3(S3Config::parse(&place, Some(("another".to_owned(), "hush".to_owned()))).unwrap());
    assert!(!format!("{place:?}").contains("hush"));
    let Kept { blobs, _folder, .. } = kept(Some(place)).await;
    let error = blobs.put("a", Bytes::from_static(b"x")).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
}

#[tokio::test]
async fn content_that_changed_in_the_store_is_noticed() {
    let (service, url) = Service::start().await;
    let Kept { blobs, _folder, .. } = kept(Some(s3(&url))).await;
    let blob = blobs.put("a", Bytes::from_static(b"right")).await.unwrap();
    service.overwrite(&service.keys()[0], b"wrong");
    let error = blobs.read(&blob).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { table: "blobs", .. }), "{error:?}");
}

#[test]
fn a_place_that_cannot_be_one_is_told() {
    for (url, why) in [
        ("http://bucket/x", "s3:"),
        ("s3://bucket?zone=x", "zone"),
        ("s3://bucket?endpoint=minio:9000", "endpoint"),
        ("s3://key:hush@bucket/", "keys"),
        ("s3:///x", "bucket"),
    ] {
        let error = S3Config::parse(url, None).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("hush"), "{url}: {error}");
    }
}

on_every_database! {
    /// Owners come and go at once; whoever has put and not released can read.
    async fn a_put_beside_a_release_of_the_same_content_keeps_it(place: Place) {
        let database = place.open().await;
        let blobs = Blobs::open(&BlobPlace::Folder(place.folder.join("blobs")), database.clone()).unwrap();
        let tasks: Vec<_> = (0..4_u8).map(|number| {
            let blobs = blobs.clone();
            tokio::spawn(async move {
                for round in 0..12_u8 {
                    let owner = format!("owner-{number}");
                    let content = Bytes::from(vec![round % 2; 64]);
                    let blob = blobs.put(&owner, content.clone()).await.unwrap();
                    assert_eq!(blobs.read(&blob).await.unwrap(), content);
                    blobs.release(&owner).await.unwrap();
                }
            })
        }).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(files(&place.folder.join("blobs")), Vec::<PathBuf>::new());
        let row = database.query("SELECT COUNT(*) AS n FROM blobs").fetch_one(database.pool()).await.unwrap();
        assert_eq!(row.number("n").unwrap(), 0);
    }

    async fn what_a_crash_left_is_swept(place: Place) {
        let database = place.open().await;
        let blobs = Blobs::open(&BlobPlace::Folder(place.folder.join("blobs")), database.clone()).unwrap();
        let kept = blobs.put("a", Bytes::from_static(b"kept")).await.unwrap();
        blobs.put("b", Bytes::from_static(b"left")).await.unwrap();
        // Ended between the two transactions of a release.
        database.query("DELETE FROM blob_owners WHERE owner = 'b'").execute(database.pool()).await.unwrap();
        assert_eq!(blobs.sweep().await.unwrap(), 1);
        assert_eq!(files(&place.folder.join("blobs")).len(), 1);
        assert_eq!(blobs.read(&kept).await.unwrap(), "kept");
    }
}
