//! Connections: accepted, kept within patience, and let finish at shutdown.

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// A connection that sends no whole request head for so long is closed, an idle one too.
const HEAD_PATIENCE: Duration = Duration::from_secs(75);
/// After a failure to accept, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves `router` on `listener` until `stop`; then takes no more connections and returns when those open have their answers.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let open = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => begin(stream, router.clone(), &open),
            // The connection was gone before it was taken.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::error!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    open.shutdown().await;
}

fn begin(stream: TcpStream, router: Router, open: &GracefulShutdown) {
    // One write for each event: without this a peer that delays acknowledgements loses 40 ms on each.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY refused");
    }
    let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    let connection = open.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
    });
}
