# tries: shows pictures without end, which the service keeps
# stopped by: judge
# ends: exited, output_limit, timed_out, lost, oom_killed
# with: {"timeout_ms": 4000, "limits": {"memory_mb": 256}}

from IPython.display import display, HTML
picture = HTML("x" * (1 << 20))
for _ in range(100):
    display(picture)
