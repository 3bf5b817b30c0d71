//! One database of three kinds: the connection pool, what differs between their dialects, and the schema's versions.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use super::Columns as _;
use sqlx::any::{AnyArguments, AnyPoolOptions, install_default_drivers};
use sqlx::error::DatabaseError;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::query::Query;
use sqlx::{Any, AnyPool, AssertSqlSafe, Executor as _, SqlSafeStr as _, Transaction};

/// A connection that is not to be had by then is an outage.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that nobody used for so long, or that are so old, are closed, as proxies between expect.
const IDLE: Duration = Duration::from_secs(10 * 60);
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Which database, and how many connections to it.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    /// `sqlite:`, `mysql:` (MariaDB too) or `postgres:` and the rest of a URL.
    pub url: String,
    /// Most connections at once.
    pub connections: u32,
}

impl DatabaseConfig {
    /// SQLite in a file, which is made when it is missing.
    #[must_use]
    pub fn sqlite(file: &Path) -> Self {
        let path = file.display().to_string().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
        Self { url: format!("sqlite://{path}?mode=rwc"), connections: 4 }
    }
}

/// Dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Embedded.
    Sqlite,
    /// MariaDB or MySQL.
    Mysql,
    /// PostgreSQL.
    Postgres,
}

/// Why something could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The configured URL cannot be one.
    #[error("{0}")]
    Url(String),
    /// The database, or the blob store, is not to be reached, or does not answer in time; what was asked for may be asked again.
    #[error("the storage is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Something of this name or number is there already.
    #[error("there is one already")]
    Conflict(#[source] sqlx::Error),
    /// A row that cannot be what this program wrote.
    #[error("a row of {table} cannot be read")]
    Corrupt {
        /// Where it stands.
        table: &'static str,
        /// What is wrong with it.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database was made by a newer version of this program.
    #[error(
        "the database was written by a newer version of fumehood (its schema has step {0}); use that version, or restore a copy made before the upgrade"
    )]
    Newer(i64),
    /// The schema could not be brought up to this version.
    #[error("the schema cannot be brought up to this version")]
    Migration(#[source] MigrateError),
    /// Anything else that the database, the queue's service or the blob store refused: our fault, or the operator's.
    #[error("the storage refused")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// Whether the database broke it off in favour of another one that wanted the same rows: at once repeated, it may succeed.
    #[must_use]
    pub fn contended(&self) -> bool {
        let cause = match self {
            Self::Unavailable(cause) => cause.downcast_ref::<sqlx::Error>(),
            _ => None,
        };
        cause.and_then(sqlx::Error::as_database_error).is_some_and(|told| is_among(told, CONTENTION))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_) => Self::Unavailable(Box::new(error)),
            // Never with the URL in it.
            sqlx::Error::Configuration(cause) => Self::Url(format!("cannot be read: {cause}")),
            sqlx::Error::Database(told) if told.is_unique_violation() => Self::Conflict(error),
            sqlx::Error::Database(told) if is_among(&**told, CONTENTION) || is_among(&**told, OUTAGE) => {
                Self::Unavailable(Box::new(error))
            }
            _ => Self::Refused(Box::new(error)),
        }
    }
}

/// Another one was in the way: serialization, deadlock, lock not available; lock wait, deadlock; busy, locked, recovery, snapshot too old.
const CONTENTION: &[&str] = &[
    "40001",
    "40P01",
    "55P03",
    "mysql 1205",
    "mysql 1213",
    "sqlite 5",
    "sqlite 6",
    "sqlite 261",
    "sqlite 262",
    "sqlite 517",
];

/// The database cannot just now: it shuts down, crashed, starts, has too many connections or no room on its disk.
const OUTAGE: &[&str] = &[
    "57P01",
    "57P02",
    "57P03",
    "53100",
    "53200",
    "53300",
    // Too many connections, no memory, disk full, shutdown, the same while a statement ran, table full, connection killed.
    "mysql 1040",
    "mysql 1041",
    "mysql 1021",
    "mysql 1053",
    "mysql 1077",
    "mysql 1114",
    "mysql 1927",
    // Input or output failed (10, and with more detail in the high byte), disk full, cannot be opened.
    "sqlite 10",
    "sqlite 13",
    "sqlite 14",
];

/// PostgreSQL tells by SQLSTATE; MariaDB's is too coarse, and SQLite has numbers that would look like one.
fn is_among(told: &dyn DatabaseError, codes: &[&str]) -> bool {
    if let Some(told) = told.try_downcast_ref::<MySqlDatabaseError>() {
        return codes.contains(&&*format!("mysql {}", told.number()));
    }
    let Some(code) = told.code() else { return false };
    match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => {
            let general = if number & 0xff == 10 { 10 } else { number };
            codes.contains(&&*format!("sqlite {general}"))
        }
        _ => codes.contains(&&*code),
    }
}

/// How often something is tried that others broke off, see [`StoreError::contended`].
#[derive(Debug, Default)]
pub struct Attempts(u32);

