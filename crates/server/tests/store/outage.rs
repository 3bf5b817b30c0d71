//! A database that is gone for a while: told in time, and over by itself.

use std::time::{Duration, Instant};

use fumehood_server::store::{Database, DatabaseConfig, StoreError};

use crate::rig::{OwnServer, on_runtime, statement, within};

fn outage(kind: &'static str) {
    let Some(server) = OwnServer::start(kind) else { return };
    on_runtime(async move {
        tokio::spawn(async move {
            statement(&server.url, "CREATE DATABASE mine").await;
            let config = DatabaseConfig { url: within(&server.url, "mine"), connections: 3 };
            let database = Database::connect(&config).await.unwrap();
            let ask = async || database.query("SELECT COUNT(*) AS n FROM executions").fetch_one(database.pool()).await;
            // Some connections stand when it goes.
            let (one, two) = tokio::join!(ask(), ask());
            assert!(one.is_ok() && two.is_ok());
            server.order("stop");
            for _ in 0..3 {
                let asked = Instant::now();
                let error = StoreError::from(ask().await.err().expect("it is away"));
                assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
                assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
            }
            let error = Database::connect(&config).await.err().expect("not while it is away");
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
            server.order("start");
            for _ in 0..3 {
                ask().await.unwrap();
            }
            // A restart between two statements is not noticed at all.
            server.order("restart");
            ask().await.unwrap();
        })
        .await
    });
}

#[test]
fn an_outage_of_mariadb_passes() {
    outage("mysql");
}

#[test]
fn an_outage_of_postgres_passes() {
    outage("postgres");
}
