//! Which receive gets which message.

mod model;
#[path = "../../../../ucs/testing/property.rs"]
mod property;
mod rules;
