#![no_main]
//! See `fumehood_fuzz::config`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::config(data));
