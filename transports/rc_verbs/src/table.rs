//! The endpoints of an interface: by place, and by the number of their queue pair.
//!
//! For: progress, which is told of one or the other with every completion.

use std::rc::Rc;

use slab::Slab;

use crate::ep::RcEp;

/// Bits of a queue pair number that select within a page.
const PAGE_BITS: u32 = 10;
const PAGE: usize = 1 << PAGE_BITS;

/// All endpoints, also those that the host has destroyed and that still have something under way.
#[derive(Default)]
pub(crate) struct EpTable {
    eps: Slab<Rc<RcEp>>,
    /// Indexed by queue pair number, whose 24 bits make at most 16384 pages. Numbers go up for ever, so a page without
    /// endpoints is given back.
    pages: Vec<Option<Box<Page>>>,
}

/// What is known of consecutive queue pair numbers.
struct Page {
    /// Numbers that are in use.
    used: u32,
    /// The place of each plus one; zero without one.
    places: [u32; PAGE],
}

impl EpTable {
    /// The place that the next endpoint gets.
    pub(crate) fn next_index(&self) -> u32 {
        self.eps.vacant_key() as u32
    }

    /// Adds an endpoint at the place that it was given.
    pub(crate) fn insert(&mut self, ep: Rc<RcEp>) {
        let number = ep.qp.number() & 0xff_ffff;
        let page = (number >> PAGE_BITS) as usize;
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new(Page { used: 0, places: [0; PAGE] }));
        page.used += 1;
        page.places[number as usize % PAGE] = ep.index + 1;
        let index = self.eps.insert(ep);
        debug_assert_eq!(self.eps[index].index as usize, index);
    }

    /// Removes an endpoint.
    pub(crate) fn remove(&mut self, ep: &RcEp) -> Option<Rc<RcEp>> {
        let number = ep.qp.number() & 0xff_ffff;
        if let Some(slot) = self.pages.get_mut((number >> PAGE_BITS) as usize)
            && let Some(page) = slot
            && page.places[number as usize % PAGE] == ep.index + 1
        {
            page.places[number as usize % PAGE] = 0;
            page.used -= 1;
            if page.used == 0 {
                *slot = None;
            }
        }
        self.eps.try_remove(ep.index as usize)
    }

    /// The endpoint at a place.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Rc<RcEp>> {
        self.eps.get(index as usize)
    }

    /// The endpoint of a queue pair.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<&Rc<RcEp>> {
        let page = self.pages.get((number >> PAGE_BITS) as usize)?.as_ref()?;
        let place = page.places[number as usize % PAGE];
        self.eps.get(place.wrapping_sub(1) as usize)
    }

    /// All endpoints.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<RcEp>> {
        self.eps.iter().map(|(_, ep)| ep)
    }
}
