#![no_main]
//! See `fumehood_fuzz::files`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::files(data));