impl Attempts {
    /// Whether it is worth another attempt after `error`; waits a moment first, so that the same two do not meet again.
    pub async fn again(&mut self, error: &StoreError) -> bool {
        if self.0 >= 20 || !error.contended() {
            return false;
        }
        self.0 += 1;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=5 * u64::from(self.0)))).await;
        true
    }
}

/// What `attempt` comes to; it is made again while others break it off, see [`StoreError::contended`].
///
/// # Errors
/// The attempt's own, and the last one's when they do so for too long.
pub async fn retry_contended<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut attempts = Attempts::default();
    loop {
        match attempt().await {
            Err(error) if attempts.again(&error).await => {}
            done => return done,
        }
    }
}

/// A pool of connections to one database.
pub struct Database {
    pool: AnyPool,
    kind: Kind,
}

impl Database {
    /// Connects, and brings the schema up to this version.
    ///
    /// # Errors
    /// When it cannot be reached, or is newer than this program.
    pub async fn connect(config: &DatabaseConfig) -> Result<Self, StoreError> {
        Self::connect_as_of(config, i64::MAX).await
    }

    /// The same with a schema of old: only the steps up to `last`, for tests of an upgrade.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_as_of(config: &DatabaseConfig, last: i64) -> Result<Self, StoreError> {
        install_default_drivers();
        let kind = kind_of(&config.url)?;
        let most = config.connections.max(1);
        let options = AnyPoolOptions::new()
            .acquire_timeout(PATIENCE)
            // A file is closed by nobody but us.
            .idle_timeout((kind != Kind::Sqlite).then_some(IDLE))
            .max_lifetime((kind != Kind::Sqlite).then_some(LIFETIME))
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    for line in kind.greeting() {
                        connection.execute(*line).await?;
                    }
                    Ok(())
                })
            });
        // By a connection of its own: one to SQLite that is older than a step has the tables as they were.
        let first = Self { pool: options.clone().max_connections(1).connect(&config.url).await?, kind };
        first.migrate(last).await?;
        first.close().await;
        // Connections to a file cost nothing to keep, and what a server holds open is the same from its first minute on.
        let least = if kind == Kind::Sqlite { most } else { 0 };
        let pool = options.max_connections(most).min_connections(least).connect(&config.url).await?;
        Ok(Self { pool, kind })
    }

    /// Its dialect.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The pool, for what runs a statement of its own.
    #[must_use]
    pub fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// A statement with `?` for each value, in this dialect.
    pub fn query(&self, text: &str) -> Query<'static, Any, AnyArguments> {
        sqlx::query(AssertSqlSafe(self.kind.dialect(text)))
    }

    /// Begins a transaction that may write.
    ///
    /// # Errors
    /// When there is no connection to be had.
    pub async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        Ok(match self.kind {
            // Upgrading a reading transaction fails when another one wrote meanwhile; this one waits instead.
            Kind::Sqlite => self.pool.begin_with("BEGIN IMMEDIATE").await?,
            Kind::Mysql | Kind::Postgres => self.pool.begin().await?,
        })
    }

    /// Closes every connection, once what runs on it has ended.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    async fn migrate(&self, last: i64) -> Result<(), StoreError> {
        let steps = MIGRATIONS.iter().map(|(version, name, text)| {
            let sql = AssertSqlSafe(self.kind.dialect(text)).into_sql_str();
            Migration::new(*version, Cow::Borrowed(*name), MigrationType::Simple, sql, false)
        });
        let mut migrator = Migrator::with_migrations(steps.collect());
        let mut connection = self.pool.acquire().await?;
        // The library's own lock waits without an end, which MariaDB takes for not at all.
        let lock = match self.kind {
            Kind::Mysql => Some((
                "SELECT GET_LOCK(MD5(CONCAT('fumehood schema ', DATABASE())), 60) AS got",
                "DO RELEASE_ALL_LOCKS()",
            )),
            Kind::Sqlite | Kind::Postgres => None,
        };
        if let Some((take, _)) = lock {
            migrator.set_locking(false);
            if self.query(take).fetch_one(&mut *connection).await?.number_or_null("got")? != Some(1) {
                let cause = "another process has been changing the schema for a minute";
                return Err(StoreError::Unavailable(cause.into()));
            }
        }
        // SQLite has no such lock; another process that does the same at this moment makes one of the two fail.
        let mut attempts = if self.kind == Kind::Sqlite { 5 } else { 1 };
        let outcome = loop {
            attempts -= 1;
            match migrator.run_direct(Some(last), &mut *connection, false).await {
                Err(MigrateError::Execute(_) | MigrateError::ExecuteMigration(..)) if attempts > 0 => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Ok(()) => break Ok(()),
                Err(MigrateError::VersionMissing(version)) => break Err(StoreError::Newer(version)),
                Err(MigrateError::Execute(error)) => break Err(error.into()),
                Err(error) => break Err(StoreError::Migration(error)),
            }
        };
        match (lock, &outcome) {
            (Some((_, release)), Ok(())) => {
                self.query(release).execute(&mut *connection).await?;
            }
            (None, Ok(())) => {}
            // Where something failed, the connection and its lock end together.
            (_, Err(_)) => drop(connection.close().await),
        }
        outcome
    }
}

