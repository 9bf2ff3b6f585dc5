//! A subscriber that keeps the spans of `uct-net` that it sees.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// A span that was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    id: u64,
    pub name: &'static str,
    parent: Option<u64>,
    pub fields: BTreeMap<&'static str, String>,
    /// How many spans had been closed when it opened, and when it closed.
    opened: usize,
    pub closed: Option<usize>,
}

/// The spans of this crate, in the order in which they opened, and how many are closed.
#[derive(Clone, Default)]
pub struct Spans(pub Arc<Mutex<(Vec<Seen>, usize)>>);

struct Values<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Values<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if !attributes.metadata().target().starts_with("uct_net") {
            return;
        }
        assert_eq!(*attributes.metadata().level(), tracing::Level::DEBUG);
        let mut fields = BTreeMap::new();
        attributes.record(&mut Values(&mut fields));
        let parent = context.span(id).and_then(|span| Some(span.parent()?.id().into_u64()));
        let mut seen = self.0.lock().expect("no panic");
        let opened = seen.1;
        let name = attributes.metadata().name();
        seen.0.push(Seen { id: id.into_u64(), name, parent, fields, opened, closed: None });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut seen = self.0.lock().expect("no panic");
        let open = seen.0.iter_mut().find(|span| span.id == id.into_u64() && span.closed.is_none());
        open.into_iter().for_each(|span| values.record(&mut Values(&mut span.fields)));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let (spans, count) = &mut *self.0.lock().expect("no panic");
        let open = spans.iter_mut().find(|span| span.id == id.into_u64() && span.closed.is_none());
        if let Some(span) = open {
            *count += 1;
            span.closed = Some(*count);
        }
    }
}

impl Spans {
    /// Sees the spans of this thread, from this level on, until the guard is dropped.
    pub fn see(&self, level: LevelFilter) -> DefaultGuard {
        set_default(Registry::default().with(self.clone().with_filter(level)))
    }

    /// As [`Spans::see`], until the thread ends: a registry closes a span only while it is that of the thread.
    pub fn see_always(&self, level: LevelFilter) {
        std::mem::forget(self.see(level));
    }

    /// The names of the stages of the only connection of a side over a lane, none of which outlives it.
    pub fn stages_of(&self, side: &str, lane: &str) -> Vec<&'static str> {
        let seen = self.0.lock().expect("no panic").0.clone();
        let field = |span: &Seen, name| span.fields.get(name).cloned().unwrap_or_default();
        let is_meant = |span: &&Seen| {
            span.name == "connection" && field(span, "side") == side && field(span, "lane") == lane
        };
        let connections: Vec<_> = seen.iter().filter(is_meant).collect();
        let [connection] = connections[..] else { panic!("{side} over {lane:?}: {connections:?}") };
        let stages = seen.iter().filter(|span| span.parent == Some(connection.id));
        let stages = stages.inspect(|stage| assert!(stage.closed < connection.closed, "{stage:?}"));
        stages.map(|stage| stage.name).collect()
    }

    /// The only connection, all of whose spans are closed, and its stages.
    pub fn connection(&self) -> (Seen, Vec<Seen>) {
        let seen = self.0.lock().expect("no panic").0.clone();
        assert!(seen.iter().all(|span| span.closed.is_some()), "{seen:?}");
        let [connection, stages @ ..] = &seen[..] else { panic!("no spans") };
        assert_eq!((connection.name, connection.parent), ("connection", None));
        for stage in stages {
            assert_eq!(stage.parent, Some(connection.id), "{stage:?}");
            assert!(stage.closed < connection.closed, "{stage:?} closes after its connection");
        }
        assert!(
            stages.is_sorted_by(|one, next| one.closed <= Some(next.opened)),
            "stages overlap: {stages:?}"
        );
        (connection.clone(), stages.to_vec())
    }
}

/// Of these.
pub fn names(stages: &[Seen]) -> Vec<&str> {
    stages.iter().map(|stage| stage.name).collect()
}
