//! The vocabulary as a program in C has it: headers, symbols, layouts, and what the functions do over each transport.
//!
//! Needs a C compiler; without one the tests say what they skipped. Built on the library that cargo leaves beside this
//! program.

mod functions;
mod headers;
mod hello;
mod layout;
#[path = "../../../../ucs/testing/port.rs"]
mod port;
mod program;
#[path = "../../../../ucs/testing/skip.rs"]
mod skip;
mod symbols;