/// Steps of the schema: number, name, text. A step that was released never changes; numbers may have gaps. Written for all three dialects, see
/// [`Kind::dialect`].
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "executions", include_str!("migrations/0001_executions.sql")),
    (2, "jobs", include_str!("migrations/0002_jobs.sql")),
    (3, "tenants", include_str!("migrations/0003_tenants.sql")),
    (4, "templates", include_str!("migrations/0004_templates.sql")),
    (5, "queue", include_str!("migrations/0005_queue.sql")),
    (6, "blobs", include_str!("migrations/0006_blobs.sql")),
    (7, "content", include_str!("migrations/0007_content.sql")),
];

fn kind_of(url: &str) -> Result<Kind, StoreError> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite") => Ok(Kind::Sqlite),
        Some("mysql" | "mariadb") => Ok(Kind::Mysql),
        Some("postgres" | "postgresql") => Ok(Kind::Postgres),
        // A URL may hold a password: it is not repeated.
        _ => Err(StoreError::Url("must begin with sqlite:, mysql:, mariadb:, postgres: or postgresql:".to_owned())),
    }
}

impl Kind {
    /// What a new connection is told first.
    fn greeting(self) -> &'static [&'static str] {
        match self {
            Self::Sqlite => &[
                "PRAGMA journal_mode = WAL",
                // What was committed survives the end of this process; the last moments before a power cut may not.
                "PRAGMA synchronous = NORMAL",
                "PRAGMA busy_timeout = 10000",
                "PRAGMA foreign_keys = ON",
                // What is deleted is overwritten.
                "PRAGMA secure_delete = ON",
            ],
            // As the others: errors instead of silent cuts, and no waiting for what another one only reads.
            Self::Mysql => &[
                "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,PIPES_AS_CONCAT'",
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            ],
            Self::Postgres => &[],
        }
    }

    /// `text` in this dialect: `?` stands for a value, and names in braces for what is called differently:
    ///
    /// | name | meaning |
    /// | --- | --- |
    /// | `{text}` | text of any length |
    /// | `{bytes}` | bytes of any length |
    /// | `{id}` | text of up to 128 bytes that is compared byte by byte and can be a key |
    /// | `{table}` | what follows the closing bracket of a table |
    /// | `{bigint}` | in `CAST(… AS {bigint})`: a whole number of 64 bits |
    /// | `{serial}` | a number of its own for each row, as primary key |
    /// | `{hold}` | after a `SELECT` in a transaction: the rows are held until it ends, and waited for when others hold them |
    /// | `{skip_locked}` | after a `SELECT` in a transaction: rows that others hold are left out, the rest is held |
    #[must_use]
    pub fn dialect(self, text: &str) -> String {
        let (long, bytes, id, table, serial, skip) = match self {
            Self::Sqlite => ("TEXT", "BLOB", "TEXT", "", "INTEGER PRIMARY KEY AUTOINCREMENT", ""),
            Self::Mysql => (
                "LONGTEXT",
                "LONGBLOB",
                "VARCHAR(128)",
                "ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
                "BIGINT AUTO_INCREMENT PRIMARY KEY",
                "FOR UPDATE SKIP LOCKED",
            ),
            Self::Postgres => (
                "TEXT",
                "BYTEA",
                "VARCHAR(128) COLLATE \"C\"",
                "",
                "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
                "FOR UPDATE SKIP LOCKED",
            ),
        };
        let named = [
            ("{text}", long),
            ("{bytes}", bytes),
            ("{id}", id),
            ("{table}", table),
            ("{serial}", serial),
            ("{bigint}", if self == Self::Mysql { "SIGNED" } else { "BIGINT" }),
            ("{skip_locked}", skip),
            // SQLite holds everything: its transactions come one after the other.
            ("{hold}", if self == Self::Sqlite { "" } else { "FOR UPDATE" }),
        ];
        let text = named.into_iter().fold(text.to_owned(), |text, (name, word)| text.replace(name, word));
        if self != Self::Postgres {
            return text;
        }
        let mut pieces = text.split('?');
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.enumerate().fold(first, |text, (index, piece)| format!("{text}${}{piece}", index + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbered_where_the_dialect_wants_it() {
        let text = "SELECT a FROM t WHERE b = ? AND c = ? LIMIT 1 {skip_locked}";
        assert_eq!(Kind::Sqlite.dialect(text), "SELECT a FROM t WHERE b = ? AND c = ? LIMIT 1 ");
        assert_eq!(
            Kind::Postgres.dialect(text),
            "SELECT a FROM t WHERE b = $1 AND c = $2 LIMIT 1 FOR UPDATE SKIP LOCKED"
        );
    }

    #[test]
    fn an_url_with_a_password_is_not_repeated() {
        let error = kind_of("oracle://u:secret@h/db").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
