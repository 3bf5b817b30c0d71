# tries: finds what others have typed: history, caches and profiles of the interpreter
# stopped by: mount_namespace, environment

import glob
try:
    history = get_ipython().history_manager.get_tail(100, raw=True) if "get_ipython" in globals() else []
    for session, line, source in history:
        for secret in secrets_in(source):
            got(secret)
except Exception:
    pass
for path in glob.glob("/home/sandbox/**/*", recursive=True) + glob.glob("/home/sandbox/.*/**", recursive=True):
    if os.path.isfile(path) and os.path.getsize(path) < 1 << 22:
        for secret in secrets_in(read(path, 1 << 22)):
            got(path, secret)
import readline
for number in range(readline.get_current_history_length()):
    got(readline.get_history_item(number))
