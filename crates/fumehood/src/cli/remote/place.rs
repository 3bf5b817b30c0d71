//! Where a file is: on this machine, or in a session.

use std::path::PathBuf;

use fumehood_engine::ids::SessionId;
use fumehood_engine::spec::{WORKSPACE, WorkspacePath};

use super::super::Usage;

/// `PATH`, `SESSION:PATH`, or `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// On this machine.
    Local(PathBuf),
    /// Standard input or output.
    Stream,
    /// In a session.
    Remote(Remote),
}

/// A file or folder of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) session: SessionId,
    /// Relative to the workspace, without a slash at the end; empty for the workspace itself.
    pub(super) path: String,
    /// It was written with a slash at its end.
    pub(super) folder: bool,
}

const SESSION: &str = "ses_";

impl Place {
    /// # Errors
    /// A sentence on what is wrong.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        match text.split_once(':') {
            _ if text == "-" => Ok(Self::Stream),
            // A file of such a name is reached as ./ses_…
            Some((session, path)) if session.starts_with(SESSION) => Remote::parse(session, path).map(Self::Remote),
            _ if text.is_empty() => Err(Usage::of("an empty path names nothing")),
            _ => Ok(Self::Local(text.into())),
        }
    }
}

impl Remote {
    /// `SESSION` or `SESSION:PATH`.
    ///
    /// # Errors
    /// A sentence on what is wrong.
    pub(super) fn parse_either(text: &str) -> anyhow::Result<Self> {
        let (session, path) = text.split_once(':').unwrap_or((text, ""));
        Self::parse(session, path)
    }

    fn parse(session: &str, path: &str) -> anyhow::Result<Self> {
        let id = SessionId::parse(session).ok_or_else(|| Usage::of(format!("{session:?} is no id of a session")))?;
        let bare = path.trim_end_matches('/');
        if path.starts_with('/') && bare.is_empty() {
            return Err(Usage::of(format!("{path:?} is outside the workspace, which is {WORKSPACE} in a session")));
        }
        let folder = bare.len() < path.len();
        if matches!(bare, "" | ".") || bare == WORKSPACE {
            return Ok(Self { session: id, path: String::new(), folder: true });
        }
        let path = WorkspacePath::parse(bare).map_err(|error| Usage::of(format!("{session}: {error}")))?;
        Ok(Self { session: id, path: path.as_str().to_owned(), folder })
    }

    /// The same session's file below this folder.
    pub(super) fn below(&self, name: &str) -> String {
        join(&self.path, name)
    }
}

/// `folder/name`, where the folder may be the workspace.
pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// What a listing tells below `folder`, relative to it; `None` for what is not there, which only a server that lies tells.
pub(super) fn relative<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let rest = if folder.is_empty() { path } else { path.strip_prefix(folder)?.strip_prefix('/')? };
    (!rest.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(path: &str, folder: bool) -> Place {
        let session = SessionId::parse("ses_1").unwrap();
        Place::Remote(Remote { session, path: path.to_owned(), folder })
    }

    #[test]
    fn a_place_is_read_as_it_was_meant() {
        for (text, place) in [
            ("ses_1:", remote("", true)),
            ("ses_1:.", remote("", true)),
            ("ses_1:/data", remote("", true)),
            ("ses_1:/data/", remote("", true)),
            ("ses_1:a", remote("a", false)),
            ("ses_1:a/", remote("a", true)),
            ("ses_1:/data/a/b", remote("a/b", false)),
            ("ses_1:./a//b", remote("a/b", false)),
            ("ses_1:a:b", remote("a:b", false)),
            ("./ses_1:a", Place::Local("./ses_1:a".into())),
            ("C:x", Place::Local("C:x".into())),
            ("ses_1", Place::Local("ses_1".into())),
            ("-", Place::Stream),
        ] {
            assert_eq!(Place::parse(text).unwrap(), place, "{text}");
        }
        for bad in ["ses_1:../x", "ses_1:/etc/passwd", "ses_1:/", "ses_:x", "ses_a-b:x", "ses_1:a/../b", ""] {
            assert!(Place::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_a_listing_tells_of_other_folders_is_not_below_this_one() {
        assert_eq!(relative("", "a/b"), Some("a/b"));
        assert_eq!(relative("a", "a/b"), Some("b"));
        for lie in ["a", "a/", "ab/c", "/a/b", "../a/b", "b"] {
            assert_eq!(relative("a", lie), None, "{lie}");
        }
    }
}
