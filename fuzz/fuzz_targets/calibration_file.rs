#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (uct_parsers::parser("calibration_file").read)(data));
