# tries: raises the limits of its processes
# stopped by: rlimits

import resource
for name in ("CORE", "FSIZE", "NOFILE", "MEMLOCK", "MSGQUEUE", "SIGPENDING", "RTPRIO", "NICE", "STACK", "NPROC"):
    which = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(which)
    if hard == resource.RLIM_INFINITY:
        got("no limit of", name)
        continue
    attempt(f"raised {name}", resource.setrlimit, which, (hard + 1, hard + 1))
    attempt(f"no {name}", resource.setrlimit, which, (-1, -1))
