//! tools/uct_info
fn main() {}
