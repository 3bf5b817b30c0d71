//! Ends of jobs, told to whom the caller named: signed, tried again with growing pauses, and never to an address inside unless the operator allows it.
//!
//! The address is looked up here, checked, and the checked one is connected to; redirects are not followed, since where they lead was not checked. Of
//! the answer only the status counts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use hmac::{Hmac, Mac};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url, redirect};
use sha2::Sha256;

use crate::chain;
use crate::config::hex;
use crate::jobs::Jobs;
use crate::store::{Store, StoreError, Webhook};

/// How the operator wants ends to be told.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// What deliveries are signed with. Without one it is made, and kept in the database.
    pub secret: Option<WebhookSecret>,
    /// So often a delivery is tried.
    pub max_attempts: u32,
    /// Whether addresses inside are allowed too: loopback, private and others that are not the internet.
    pub allow_private: bool,
}

/// What deliveries are signed with; never in logs.
#[derive(Clone)]
pub struct WebhookSecret(pub String);

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self { secret: None, max_attempts: 12, allow_private: false }
    }
}

/// A delivery that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nobody else tries a delivery meanwhile; longer than it takes.
const CLAIM_MS: i64 = 60_000;
/// Pause after the first try; each further one is twice as long.
const FIRST_PAUSE_MS: i64 = 2_000;
const LONGEST_PAUSE_MS: i64 = 3_600_000;
/// Deliveries under way at once.
const ABREAST: usize = 8;
/// The table is looked at this often, and when a job of this server has ended.
const LOOK: Duration = Duration::from_secs(1);
/// Name of the secret among what servers share.
const SECRET: &str = "webhook_secret";
/// Bytes of an answer's body that are read, so that its connection can be used again.
const MOST_ANSWER: usize = 16 << 10;

/// Tells ends for as long as the runtime lives.
pub(crate) async fn deliver(store: Store, jobs: Arc<Jobs>, config: WebhookConfig) {
    let mut sender: Option<Sender> = None;
    loop {
        tokio::time::timeout(LOOK, jobs.told.notified()).await.ok();
        let round = async {
            let due = store.webhooks().due(jobs.now_ms()).await?;
            if due.is_empty() {
                return Ok(());
            }
            let ready = match sender.take() {
                Some(ready) => ready,
                None => Sender::new(&store, &config).await?,
            };
            let sender = sender.insert(ready);
            let store = &store;
            let (sender, jobs, config) = (&*sender, &*jobs, &config);
            futures::stream::iter(due)
                .for_each_concurrent(ABREAST, async |webhook| {
                    if let Err(error) = attempt(store, jobs, sender, config, &webhook).await {
                        tracing::warn!(delivery = webhook.id, error = %chain(&error), "a delivery cannot be looked after");
                    }
                })
                .await;
            Ok::<_, StoreError>(())
        };
        if let Err(error) = round.await {
            tracing::debug!(%error, "deliveries wait for the database");
        }
    }
}

async fn attempt(
    store: &Store,
    jobs: &Jobs,
    sender: &Sender,
    config: &WebhookConfig,
    webhook: &Webhook,
) -> Result<(), StoreError> {
    let webhooks = store.webhooks();
    if !webhooks.claim(webhook, jobs.now_ms() + CLAIM_MS).await? {
        return Ok(());
    }
    let body = match store.executions().get(&webhook.execution).await {
        Ok(Some(kept)) => serde_json::to_string(&*kept.execution).map_err(|error| error.to_string()),
        Ok(None) => return webhooks.delivered(&webhook.id).await,
        Err(StoreError::Unavailable(error)) => return Err(StoreError::Unavailable(error)),
        // Trying again would not mend it, and it is not to stand in the way of others.
        Err(error) => return webhooks.give_up(&webhook.id, &chain(&error)).await,
    };
    let seconds = jobs.now_ms().div_euclid(1000);
    let told = match body {
        Ok(body) => sender.send(webhook, seconds, body).await,
        Err(error) => return webhooks.give_up(&webhook.id, &error).await,
    };
    let attempts = webhook.attempts + 1;
    let problem = match told {
        Ok(()) => {
            tracing::debug!(execution = %webhook.execution, delivery = webhook.id, "delivered");
            metrics::counter!("fumehood_webhooks_total", "result" => "delivered").increment(1);
            return webhooks.delivered(&webhook.id).await;
        }
        Err(problem) => problem,
    };
    tracing::warn!(execution = %webhook.execution, delivery = webhook.id, attempts, problem, "a delivery failed");
    metrics::counter!("fumehood_webhooks_total", "result" => "failed").increment(1);
    if attempts >= config.max_attempts {
        return webhooks.give_up(&webhook.id, &problem).await;
    }
    webhooks.later(&webhook.id, jobs.now_ms() + pause_ms(attempts), &problem).await
}

/// Pause after so many tries.
fn pause_ms(attempts: u32) -> i64 {
    let doubled =
        FIRST_PAUSE_MS.saturating_mul(1_i64.checked_shl(attempts.saturating_sub(1).min(40)).unwrap_or(i64::MAX));
    let pause = doubled.clamp(FIRST_PAUSE_MS, LONGEST_PAUSE_MS);
    // Many that failed together are not tried together.
    pause + fastrand::i64(0..=pause / 10)
}

struct Sender {
    client: Client,
    secret: String,
    allow_private: bool,
}

