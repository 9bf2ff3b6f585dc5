//! The connections of an interface: by place, and by the number of their queue pair.
//!
//! Each completion names one or the other.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::rc::Rc;

use slab::Slab;

use crate::link::conn::Conn;

/// Bits of a queue pair number that select within a page.
const PAGE_BITS: u32 = 10;
const PAGE: usize = 1 << PAGE_BITS;

/// All connections, including those of destroyed endpoints with operations in flight.
#[derive(Default)]
pub(crate) struct ConnTable(UnsafeCell<Inner>);

#[derive(Default)]
struct Inner {
    conns: Slab<Rc<Conn>>,
    /// The same, as all that progress needs of it.
    pointers: Vec<Option<NonNull<Conn>>>,
    /// Indexed by queue pair number, whose 24 bits make at most 16384 pages. Numbers go up for ever, so a page without
    /// connections is given back.
    pages: Vec<Option<Box<Page>>>,
}

/// What is known of consecutive queue pair numbers.
struct Page {
    /// Numbers that are in use.
    used: u32,
    /// The place of each plus one; zero without one.
    places: [u32; PAGE],
}

impl ConnTable {
    #[inline(always)]
    fn with<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> R {
        // SAFETY: the table belongs to one thread, and no reference to it leaves this type: what the methods below do with it
        // runs no code that could call this again. None of them drops a connection.
        work(unsafe { &mut *self.0.get() })
    }

    /// The place that the next connection gets.
    pub(crate) fn next_index(&self) -> u32 {
        self.with(|table| table.conns.vacant_key() as u32)
    }

    /// Adds a connection at the place that it was given.
    pub(crate) fn insert(&self, conn: Rc<Conn>) {
        self.with(|table| table.insert(conn));
    }

    /// Removes a connection.
    pub(crate) fn remove(&self, conn: &Conn) -> Option<Rc<Conn>> {
        self.with(|table| table.remove(conn))
    }

    /// The connection at a place.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<NonNull<Conn>> {
        self.with(|table| table.pointers.get(index as usize).copied().flatten())
    }

    /// The connection of a queue pair.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<NonNull<Conn>> {
        self.with(|table| {
            let page = table.pages.get((number >> PAGE_BITS) as usize)?.as_ref()?;
            let place = page.places[number as usize % PAGE];
            table.pointers.get(place.wrapping_sub(1) as usize).copied().flatten()
        })
    }

    /// The connection at a place, held.
    pub(crate) fn get(&self, index: u32) -> Option<Rc<Conn>> {
        self.with(|table| table.conns.get(index as usize).cloned())
    }

    /// All connections, as they are now.
    pub(crate) fn all(&self) -> Vec<Rc<Conn>> {
        self.with(|table| table.conns.iter().map(|(_, conn)| Rc::clone(conn)).collect())
    }
}

impl Inner {
    fn insert(&mut self, conn: Rc<Conn>) {
        let number = conn.qp.number() & 0xff_ffff;
        let page = (number >> PAGE_BITS) as usize;
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new(Page { used: 0, places: [0; PAGE] }));
        page.used += 1;
        page.places[number as usize % PAGE] = conn.index + 1;
        let pointer = NonNull::from(&*conn);
        let index = self.conns.insert(conn);
        debug_assert_eq!(self.conns[index].index as usize, index);
        if self.pointers.len() <= index {
            self.pointers.resize(index + 1, None);
        }
        self.pointers[index] = Some(pointer);
    }

    fn remove(&mut self, conn: &Conn) -> Option<Rc<Conn>> {
        let number = conn.qp.number() & 0xff_ffff;
        if let Some(slot) = self.pages.get_mut((number >> PAGE_BITS) as usize)
            && let Some(page) = slot
            && page.places[number as usize % PAGE] == conn.index + 1
        {
            page.places[number as usize % PAGE] = 0;
            page.used -= 1;
            if page.used == 0 {
                *slot = None;
            }
        }
        let removed = self.conns.try_remove(conn.index as usize)?;
        self.pointers[conn.index as usize] = None;
        Some(removed)
    }
}
