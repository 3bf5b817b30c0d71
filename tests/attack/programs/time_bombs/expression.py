# tries: spends its time in one call that heeds no signal
# stopped by: judge
# ends: timed_out
# with: {"timeout_ms": 800}

import re
re.match(r"(a+)+$", "a" * 64 + "b")
