# tries: makes segments of 16 bits, a part of the processor that kernels handle badly
# stopped by: seccomp
# needs: x86_64
# like: CVE-2014-9322, CVE-2015-5157

for function in (0, 1, 2):
    if what := passes("modify_ldt", function, _ctypes.create_string_buffer(16), 16):
        got("modify_ldt", what)
