//! Events of a process without a subscriber of `tracing`: standard error gets them, so that they are not lost.
//!
//! Used by the macros of [`log`](crate::log), such as [`warn!`](crate::log::warn), and by [`receive`](super::receive) for records of plugins. Built on `tracing`'s scoped dispatcher: no subscriber is installed, so that the application can still install its own.
//! In the image of a plugin nothing turns this on; its records go to the host.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{OnceLock, PoisonError, RwLock};

use tracing::dispatcher::{self, Dispatch};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{NoSubscriber, Subscriber};
use tracing::{Event, Metadata};

use super::text::Text;
use super::{Directives, filter, later, level_number};
use crate::sync::fixed::{AtomicU32, Ordering};

/// What is printed.
static WANTED: RwLock<Directives> = RwLock::new(Directives::NONE);

/// The most verbose level in `WANTED`: 0 none, 1 error to 5 tracing. Relaxed: a line more or less at the moment of a change is all that
/// depends on it.
static LEVEL: AtomicU32 = AtomicU32::new(0);

/// Prints these events to standard error where the thread that logs them has no subscriber. For the host, which calls it for each context:
/// the last one counts.
pub fn print_unheard(wanted: Directives) {
    let level = wanted.most_verbose();
    *WANTED.write().unwrap_or_else(PoisonError::into_inner) = wanted;
    LEVEL.store(level, Ordering::Relaxed);
    if level > 0 && has_no_subscriber() {
        // The level in force, which plugins copy, includes its own from now on.
        printer();
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Runs `log`, whose events of this level (1 error to 5 tracing) are printed if this thread has no subscriber. Where a subscriber may not run it gets
/// them later ([`postpone_by`](super::postpone_by)).
pub fn heard<R>(level: u32, log: impl FnOnce() -> R) -> R {
    if LEVEL.load(Ordering::Relaxed) >= level && has_no_subscriber() {
        return dispatcher::with_default(printer(), log);
    }
    later::log(level, log)
}

fn has_no_subscriber() -> bool {
    dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>())
}

fn printer() -> &'static Dispatch {
    static PRINTER: OnceLock<Dispatch> = OnceLock::new();
    PRINTER.get_or_init(|| Dispatch::new(Printer))
}

/// Prints an event as a line.
struct Printer;

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = level_number(*metadata.level());
        !metadata.is_span()
            && level <= LEVEL.load(Ordering::Relaxed)
            && level <= WANTED.read().unwrap_or_else(PoisonError::into_inner).of(metadata.target())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(filter(LEVEL.load(Ordering::Relaxed)))
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let mut line = format!("{} {}: ", metadata.level(), metadata.target());
        // A peer's words may be part of it, and standard error may be a terminal.
        for character in text.finish().chars() {
            let _ = match character.is_control() && character != '\n' {
                true => write!(line, "{}", character.escape_default()),
                false => line.write_char(character),
            };
        }
        line.push('\n');
        // Nothing is left that could report that it is closed.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    // Spans are never enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// `tracing::error!`, printed to standard error where no subscriber listens.
#[doc(hidden)]
#[macro_export]
macro_rules! __error {
    ($($event:tt)*) => { $crate::log::heard(1, || $crate::log::tracing::error!($($event)*)) };
}

/// `tracing::warn!`, printed to standard error where no subscriber listens.
#[doc(hidden)]
#[macro_export]
macro_rules! __warn {
    ($($event:tt)*) => { $crate::log::heard(2, || $crate::log::tracing::warn!($($event)*)) };
}

/// `tracing::info!`, printed to standard error where no subscriber listens, if that is wanted.
#[doc(hidden)]
#[macro_export]
macro_rules! __info {
    ($($event:tt)*) => { $crate::log::heard(3, || $crate::log::tracing::info!($($event)*)) };
}

/// `tracing::debug!`, printed to standard error where no subscriber listens, if that is wanted.
#[doc(hidden)]
#[macro_export]
macro_rules! __debug {
    ($($event:tt)*) => { $crate::log::heard(4, || $crate::log::tracing::debug!($($event)*)) };
}
