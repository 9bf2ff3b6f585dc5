//! The transport on real devices, as an application sees it: what the conformance suite cannot require, because it changes
//! the machine or is about this transport alone.
//!
//! On a machine without devices the device in software is used, unless `UCT_TEST_REQUIRE=verbs` forbids it. Without the plugin all are skipped. The plugin is looked
//! for beside this program and in `UCT_MODULE_DIR`. The tests take turns.

mod attributes;
mod bad_input;
mod cable;
mod closing;
mod failure;
mod faults;
#[path = "../../../ib/testing/faults.rs"]
mod has_faults;
mod hostile;
#[path = "../../../ib/testing/library.rs"]
mod library;
#[path = "../../../ib/testing/library_key.rs"]
mod library_key;
mod link;
mod loss;
mod many;
mod panics;
#[path = "../../../ud_verbs/tests/ud_device/queue_pair.rs"]
mod queue_pair;
#[path = "../../../ib/tests/verbs/support.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod raw;
mod rma;
mod support;
mod window;
