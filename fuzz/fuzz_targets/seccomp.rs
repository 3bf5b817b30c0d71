#![no_main]
//! See `fumehood_fuzz::seccomp`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::seccomp(data));
