//! What needs no device: structures, the library, the page.

#[path = "../../../../ucs/testing/skip.rs"]
mod skip;

mod abi;
mod library;
mod page;
