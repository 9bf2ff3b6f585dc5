#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (uct_parsers::parser("composed_frame").read)(data));
