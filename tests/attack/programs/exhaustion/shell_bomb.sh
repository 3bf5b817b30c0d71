# tries: runs the fork bomb of every textbook
# stopped by: cgroup, rlimits
# ends: process_limit, timed_out, exited, signaled
# with: {"limits": {"processes": 24}, "timeout_ms": 3000}

bomb() { bomb | bomb & }
bomb 2>/dev/null
sleep 1
wait
