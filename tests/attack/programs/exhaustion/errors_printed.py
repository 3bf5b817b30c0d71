# tries: prints on standard error without end, in single bytes and in large blocks
# stopped by: judge
# ends: output_limit, timed_out
# with: {"limits": {"output_kb": 64}, "timeout_ms": 20000}

os.write(2, b"x" * 1000)
while True:
    os.write(2, b"y" * 65536)
