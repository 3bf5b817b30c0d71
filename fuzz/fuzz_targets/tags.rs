#![no_main]
//! See `fumehood_fuzz::tags`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::tags(data));
