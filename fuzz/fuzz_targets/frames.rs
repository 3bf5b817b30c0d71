#![no_main]
//! See `fumehood_fuzz::frames`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::frames(data));
