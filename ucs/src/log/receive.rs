//! The host's end of the log: makes an event of a plugin's record.
//!
//! Used by `uct-core`. Built on `tracing`, whose events belong to a static callsite with fixed target, level,
//! file and line. So each place in a plugin that logs gets a callsite of its own here when its first record
//! arrives: filters by module work (`uct_tcp=debug`), and a subscriber prints where the event really comes
//! from.
//!
//! Callsites are never freed, as everywhere in `tracing`. Their number is that of the places in the plugins'
//! source; for a plugin that makes places up, [`MAX_CALLSITES`] is the end, and further records come from one
//! common place.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::callsite::{self, Callsite, Identifier};
use tracing::field::{FieldSet, Value};
use tracing::level_filters::LevelFilter;
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata};

use super::{Record, level};
use crate::sync::fixed::{AtomicBool, Ordering};

/// Places in plugins that are remembered one by one.
pub const MAX_CALLSITES: usize = 4096;

/// Longest target and file name that is remembered, in bytes; longer ones come from the common place.
const MAX_NAME: usize = 256;

/// The target of records that have no place of their own.
pub const COMMON_TARGET: &str = "plugin";

/// Marks this image as a host's: what is linked into it logs to its subscriber directly, and
/// [`forward::install`](super::forward::install) leaves it alone.
pub fn claim_image() {
    // SYNC: a host claims before it starts its plugins, in the same thread.
    CLAIMED.store(true, Ordering::Relaxed);
}

/// Whether this image is a host's.
pub(super) fn is_claimed() -> bool {
    CLAIMED.load(Ordering::Relaxed)
}

static CLAIMED: AtomicBool = AtomicBool::new(false);

/// Gives a record to the subscriber of this image. Any thread; costs next to nothing if its level is
/// disabled.
pub fn emit(record: &Record<'_>) {
    if level(record.level) > LevelFilter::current() {
        return;
    }
    let place = Place::find(record);
    super::heard(record.level, || give(place, record));
}

fn give(place: &'static Place, record: &Record<'_>) {
    tracing::dispatcher::get_default(|dispatch| {
        let Some(metadata) = place.metadata.get() else { return };
        if !dispatch.enabled(metadata) {
            return;
        }
        let message = format_args!("{}", Message { record, is_common: metadata.target() == COMMON_TARGET });
        if let Some(field) = metadata.fields().field("message") {
            let values = [(&field, Some(&message as &dyn Value))];
            dispatch.event(&Event::new(metadata, &metadata.fields().value_set(&values)));
        }
    });
}

/// The message; with its target in front where the event's target is not the record's.
struct Message<'record> {
    record: &'record Record<'record>,
    is_common: bool,
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_common {
            // The start of the target is enough for a reader.
            write!(f, "{:.MAX_NAME$}: ", self.record.target)?;
        }
        f.write_str(self.record.message)
    }
}

/// A callsite made at run time.
struct Place {
    /// Set by `leak`, before the place is published: it names the place, so it cannot be made first.
    metadata: OnceLock<Metadata<'static>>,
}

impl Callsite for Place {
    /// The dispatcher decides for each record, so nothing is cached here.
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        self.metadata.get().unwrap_or(&NOWHERE_METADATA)
    }
}

/// Takes the place of missing metadata; never visible.
static NOWHERE: Place = Place { metadata: OnceLock::new() };
static NOWHERE_METADATA: Metadata<'static> = Metadata::new(
    "event",
    COMMON_TARGET,
    tracing::Level::TRACE,
    None,
    None,
    None,
    FieldSet::new(&[], Identifier(&NOWHERE)),
    Kind::EVENT,
);

/// Places by level and line, which distinguish most of them without an allocation.
type Places = HashMap<(u32, u32), Vec<&'static Place>>;

impl Place {
    fn find(record: &Record<'_>) -> &'static Place {
        static PLACES: OnceLock<Mutex<(usize, Places)>> = OnceLock::new();
        let mut guard = PLACES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let (count, places) = &mut *guard;
        let wanted = (record.target, record.file);
        let is_wanted = |place: &&&'static Place| {
            let known = place.metadata.get();
            known.is_some_and(|known| (known.target(), known.file().unwrap_or_default()) == wanted)
        };
        let key = (record.level, record.line);
        if let Some(place) = places.get(&key).and_then(|places| places.iter().find(is_wanted)) {
            return place;
        }
        let is_remembered = *count < MAX_CALLSITES && record.target.len().max(record.file.len()) <= MAX_NAME;
        if !is_remembered {
            return Place::common(record.level);
        }
        *count += 1;
        let place = Place::leak(record);
        places.entry(key).or_default().push(place);
        // Outside of the lock: subscribers inspect a new callsite, and may log.
        drop(guard);
        callsite::register(place);
        place
    }

    /// The place of a level for records that are not remembered.
    fn common(number: u32) -> &'static Place {
        static COMMON: OnceLock<[&'static Place; 5]> = OnceLock::new();
        let places = COMMON.get_or_init(|| {
            [1, 2, 3, 4, 5].map(|level| {
                let place =
                    Place::leak(&Record { level, target: COMMON_TARGET, file: "", line: 0, message: "" });
                callsite::register(place);
                place
            })
        });
        places[super::level_number(level(number)) as usize - 1]
    }

    fn leak(record: &Record<'_>) -> &'static Place {
        let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let place: &'static Place = Box::leak(Box::new(Place { metadata: OnceLock::new() }));
        place.metadata.get_or_init(|| {
            Metadata::new(
                "event",
                leak(record.target),
                level(record.level),
                (!record.file.is_empty()).then(|| leak(record.file)),
                (record.line != 0).then_some(record.line),
                Some(leak(record.target)),
                FieldSet::new(&["message"], Identifier(place)),
                Kind::EVENT,
            )
        });
        place
    }
}
