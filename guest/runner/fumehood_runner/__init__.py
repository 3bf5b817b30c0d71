"""The program inside a Fumehood sandbox: runs the user's Python and reports over one socket.

Nothing in here is trusted by the host. The runner shares its interpreter with the user's code, so what it sends is a
claim; limits and outcomes are observed from outside. What the runner owes its user is honesty and order: every
byte printed goes straight to descriptors 1 and 2, displays arrive in the right place between prints, errors
look like Python's own, and no value, however odd, breaks the answer.

Wire, version 1. A frame is a big-endian u32 payload length, a u8 kind, and the payload: one JSON object in UTF-8.

    host to guest   1 execute   one program to run (see `execute.Request`)
                    2 ack       {"seq"}: everything written before that display or sync has been read
                    3 settle    interrupts (SIGINT) sent so far were for earlier executions
                    4 shutdown  leave as a script leaves: threads joined, exit functions run
    guest to host  16 ready     {"version", "python", "pid"}, once
                   18 display   {"seq", "mime", "metadata"}, acknowledged unless seq is 0
                   19 sync      {"seq"}, acknowledged; sent where output changes stream, within a budget
                   20 warning   {"code", "message"}
                   21 result    {"id", "exit_code", "kind", "result", "dataframe", "variables", "error", "warnings"}

In mode `script` the process ends after `result`; in mode `cell` it keeps its variables and waits for the next execute.

Modules: `main` (start and loop), `wire` (frames), `streams` (descriptors 0 to 2), `source` (parse and compile),
`names` (well-known imports left out), `execute` (one execution), `shell` (IPython), `display`, `figures` and `charts` (rich
output), `values`, `tables`, `markdown`, `variables` (what an execution leaves), `errors`, `hints` and `nearest` (what went wrong), `imports` (small
adjustments to libraries when the user imports them), `process` (signals, forks, the end), `text` (bounded text).
For interpreters that fork: `preload` (up to the fork), `rehearsal` (programs run ahead), `reseed` (what no two forks may share).
"""
