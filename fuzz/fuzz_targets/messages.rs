#![no_main]
//! See `fumehood_fuzz::messages`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::messages(data));
