//! tools/uct_perftest
fn main() {}
