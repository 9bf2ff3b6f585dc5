//! The verbs objects on a real device: what the kernel's Soft-RoCE in the test VM has, or the device in software.
//!
//! On a machine without devices the device in software is used, unless `UCT_TEST_REQUIRE=verbs` forbids it.
//! The tests change the link and permissions of the machine, so they take turns.

mod bad_input;
mod device_faults;
mod events;
#[path = "../../testing/faults.rs"]
mod faults;
#[path = "../../testing/library.rs"]
mod library;
mod rc;
mod support;
mod ud;
