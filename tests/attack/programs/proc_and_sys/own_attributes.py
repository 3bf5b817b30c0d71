# tries: changes labels, audit session and clock offsets of its own process, which only the host sets
# stopped by: user_namespace

for leaf, value in (("loginuid", b"0"), ("sessionid", b"1"), ("attr/current", b"unconfined"), ("attr/exec", b"unconfined"), ("attr/apparmor/exec", b"exec unconfined"), ("timens_offsets", b"1 1 0"), ("autogroup", b"-20"), ("make-it-fail", b"1"), ("fail-nth", b"1"), ("sched", b"0")):
    try:
        os.write(os.open(f"/proc/self/{leaf}", os.O_WRONLY), value)
        if leaf not in ("sched",):
            got("wrote", leaf)
    except OSError:
        pass
