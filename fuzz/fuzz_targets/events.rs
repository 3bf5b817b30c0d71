#![no_main]
//! See `fumehood_fuzz::events`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::events(data));
