//! The verbs objects on a real device: what the kernel's Soft-RoCE in the test VM has.
//!
//! A machine without devices skips all and says so; `UCT_TEST_REQUIRE=verbs` turns that into a failure.
//! The tests change the link and permissions of the machine, so they take turns.

mod bad_input;
mod events;
mod rc;
mod support;
mod ud;
