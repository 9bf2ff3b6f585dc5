//! The connection manager on real devices, as an application sees it.
//!
//! A machine without devices skips all and says so; `UCT_TEST_REQUIRE=verbs` turns that into a failure. The plugin is looked for
//! beside this program and in `UCT_MODULE_DIR`. The tests take turns. Addresses are those of `cargo xtask vm`.

mod connections;
mod foreign;
mod ipv6;
mod lanes;
#[path = "../../../ib/testing/library.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod library;
#[path = "../../../ib/tests/verbs/support.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod raw;
mod refusals;
mod support;
