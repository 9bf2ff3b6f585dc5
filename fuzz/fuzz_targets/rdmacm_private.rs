#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (uct_parsers::parser("rdmacm_private").read)(data));
