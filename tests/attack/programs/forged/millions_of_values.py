# tries: sends frames of thirty megabytes that are millions of values, each of which takes the service many times its bytes
# stopped by: judge
# ends: exited, lost, output_limit, timed_out
# answer: {"isolation/effective": "process"}

import select, struct, time
values = b"[" + b"0," * 15_000_000 + b"0]"
def frame(kind, before, after):
    head = struct.pack(">IB", len(before) + len(values) + len(after), kind) + before
    for part in (head, values, after):
        left = memoryview(part)
        while left:
            try:
                left = left[os.write(3, left):]
            except BlockingIOError:
                select.select([], [3], [])
frame(18, b'{"seq": 0, "mime": {"application/json": ', b"}}")
frame(21, b'{"exit_code": 0, "result": ', b"}")
time.sleep(5)
