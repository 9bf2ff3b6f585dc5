#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (uct_parsers::parser("fi_frame").read)(data));
