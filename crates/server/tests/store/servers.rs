//! Where servers of databases for tests are, and one for a test alone. `tests/e2e` uses it too.

use std::path::Path;
use std::process::Command;

/// The URL in this variable; where it is not set, the test is skipped or fails.
pub(crate) fn server_url(name: &str) -> Option<String> {
    let url = variable(name);
    if url.is_none() {
        skip(&format!("{name} is not set (scripts/databases start FOLDER prints it)"));
    }
    url
}

/// Says that this test is skipped; fails where that is not wanted.
fn skip(reason: &str) {
    assert_ne!(variable("FUMEHOOD_TEST_DATABASES").as_deref(), Some("require"), "{reason}");
    println!("SKIPPED databases: {reason}");
}

#[expect(clippy::disallowed_methods, reason = "where test servers are is told by whoever started them")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A server of this test alone, which it may stop and start.
pub(crate) struct OwnServer {
    kind: &'static str,
    folder: tempfile::TempDir,
    /// Where it is.
    pub(crate) url: String,
}

impl OwnServer {
    /// Starts one, of `mysql`, `postgres` or `redis`; `None` where it is not installed, after saying so.
    pub(crate) fn start(kind: &'static str) -> Option<Self> {
        // Its absence is told by the variable that stands for servers of all kinds: these scripts need root's or nobody's rights, but the same programs.
        server_url("FUMEHOOD_TEST_REDIS_URL")?;
        let folder = tempfile::Builder::new().prefix("fumehood-server-").tempdir().unwrap();
        let started = script(&["start", &folder.path().display().to_string(), kind]);
        let url = started.split_once('=').expect("the script prints where it is").1.trim().to_owned();
        Some(Self { kind, folder, url })
    }

    /// `start`, `stop` or `restart`.
    pub(crate) fn order(&self, what: &str) {
        script(&[&format!("{what}-{}", self.kind), &self.folder.path().display().to_string()]);
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        script(&["stop", &self.folder.path().display().to_string()]);
    }
}

fn script(words: &[&str]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/databases");
    let output = Command::new("sh").arg(path).args(words).output().unwrap();
    assert!(output.status.success(), "scripts/databases {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
