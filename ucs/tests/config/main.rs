//! Configuration: what is read from where, what is refused, and what the errors say.

#[path = "../../testing/property.rs"]
mod property;
#[path = "../../testing/skip.rs"]
mod skip;

mod errors;
mod load;
mod schema;
mod structs;
mod trust;
mod units;
