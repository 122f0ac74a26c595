#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| elasti_fuzz::plain(data));
