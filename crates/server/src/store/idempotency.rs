//! What was made for requests that had an `Idempotency-Key`: of two with the same key, on whichever servers, one makes it.

use async_trait::async_trait;
use sqlx::{Any, Transaction};

use crate::config::hex;

use super::{Columns, Database, StoreError};

/// Key and body of one request, hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Hash of whose key it is, for which route, and the key.
    pub key: [u8; 32],
    /// Hash of the body.
    pub body: [u8; 32],
}

/// What an earlier request with the same key made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    /// Whether the body was the same too.
    pub same_body: bool,
    /// Id of the execution or session.
    pub target: String,
}

/// Keys of requests.
///
/// [`StoreError::Unavailable`] when the database does not answer.
#[async_trait]
pub trait Idempotency: Send + Sync {
    /// What was made for this key, if anything.
    async fn find(&self, attempt: &Attempt) -> Result<Option<Earlier>, StoreError>;

    /// Takes the key for `target`; `false` when it is taken.
    async fn take(&self, attempt: &Attempt, target: &str, now_ms: i64) -> Result<bool, StoreError>;

    /// Gives back what was taken for `target`: nothing was made after all.
    async fn forget(&self, target: &str) -> Result<(), StoreError>;

    /// Forgets keys taken before `before_ms`.
    async fn expire(&self, before_ms: i64) -> Result<u64, StoreError>;
}

#[async_trait]
impl Idempotency for Database {
    async fn find(&self, attempt: &Attempt) -> Result<Option<Earlier>, StoreError> {
        let text = "SELECT body, target FROM idempotency WHERE id = ?";
        let row = self.query(text).bind(hex(&attempt.key)).fetch_optional(self.pool()).await?;
        row.map(|row| Ok(Earlier { same_body: row.text("body")? == hex(&attempt.body), target: row.text("target")? }))
            .transpose()
    }

    async fn take(&self, attempt: &Attempt, target: &str, now_ms: i64) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let taken = take(self, &mut transaction, attempt, target, now_ms).await?;
        transaction.commit().await?;
        Ok(taken)
    }

    async fn forget(&self, target: &str) -> Result<(), StoreError> {
        let text = "DELETE FROM idempotency WHERE target = ?";
        self.query(text).bind(target.to_owned()).execute(self.pool()).await?;
        Ok(())
    }

    async fn expire(&self, before_ms: i64) -> Result<u64, StoreError> {
        let text = "DELETE FROM idempotency WHERE created_ms < ?";
        Ok(self.query(text).bind(before_ms).execute(self.pool()).await?.rows_affected())
    }
}

/// As [`Idempotency::take`], as part of something larger.
pub(super) async fn take(
    database: &Database,
    transaction: &mut Transaction<'static, Any>,
    attempt: &Attempt,
    target: &str,
    now_ms: i64,
) -> Result<bool, StoreError> {
    let text = super::insert_new(database.kind(), "idempotency (id, body, target, created_ms)", 4);
    let made = database
        .query(&text)
        .bind(hex(&attempt.key))
        .bind(hex(&attempt.body))
        .bind(target.to_owned())
        .bind(now_ms)
        .execute(&mut **transaction)
        .await?;
    Ok(made.rows_affected() == 1)
}
