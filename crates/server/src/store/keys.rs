//! API keys: who holds them, what they open, and until when.

use std::collections::BTreeSet;
use std::fmt;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fumehood_engine::ids::TenantId;
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use utoipa::ToSchema;

use super::database::Database;
use super::tenants::corrupt;
use super::{Columns as _, StoreError};
use crate::config::ApiKey;

/// What a key opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Executions, sessions and files: everything that runs or changes something.
    Run,
    /// Reading what there is.
    Read,
    /// The tenant's keys, its usage and its audit log; with it everything that the others open. With a key of the tenant `default`, those of all tenants.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Run, Self::Read, Self::Admin];

    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }

    /// The scope of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Everything that a key opens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Scopes(BTreeSet<Scope>);

impl Scopes {
    /// Whatever there is.
    #[must_use]
    pub fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    /// Whether they open what needs `scope`.
    #[must_use]
    pub fn open(&self, scope: Scope) -> bool {
        self.0.contains(&scope) || self.0.contains(&Scope::Admin)
    }

    /// Whether they open nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        Self(scopes.into_iter().collect())
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().map(|scope| scope.as_str()).collect();
        f.write_str(&words.join(","))
    }
}

/// Id of a key, for example `key_01jd…`. It is no secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct KeyId(String);

impl KeyId {
    const PREFIX: &'static str = "key_";

    /// Reads an id given by a client; `None` when it cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(Self::PREFIX)?;
        let fits = (1..=64).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
        fits.then(|| Self(text.to_owned()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What keys of the database begin with.
const TOKEN: &str = "fhk_";

/// A key as its holder has it: `fhk_<id>_<secret>`. It exists when it is made and when it is presented, and is kept nowhere.
pub struct Token {
    /// Which key it claims to be.
    pub id: KeyId,
    text: String,
}

impl Token {
    /// A new one, whose secret nobody can guess.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        let id = ulid::Ulid::new().to_string().to_ascii_lowercase();
        let text = format!("{TOKEN}{id}_{}", URL_SAFE_NO_PAD.encode(secret));
        Ok(Self { id: KeyId(format!("{}{id}", KeyId::PREFIX)), text })
    }

    /// Reads one that a client presents; `None` for what cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(TOKEN)?.split_once('_')?;
        let id = KeyId::parse(&format!("{}{id}", KeyId::PREFIX))?;
        (!secret.is_empty() && text.len() <= 256).then(|| Self { id, text: text.to_owned() })
    }

    /// Whether `text` looks like a key of a database, right or wrong.
    #[must_use]
    pub fn looks_like_one(text: &str) -> bool {
        text.starts_with(TOKEN)
    }

    /// The key itself, to be shown once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> ApiKey {
        ApiKey::of(&self.text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, …)", self.id)
    }
}

/// A key as it is kept. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its id.
    pub id: KeyId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What its owner calls it.
    pub name: String,
    /// Hash of the whole key.
    pub hash: ApiKey,
    /// What it opens.
    pub scopes: Scopes,
    /// When it was made.
    pub created_ms: i64,
    /// From when on it opens nothing any more.
    pub expires_ms: Option<i64>,
    /// When it was revoked.
    pub revoked_ms: Option<i64>,
    /// When it was used last, to about a minute.
    pub used_ms: Option<i64>,
}

impl Key {
    /// A new key and what its holder gets, which is not to be had again. `lifetime_ms` from now on it is valid, or for ever. It is not kept yet:
    /// see [`Keys::add`].
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn issue(
        tenant: TenantId,
        name: String,
        scopes: Scopes,
        lifetime_ms: Option<i64>,
        now_ms: i64,
    ) -> Result<(Token, Self), getrandom::Error> {
        let token = Token::generate()?;
        let (id, hash, expires_ms) =
            (token.id.clone(), token.hash(), lifetime_ms.map(|life| now_ms.saturating_add(life)));
        let key =
            Self { id, tenant, name, hash, scopes, created_ms: now_ms, expires_ms, revoked_ms: None, used_ms: None };
        Ok((token, key))
    }

