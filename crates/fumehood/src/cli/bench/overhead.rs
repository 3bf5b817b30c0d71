//! What confinement costs a program that runs: the same loop inside and outside, timed by the program itself.

use super::Bench;
use super::load::{Caller, timed};
use super::programs::Job;
use super::report::{Bound, Section, Series, ratios};
use super::stats::Run;
use super::throughput::quiet;

/// A loop, and by how much it may be slower inside.
struct Loop {
    name: &'static str,
    code: &'static str,
    most: f64,
    /// Outside too it runs with a system call filter that allows everything: a call that does nothing is slower by more than the bound with any
    /// filter at all, and the question is what ours adds.
    filtered: bool,
}

/// Keeps one core busy for some tenths of a second.
pub(super) const BUSY: &str = "x = 1\nfor i in range(9_000_000):\n    x = (x * 31 + i) % 1_000_003";

/// Each takes some tenths of a second. Processor first, then system calls: one that does nothing, one that looks up a path, one that moves
/// bytes.
const LOOPS: [Loop; 5] = [
    Loop { name: "python", code: BUSY, most: 1.02, filtered: false },
    Loop {
        name: "numpy",
        code: "import numpy as np\na = np.random.default_rng(1).random((400, 400))\nfor _ in range(90):\n    b = np.sin(a @ a)",
        most: 1.02,
        filtered: false,
    },
    Loop { name: "getppid", code: GETPPID, most: 1.05, filtered: true },
    Loop {
        name: "stat",
        code: "import os\nfor _ in range(300_000):\n    os.stat('/usr')",
        most: 1.15,
        filtered: false,
    },
    Loop {
        name: "read",
        code: "import os\nfd = os.open('/dev/zero', os.O_RDONLY)\nfor _ in range(1_000_000):\n    os.read(fd, 512)",
        most: 1.15,
        filtered: false,
    },
];

const GETPPID: &str = "import os\nfor _ in range(2_000_000):\n    os.getppid()";

/// Installs a filter of one instruction, `return ALLOW`, in this process.
const ALLOW_ALL: &str = "import ctypes, struct
libc = ctypes.CDLL(None)
step = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('steps', ctypes.c_void_p)]
program = Program(1, ctypes.addressof(step))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
";

pub(super) async fn overhead(bench: &mut Bench) -> anyhow::Result<Section> {
    let (starts, rounds) = (bench.runs(), bench.requests(3, 1));
    let what = format!(
        "loops timed by themselves, inside and outside in turn ({starts} starts of server and plain fork, {rounds} rounds each; the ratio is \
         the median of all rounds)"
    );
    let mut section = Section::new("overhead", what);
    let mut all: Vec<[Run; 2]> = LOOPS.iter().map(|_| [Run::default(), Run::default()]).collect();
    for _ in 0..starts {
        // Where a process lies in memory makes the same loop some percent faster or slower for as long as it lives, so one start is one sample.
        (bench.own, bench.fork) = (None, None);
        let address = bench.rested_server().await?;
        let Some(fork) = bench.plain().await? else {
            bench.note_baseline(&mut section);
            return Ok(section);
        };
        let (mut inside, mut outside) = (address.connect().await?, fork.caller());
        for (Loop { code, filtered, .. }, runs) in LOOPS.iter().zip(&mut all) {
            let prelude = if *filtered { ALLOW_ALL } else { "" };
            for _ in 0..rounds {
                let outside_first = bench.rng.bool();
                for turn in [outside_first, !outside_first] {
                    quiet(&address).await?;
                    let token = bench.rng.u32(..);
                    match turn {
                        true => measure(&mut outside, prelude, code, token, &mut runs[0]).await,
                        false => measure(&mut inside, "", code, token, &mut runs[1]).await,
                    }
                }
            }
        }
    }
    for (Loop { name, most, filtered, .. }, runs) in LOOPS.iter().zip(&all) {
        let place = if *filtered { "fork, any filter" } else { "plain fork" };
        for (run, place) in runs.iter().zip([place, "fumehood"]) {
            let mut series = Series::new(format!("{name}, {place}"), "ms");
            series.add(run, None);
            section.figure(&series);
        }
        let pairs = ratios(&runs[1].values, &runs[0].values);
        section.ratio(format!("{name}: fumehood / {place}"), pairs, Some(Bound::Below(*most)));
    }
    Ok(section)
}

async fn measure<C: Caller>(caller: &mut C, prelude: &str, code: &str, token: u32, run: &mut Run) {
    // After a while, in which the pool has made up for the sandbox taken.
    let code = format!("import time\n{prelude}time.sleep(0.6)\n{}", self_timed(code, token));
    let request = caller.prepare(&Job { code, file: None, expected: String::new() });
    let answer = timed(caller, request).await.map_err(|error| format!("{error:#}"));
    let output = answer.as_ref().map_err(Clone::clone).and_then(|answer| caller.output(answer));
    match output.and_then(|output| seconds(&output, token)) {
        Ok(seconds) => run.values.push(seconds * 1e3),
        Err(complaint) => run.complain(complaint),
    }
}

/// A program that says how long this code takes in it.
pub(super) fn self_timed(code: &str, token: u32) -> String {
    let body: String = code.lines().map(|line| format!("    {line}\n")).collect();
    // In a function, as code that is meant to be fast.
    format!(
        "import time\ndef run():\n{body}begun = time.perf_counter()\nrun()\nprint({token}, time.perf_counter() - begun)"
    )
}

/// What such a program said.
pub(super) fn seconds(output: &str, token: u32) -> Result<f64, String> {
    let seconds = output.strip_prefix(&format!("{token} ")).and_then(|rest| rest.trim().parse::<f64>().ok());
    seconds.ok_or_else(|| format!("no time: {output:?}"))
}
