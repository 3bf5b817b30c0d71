# tries: puts a link in the place of its workspace, which the host then follows
# stopped by: judge, read_only
# like: CVE-2024-28189
# with: {"collect": ["**/*"]}
# answer: {"artifacts": []}

os.chdir("/")
for step in (lambda: os.rename("/data", "/data2"), lambda: os.rmdir("/data"), lambda: os.symlink("/etc", "/data"), lambda: os.unlink("/workspace"), lambda: os.symlink("/etc", "/workspace"), lambda: os.rename("/tmp", "/data/tmp")):
    attempt("moved the workspace", step)
os.chmod("/data", 0)