    /// A key to take this one's place: for the same, valid for as long as this one was to be.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn successor(&self, now_ms: i64) -> Result<(Token, Self), getrandom::Error> {
        let lifetime = self.expires_ms.map(|end| end.saturating_sub(self.created_ms));
        Self::issue(self.tenant.clone(), self.name.clone(), self.scopes.clone(), lifetime, now_ms)
    }

    /// What is wrong with a name for a key.
    ///
    /// # Errors
    /// In words that go on after `name`.
    pub fn check_name(name: &str) -> Result<(), &'static str> {
        let fits = (1..=100).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        fits.then_some(()).ok_or("must be 1 to 100 characters without control characters")
    }

    /// Whether it opens anything at this time.
    #[must_use]
    pub fn is_valid(&self, now_ms: i64) -> bool {
        self.revoked_ms.is_none() && self.expires_ms.is_none_or(|end| now_ms < end)
    }
}

/// API keys. Nothing is removed: that a key was there, and until when, is told by its row.
#[async_trait]
pub trait Keys: Send + Sync {
    /// One of them, valid or not.
    async fn get(&self, id: &KeyId) -> Result<Option<Key>, StoreError>;

    /// Those of one tenant or of all, oldest first, at most 10,000.
    async fn list(&self, tenant: Option<&TenantId>) -> Result<Vec<Key>, StoreError>;

    /// A new one.
    async fn add(&self, key: &Key) -> Result<(), StoreError>;

    /// From now on it opens nothing. Whether it was there and not revoked already.
    async fn revoke(&self, id: &KeyId, now_ms: i64) -> Result<bool, StoreError>;

    /// It opens nothing from `at_ms` on, or from earlier if that was said before. Whether it was there and not revoked.
    async fn expire(&self, id: &KeyId, at_ms: i64) -> Result<bool, StoreError>;

    /// It was used. Earlier times than what is noted change nothing.
    async fn used(&self, id: &KeyId, at_ms: i64) -> Result<(), StoreError>;

    /// Whether there ever was a key here.
    async fn any(&self) -> Result<bool, StoreError>;

    /// Whether any is valid at this time.
    async fn any_valid(&self, now_ms: i64) -> Result<bool, StoreError>;
}

const COLUMNS: &str = "id, tenant, name, hash, scopes, created_ms, expires_ms, revoked_ms, used_ms";
const MOST_LISTED: usize = 10_000;

#[async_trait]
impl Keys for Database {
    async fn get(&self, id: &KeyId) -> Result<Option<Key>, StoreError> {
        let query = self.query(&format!("SELECT {COLUMNS} FROM api_keys WHERE id = ?"));
        let row = query.bind(id.as_str().to_owned()).fetch_optional(self.pool()).await?;
        row.map(|row| read(&row)).transpose()
    }

    async fn list(&self, tenant: Option<&TenantId>) -> Result<Vec<Key>, StoreError> {
        let rest = format!("ORDER BY id LIMIT {MOST_LISTED}");
        let rows = match tenant {
            Some(tenant) => {
                let query = self.query(&format!("SELECT {COLUMNS} FROM api_keys WHERE tenant = ? {rest}"));
                query.bind(tenant.as_str().to_owned()).fetch_all(self.pool()).await?
            }
            None => self.query(&format!("SELECT {COLUMNS} FROM api_keys {rest}")).fetch_all(self.pool()).await?,
        };
        rows.iter().map(read).collect()
    }

    async fn add(&self, key: &Key) -> Result<(), StoreError> {
        self.query(&format!("INSERT INTO api_keys ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"))
            .bind(key.id.as_str().to_owned())
            .bind(key.tenant.as_str().to_owned())
            .bind(key.name.clone())
            .bind(key.hash.to_hex())
            .bind(key.scopes.to_string())
            .bind(key.created_ms)
            .bind(key.expires_ms)
            .bind(key.revoked_ms)
            .bind(key.used_ms)
            .execute(self.pool())
            .await?;
        Ok(())
    }

