//! Warnings and errors of a process without a subscriber of `tracing`: standard error gets them, so that they are not lost.
//!
//! Used by the macros [`warn!`](crate::log::warn) and [`error!`](crate::log::error), and by [`receive`](super::receive) for records of
//! plugins. Built on `tracing`'s scoped dispatcher: no subscriber is installed, so that the application can still install its own.
//! In the image of a plugin nothing turns this on; its records go to the host.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;

use tracing::dispatcher::{self, Dispatch};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{NoSubscriber, Subscriber};
use tracing::{Event, Metadata};

use super::text::Text;
use super::{filter, level_number};
use crate::sync::fixed::{AtomicU32, Ordering};

/// The most verbose level that is printed: 0 none, 1 errors, 2 warnings. Relaxed: a line more or less at the moment of a change is all
/// that depends on it.
static LEVEL: AtomicU32 = AtomicU32::new(0);

/// Prints errors (`level` 1) and warnings (2 and above) to standard error where the thread that logs them has no subscriber; 0 turns
/// that off. For the host, which calls it for each context: the last one counts.
pub fn print_unheard(level: u32) {
    LEVEL.store(level.min(2), Ordering::Relaxed);
    if level > 0 && has_no_subscriber() {
        // The level in force, which plugins copy, includes its own from now on.
        printer();
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Runs `log`, whose events are printed if this thread has no subscriber.
pub fn heard<R>(log: impl FnOnce() -> R) -> R {
    if LEVEL.load(Ordering::Relaxed) > 0 && has_no_subscriber() {
        return dispatcher::with_default(printer(), log);
    }
    log()
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
        !metadata.is_span() && level_number(*metadata.level()) <= LEVEL.load(Ordering::Relaxed)
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

/// `tracing::warn!`, printed to standard error where no subscriber listens.
#[doc(hidden)]
#[macro_export]
macro_rules! __warn {
    ($($event:tt)*) => { $crate::log::heard(|| $crate::log::tracing::warn!($($event)*)) };
}

/// `tracing::error!`, printed to standard error where no subscriber listens.
#[doc(hidden)]
#[macro_export]
macro_rules! __error {
    ($($event:tt)*) => { $crate::log::heard(|| $crate::log::tracing::error!($($event)*)) };
}
