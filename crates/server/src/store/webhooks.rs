//! Ends that are still to be told: written with the end itself, removed when somebody has taken them.

use async_trait::async_trait;
use fumehood_engine::ids::ExecutionId;
use sqlx::{Any, Transaction};

use super::{Columns, Database, StoreError, executions};

const TABLE: &str = "webhooks";

/// One delivery.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Its own id, the same each time it is tried.
    pub id: String,
    /// Whose end it tells.
    pub execution: ExecutionId,
    /// Whom.
    pub url: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is due, in milliseconds since 1970.
    pub due_ms: i64,
}

/// Deliveries that are still to be made.
///
/// [`StoreError::Unavailable`] when the database does not answer.
#[async_trait]
pub trait Webhooks: Send + Sync {
    /// Some that are due, the oldest first. A row that cannot be read is put aside, so that it is not in the way of others.
    async fn due(&self, now_ms: i64) -> Result<Vec<Webhook>, StoreError>;

    /// Takes a delivery for one try: nobody else tries it before `until_ms`. `false` when somebody else was first.
    async fn claim(&self, webhook: &Webhook, until_ms: i64) -> Result<bool, StoreError>;

    /// It was taken.
    async fn delivered(&self, id: &str) -> Result<(), StoreError>;

    /// It was not taken, and is to be tried again at `due_ms`.
    async fn later(&self, id: &str, due_ms: i64, problem: &str) -> Result<(), StoreError>;

    /// Nobody shall try it again.
    async fn give_up(&self, id: &str, problem: &str) -> Result<(), StoreError>;
}

#[async_trait]
impl Webhooks for Database {
    async fn due(&self, now_ms: i64) -> Result<Vec<Webhook>, StoreError> {
        let text = "SELECT id, execution_id, url, attempts, due_ms FROM webhooks WHERE state = 'due' AND due_ms <= ? ORDER BY due_ms LIMIT 50";
        let rows = self.query(text).bind(now_ms).fetch_all(self.pool()).await?;
        let mut due = Vec::new();
        for row in &rows {
            let read = || -> Result<Webhook, StoreError> {
                Ok(Webhook {
                    id: row.text("id")?,
                    execution: executions::execution_id(row, "execution_id", TABLE)?,
                    url: row.text("url")?,
                    attempts: u32::try_from(row.number("attempts")?).unwrap_or(0),
                    due_ms: row.number("due_ms")?,
                })
            };
            match read() {
                Ok(webhook) => due.push(webhook),
                Err(error) => {
                    tracing::error!(%error, "a delivery cannot be read");
                    if let Ok(id) = row.text("id") {
                        self.give_up(&id, "cannot be read").await?;
                    }
                }
            }
        }
        Ok(due)
    }

    async fn claim(&self, webhook: &Webhook, until_ms: i64) -> Result<bool, StoreError> {
        let text =
            "UPDATE webhooks SET due_ms = ?, attempts = attempts + 1 WHERE id = ? AND state = 'due' AND due_ms = ?";
        let query = self.query(text).bind(until_ms).bind(webhook.id.clone()).bind(webhook.due_ms);
        Ok(query.execute(self.pool()).await?.rows_affected() == 1)
    }

    async fn delivered(&self, id: &str) -> Result<(), StoreError> {
        let text = "DELETE FROM webhooks WHERE id = ?";
        self.query(text).bind(id.to_owned()).execute(self.pool()).await?;
        Ok(())
    }

    async fn later(&self, id: &str, due_ms: i64, problem: &str) -> Result<(), StoreError> {
        let text = "UPDATE webhooks SET due_ms = ?, problem = ? WHERE id = ?";
        let query = self.query(text).bind(due_ms).bind(problem.to_owned()).bind(id.to_owned());
        query.execute(self.pool()).await?;
        Ok(())
    }

    async fn give_up(&self, id: &str, problem: &str) -> Result<(), StoreError> {
        let text = "UPDATE webhooks SET state = 'dead', problem = ? WHERE id = ?";
        self.query(text).bind(problem.to_owned()).bind(id.to_owned()).execute(self.pool()).await?;
        Ok(())
    }
}

pub(super) async fn insert(
    database: &Database,
    transaction: &mut Transaction<'static, Any>,
    id: &str,
    execution: &ExecutionId,
    url: &str,
    now_ms: i64,
) -> Result<(), StoreError> {
    let table = "webhooks (id, execution_id, url, state, attempts, due_ms, created_ms)";
    database
        .query(&super::insert_new(database.kind(), table, 7))
        .bind(id.to_owned())
        .bind(execution.as_str().to_owned())
        .bind(url.to_owned())
        .bind("due".to_owned())
        .bind(0_i64)
        .bind(now_ms)
        .bind(now_ms)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}
