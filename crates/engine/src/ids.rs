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
    fn only_prefixed_alphanumeric_text_is_an_id() {
        assert!(ExecutionId::parse(UlidSource.execution().as_str()).is_some());
        for bad in ["", "exe_", "ses_1", "exe_../x", "exe_a b", "exe_\u{0}"] {
            assert!(ExecutionId::parse(bad).is_none(), "{bad:?}");
        }
    }
}
