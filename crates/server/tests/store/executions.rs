//! Executions on record: whole, however long they are, listed shortly, and really gone when they are removed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fumehood_engine::Ended;
use fumehood_engine::execution::Execution;
use fumehood_engine::ids::{ExecutionId, IdSource as _, TenantId, UlidSource};
use fumehood_server::store::{BlobPlace, Columns as _, ExecutionFilter, KeptExecution, Store, StoreError};
use serde_json::json;

use crate::blobs::{files, s3};
use crate::on_every_database;
use crate::rig::Place;
use crate::s3::Service;

/// Longer than a row takes.
const HUGE: usize = 13 << 20;

impl Place {
    pub(crate) async fn store(&self) -> Store {
        drop(self.open().await);
        Store::open(&self.config).await.unwrap()
    }

    async fn store_with_folder(&self) -> Store {
        let place = BlobPlace::Folder(self.folder.join("blobs"));
        self.store().await.with_blobs(&place, false).unwrap()
    }
}

/// An execution of `tenant` that ended `second` seconds into 2026 and printed `stdout`.
pub(crate) fn ended(tenant: &str, second: u32, stdout: String) -> Ended {
    let at = format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60);
    let execution: Execution = serde_json::from_value(json!({
        "id": UlidSource.execution(), "session_id": null, "interpreter_restarted": false, "template": "default@1",
        "status": "completed", "outcome": "exited", "exit_code": 0, "stdout": stdout, "stderr": "",
        "stdout_truncated": false, "stderr_truncated": false, "result": 7, "dataframe": null, "variables": {},
        "outputs": [], "error": null, "fault": null, "denials": [], "warnings": [], "artifacts": [],
        "isolation": {"requested": "auto", "effective": "process", "features": {}},
        "policy": {"name": "default", "risk": "none", "findings": []},
        "metrics": {"queue_ms": 0, "start_ms": 1, "duration_ms": 1, "cpu_ms": 1, "memory_peak_mb": 1, "bytes_read": 0,
                    "bytes_written": 0, "processes_peak": 1},
        "created_at": at, "started_at": at, "finished_at": at,
    }))
    .unwrap();
    Ended { owner: TenantId::parse(tenant).unwrap(), execution: Arc::new(execution), whole: None }
}

async fn get(store: &Store, id: &ExecutionId) -> KeptExecution {
    store.executions().get(id).await.unwrap().expect("it is on record")
}

async fn list(store: &Store, filter: ExecutionFilter) -> Vec<KeptExecution> {
    store.executions().list(&ExecutionFilter { limit: 100, ..filter }).await.unwrap()
}

fn codes(kept: &KeptExecution) -> Vec<&str> {
    kept.execution.warnings.iter().map(|notice| &*notice.code).collect()
}

