//! The transport on real devices, as an application sees it: what the conformance suite cannot ask for, because it breaks
//! queue pairs, measures this process, or is about this transport alone.
//!
//! A machine without devices skips all and says so; `UCT_TEST_REQUIRE=verbs` turns that into a failure. The plugin is looked
//! for beside this program and in `UCT_MODULE_DIR`. The tests take turns.

mod asleep;
mod failure;
mod hostile;
#[path = "../../../ib/testing/library_key.rs"]
mod library_key;
mod many;
mod queue_pair;
#[path = "../../../ib/tests/verbs/support.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod raw;
mod support;
