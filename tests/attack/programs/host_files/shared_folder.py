# tries: changes what the operator shares with every sandbox
# stopped by: read_only, landlock, user_namespace
# session: true

import subprocess
place = "/data/shared"
if os.path.isdir(place):
    attempt("made a file", lambda: open(place + "/new", "x"))
    for name in os.listdir(place):
        attempt(f"wrote {name}", lambda: os.open(f"{place}/{name}", os.O_RDWR))
        attempt(f"removed {name}", os.unlink, f"{place}/{name}")
    attempt("removed it", os.rmdir, place)
    attempt("renamed it", os.rename, place, "/data/other")
# It may as well not be there: then nothing of that name leads out.
elif os.path.lexists(place):
    got("a link", os.readlink(place))
