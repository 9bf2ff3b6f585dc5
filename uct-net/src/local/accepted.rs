//! Connections that callers have opened: how many there may be, of one source and in all.
//!
//! None is ended for another one. Built on `ucs::admission`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ucs::admission::{Limits, Places, Source, Vacancy};
use ucs::sys::descriptors;

use crate::options::NetOptions;

/// Descriptors of a connection whose lane is the socket of the handshake: the socket; inside TLS also a pair of sockets.
const DESCRIPTORS: usize = 1;
const DESCRIPTORS_INSIDE_TLS: usize = 3;

/// See the module.
pub(super) struct Accepted {
    places: Rc<RefCell<Places<u64>>>,
    made: Cell<u64>,
    /// See [`Accepted::counts_all`].
    counts_all: bool,
}

/// A connection counts until the last holder has dropped this: it may be forgotten before its descriptors are given back.
pub(crate) struct Place {
    places: Rc<RefCell<Places<u64>>>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.borrow_mut().remove(self.number);
    }
}

impl Accepted {
    /// With the options of a net.
    pub(super) fn new(options: &NetOptions) -> Accepted {
        let each = if options.requires_tls() { DESCRIPTORS_INSIDE_TLS } else { DESCRIPTORS };
        let most = match options.max_connections {
            0 => descriptors::left().saturating_sub(options.reserved_descriptors as usize) / 8 * 7 / each,
            most => most,
        };
        Accepted {
            places: Rc::new(RefCell::new(Places::new(Limits::new(most, options.max_connections_per_source)))),
            made: Cell::new(0),
            counts_all: options.max_connections > 0 || options.max_connections_per_source > 0,
        }
    }

    /// Whether there may be one more of a source, whose socket has one of the last descriptors if they are short; the error is for the
    /// caller as well.
    pub(super) fn check(&self, source: Source, is_short: bool) -> Result<(), String> {
        let mut places = self.places.borrow_mut();
        let Limits { most, most_of_source } = places.limits();
        let at = (Instant::now(), Duration::ZERO);
        if places.ask(source, is_short, at, |_| false) == Vacancy::Free {
            return Ok(());
        }
        Err(if places.is_at_limit(source) {
            format!(
                "{source} has as many connections as it may: {most_of_source} (max_connections_per_source)"
            )
        } else if places.is_full() {
            format!("there are as many connections as there may be: {most} (max_connections)")
        } else {
            "the descriptors of the process are running out (reserved_descriptors)".to_owned()
        })
    }

    pub(super) fn add(&self, source: Source) -> Rc<Place> {
        let number = self.made.get();
        self.made.set(number + 1);
        let mut places = self.places.borrow_mut();
        places.add(number, source, Instant::now());
        places.keep(number);
        Rc::new(Place { places: Rc::clone(&self.places), number })
    }

    /// Whether those count as well whose lane is not the socket of the handshake.
    pub(super) fn counts_all(&self) -> bool {
        self.counts_all
    }
}
