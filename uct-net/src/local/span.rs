//! Spans of `tracing` that are used under the lock of the flavour for any thread. A subscriber must not run there: what is done to a span is done after
//! the lock was left, in the same order. Elsewhere it is done at once.
//!
//! Used by `trace`, and for the stages of a connection. Built on `ucs::log`.

use std::cell::RefCell;
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tracing::field::display;
use tracing::level_filters::LevelFilter;

thread_local! {
    /// The span that this thread is in, under the lock.
    static CURRENT: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// Where a span is, once it was made.
type Place = Arc<OnceLock<tracing::Span>>;

/// A span, or none if no subscriber wants it. It closes when the last copy is dropped.
#[derive(Clone)]
pub(crate) struct Span(Option<Place>);

/// A span for a stage of the present one.
macro_rules! stage {
    ($($span:tt)*) => { $crate::local::span::Span::new(move || ::tracing::debug_span!($($span)*)) };
}
pub(crate) use stage;

impl Span {
    /// The span that `make` returns.
    pub(crate) fn new(make: impl FnOnce() -> tracing::Span + Send + 'static) -> Span {
        if LevelFilter::current() < LevelFilter::DEBUG {
            return Span(None);
        }
        let place = Place::default();
        let own = Arc::clone(&place);
        ucs::log::outside(move || drop(own.set(make())));
        Span(Some(place))
    }

    /// A span in this one.
    pub(crate) fn child(&self, make: impl FnOnce() -> tracing::Span + Send + 'static) -> Span {
        self.enter(|| Span::new(make))
    }

    /// Does something to the span.
    pub(crate) fn with(&self, call: impl FnOnce(&tracing::Span) + Send + 'static) {
        if let Some(place) = self.0.clone() {
            ucs::log::outside(move || {
                if let Some(span) = place.get() {
                    call(span);
                }
            });
        }
    }

    /// Notes why a connection ends, or is none.
    pub(crate) fn note_end(&self, reason: impl Display) {
        if self.0.is_some() {
            let reason = reason.to_string();
            self.with(move |span| {
                span.record("reason", display(reason));
            });
        }
    }

    /// Runs this within the span: what is logged belongs to it.
    fn enter<R>(&self, call: impl FnOnce() -> R) -> R {
        let Some(place) = &self.0 else { return call() };
        if !ucs::log::is_postponed() {
            return within(place, call);
        }
        struct Restore(Option<Place>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _outer = Restore(CURRENT.replace(Some(Arc::clone(place))));
        call()
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            ucs::log::outside(move || drop(place));
        }
    }
}

fn within<R>(place: &Place, call: impl FnOnce() -> R) -> R {
    match place.get() {
        Some(span) => span.in_scope(call),
        None => call(),
    }
}

/// What is to be done later belongs to the span that this thread is in now.
pub(crate) fn in_current(call: ucs::log::Later) -> ucs::log::Later {
    match CURRENT.with_borrow(Option::clone) {
        Some(place) => Box::new(move || within(&place, call)),
        None => call,
    }
}

/// A future that runs in a span.
pub(crate) trait Instrument: Future + Sized {
    /// Each poll is in the span.
    fn instrument(self, span: Span) -> impl Future<Output = Self::Output> {
        async move {
            let mut future = pin!(self);
            poll_fn(|context| span.enter(|| future.as_mut().poll(context))).await
        }
    }
}

impl<F: Future> Instrument for F {}
