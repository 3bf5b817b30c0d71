# tries: changes labels, audit session and clock offsets of its own process, which only the host sets
# stopped by: user_namespace

import subprocess


def label_of_a_program():
    return subprocess.run(["cat", "/proc/self/attr/current"], capture_output=True).stdout


before = label_of_a_program()
for leaf, value in (("loginuid", b"0"), ("sessionid", b"1"), ("attr/current", b"unconfined"), ("attr/exec", b"unconfined"), ("attr/apparmor/exec", b"exec unconfined"), ("timens_offsets", b"1 1 0"), ("autogroup", b"-20"), ("make-it-fail", b"1"), ("fail-nth", b"1"), ("sched", b"0")):
    try:
        os.write(os.open(f"/proc/self/{leaf}", os.O_WRONLY), value)
        # What the next program's label is to be may be asked for; what it is then is looked at below.
        if leaf != "sched" and not leaf.startswith("attr/"):
            got("wrote", leaf)
    except OSError:
        pass
if label_of_a_program() != before:
    got("changed the label of its programs from", before)
