//! Peers that do harm, and what they are kept from: other memory, the place of another, more than their share.

#[path = "../common/mod.rs"]
mod common;

mod attacks;
mod bystanders;
mod keys;
mod limits;
mod places;
