//! The plugin's end of the log: sends what this image logs somewhere else.
//!
//! Used by `uct-plugin`, when it is a library of its own. A transport that is linked into the host shares the
//! host's `tracing` and needs none of this. Built on `tracing`'s subscriber interface.
//!
//! An event that no subscriber wants costs what a disabled event costs in the host: its callsite knows that it is
//! off. For that the level is copied here, and has to be [refreshed](refresh) when the host's may have
//! changed.

use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Metadata};

use super::text::Text;
use super::{Record, filter, level_number};
use crate::sync::fixed::{AtomicU32, Ordering};

/// The destination of records, and the source of the level in force.
struct Sink {
    send: fn(&Record<'_>),
    max_level: fn() -> u32,
}

static SINK: OnceLock<Sink> = OnceLock::new();

/// The level in force: the copy of what `max_level` returned last. Relaxed: an event more or less at the
/// moment of a change is all that depends on it.
static LEVEL: AtomicU32 = AtomicU32::new(0);

/// Sends every event of this image to `send`, up to the level that `max_level` returns (0 none, 1 error to 5
/// tracing).
///
/// To be called once, in the image of a plugin. Returns `false` if this image has a subscriber already, or is
/// the host's own; it is then left alone. `send` may be called from any thread. Spans are not forwarded.
pub fn install(send: fn(&Record<'_>), max_level: fn() -> u32) -> bool {
    if super::receive::is_claimed() || SINK.set(Sink { send, max_level }).is_err() {
        return false;
    }
    LEVEL.store(max_level(), Ordering::Relaxed);
    tracing::subscriber::set_global_default(Forwarder).is_ok()
}

/// Takes over the host's present level. Costs one call if it has not changed; to be called on the control
/// path, for example whenever an interface is opened.
pub fn refresh() {
    let Some(sink) = SINK.get() else { return };
    let level = (sink.max_level)();
    if LEVEL.swap(level, Ordering::Relaxed) != level {
        // Callsites have remembered whether they are wanted.
        tracing::callsite::rebuild_interest_cache();
    }
}

struct Forwarder;

impl Forwarder {
    fn wants(metadata: &Metadata<'_>) -> bool {
        !metadata.is_span() && level_number(*metadata.level()) <= LEVEL.load(Ordering::Relaxed)
    }
}

impl Subscriber for Forwarder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Forwarder::wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Forwarder::wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(filter(LEVEL.load(Ordering::Relaxed)))
    }

    fn event(&self, event: &Event<'_>) {
        let Some(sink) = SINK.get() else { return };
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        (sink.send)(&Record {
            level: level_number(*metadata.level()),
            target: metadata.target(),
            file: metadata.file().unwrap_or_default(),
            line: metadata.line().unwrap_or_default(),
            message: &text.finish(),
        });
    }

    // Spans are never enabled, so there is no identifier of one.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
