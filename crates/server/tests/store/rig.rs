//! The same test on SQLite, MariaDB and PostgreSQL, each time on a database of its own.
//!
//! ```ignore
//! on_every_database! {
//!     async fn a_name_that_reads_like_the_promise(place: Place) {
//!         let database = place.open().await;
//!         …
//!     }
//! }
//! ```
//!
//! Servers are named by `FUMEHOOD_TEST_MYSQL_URL`, `FUMEHOOD_TEST_POSTGRES_URL` and `FUMEHOOD_TEST_REDIS_URL` (see `scripts/databases`). Without them a
//! test says so and passes, unless `FUMEHOOD_TEST_DATABASES=require`.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fumehood_server::store::{Database, DatabaseConfig, Kind, StoreError};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use tokio::time::Instant;

pub(crate) use crate::servers::{OwnServer, server_url};

/// A database of this test alone, empty at first.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) config: DatabaseConfig,
    /// A folder for whatever else the test keeps.
    pub(crate) folder: PathBuf,
}

impl Place {
    /// Opens it with the whole schema; each call is a process of its own, as far as the database can tell.
    pub(crate) async fn open(&self) -> Arc<Database> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match Database::connect(&self.config).await {
                Ok(database) => return Arc::new(database),
                // On a busy machine, signing in many times at once takes longer than a pool's patience.
                Err(StoreError::Unavailable(_)) if Instant::now() < deadline => {}
                Err(error) => panic!("the database does not open: {error:?}"),
            }
        }
    }
}

/// Declares a test for each database.
#[macro_export]
macro_rules! on_every_database {
    ($($(#[$about:meta])* async fn $name:ident($place:ident: Place) $body:block)+) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn promise($place: $crate::rig::Place) $body

            #[test]
            fn sqlite() {
                $crate::rig::run(fumehood_server::store::Kind::Sqlite, promise);
            }

            #[test]
            fn mariadb() {
                $crate::rig::run(fumehood_server::store::Kind::Mysql, promise);
            }

            #[test]
            fn postgres() {
                $crate::rig::run(fumehood_server::store::Kind::Postgres, promise);
            }
        }
    )+};
}

/// Runs `promise` on a new database of this kind, and drops that afterwards, whatever happened.
pub(crate) fn run<F: Future<Output = ()> + Send + 'static>(kind: Kind, promise: fn(Place) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let server = match kind {
        Kind::Sqlite => None,
        Kind::Mysql => Some("FUMEHOOD_TEST_MYSQL_URL"),
        Kind::Postgres => Some("FUMEHOOD_TEST_POSTGRES_URL"),
    };
    let server = match server.map(server_url) {
        None => None,
        Some(Some(url)) => Some(url),
        Some(None) => return,
    };
    on_runtime(async move {
        let Some(server) = server else {
            let config = DatabaseConfig::sqlite(&folder.path().join("test.db"));
            return tokio::spawn(promise(Place { config, folder: folder.path().to_owned() })).await;
        };
        let name = unique("fumehood_");
        statement(&server, &format!("CREATE DATABASE {name}")).await;
        let config = DatabaseConfig { url: within(&server, &name), connections: 4 };
        let ended = tokio::spawn(promise(Place { config, folder: folder.path().to_owned() })).await;
        let force = if kind == Kind::Postgres { " WITH (FORCE)" } else { "" };
        statement(&server, &format!("DROP DATABASE {name}{force}")).await;
        ended
    });
}

/// Runs a future that ended as a task does, with its panic.
pub(crate) fn on_runtime(future: impl Future<Output = Result<(), tokio::task::JoinError>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(future) {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// A name that no other test has.
pub(crate) fn unique(prefix: &str) -> String {
    format!("{prefix}{}_{:012x}", std::process::id(), fastrand::u64(..) >> 16)
}

/// `url` with another database.
pub(crate) fn within(url: &str, database: &str) -> String {
    let path = url.find("://").map_or(0, |at| at + 3);
    let end = url[path..].find('/').map_or(url.len(), |at| path + at);
    format!("{}/{database}", &url[..end])
}

/// Runs one statement on a connection of its own.
pub(crate) async fn statement(url: &str, text: &str) {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(url).await.expect("the server answers");
    connection.execute(AssertSqlSafe(text.to_owned())).await.expect(text);
    connection.close().await.unwrap();
}

/// Waits until `condition` holds, for at most `patience`.
pub(crate) async fn until<F: Future<Output = bool>>(patience: Duration, what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + patience;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}: not within {patience:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
