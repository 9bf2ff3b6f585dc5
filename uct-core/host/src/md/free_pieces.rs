//! Which pieces of a pool's chunks are free. Used by pools and by the memory that they return. Built on nothing.

use std::cell::RefCell;
use std::rc::Rc;

/// Number of a chunk in its pool, and offset of the piece.
pub(super) type Spot = (usize, usize);

/// The free pieces of a pool, by class: the logarithm of their size.
#[derive(Default)]
pub(super) struct FreePieces(RefCell<Vec<Vec<Spot>>>);

/// A piece that is taken. It is free again when this is dropped.
pub(super) struct Place {
    free: Rc<FreePieces>,
    class: usize,
    spot: Spot,
}

impl FreePieces {
    /// Adds pieces, of which the last one is taken first.
    pub(super) fn add(&self, class: usize, spots: impl Iterator<Item = Spot>) {
        let mut classes = self.0.borrow_mut();
        if classes.len() <= class {
            classes.resize_with(class + 1, Vec::new);
        }
        classes[class].extend(spots);
    }

    /// Takes the piece of a class that was returned last, if there is one.
    pub(super) fn take(self: &Rc<FreePieces>, class: usize) -> Option<Place> {
        let spot = self.0.borrow_mut().get_mut(class)?.pop()?;
        Some(Place { free: Rc::clone(self), class, spot })
    }
}

impl Place {
    /// Where it is.
    pub(super) fn spot(&self) -> Spot {
        self.spot
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.free.add(self.class, std::iter::once(self.spot));
    }
}
