//! What can go wrong between a command and a server, told for the one who typed the command.

use std::error::Error;
use std::fmt::Display;

use fumehood_engine::ids::ExecutionId;
use reqwest::StatusCode;
use serde::Deserialize;

use crate::escape::escaped_lines;

/// Why a server could not be asked, or what it answered instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The address is none.
    #[error("{address:?} cannot be the address of a server: {why}")]
    Address { address: String, why: &'static str },
    /// The key holds something that no header can.
    #[error("the API key holds characters that cannot be sent")]
    Key,
    /// Nobody answers there.
    #[error(
        "cannot reach a server at {address}: {cause}; start one with `fumehood serve`, or name another with --server or FUMEHOOD_URL"
    )]
    Unreachable { address: String, cause: String },
    /// Somebody does, but not so that it can be trusted.
    #[error(
        "no secure connection to {address}: {cause}; SSL_CERT_FILE can name certificates that this machine does not know"
    )]
    Insecure { address: String, cause: String },
    /// Somebody does, but it does not speak what is expected.
    #[error("what answers at {address} is no Fumehood server of this version: {cause}")]
    Unexpected { address: String, cause: String },
    /// The connection broke.
    #[error("the connection to the server broke: {cause}")]
    Broken { cause: String },
    /// What became of an execution that was followed is not known.
    #[error("lost {id}, which may go on (`fumehood logs -f {id}`)")]
    Lost {
        id: ExecutionId,
        #[source]
        cause: Box<ClientError>,
    },
    /// More than could be meant.
    #[error("the server's answer does not end")]
    Endless,
    /// There is no such thing.
    #[error("{0}")]
    Missing(String),
    /// The server said no.
    #[error("{message}")]
    Refused { status: StatusCode, message: String },
}

/// Exit code when there is no such session, execution or file, or no longer.
pub(crate) const NOTHING_THERE: u8 = 66;
/// Exit code when no server could be reached, or it cannot do anything now.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Exit code when the server or the connection to it failed.
pub(crate) const FAILED: u8 = 70;
/// Exit code when the key was refused.
pub(crate) const NOT_ALLOWED: u8 = 77;

#[derive(Deserialize)]
struct ErrorBody {
    error: Detail,
}

#[derive(Deserialize)]
struct Detail {
    message: String,
    #[serde(default)]
    request_id: String,
}

impl ClientError {
    /// Of a request that got no answer.
    pub(super) fn of(error: &reqwest::Error, address: &str) -> Self {
        // A name that does not resolve and a certificate that is not trusted come as failed connections too.
        if error.is_connect() {
            let (address, cause) = (address.to_owned(), innermost(error));
            let insecure = chain(error).any(|cause| cause.is::<rustls::Error>() || carries_tls_error(cause));
            return if insecure { Self::Insecure { address, cause } } else { Self::Unreachable { address, cause } };
        }
        Self::broken(error)
    }

    /// Of a connection that broke in an answer.
    pub(crate) fn broken(error: &reqwest::Error) -> Self {
        Self::Broken { cause: innermost(error) }
    }

    pub(super) fn unexpected(address: &str, cause: &dyn Display) -> Self {
        Self::Unexpected { address: address.to_owned(), cause: escaped_lines(&cause.to_string()).into_owned() }
    }

    pub(super) fn refused(status: StatusCode, body: &[u8], address: &str) -> Self {
        let Ok(ErrorBody { error }) = serde_json::from_slice(body) else {
            let cause = match status {
                status if status.is_redirection() => {
                    format!("it answers {status}, and redirections are not followed; name the address itself")
                }
                status => format!("it answers {status}"),
            };
            return Self::unexpected(address, &cause);
        };
        let said = escaped_lines(&error.message);
        let message = match status {
            StatusCode::UNAUTHORIZED => {
                format!(
                    "{address} wants an API key: {said}; here the key is FUMEHOOD_API_KEY, or the content of --api-key-file"
                )
            }
            StatusCode::INTERNAL_SERVER_ERROR => {
                format!("the server failed: {said} (request {})", escaped_lines(&error.request_id))
            }
            _ => said.into_owned(),
        };
        Self::Refused { status, message }
    }

    /// Whether the server knows nothing of what was asked about.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: StatusCode::NOT_FOUND, .. })
    }

    /// Exit code of a command that ends with this.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Address { .. } | Self::Key => 2,
            Self::Unreachable { .. } | Self::Insecure { .. } => UNAVAILABLE,
            Self::Missing(_) => NOTHING_THERE,
            Self::Unexpected { .. } | Self::Broken { .. } | Self::Lost { .. } | Self::Endless => FAILED,
            Self::Refused { status, .. } => match *status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => NOT_ALLOWED,
                StatusCode::NOT_FOUND | StatusCode::GONE => NOTHING_THERE,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE,
                StatusCode::INSUFFICIENT_STORAGE => 1,
                status if status.is_server_error() => FAILED,
                _ => 1,
            },
        }
    }
}

/// The cause itself: what is around it repeats the address and the layers of this client.
fn innermost(error: &reqwest::Error) -> String {
    let cause = chain(error).last().map(ToString::to_string).unwrap_or_default();
    escaped_lines(&cause).into_owned()
}

fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(Some(error as &(dyn Error + 'static)), |&cause| cause.source())
}

/// An I/O error passes for what it carries, and leaves it out of the chain, at every layer.
fn carries_tls_error(cause: &(dyn Error + 'static)) -> bool {
    let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<rustls::Error>() || carries_tls_error(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_told_without_what_a_terminal_would_obey() {
        let body =
            br#"{"error": {"code": "gone", "message": "the session is closed: \u001b[2Jdeleted", "request_id": "r"}}"#;
        let error = ClientError::refused(StatusCode::GONE, body, "http://host");
        assert_eq!(error.to_string(), "the session is closed: \\u{1b}[2Jdeleted");
        assert_eq!(error.exit_code(), NOTHING_THERE);
    }

    #[test]
    fn an_answer_of_something_else_is_told_as_such() {
        for (status, word) in [(StatusCode::BAD_GATEWAY, "502"), (StatusCode::FOUND, "redirections are not followed")] {
            let error = ClientError::refused(status, b"<html>", "http://host").to_string();
            assert!(error.contains(word) && error.contains("http://host"), "{error}");
        }
    }
}
