# tries: prints without end
# stopped by: judge
# ends: output_limit
# with: {"limits": {"output_kb": 64}, "timeout_ms": 30000}

yes "a line of output that is as good as any other"
