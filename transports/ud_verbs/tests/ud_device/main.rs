//! The transport on real devices, as an application sees it: what the conformance suite cannot ask for, because it breaks
//! queue pairs, measures this process, or is about this transport alone.
//!
//! On a machine without devices the device in software is used, unless `UCT_TEST_REQUIRE=verbs` forbids it. Without the plugin all are skipped. The plugin is looked
//! for beside this program and in `UCT_MODULE_DIR`. The tests take turns.

mod asleep;
mod failure;
mod faults;
#[path = "../../../ib/testing/faults.rs"]
mod has_faults;
mod hostile;
#[path = "../../../ib/testing/library.rs"]
mod library;
#[path = "../../../ib/testing/library_key.rs"]
mod library_key;
mod many;
mod queue_pair;
#[path = "../../../ib/tests/verbs/support.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod raw;
mod support;
