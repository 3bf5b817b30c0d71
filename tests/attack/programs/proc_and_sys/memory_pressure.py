# tries: has others killed in its place when memory is short
# stopped by: user_namespace

for value in ("-1", "-1000", "-500"):
    attempt(f"oom_score_adj {value}", lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), value.encode()))
attempt("oom_adj", lambda: os.write(os.open("/proc/self/oom_adj", os.O_WRONLY), b"-17"))
if int(open("/proc/self/oom_score_adj").read()) < 0:
    got("a score below others", open("/proc/self/oom_score_adj").read())
