#![no_main]
//! See `fumehood_fuzz::output`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::output(data));
