//! Plugins from files: which are found, which are loaded, and what is said of the others.

#[path = "../../../ucs/testing/copy.rs"]
mod copy;
#[path = "../loader_support/mod.rs"]
mod loader_support;
#[path = "../../../ucs/testing/property.rs"]
mod property;
#[path = "../../../ucs/testing/skip.rs"]
mod skip;

mod c_transport;
mod context;
mod failures;
mod panics;
mod search;
mod tables;
mod trust;
