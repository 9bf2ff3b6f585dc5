#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (uct_parsers::parser("config_file").read)(data));