    async fn revoke(&self, id: &KeyId, now_ms: i64) -> Result<bool, StoreError> {
        let query = self.query("UPDATE api_keys SET revoked_ms = ? WHERE id = ? AND revoked_ms IS NULL");
        let done = query.bind(now_ms).bind(id.as_str().to_owned()).execute(self.pool()).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn expire(&self, id: &KeyId, at_ms: i64) -> Result<bool, StoreError> {
        let earlier = "CASE WHEN expires_ms IS NULL OR expires_ms > ? THEN ? ELSE expires_ms END";
        let done = self
            .query(&format!("UPDATE api_keys SET expires_ms = {earlier} WHERE id = ? AND revoked_ms IS NULL"))
            .bind(at_ms)
            .bind(at_ms)
            .bind(id.as_str().to_owned())
            .execute(self.pool())
            .await?;
        Ok(done.rows_affected() > 0)
    }

    async fn used(&self, id: &KeyId, at_ms: i64) -> Result<(), StoreError> {
        self.query("UPDATE api_keys SET used_ms = ? WHERE id = ? AND (used_ms IS NULL OR used_ms < ?)")
            .bind(at_ms)
            .bind(id.as_str().to_owned())
            .bind(at_ms)
            .execute(self.pool())
            .await?;
        Ok(())
    }

    async fn any(&self) -> Result<bool, StoreError> {
        Ok(self.query("SELECT id FROM api_keys LIMIT 1").fetch_optional(self.pool()).await?.is_some())
    }

    async fn any_valid(&self, now_ms: i64) -> Result<bool, StoreError> {
        let query =
            "SELECT id FROM api_keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?) LIMIT 1";
        Ok(self.query(query).bind(now_ms).fetch_optional(self.pool()).await?.is_some())
    }
}

fn read(row: &AnyRow) -> Result<Key, StoreError> {
    let text = |column: &str| row.text(column);
    let (id, tenant, hash, scopes) = (text("id")?, text("tenant")?, text("hash")?, text("scopes")?);
    let words = scopes.split(',').filter(|word| !word.is_empty());
    let scopes = words.map(|word| Scope::parse(word).ok_or_else(|| format!("{word:?} is no scope")));
    let wrong = |what: &'static str| corrupt("api_keys", format!("{what} of {id:?} is none"));
    Ok(Key {
        tenant: TenantId::parse(&tenant).ok_or_else(|| wrong("the tenant"))?,
        name: text("name")?,
        hash: ApiKey::from_hex(&hash).ok_or_else(|| wrong("the hash"))?,
        scopes: scopes.collect::<Result<_, _>>().map_err(|error| corrupt("api_keys", error))?,
        created_ms: row.number("created_ms")?,
        expires_ms: row.number_or_null("expires_ms")?,
        revoked_ms: row.number_or_null("revoked_ms")?,
        used_ms: row.number_or_null("used_ms")?,
        id: KeyId::parse(&id).ok_or_else(|| wrong("the id"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_told_once_and_known_by_its_hash() {
        let (one, other) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert_ne!(one.reveal(), other.reveal());
        let back = Token::parse(one.reveal()).unwrap();
        assert_eq!((&back.id, back.hash()), (&one.id, one.hash()));
        // 256 bits.
        assert_eq!(one.reveal().rsplit_once(&one.id.as_str()[4..]).unwrap().1.len(), 1 + 43);
        assert!(!format!("{one:?}").contains(&one.reveal()[35..]));
        for bad in ["", "fhk_", "fhk_1", "fhk_1_", "fhk__x", "key_1_x", "fhk_a b_x"] {
            assert!(Token::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn admin_opens_what_the_others_open() {
        let admin: Scopes = [Scope::Admin].into_iter().collect();
        assert!(Scope::ALL.into_iter().all(|scope| admin.open(scope)));
        let read: Scopes = [Scope::Read].into_iter().collect();
        assert!(read.open(Scope::Read) && !read.open(Scope::Run) && !read.open(Scope::Admin));
    }
}
