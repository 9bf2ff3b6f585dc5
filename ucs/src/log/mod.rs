//! One log for the host and its plugins.
//!
//! For events made inside a plugin, which has a copy of `tracing`'s statics of its own, so that the host's
//! subscriber never sees them; and for processes without a subscriber. Built on `tracing`. `uct-plugin` uses [`forward`], `uct-core` uses
//! [`receive`]; the record between them is plain data, which has a form of its own at the plugin boundary.

#![forbid(unsafe_code)]

mod directives;
pub mod forward;
mod later;
mod limited;
pub mod receive;
mod text;
mod unheard;

pub use directives::Directives;
pub use later::{Later, Postponing, is_postponed, outside, postpone_by};
pub use limited::{LeftOut, Limited};
pub use unheard::{heard, print_unheard};

/// As `tracing::debug!`; printed to standard error where no subscriber listens, if [`print_unheard`] wants it.
pub use crate::__debug as debug;
/// As `tracing::error!`; printed to standard error where no subscriber listens.
pub use crate::__error as error;
/// As `tracing::info!`; printed to standard error where no subscriber listens, if [`print_unheard`] wants it.
pub use crate::__info as info;
/// As `tracing::warn!`; printed to standard error where no subscriber listens.
pub use crate::__warn as warn;
#[doc(hidden)]
pub use tracing;

use tracing::{Level, level_filters::LevelFilter};

/// One event, formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'text> {
    /// 1 error, 2 warning, 3 information, 4 debugging, 5 tracing.
    pub level: u32,
    /// The module that logs.
    pub target: &'text str,
    /// The source file; empty where unknown.
    pub file: &'text str,
    /// The line in `file`; 0 where unknown.
    pub line: u32,
    /// The message followed by the fields as `name=value`.
    pub message: &'text str,
}

/// A level as a number: 1 for error to 5 for tracing.
pub fn level_number(level: Level) -> u32 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

/// The level of a number. A number that is too high, from a newer plugin, is tracing; 0 is an error, so that
/// it is seen.
pub fn level(number: u32) -> Level {
    match number {
        0 | 1 => Level::ERROR,
        2 => Level::WARN,
        3 => Level::INFO,
        4 => Level::DEBUG,
        _ => Level::TRACE,
    }
}

/// The most verbose level that a subscriber of this image listens to, as a number; 0 for none.
pub fn max_level_number() -> u32 {
    LevelFilter::current().into_level().map_or(0, level_number)
}

fn filter(number: u32) -> LevelFilter {
    if number == 0 { LevelFilter::OFF } else { LevelFilter::from_level(level(number)) }
}
