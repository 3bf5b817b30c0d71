//! The schema's versions.

use fumehood_server::store::{Columns as _, Database, StoreError};

use crate::on_every_database;

const ONE: &str = "INSERT INTO executions (id, tenant, status, created_ms, document, size_bytes)
    VALUES (?, 'default', 'completed', 1700000000000, ?, 17)";

on_every_database! {
    /// Opening it twice, and twice at once, is as good as once.
    async fn a_schema_is_made_once(place: Place) {
        let (first, second) = tokio::join!(place.open(), place.open());
        first.query(ONE).bind("exe_1").bind("{}").execute(first.pool()).await.unwrap();
        let third = place.open().await;
        for database in [&first, &second, &third] {
            let row = database.query("SELECT COUNT(*) AS n FROM executions").fetch_one(database.pool()).await.unwrap();
            assert_eq!(row.number("n").unwrap(), 1);
        }
    }

    async fn a_schema_of_a_newer_version_is_refused_by_name(place: Place) {
        let database = place.open().await;
        let text = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (99999, 'future', true, ?, 1)";
        database.query(text).bind(vec![1_u8]).execute(database.pool()).await.unwrap();
        database.close().await;
        let error = Database::connect(&place.config).await.err().expect("it is refused");
        assert!(matches!(error, StoreError::Newer(99999)), "{error:?}");
        assert!(error.to_string().contains("newer version of fumehood"), "{error}");
    }

    async fn an_upgrade_keeps_what_was_there(place: Place) {
        let old = Database::connect_as_of(&place.config, 1).await.unwrap();
        old.query(ONE).bind("exe_old").bind("{\"kept\": true}").execute(old.pool()).await.unwrap();
        old.close().await;
        let new = place.open().await;
        let row = new.query("SELECT * FROM executions").fetch_one(new.pool()).await.unwrap();
        assert_eq!(row.text("id").unwrap(), "exe_old");
        assert_eq!(row.text("document").unwrap(), "{\"kept\": true}");
        assert_eq!(row.number("created_ms").unwrap(), 1_700_000_000_000);
        let row = new.query("SELECT COUNT(*) AS n FROM _sqlx_migrations").fetch_one(new.pool()).await.unwrap();
        assert!(row.number("n").unwrap() > 1, "there are further steps");
    }
}

#[tokio::test]
async fn the_embedded_database_may_be_in_a_folder_of_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("50% of what? #1 数据");
    std::fs::create_dir(&odd).unwrap();
    let config = fumehood_server::store::DatabaseConfig::sqlite(&odd.join("a b.db"));
    Database::connect(&config).await.unwrap().close().await;
    assert!(odd.join("a b.db").is_file());
}

#[tokio::test]
async fn an_url_that_cannot_be_one_is_told_without_its_password() {
    for url in ["mysql://u:hush@localhost:port/db", "postgres://u:hush@h:1/db?sslmode=maybe", "oracle://u:hush@h/db"] {
        let config = fumehood_server::store::DatabaseConfig { url: url.to_owned(), connections: 1 };
        let error = Database::connect(&config).await.err().expect(url);
        assert!(matches!(error, StoreError::Url(_)), "{url}: {error:?}");
        assert!(!format!("{error:?} {error}").contains("hush"), "{error:?}");
    }
}
