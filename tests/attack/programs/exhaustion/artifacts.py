# tries: leaves so many files to be collected that the service's own disk fills
# stopped by: judge, disk
# with: {"collect": ["**/*"], "limits": {"disk_mb": 32}, "timeout_ms": 20000}
# ends: exited, disk_limit

for number in range(3000):
    with open(f"/data/{number}", "w") as file:
        file.write("x" * 100)
