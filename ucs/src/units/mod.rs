//! Values with units, as people write them in a configuration: `64k`, `10ms`, `10Gbps`, `try`, `^tcp`.
//!
//! No dependencies. Used by [`config`](crate::config) and every program that prints or reads such a value.
//! Each type reads ([`FromStr`](std::str::FromStr)) what it writes ([`Display`](std::fmt::Display)), exactly.

#![forbid(unsafe_code)]

mod bandwidth;
mod count;
mod error;
mod glob;
mod mem_size;
mod name_list;
mod number;
mod range;
mod switch;
mod time;

pub use bandwidth::Bandwidth;
pub use count::Count;
pub use error::UnitError;
pub use glob::glob_matches;
pub use mem_size::MemSize;
pub use name_list::NameList;
pub use range::Range;
pub use switch::{Ternary, parse_bool};
pub use time::Time;

pub(crate) use error::shown;
