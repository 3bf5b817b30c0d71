//! The processes of a sandbox, read from the host's `/proc`.

use std::fs::File;
use std::io::{self, Read};

use fumehood_jail::cgroup::Gauges;

use crate::backend::SandboxProcess;

/// Longest command told, in bytes.
const MOST_COMMAND: usize = 200;

/// Those that run now, process 1 (ours) left out. One that ends meanwhile is left out too.
pub(super) fn of(gauges: &Gauges) -> Vec<SandboxProcess> {
    let found: Vec<(u32, SandboxProcess)> =
        gauges.processes().into_iter().filter_map(|pid| Some((pid, read(pid)?))).collect();
    // A number may have gone to somebody else between the two looks: only who is still in the group is told of.
    let there = gauges.processes();
    let mut processes: Vec<_> = found
        .into_iter()
        .filter(|(pid, process)| there.contains(pid) && process.pid != 1)
        .map(|(_, found)| found)
        .collect();
    processes.sort_by_key(|process| process.pid);
    processes
}

fn read(pid: u32) -> Option<SandboxProcess> {
    let status = begin_of(&format!("/proc/{pid}/status"), MOST_READ).ok()?;
    // What is told of it, and a little more, so that a character is not cut.
    let arguments = begin_of(&format!("/proc/{pid}/cmdline"), MOST_COMMAND as u64 + 4).ok()?;
    parse(&String::from_utf8_lossy(&status), &arguments)
}

/// Most bytes that are read of a file about a process.
const MOST_READ: u64 = 64 << 10;

/// The beginning of a file. A program can have the kernel take any part of its memory for its arguments, which are then gigabytes long.
fn begin_of(path: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut begin)?;
    Ok(begin)
}

fn parse(status: &str, arguments: &[u8]) -> Option<SandboxProcess> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let first_number = |name: &str| field(name)?.split_whitespace().next()?.parse::<u32>().ok();
    let mut command = String::from_utf8_lossy(arguments).trim_end_matches('\0').replace('\0', " ");
    if command.is_empty() {
        // It has ended, or overwritten its arguments.
        field("Name")?.clone_into(&mut command);
    }
    // Whoever reads this in a terminal is not to be talked to by the sandbox.
    let mut command: String = command.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    command.truncate(command.floor_char_boundary(MOST_COMMAND));
    Some(SandboxProcess {
        // The innermost number comes last.
        pid: field("NSpid")?.split_whitespace().last()?.parse().ok()?,
        command,
        threads: first_number("Threads").unwrap_or(1),
        memory_mb: (f64::from(first_number("VmRSS").unwrap_or(0)) / 1024.0 * 100.0).round() / 100.0,
        state: field("State")?.chars().take(1).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_arguments_without_an_end_the_beginning_is_read() {
        assert_eq!(begin_of("/dev/zero", MOST_READ).unwrap().len(), 64 << 10);
        let long = [b"x".repeat(MOST_COMMAND - 1), "ä".as_bytes().to_vec()].concat();
        let process = parse("Name:\tx\nState:\tS\nNSpid:\t9\n", &long).unwrap();
        assert_eq!(process.command.len(), MOST_COMMAND - 1);
    }

    #[test]
    fn a_process_is_told_as_its_sandbox_numbers_it_without_control_characters() {
        let status = "Name:\tsleep\nState:\tS (sleeping)\nNSpid:\t900\t31\t7\nVmRSS:\t    2048 kB\nThreads:\t3\n";
        let process = parse(status, b"sleep\0\x1b[2J9\0").unwrap();
        assert_eq!((process.pid, process.command.as_str()), (7, "sleep \u{fffd}[2J9"));
        assert_eq!((process.threads, process.memory_mb, process.state.as_str()), (3, 2.0, "S"));
        assert_eq!(parse(status, b"").unwrap().command, "sleep");
        assert!(parse("Name: x\n", b"x").is_none());
    }
}
