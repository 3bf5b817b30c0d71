# tries: finds objects of other customers in the interpreter that it was forked from
# stopped by: environment

import gc, threading
for one in gc.get_objects():
    if type(one) is dict:
        for value in list(one.values())[:2000]:
            if type(value) is str and len(value) < 10000 and secrets_in(value):
                if value is not FACTS and "secrets" not in value:
                    got(secrets_in(value))
if threading.active_count() > 3:
    got("threads of others", threading.enumerate())
