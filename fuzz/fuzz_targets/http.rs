#![no_main]
//! See `fumehood_fuzz::http`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::http(data));
