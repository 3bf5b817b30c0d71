//! What only a real connection shows.

use std::time::Duration;

use fumehood_server::serve;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::kit::Server;

const PATIENCE: Duration = Duration::from_secs(10);

struct Listening {
    address: std::net::SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<()>,
}

async fn listen(server: &Server) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let ended = tokio::spawn(serve(listener, server.router.clone(), stop.clone()));
    Listening { address, stop, ended }
}

fn head(length: usize, more: &str) -> String {
    format!(
        "POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n"
    )
}

/// Reads until `end` has come.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(end) {
        let read = timeout(PATIENCE, stream.read_buf(&mut bytes)).await;
        assert_ne!(read.unwrap().unwrap(), 0, "closed after {:?}", String::from_utf8_lossy(&bytes));
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_a_refused_body_whole_still_reads_the_refusal() {
    let server = Server::with(|config, _| config.max_body_bytes = 1 << 20);
    let listening = listen(&server).await;
    let mut stream = TcpStream::connect(listening.address).await.unwrap();
    stream.write_all(head(16 << 20, "").as_bytes()).await.unwrap();
    // Far more than the buffers in between hold: it goes through only if the server reads it.
    timeout(PATIENCE, stream.write_all(&vec![b'x'; 16 << 20])).await.unwrap().unwrap();
    assert!(read_until(&mut stream, "payload_too_large").await.starts_with("HTTP/1.1 413 "));
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(read_until(&mut stream, "healthy").await.contains("200 OK"), "the connection stays usable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_before_it_sends_is_refused_without_sending() {
    let server = Server::new();
    let listening = listen(&server).await;
    let mut stream = TcpStream::connect(listening.address).await.unwrap();
    stream.write_all(head(200 << 20, "Expect: 100-continue\r\n").as_bytes()).await.unwrap();
    assert!(read_until(&mut stream, "payload_too_large").await.starts_with("HTTP/1.1 413 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_lets_a_stream_end_with_its_result_and_takes_no_more_connections() {
    let server = Server::new();
    let listening = listen(&server).await;
    let mut stream = TcpStream::connect(listening.address).await.unwrap();
    let body = json!({"code": json!([{"stdout": "up"}, "hang"]).to_string()}).to_string();
    let request = head(body.len(), "Accept: application/x-ndjson\r\n") + &body;
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut stream, r#""text":"up""#).await;

    listening.stop.cancel();
    server.engine.shutdown(Duration::ZERO).await;
    assert!(read_until(&mut stream, "\r\n0\r\n\r\n").await.contains(r#""outcome":"cancelled""#));
    timeout(PATIENCE, listening.ended).await.unwrap().unwrap();
    assert!(TcpStream::connect(listening.address).await.is_err());
}
