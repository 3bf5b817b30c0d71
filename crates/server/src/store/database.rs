//! One database of three kinds: the connection pool, what differs between their dialects, and the schema's versions.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use sqlx::any::{AnyArguments, AnyPoolOptions, install_default_drivers};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
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
        Self { url: format!("sqlite://{}?mode=rwc", file.display()), connections: 4 }
    }

    /// SQLite in memory: nothing outlives the pool.
    #[must_use]
    pub fn transient() -> Self {
        Self { url: "sqlite::memory:".to_owned(), connections: 1 }
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
    /// Anything else that the database refused: our fault.
    #[error("the database refused")]
    Refused(#[source] sqlx::Error),
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
            sqlx::Error::Database(told) if told.is_unique_violation() => Self::Conflict(error),
            sqlx::Error::Database(told) if passes(told.code()) => Self::Unavailable(Box::new(error)),
            _ => Self::Refused(error),
        }
    }
}

/// Whether the database says that it cannot just now: shutting down, starting, too many connections, a lock that was not to be had, a deadlock.
fn passes(code: Option<Cow<'_, str>>) -> bool {
    const PASSING: [&str; 14] = [
        // PostgreSQL: administrator's shutdown, crash, cannot connect now, too many connections, serialization, deadlock.
        "57P01", "57P02", "57P03", "53300", "40001",
        "40P01", // MariaDB: shutdown in progress, too many connections, lock wait, deadlock.
        "1053", "08S01", "1040", "1205", "1213", // SQLite: busy, locked, a snapshot that is too old.
        "5", "6", "517",
    ];
    code.is_some_and(|code| PASSING.contains(&&*code))
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
        install_default_drivers();
        let kind = kind_of(&config.url)?;
        let pool = AnyPoolOptions::new()
            .max_connections(config.connections.max(1))
            .acquire_timeout(PATIENCE)
            // One in memory would end with its connection.
            .idle_timeout((kind != Kind::Sqlite).then_some(IDLE))
            .max_lifetime((kind != Kind::Sqlite).then_some(LIFETIME))
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    for line in kind.greeting() {
                        connection.execute(*line).await?;
                    }
                    Ok(())
                })
            })
            .connect(&config.url)
            .await?;
        let database = Self { pool, kind };
        database.migrate().await?;
        Ok(database)
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

    async fn migrate(&self) -> Result<(), StoreError> {
        let migrations = MIGRATIONS.iter().map(|(version, name, text)| {
            let sql = AssertSqlSafe(self.kind.dialect(text)).into_sql_str();
            Migration::new(*version, Cow::Borrowed(*name), MigrationType::Simple, sql, false)
        });
        match Migrator::with_migrations(migrations.collect()).run(&self.pool).await {
            Ok(()) => Ok(()),
            Err(MigrateError::VersionMissing(version)) => Err(StoreError::Newer(version)),
            Err(MigrateError::Execute(error)) => Err(error.into()),
            Err(error) => Err(StoreError::Migration(error)),
        }
    }
}

/// Steps of the schema; a step that was released never changes. Written for all three dialects, see [`Kind::dialect`].
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "executions", include_str!("migrations/0001_executions.sql")),
    (3, "tenants", include_str!("migrations/0003_tenants.sql")),
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
    /// | `{integer}` | a whole number of 64 bits, after `AS` in a `CAST` |
    /// | `{serial}` | a number of its own for each row, as primary key |
    /// | `{skip_locked}` | after a `SELECT` in a transaction: rows that others hold are left out, the rest is held |
    #[must_use]
    pub fn dialect(self, text: &str) -> String {
        let (long, bytes, id, table, integer, serial, skip) = match self {
            Self::Sqlite => ("TEXT", "BLOB", "TEXT", "", "INTEGER", "INTEGER PRIMARY KEY AUTOINCREMENT", ""),
            Self::Mysql => (
                "LONGTEXT",
                "LONGBLOB",
                "VARCHAR(128)",
                "ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
                "SIGNED",
                "BIGINT AUTO_INCREMENT PRIMARY KEY",
                "FOR UPDATE SKIP LOCKED",
            ),
            Self::Postgres => (
                "TEXT",
                "BYTEA",
                "VARCHAR(128) COLLATE \"C\"",
                "",
                "BIGINT",
                "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
                "FOR UPDATE SKIP LOCKED",
            ),
        };
        let named = [
            ("{text}", long),
            ("{bytes}", bytes),
            ("{id}", id),
            ("{table}", table),
            ("{integer}", integer),
            ("{serial}", serial),
            ("{skip_locked}", skip),
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
