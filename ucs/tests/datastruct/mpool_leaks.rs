//! What a pool says and does when it is dropped while elements are out. The count is the process's.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use crate::alone::is_alone;
use tracing::field::{Field, Visit};
use tracing::span;
use ucs::datastruct::mpool::{HeapChunks, Mpool, MpoolParams, leaked_elements};

/// Writes every warning into a string.
struct Warnings(Arc<Mutex<String>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields<'a>(&'a mut String);
        impl Visit for Fields<'_> {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                write!(self.0, "{field}={value:?} ").expect("a string takes everything");
            }
        }
        event.record(&mut Fields(&mut self.0.lock().expect("no test panics with it")));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn elements_that_are_out_are_counted_named_and_left_usable() {
    if !is_alone() {
        return;
    }
    let warnings = Arc::new(Mutex::new(String::new()));
    let params = MpoolParams { elems_per_chunk: 4, ..MpoolParams::new("leaky", 64) };
    let leaked = tracing::subscriber::with_default(Warnings(warnings.clone()), || {
        let clean = Mpool::new(params.clone(), HeapChunks, ()).expect("the parameters are good");
        let element = clean.get().expect("there is no limit");
        // SAFETY: it is the one just got.
        unsafe { clean.put(element) };
        drop(clean);
        assert_eq!(leaked_elements(), 0);
        assert_eq!(*warnings.lock().expect("no test panics with it"), "");

        let pool = Mpool::new(params, HeapChunks, ()).expect("the parameters are good");
        let elements: Vec<_> = (0..10).map(|_| pool.get().expect("there is no limit")).collect();
        // SAFETY: it is one of those just got.
        unsafe { pool.put(elements[1]) };
        // The last chunk comes home whole, and only that is freed.
        for element in &elements[8..] {
            // SAFETY: as above.
            unsafe { pool.put(*element) };
        }
        assert_eq!(pool.outstanding(), 7);
        elements
    });
    assert_eq!(leaked_elements(), 7);
    let warnings = warnings.lock().expect("no test panics with it");
    assert!(warnings.contains("pool=\"leaky\"") && warnings.contains("elements=7"), "{warnings}");
    for (index, element) in leaked.iter().enumerate() {
        if index != 1 && index < 8 {
            // SAFETY: it was never put back, so its chunk lives on.
            unsafe { element.write_bytes(7, 64) };
            // SAFETY: as above.
            assert!(unsafe { Mpool::cookie(*element) }.is_null());
        }
    }
}
