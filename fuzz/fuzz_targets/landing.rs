#![no_main]
//! See `fumehood_fuzz::landing`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| fumehood_fuzz::landing(data));
