//! The jailer as a program of its own, for this crate's tests; the product starts it as a hidden subcommand of `fumehood`. Called with the
//! argument `zygote` it is a zygote without an interpreter, whose forks execute what they read from their control socket; with `fork` it does only that.

use std::io::{self, BufRead};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;

use fumehood_jail::forked::{self, Served};

fn main() -> io::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("zygote") => zygote(),
        Some("fork") => as_told(),
        _ => fumehood_jail::jailer::run(),
    }
}

fn zygote() -> io::Result<()> {
    const CONTROL: i32 = 3;
    // SAFETY: the jailer passed its socket under this number and nothing else in this process has touched it.
    let jailer = unsafe { OwnedFd::from_raw_fd(CONTROL) };
    if forked::serve(jailer)? == Served::ToTheEnd {
        return Ok(());
    }
    as_told()
}

/// Becomes what is read from the control socket.
fn as_told() -> io::Result<()> {
    const CONTROL: i32 = 3;
    // SAFETY: in a fork, and in what is executed like one, this number is the control socket, and nobody else has it.
    let control = UnixStream::from(unsafe { OwnedFd::from_raw_fd(CONTROL) });
    let mut line = String::new();
    io::BufReader::new(control).read_line(&mut line)?;
    let argv: Vec<String> = serde_json::from_str(&line)?;
    Err(std::process::Command::new(&argv[0]).args(&argv[1..]).exec())
}
