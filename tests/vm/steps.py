"""Runs the plan inside the test machine and says on the console what became of it.

The last line is `VM-RESULT` and a JSON object; `run` believes nothing else.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
USER = 54_320


def delegated(name: str) -> Path:
    """A control group that belongs to the ordinary user, as systemd would hand one out."""
    group = GROUPS / name
    group.mkdir()
    for file in (".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(group / file, USER, USER)
    return group


def command(step: dict) -> list[str]:
    """The step's command, as the user that it asks for."""
    if step["user"] == "root":
        return step["argv"]
    group = delegated(f"step-{step['name'].replace(' ', '-')}")
    home = Path("/home/tester")
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, USER, USER)
    join = f"echo $$ > '{group}/cgroup.procs' && exec setpriv --reuid {USER} --regid {USER} --clear-groups \"$@\""
    return ["sh", "-c", join, "sh", "env", f"HOME={home}", *step["argv"]]


def run(step: dict, allowed: list[dict]) -> dict:
    """Runs one step to its end or its deadline; what is wrong with it is in `problems`."""
    print(f"VM-STEP {step['name']} (as {step['user']})", flush=True)
    begun = time.monotonic()
    process = subprocess.Popen(
        command(step),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
        cwd="/tmp",
    )
    guard = threading.Timer(step["seconds"], os.killpg, (process.pid, signal.SIGKILL))
    guard.start()
    lines = []
    for line in process.stdout:
        lines.append(line)
        sys.stdout.write(line)
        sys.stdout.flush()
    code = process.wait()
    timed_out = guard.finished.is_set()
    guard.cancel()

    problems = []
    if timed_out:
        problems.append(f"not at its end after {step['seconds']} s")
    elif code != 0:
        problems.append(f"ended with {code}")
    problems += sorted({f"test failed: {found[1]}" for line in lines if (found := re.match(r"test (\S+) \.\.\. FAILED", line))})
    for line in lines:
        skipped = re.search(r"\bSKIPPED .*", line)
        if skipped and not any(skipped[0].startswith(f"SKIPPED {skip['what']}:") for skip in allowed):
            problems.append(skipped[0])
    # A test that was renamed would otherwise be missing for good.
    passed = sum(int(found[1]) for line in lines if (found := re.match(r"test result: ok\. (\d+) passed", line)))
    if not problems and passed < step["tests"]:
        problems.append(f"{passed} tests passed where there are {step['tests']}")
    return {"name": step["name"], "user": step["user"], "seconds": round(time.monotonic() - begun), "problems": problems}


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    print(f"VM-KERNEL {os.uname().release}; {release['PRETTY_NAME']}; {(GROUPS / 'cgroup.controllers').read_text().strip()}", flush=True)
    steps = [run(step, plan["skips"]) for step in plan["steps"]]
    print("\nVM-RESULT " + json.dumps({"steps": steps}), flush=True)


main()
