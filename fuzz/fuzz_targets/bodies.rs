#![no_main]
//! See `fumehood_fuzz::bodies`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::bodies(data));
