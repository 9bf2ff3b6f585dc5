//! What was logged while a case ran: a warning or an error that a case does not expect fails it.
//!
//! For the runner, and cases that expect a line. Built on `tracing`; events of plugins arrive here as well, since the
//! host hands them to its own subscriber.

use std::cell::RefCell;
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// One line that was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How serious it is.
    pub level: Level,
    /// Where it comes from, message and fields.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.level, self.text)
    }
}

thread_local! {
    static LINES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Collects warnings and errors of each thread from now on; `print` also prints all up to that level.
pub(crate) fn install(print: LevelFilter) {
    // A program that has a subscriber of its own keeps it; then nothing is collected.
    let _ = tracing::subscriber::set_global_default(Collector { print });
}

/// Takes the lines that this thread logged so far.
pub fn take() -> Vec<Line> {
    LINES.with_borrow_mut(std::mem::take)
}

struct Collector {
    print: LevelFilter,
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.most()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most())
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = format!("{}:", event.metadata().target());
        event.record(&mut Words(&mut text));
        let line = Line { level: *event.metadata().level(), text };
        if line.level <= self.print {
            eprintln!("{line}");
        }
        if line.level <= Level::WARN {
            LINES.with_borrow_mut(|lines| lines.push(line));
        }
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

impl Collector {
    fn most(&self) -> LevelFilter {
        self.print.max(LevelFilter::WARN)
    }
}

struct Words<'a>(&'a mut String);

impl Visit for Words<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = if field.name() == "message" {
            write!(self.0, " {value:?}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
        written.expect("a string takes all");
    }
}
