//! The server under test: one of our own, or one that runs already.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::http::Address;

/// A server that does not end by then is killed.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// More sandboxes than wait or run where nothing is said of them.
const MORE: u64 = 1000;

/// More than the default memory limit of an execution.
const LIMIT_MB: u64 = 1024;

/// How our own server is set up, besides the configuration given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Settings {
    /// `pool.min_ready` and `pool.max_ready`, both.
    pub(super) pool: Option<u64>,
    /// Executions that must be able to run at once.
    pub(super) running: Option<u64>,
    /// Little is kept of what has ended, and little output is too much.
    pub(super) frugal: bool,
}

impl Settings {
    fn environment(self) -> Vec<(&'static str, String)> {
        // Nothing runs any more when a benchmark ends.
        let mut all = vec![("FUMEHOOD_SERVER__SHUTDOWN_GRACE_S", "1".to_owned())];
        let output = match self.frugal {
            // Reached soon, so that from then on the server's memory has no reason to grow.
            true => {
                all.push(("FUMEHOOD_ENGINE__KEEP_EXECUTIONS", "200".to_owned()));
                all.push(("FUMEHOOD_ENGINE__KEEP_MB", "8".to_owned()));
                16
            }
            // What `stream` asks for; others are silent about output and get the default.
            false => 4096_u64,
        };
        all.push(("FUMEHOOD_ENGINE__OUTPUT_HARD_MB", output.to_string()));
        all.push(("FUMEHOOD_LIMITS__MAX__OUTPUT_KB", (output * 1024).min(2_097_152).to_string()));
        // So that it bounds neither.
        let total = self.pool.unwrap_or(0) + self.running.unwrap_or(0) + MORE;
        all.push(("FUMEHOOD_POOL__MAX_TOTAL", total.to_string()));
        if let Some(size) = self.pool {
            all.push(("FUMEHOOD_POOL__MIN_READY", size.to_string()));
            all.push(("FUMEHOOD_POOL__MAX_READY", size.to_string()));
        }
        if let Some(running) = self.running {
            all.push(("FUMEHOOD_ENGINE__MAX_CONCURRENT", running.to_string()));
            // What each may have is not what it takes; here that is what is to be found out.
            all.push(("FUMEHOOD_ENGINE__MEMORY_MB", (running * LIMIT_MB).to_string()));
        }
        all
    }
}

/// A server of our own, ended when dropped.
pub(super) struct OwnServer {
    process: Child,
    pub(super) address: Address,
    pub(super) settings: Settings,
}

impl OwnServer {
    /// Starts this binary as a server, with its data and its log in `folder`, and waits until it listens.
    ///
    /// # Errors
    /// When it does not come up, with the end of its log.
    pub(super) fn start(
        folder: &Path,
        config: Option<&Path>,
        images: &Path,
        key: Option<&str>,
        settings: Settings,
    ) -> anyhow::Result<Self> {
        let log = folder.join("server.log");
        let binary = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.join("data"));
        command.arg("--images-dir").arg(images);
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        command.envs(settings.environment());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(File::options().create(true).append(true).open(&log).context("cannot write the server's log")?);
        // Ctrl-C is for us; we end the server in order.
        let mut process = command.process_group(0).spawn().context("cannot start the server")?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).context("cannot read what the server says")?;
        }
        let Some(url) = line.trim().strip_prefix("listening on ") else {
            process.wait()?;
            bail!("the server did not start: {}", last_lines(&log));
        };
        Ok(Self { address: Address::new(url, key)?, process, settings })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nobody to tell.
        kill_process(Pid::from_child(&self.process), Signal::TERM).ok();
        let deadline = Instant::now() + LAST_WORDS;
        while Instant::now() < deadline {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        eprintln!("fumehood: the server did not end and is killed");
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
