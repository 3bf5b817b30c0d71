#![no_main]
//! See `fumehood_fuzz::paths`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::paths(data));