on_every_database! {
    async fn executions_come_back_as_they_were_and_are_kept_once(place: Place) {
        let store = place.store_with_folder().await;
        let first = ended("a", 1, "one\0 \u{1f600} \\ '\"".to_owned());
        let second = Ended { whole: Some(Arc::new(["all".to_owned(), "of it".to_owned()])), ..ended("b", 2, String::new()) };
        store.executions().keep(&[first.clone(), second.clone()]).await.unwrap();
        let other = Ended { owner: TenantId::parse("c").unwrap(), ..first.clone() };
        store.executions().keep(&[other]).await.unwrap();
        let kept = get(&store, &first.execution.id).await;
        assert_eq!((&kept.execution, kept.owner.as_str(), &kept.whole), (&first.execution, "a", &None));
        assert_eq!(get(&store, &second.execution.id).await.whole, second.whole);
        assert_eq!(files(&place.folder.join("blobs")).len(), 0, "what is short is in its row");
    }

    async fn lists_are_newest_first_by_owner_status_and_page(place: Place) {
        let store = place.store().await;
        let all: Vec<_> = (0..5).map(|number| ended(if number % 2 == 0 { "a" } else { "b" }, number, String::new())).collect();
        store.executions().keep(&all).await.unwrap();
        let mut ids: Vec<_> = all.iter().map(|ended| ended.execution.id.clone()).collect();
        ids.sort_by(|one, other| other.cmp(one));
        let listed = list(&store, ExecutionFilter::default()).await;
        assert_eq!(listed.iter().map(|kept| kept.execution.id.clone()).collect::<Vec<_>>(), ids);
        let of_b = list(&store, ExecutionFilter { owner: TenantId::parse("b"), ..ExecutionFilter::default() }).await;
        assert_eq!(of_b.len(), 2);
        assert!(of_b.iter().all(|kept| kept.owner.as_str() == "b"));
        let failed = fumehood_engine::execution::Status::Failed;
        assert_eq!(list(&store, ExecutionFilter { status: Some(failed), ..ExecutionFilter::default() }).await.len(), 0);
        let rest = list(&store, ExecutionFilter { before: Some(ids[2].clone()), ..ExecutionFilter::default() }).await;
        assert_eq!(rest.iter().map(|kept| kept.execution.id.clone()).collect::<Vec<_>>(), ids[3..]);
        assert_eq!(store.executions().known(&[ids[0].clone(), UlidSource.execution()]).await.unwrap(), [ids[0].clone()]);
    }

    async fn a_long_execution_is_whole_on_record_and_short_in_lists(place: Place) {
        let store = place.store_with_folder().await;
        let long = ended("a", 1, "x".repeat(HUGE));
        store.executions().keep(std::slice::from_ref(&long)).await.unwrap();
        let id = &long.execution.id;
        assert_eq!(get(&store, id).await.execution, long.execution);
        let listed = list(&store, ExecutionFilter::default()).await;
        assert_eq!((listed[0].execution.stdout.len(), listed[0].execution.stdout_truncated), (0, true));
        assert_eq!(codes(&listed[0]), ["listed_short"]);
        assert!(listed[0].execution.warnings[0].message.contains(id.as_str()));
        assert_eq!(files(&place.folder.join("blobs")).len(), 1);

        // What is in the store no more is missed, and told.
        std::fs::remove_file(&files(&place.folder.join("blobs"))[0]).unwrap();
        let damaged = get(&store, id).await;
        assert_eq!(codes(&damaged), ["record_shortened"]);
    }

    async fn what_is_removed_is_removed_from_every_place(place: Place) {
        let store = place.store_with_folder().await;
        let long: Vec<_> = (0..3).map(|number| ended("a", number, format!("{number}").repeat(1 << 20))).collect();
        store.executions().keep(&long).await.unwrap();
        assert_eq!(files(&place.folder.join("blobs")).len(), 3);
        assert!(store.executions().delete(&long[0].execution.id).await.unwrap());
        assert!(!store.executions().delete(&long[0].execution.id).await.unwrap());
        assert_eq!(files(&place.folder.join("blobs")).len(), 2);
        assert!(store.executions().get(&long[0].execution.id).await.unwrap().is_none());

        // By age, and by number.
        let first_second = 1_767_225_600_000;
        let old = store.executions().expired(first_second + 1500, 100, 100).await.unwrap();
        assert_eq!(old, [long[1].execution.id.clone()]);
        let many = store.executions().expired(0, 1, 100).await.unwrap();
        assert_eq!(many, [long[1].execution.id.clone()]);
        for id in &many {
            store.executions().delete(id).await.unwrap();
        }
        assert_eq!(files(&place.folder.join("blobs")).len(), 1);
        let row = store.database().query("SELECT COUNT(*) AS n FROM blob_owners").fetch_one(store.database().pool()).await.unwrap();
        assert_eq!(row.number("n").unwrap(), 1);
    }

    async fn content_whose_execution_never_came_on_record_is_swept_after_a_day(place: Place) {
        let store = place.store_with_folder().await;
        let long = ended("a", 1, "x".repeat(1 << 20));
        store.executions().keep(std::slice::from_ref(&long)).await.unwrap();
        // As if its server had ended between the content and the row.
        let delete = store.database().query("DELETE FROM executions");
        delete.execute(store.database().pool()).await.unwrap();
        let now_ms = 4_000_000_000_000;
        assert_eq!(store.executions().sweep(0).await.unwrap(), 0, "it may still come");
        assert_eq!(store.executions().sweep(now_ms).await.unwrap(), 1);
        assert_eq!(files(&place.folder.join("blobs")).len(), 0);

        let kept = ended("a", 2, "y".repeat(1 << 20));
        store.executions().keep(std::slice::from_ref(&kept)).await.unwrap();
        assert_eq!(store.executions().sweep(now_ms).await.unwrap(), 0);
        assert_eq!(get(&store, &kept.execution.id).await.execution, kept.execution);
    }

    async fn without_a_blob_store_a_row_takes_what_it_can(place: Place) {
        let store = place.store().await;
        let (long, huge) = (ended("a", 1, "x".repeat(1 << 20)), ended("a", 2, "x".repeat(HUGE)));
        store.executions().keep(&[long.clone(), huge.clone()]).await.unwrap();
        assert_eq!(get(&store, &long.execution.id).await.execution, long.execution);
        let short = get(&store, &huge.execution.id).await;
        assert_eq!(codes(&short), ["record_shortened"]);
        assert!(short.execution.warnings[0].message.contains("no blob store"), "{:?}", short.execution.warnings);
    }
}

#[test]
fn while_the_blob_store_is_away_rows_take_what_they_can() {
    crate::rig::run(fumehood_server::store::Kind::Sqlite, |place| async move {
        let (service, url) = Service::start().await;
        let store = place.store().await.with_blobs(&s3(&url), false).unwrap();
        let before = ended("a", 1, "x".repeat(1 << 20));
        store.executions().keep(std::slice::from_ref(&before)).await.unwrap();
        service.down.store(true, Ordering::Relaxed);
        let (long, huge) = (ended("a", 2, "y".repeat(1 << 20)), ended("a", 3, "z".repeat(HUGE)));
        store.executions().keep(&[long.clone(), huge.clone()]).await.unwrap();
        assert_eq!(get(&store, &long.execution.id).await.execution, long.execution);
        assert_eq!(codes(&get(&store, &huge.execution.id).await), ["record_shortened"]);
        // What is there is not lost: whoever asks is told to ask again.
        let error = store.executions().get(&before.execution.id).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        service.down.store(false, Ordering::Relaxed);
        assert_eq!(get(&store, &before.execution.id).await.execution, before.execution);
    });
}
