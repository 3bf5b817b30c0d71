# tries: returns objects that do things, lie or never end when the service looks at them
# stopped by: judge
# ends: exited, exception, timed_out
# with: {"timeout_ms": 10000, "result_var": "liar"}

class Liar:
    __class__ = dict
    def __repr__(self):
        raise SystemExit(0)
    def __str__(self):
        os._exit(7)
    def __len__(self):
        return -1
    def __iter__(self):
        while True:
            yield self
    def _repr_html_(self):
        raise KeyboardInterrupt
    def __getattr__(self, name):
        raise BaseException(name)
    def __eq__(self, other):
        return True
    __hash__ = None

liar = Liar()
nested = []
nested.append(nested)