impl Sender {
    async fn new(store: &Store, config: &WebhookConfig) -> Result<Self, StoreError> {
        rustls::crypto::ring::default_provider().install_default().ok();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(PATIENCE)
            // A proxy would look the name up itself.
            .no_proxy()
            .dns_resolver(Arc::new(Checked { allow_private: config.allow_private }))
            .user_agent(concat!("fumehood/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| StoreError::Unavailable(error.into()))?;
        Ok(Self { client, secret: secret(store, config).await?, allow_private: config.allow_private })
    }

    /// Tries once; what went wrong, in words for the operator.
    async fn send(&self, webhook: &Webhook, seconds: i64, body: String) -> Result<(), String> {
        let url = Url::parse(&webhook.url).map_err(|error| error.to_string())?;
        // A name is checked when it is looked up; an address never is.
        if let Some(address) = literal(&url)
            && !self.allow_private
            && !is_public(address)
        {
            return Err(refusal(address));
        }
        let signature = signature(&self.secret, seconds, &body);
        let answer = self
            .client
            .post(url)
            .header("content-type", "application/json")
            .header("x-fumehood-signature", signature)
            .header("x-fumehood-delivery", &webhook.id)
            .body(body)
            .send()
            .await
            .map_err(|error| chain(&error.without_url()))?;
        let status = answer.status();
        let mut rest = answer.bytes_stream();
        let mut read = 0;
        while let Some(Ok(chunk)) = rest.next().await {
            read += chunk.len();
            if read > MOST_ANSWER {
                break;
            }
        }
        if status.is_success() { Ok(()) } else { Err(format!("answered {status}")) }
    }
}

/// The secret of this database's servers; made if nobody has one.
///
/// # Errors
/// When the database does not answer.
pub async fn secret(store: &Store, config: &WebhookConfig) -> Result<String, StoreError> {
    if let Some(WebhookSecret(secret)) = &config.secret {
        return Ok(secret.clone());
    }
    let mut bytes = [0; 32];
    let read =
        std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    read.map_err(|error| StoreError::Unavailable(error.into()))?;
    store.shared(SECRET, &format!("whsec_{}", hex(&bytes))).await
}

/// `t=SECONDS,v1=HEX`: HMAC-SHA256 over the seconds, a dot and the body.
fn signature(secret: &str, seconds: i64, body: &str) -> String {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(seconds.to_string().as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    format!("t={seconds},v1={}", hex(&mac.finalize().into_bytes()))
}

fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).parse().ok()
}

fn refusal(address: IpAddr) -> String {
    format!("{address} is not on the internet; webhooks.allow_private would allow it")
}

/// Looks names up, and gives only addresses that may be connected to.
struct Checked {
    allow_private: bool,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let first = found.first().map(SocketAddr::ip);
            let good: Vec<_> = found.into_iter().filter(|address| allow_private || is_public(address.ip())).collect();
            match (good.is_empty(), first) {
                (true, Some(address)) => Err(refusal(address).into()),
                (true, None) => Err("the name has no address".into()),
                (false, _) => Ok(Box::new(good.into_iter()) as Addrs),
            }
        })
    }
}

/// Whether an address is one of the internet, rather than of this machine, its networks, or a cloud's own services.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let inside = a == 0
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        // Shared by the customers of one provider; also where one cloud keeps its metadata.
        || (a == 100 && (64..128).contains(&b))
        // Protocol assignments, benchmarks, relays, and what is not given to anybody.
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        || (a == 192 && b == 88 && c == 99)
        || a >= 240
        // The host's own services in one cloud.
        || address == Ipv4Addr::new(168, 63, 129, 16);
    !inside
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let octets = address.octets();
    let embedded = |at: usize| Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]);
    match segments {
        // Compatible, mapped and translated forms of IPv4.
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            is_public_v4(embedded(12))
        }
        [0x2002, ..] => is_public_v4(embedded(2)),
        // Local translation, tunnels, documentation.
        [0x64, 0xff9b, 1, ..] | [0x2001, 0, ..] | [0x2001, 0xdb8, ..] => false,
        // Only this part is given out as global unicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for inside in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "198.18.0.1",
            "192.0.0.8",
            "168.63.129.16",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "fec0::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "::ffff:0:127.0.0.1",
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
        }
        for public in [
            "1.1.1.1",
            "93.184.215.14",
            "100.63.255.255",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "2002:101:101::",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn other_spellings_of_an_address_are_seen_through() {
        for text in [
            "http://127.1/",
            "http://0x7f000001/",
            "http://2130706433/",
            "http://[::ffff:7f00:1]/",
            "http://0177.0.0.1/",
        ] {
            let address = literal(&Url::parse(text).unwrap()).unwrap_or_else(|| panic!("{text}"));
            assert!(!is_public(address), "{text}");
        }
    }

    #[test]
    fn a_signature_covers_time_and_body() {
        let made = signature("secret", 1_700_000_000, "{}");
        assert!(made.starts_with("t=1700000000,v1="), "{made}");
        assert_eq!(made.len(), "t=1700000000,v1=".len() + 64);
        assert_ne!(made, signature("secret", 1_700_000_001, "{}"));
        assert_ne!(made, signature("other", 1_700_000_000, "{}"));
        assert_ne!(made, signature("secret", 1_700_000_000, "{ }"));
    }

    #[test]
    fn pauses_grow_to_an_hour() {
        assert!((2_000..=2_200).contains(&pause_ms(1)) && (8_000..=8_800).contains(&pause_ms(3)));
        assert!(pause_ms(60) <= LONGEST_PAUSE_MS + LONGEST_PAUSE_MS / 10);
    }
}
