//! Ids as types: prefixed, sortable by time, never bare strings.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! id {
    ($(#[$about:meta])* $name:ident, $prefix:literal) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            const PREFIX: &'static str = $prefix;

            /// Reads an id given by a client; `None` when it cannot be one.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                plausible(text, Self::PREFIX).then(|| Self(text.to_owned()))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            fn of(ulid: ulid::Ulid) -> Self {
                Self(format!("{}{}", Self::PREFIX, ulid.to_string().to_ascii_lowercase()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// Id of one execution, for example `exe_01jd…`.
    ExecutionId, "exe_"
}

id! {
    /// Id of one session, for example `ses_01jd…`.
    SessionId, "ses_"
}

impl ExecutionId {
    /// What all ids given since `ms`, in milliseconds since 1970, come after.
    #[must_use]
    pub fn before_all_since(ms: i64) -> Self {
        Self::of(ulid::Ulid::from_parts(u64::try_from(ms).unwrap_or(0), 0))
    }
}

/// Name of a tenant: who owns sessions, executions and what they leave.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct TenantId(std::sync::Arc<str>);

impl TenantId {
    /// Reads a tenant's name: 1 to 63 lower-case letters, digits and dashes, the first a letter or a digit. `None` when it cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let valid = (1..=63).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('-');
        valid.then(|| Self(text.into()))
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TenantId {
    /// The tenant of whoever needs no key, and of keys in the configuration.
    fn default() -> Self {
        Self("default".into())
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn plausible(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.len() <= 64 && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Where new ids come from; injected so that tests can foresee them.
pub trait IdSource: Send + Sync {
    /// An id never given before.
    fn execution(&self) -> ExecutionId;

    /// The same for sessions.
    fn session(&self) -> SessionId;
}

/// ULIDs: sortable by creation time.
#[derive(Debug, Default)]
pub struct UlidSource;

impl IdSource for UlidSource {
    fn execution(&self) -> ExecutionId {
        ExecutionId::of(ulid::Ulid::new())
    }

    fn session(&self) -> SessionId {
        SessionId::of(ulid::Ulid::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_a_plain_name() {
        for good in ["default", "a", "0-1", "team-7"] {
            assert_eq!(TenantId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "A", "a_b", "a b", "a/b", "\u{e9}", &"a".repeat(64)] {
            assert!(TenantId::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn ids_sort_by_the_time_at_which_they_were_given() {
        let given = UlidSource.execution();
        assert!(ExecutionId::before_all_since(1_700_000_000_000) < given);
        assert!(given < ExecutionId::before_all_since(4_000_000_000_000));
    }

    #[test]
    fn only_prefixed_alphanumeric_text_is_an_id() {
        assert!(ExecutionId::parse(UlidSource.execution().as_str()).is_some());
        for bad in ["", "exe_", "ses_1", "exe_../x", "exe_a b", "exe_\u{0}"] {
            assert!(ExecutionId::parse(bad).is_none(), "{bad:?}");
        }
    }
}
