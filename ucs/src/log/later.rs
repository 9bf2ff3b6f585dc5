//! Events and spans for later, where no code of the application may run: under a lock of this library, which a subscriber may want as well.
//!
//! Used by [`heard`](super::heard), and by `uct-net`, which has such a lock. Built on `tracing`'s scoped dispatcher: an event is taken down with its
//! fields, and given to the subscriber that the thread has.

use std::cell::RefCell;
use std::fmt;
use std::sync::OnceLock;

use tracing::dispatcher::{self, Dispatch};
use tracing::field::{DisplayValue, Field, Value, Visit, display};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Metadata};

use super::max_level_number;

/// What is done later.
pub type Later = Box<dyn FnOnce() + Send>;

/// Where the application's code may not run, and what is done then.
#[derive(Clone, Copy)]
pub struct Postponing {
    /// Whether it may not run in this thread now.
    pub is_needed: fn() -> bool,
    /// Keeps something until it may; the flag: it is an event, of which too many may be left out.
    pub keep: fn(Later, bool),
}

static POSTPONING: OnceLock<Postponing> = OnceLock::new();

thread_local! {
    /// What the recorder has taken down.
    static TAKEN: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Postpones by these functions from now on. The first call in an image counts. Not to be called where subscribers may not run.
pub fn postpone_by(postponing: Postponing) {
    POSTPONING.get_or_init(|| {
        recorder();
        postponing
    });
}

/// Does this now, or later if the application's code may not run in this thread. It has the thread's subscriber either way.
pub fn outside(call: impl FnOnce() + Send + 'static) {
    match postponing() {
        Some(postponing) => {
            let subscriber = dispatcher::get_default(Dispatch::clone);
            (postponing.keep)(Box::new(move || dispatcher::with_default(&subscriber, call)), false);
        }
        None => call(),
    }
}

/// Whether [`outside`] does something later.
pub fn is_postponed() -> bool {
    postponing().is_some()
}

fn postponing() -> Option<&'static Postponing> {
    POSTPONING.get().filter(|postponing| (postponing.is_needed)())
}

/// Runs `log`, whose events have this level; the subscriber gets them later if need be.
pub(super) fn log<R>(level: u32, log: impl FnOnce() -> R) -> R {
    let Some(postponing) = (level <= max_level_number()).then(postponing).flatten() else { return log() };
    let subscriber = dispatcher::get_default(Dispatch::clone);
    let outcome = dispatcher::with_default(recorder(), log);
    for line in TAKEN.take() {
        let subscriber = subscriber.clone();
        (postponing.keep)(Box::new(move || dispatcher::with_default(&subscriber, || line.give())), true);
    }
    outcome
}

fn recorder() -> &'static Dispatch {
    static RECORDER: OnceLock<Dispatch> = OnceLock::new();
    RECORDER.get_or_init(|| Dispatch::new(Recorder))
}

/// Takes events down.
struct Recorder;

impl Subscriber for Recorder {
    /// What the other subscribers want counts: none wants more on account of this one.
    fn register_callsite(&self, _: &Metadata<'_>) -> Interest {
        Interest::never()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    /// The thread's subscriber is asked when it gets the event.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.is_span()
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line { metadata: event.metadata(), fields: Vec::new() };
        event.record(&mut line);
        TAKEN.with_borrow_mut(|taken| taken.push(line));
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

/// An event that was taken down.
struct Line {
    metadata: &'static Metadata<'static>,
    fields: Vec<(Field, Owned)>,
}

/// The value of a field.
enum Owned {
    Shown(DisplayValue<String>),
    Text(String),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
}

impl Owned {
    fn value(&self) -> &dyn Value {
        match self {
            Owned::Shown(value) => value,
            Owned::Text(value) => value,
            Owned::Unsigned(value) => value,
            Owned::Signed(value) => value,
            Owned::Float(value) => value,
            Owned::Bool(value) => value,
        }
    }
}

impl Line {
    /// Most fields of an event, as of `tracing`.
    const MAX_FIELDS: usize = 32;

    /// Gives it to the thread's subscriber.
    fn give(&self) {
        let Some((first, _)) = self.fields.first() else { return };
        let mut values: [(&Field, Option<&dyn Value>); Line::MAX_FIELDS] = [(first, None); Line::MAX_FIELDS];
        for (place, (field, value)) in values.iter_mut().zip(&self.fields) {
            *place = (field, Some(value.value()));
        }
        dispatcher::get_default(|subscriber| {
            if subscriber.enabled(self.metadata) {
                let fields = self.metadata.fields();
                subscriber.event(&Event::new(self.metadata, &fields.value_set(&values)));
            }
        });
    }

    fn add(&mut self, field: &Field, value: Owned) {
        self.fields.push((field.clone(), value));
    }
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Owned::Float(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Owned::Signed(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Owned::Unsigned(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Owned::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, Owned::Text(value.to_owned()));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.add(field, Owned::Shown(display(value.to_string())));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, Owned::Shown(display(format!("{value:?}"))));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    thread_local! {
        static IS_NEEDED: Cell<bool> = const { Cell::new(false) };
        static KEPT: RefCell<Vec<Later>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn one_of_each() {
        let error = std::io::Error::from_raw_os_error(2);
        let shown = format_args!("shown {}", 1);
        crate::log::warn!(
            text = "a\nb",
            number = 7_u64,
            signed = -7,
            part = 0.5,
            flag = true,
            "said {}",
            "thus"
        );
        crate::log::info!(%shown, ?error, error = &error as &dyn std::error::Error, "said");
        crate::log::debug!("not wanted");
    }

    #[test]
    fn what_is_postponed_is_the_same_later() {
        postpone_by(Postponing {
            is_needed: || IS_NEEDED.get(),
            keep: |later, _| KEPT.with_borrow_mut(|kept| kept.push(later)),
        });
        let lines = Lines::default();
        let to_lines = tracing_subscriber::fmt().with_ansi(false).without_time();
        let subscriber = to_lines.with_writer(Mutex::new(lines.clone())).finish();
        let taken = || String::from_utf8(std::mem::take(&mut *lines.0.lock().unwrap())).unwrap();
        dispatcher::with_default(&Dispatch::new(subscriber), || {
            one_of_each();
            let at_once = taken();
            assert_eq!(at_once.lines().count(), 2, "{at_once}");
            IS_NEEDED.set(true);
            one_of_each();
            let done = Lines::default();
            let mut later = done.clone();
            outside(move || later.write_all(b"done").unwrap());
            IS_NEEDED.set(false);
            assert_eq!((taken(), done.0.lock().unwrap().len()), (String::new(), 0));
            // The subscriber is that of the thread that has logged.
            let kept = KEPT.take();
            std::thread::spawn(move || kept.into_iter().for_each(|later| later())).join().unwrap();
            assert_eq!((taken(), done.0.lock().unwrap().len()), (at_once, 4));
        });
    }
}
