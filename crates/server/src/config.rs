//! What the operator decides about the HTTP side.

use std::fmt;
use std::net::SocketAddr;

use fumehood_engine::spec::LimitPolicy;
use sha2::{Digest, Sha256};

use crate::jobs::JobsConfig;
use crate::store::TenantSettings;
use crate::webhook::WebhookConfig;

/// What the operator decides about the HTTP side.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Keys that open every route, for the tenant `default`.
    pub api_keys: Vec<ApiKey>,
    /// Whether a key is demanded of programs of this machine too, when none is configured.
    pub require_key: bool,
    /// What a new tenant is given.
    pub new_tenants: TenantSettings,
    /// Days that the audit log keeps entries of tenants that say nothing else; for ever without a number.
    pub audit_keep_days: Option<u64>,
    /// Whether `/metrics` needs no key.
    pub metrics_without_key: bool,
    /// Bytes of a request body.
    pub max_body_bytes: usize,
    /// Defaults and maxima of executions.
    pub limits: LimitPolicy,
    /// Name of this server in `/health`.
    pub worker_id: String,
    /// Whether code and output may be logged.
    pub log_code: bool,
    /// Jobs and records.
    pub jobs: JobsConfig,
    /// How ends are told.
    pub webhooks: WebhookConfig,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            api_keys: Vec::new(),
            require_key: false,
            new_tenants: TenantSettings::default(),
            audit_keep_days: Some(90),
            metrics_without_key: false,
            max_body_bytes: 64 << 20,
            limits: LimitPolicy::default(),
            worker_id: "fumehood-1".to_owned(),
            log_code: false,
            jobs: JobsConfig::default(),
            webhooks: WebhookConfig::default(),
        }
    }
}

/// The server would be open to other machines without a key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "refusing to listen on {0} without an API key: anybody who reaches it could run code; make a key with 'fumehood key create', set \
     server.api_keys (or FUMEHOOD_SERVER__API_KEYS), or listen on 127.0.0.1"
)]
pub struct ListenError(SocketAddr);

impl ServerConfig {
    /// Whether nobody comes in without a key.
    #[must_use]
    pub fn demands_key(&self) -> bool {
        self.require_key || !self.api_keys.is_empty()
    }

    /// Makes ready for `address`: beyond loopback a key is demanded, and there must be one, here or in the database (`key_exists`).
    ///
    /// # Errors
    /// When there is none; the text says what to do.
    pub fn listen_on(&mut self, address: SocketAddr, key_exists: bool) -> Result<(), ListenError> {
        if address.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        if self.api_keys.is_empty() && !key_exists {
            return Err(ListenError(address));
        }
        self.require_key = true;
        Ok(())
    }
}

/// Hash of an API key; the key itself is not kept.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; 32]);

/// A configured key that cannot be one. The text never contains the key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ApiKeyError {
    /// Nothing, or something no header can carry.
    #[error("must be printable ASCII without spaces, and not empty")]
    Unprintable,
    /// `sha256:` and something else.
    #[error("must be 'sha256:' and 64 hexadecimal digits, or the key itself")]
    Hash,
}

impl ApiKey {
    /// Reads a configured key: the secret itself, or `sha256:` and the hexadecimal hash of it.
    ///
    /// # Errors
    /// When it can be neither.
    pub fn parse(text: &str) -> Result<Self, ApiKeyError> {
        match text.strip_prefix("sha256:") {
            Some(hash) => decode_hash(hash).map(Self).ok_or(ApiKeyError::Hash),
            None if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(ApiKeyError::Unprintable)
            }
            None => Ok(Self::of(text)),
        }
    }

    /// Its hexadecimal digits.
    pub(crate) fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// The hash with these hexadecimal digits.
    pub(crate) fn from_hex(digits: &str) -> Option<Self> {
        decode_hash(digits).map(Self)
    }

    /// The hash of a key presented by a client.
    pub(crate) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Whether this is one of `keys`, in a time that does not depend on where they differ.
    pub(crate) fn is_among(&self, keys: &[Self]) -> bool {
        keys.iter().fold(false, |found, key| {
            let difference = self.0.iter().zip(&key.0).fold(0, |all, (a, b)| all | (a ^ b));
            found | (std::hint::black_box(difference) == 0)
        })
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Hexadecimal digits of some bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or_default());
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or_default());
        text
    })
}

fn decode_hash(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut hash = [0; 32];
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_be_configured_by_its_hash() {
        let hash = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert_eq!(ApiKey::parse(hash), Ok(ApiKey::of("secret")));
        assert_eq!(ApiKey::parse("secret"), Ok(ApiKey::of("secret")));
        assert_eq!(ApiKey::parse("sha256:2bb8"), Err(ApiKeyError::Hash));
        assert_eq!(ApiKey::parse("with space"), Err(ApiKeyError::Unprintable));
        assert!(!format!("{:?}", ApiKey::of("secret")).contains("2bb8"));
    }

    #[test]
    fn without_a_key_only_loopback_is_listened_on() {
        let address = |text: &str| text.parse().unwrap();
        let mut open = ServerConfig::default();
        for loopback in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(open.listen_on(address(loopback), false), Ok(()), "{loopback}");
        }
        assert!(!open.demands_key());
        for beyond in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            let error = ServerConfig::default().listen_on(address(beyond), false).unwrap_err().to_string();
            assert!(error.contains("server.api_keys") && error.contains("key create"), "{error}");
            for (keys, in_database) in [(vec![ApiKey::of("k")], false), (Vec::new(), true)] {
                let mut config = ServerConfig { api_keys: keys, ..ServerConfig::default() };
                assert_eq!(config.listen_on(address(beyond), in_database), Ok(()));
                assert!(config.demands_key());
            }
        }
    }
}
