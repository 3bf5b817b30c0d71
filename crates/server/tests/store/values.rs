//! Values come back as they were written, and rows are held as asked for.

use fumehood_server::store::{Columns as _, Database, StoreError};
use sqlx::{AssertSqlSafe, Executor as _};

use crate::on_every_database;

async fn table(database: &Database) {
    let text = "CREATE TABLE things (id {id} NOT NULL PRIMARY KEY, long_text {text}, raw {bytes}, n BIGINT, short VARCHAR(255)){table}";
    database.pool().execute(AssertSqlSafe(database.kind().dialect(text))).await.unwrap();
}

on_every_database! {
    async fn values_come_back_as_they_were_written(place: Place) {
        let database = place.open().await;
        table(&database).await;
        let long = "0123456789abcdef".repeat(1 << 16);
        let every_byte: Vec<u8> = (0..=255).collect();
        let rows: [(&str, Option<&str>, Option<&[u8]>, Option<i64>, Option<&str>); 7] = [
            ("plain", Some("text"), Some(b"bytes"), Some(1), Some("s")),
            ("null", None, None, None, None),
            ("empty", Some(""), Some(b""), Some(0), Some("")),
            ("emoji 🧪", Some("🧪🧫 數據 データ 데이터 é\u{301}\n\t\"'\\"), Some(&every_byte), Some(i64::MAX), Some("数据🧪")),
            ("least", Some("%_?{}$1"), Some(&[0, 0, 0]), Some(i64::MIN), Some(" spaces ")),
            ("long", Some(&long), Some(long.as_bytes()), Some(-1), Some("x")),
            ("PLAIN", Some("another, by case"), None, None, None),
        ];
        for (id, text, raw, n, short) in rows {
            let insert = database.query("INSERT INTO things (id, long_text, raw, n, short) VALUES (?, ?, ?, ?, ?)");
            insert.bind(id).bind(text).bind(raw).bind(n).bind(short).execute(database.pool()).await.unwrap();
        }
        for (id, text, raw, n, short) in rows {
            let row = database.query("SELECT * FROM things WHERE id = ?").bind(id).fetch_one(database.pool()).await.unwrap();
            assert_eq!(row.text("id").unwrap(), id);
            assert_eq!(row.text_or_null("long_text").unwrap().as_deref(), text, "{id}");
            assert_eq!(row.bytes_or_null("raw").unwrap().as_deref(), raw, "{id}");
            assert_eq!(row.number_or_null("n").unwrap(), n, "{id}");
            assert_eq!(row.text_or_null("short").unwrap().as_deref(), short, "{id}");
        }
        // A row that is all NULL is not an error, unless a value was promised.
        let row = database.query("SELECT * FROM things WHERE id = ?").bind("null").fetch_one(database.pool()).await.unwrap();
        assert!(matches!(row.text("long_text").unwrap_err(), StoreError::Refused(_)));
        let row = database.query("SELECT MAX(n) AS most, COUNT(*) AS n, CAST(SUM(n) AS {bigint}) AS total FROM things WHERE n < 2");
        let row = row.fetch_one(database.pool()).await;
        let row = row.unwrap();
        assert_eq!((row.number("most").unwrap(), row.number("n").unwrap()), (1, 4));
        assert_eq!(row.number("total").unwrap(), i64::MIN);
        // Ids are ordered by their bytes.
        let rows = database.query("SELECT id FROM things ORDER BY id").fetch_all(database.pool()).await.unwrap();
        let ids: Vec<_> = rows.iter().map(|row| row.text("id").unwrap()).collect();
        assert_eq!(ids, ["PLAIN", "emoji 🧪", "empty", "least", "long", "null", "plain"]);
    }

    async fn what_is_there_already_is_a_conflict(place: Place) {
        let database = place.open().await;
        table(&database).await;
        let insert = || database.query("INSERT INTO things (id) VALUES (?)").bind("one").execute(database.pool());
        insert().await.unwrap();
        let error = StoreError::from(insert().await.unwrap_err());
        assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
    }

    async fn two_transactions_do_not_take_the_same_rows(place: Place) {
        let database = place.open().await;
        table(&database).await;
        for id in ["a", "b", "c", "d"] {
            database.query("INSERT INTO things (id, n) VALUES (?, 0)").bind(id).execute(database.pool()).await.unwrap();
        }
        let take = async || {
            let mut transaction = database.begin().await.unwrap();
            let rows = database.query("SELECT id FROM things WHERE n = 0 ORDER BY id LIMIT 2 {skip_locked}");
            let rows = rows.fetch_all(&mut *transaction).await.unwrap();
            let ids: Vec<_> = rows.iter().map(|row| row.text("id").unwrap()).collect();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            for id in &ids {
                database.query("UPDATE things SET n = 1 WHERE id = ?").bind(id).execute(&mut *transaction).await.unwrap();
            }
            transaction.commit().await.unwrap();
            ids
        };
        let (first, second) = tokio::join!(take(), take());
        let mut all = [first, second].concat();
        all.sort_unstable();
        assert_eq!(all, ["a", "b", "c", "d"]);
    }

    async fn a_statement_counts_the_rows_it_matched(place: Place) {
        let database = place.open().await;
        table(&database).await;
        database.query("INSERT INTO things (id, n) VALUES ('a', 1)").execute(database.pool()).await.unwrap();
        // Not the rows it changed: whoever compares and sets must be able to rely on it.
        let same = database.query("UPDATE things SET n = 1 WHERE id = 'a'").execute(database.pool()).await.unwrap();
        assert_eq!(same.rows_affected(), 1);
    }
}
