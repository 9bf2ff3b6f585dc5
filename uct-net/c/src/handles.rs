//! Handles: numbers in place of pointers, which are looked up and never followed.
//!
//! A handle has its kind, the number of its net, a generation and an index. Generations of a process begin at a random
//! number and count all handles that were ever made, so the handle of a closed object, of another copy of this library,
//! or of a parent process is found to be none.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use slab::Slab;

use super::failure::{Failure, Outcome};

const KIND_AT: u32 = 60;
const NET_AT: u32 = 52;
const GENERATION_AT: u32 = 24;
const GENERATIONS: u32 = 1 << 28;
/// Most objects of a kind.
const OBJECTS: usize = 1 << GENERATION_AT;

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Net = 1,
    Listener,
    Connection,
    Message,
    Memory,
    Remote,
    Options,
    Operation,
}

impl Kind {
    fn of(raw: u64) -> Option<Kind> {
        use Kind::{Connection, Listener, Memory, Message, Net, Operation, Options, Remote};
        let kinds = [Net, Listener, Connection, Message, Memory, Remote, Options, Operation];
        kinds.into_iter().find(|kind| *kind as u64 == raw >> KIND_AT)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Net => "net",
            Kind::Listener => "listener",
            Kind::Connection => "connection",
            Kind::Message => "message",
            Kind::Memory => "memory",
            Kind::Remote => "remote memory",
            Kind::Options => "set of options",
            Kind::Operation => "operation",
        })
    }
}

/// A handle that has the form of one of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u64);

impl Handle {
    fn new(kind: Kind, net: u8, generation: u32, index: usize) -> Handle {
        let generation = u64::from(generation % GENERATIONS) << GENERATION_AT;
        Handle((kind as u64) << KIND_AT | u64::from(net) << NET_AT | generation | index as u64)
    }

    /// What a program has passed as a handle of this kind.
    #[inline]
    pub fn parse(raw: u64, kind: Kind) -> Outcome<Handle> {
        if raw >> KIND_AT == kind as u64 { Ok(Handle(raw)) } else { Err(not_a(raw, kind)) }
    }

    /// The number for C.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// The number of its net.
    #[inline]
    pub fn net(self) -> u8 {
        (self.0 >> NET_AT) as u8
    }

    #[inline]
    fn index(self) -> usize {
        self.0 as usize % OBJECTS
    }
}

#[cold]
fn not_a(raw: u64, kind: Kind) -> Failure {
    Failure::invalid(match (raw, Kind::of(raw)) {
        (0, _) => format!("the {kind} is NULL"),
        (_, Some(other)) => format!("a handle of kind \"{other}\" in place of one of kind \"{kind}\""),
        (_, None) => format!("{raw:#x} is no handle of kind \"{kind}\""),
    })
}

#[cold]
pub fn closed(kind: Kind) -> Failure {
    Failure::invalid(format!(
        "no {kind} has this handle: it is closed already, or was never open in this process"
    ))
}

/// The number of an operation of a net. None is used again.
#[inline]
pub fn operation(net: u8, number: u64) -> u64 {
    let own = number % (1 << NET_AT);
    (Kind::Operation as u64) << KIND_AT | u64::from(net) << NET_AT | own
}

/// The first generation of a process, which another copy of the library does not have.
pub fn first_generation() -> AtomicU32 {
    use std::hash::{BuildHasher, Hasher};
    AtomicU32::new(std::hash::RandomState::new().build_hasher().finish() as u32)
}

/// The objects of a kind, of a net, by their handles.
pub struct Table<T> {
    kind: Kind,
    net: u8,
    generations: &'static AtomicU32,
    objects: Slab<(Handle, T)>,
}

impl<T> Table<T> {
    pub fn new(kind: Kind, net: u8, generations: &'static AtomicU32) -> Table<T> {
        Table { kind, net, generations, objects: Slab::new() }
    }

    pub fn insert(&mut self, object: T) -> Outcome<Handle> {
        let place = self.objects.vacant_entry();
        if place.key() >= OBJECTS {
            let text = format!("there are {OBJECTS} handles of kind \"{}\" already: close some", self.kind);
            return Err(Failure::new(ucs::Error::EXCEEDS_LIMIT, text));
        }
        // SYNC: each gets another number, in whichever order.
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let handle = Handle::new(self.kind, self.net, generation, place.key());
        place.insert((handle, object));
        Ok(handle)
    }

    #[inline]
    pub fn get(&self, handle: Handle) -> Outcome<&T> {
        match self.objects.get(handle.index()) {
            Some((own, object)) if *own == handle => Ok(object),
            _ => Err(self.missing(handle)),
        }
    }

    pub fn get_mut(&mut self, handle: Handle) -> Outcome<&mut T> {
        self.get(handle)?;
        Ok(&mut self.objects[handle.index()].1)
    }

    pub fn remove(&mut self, handle: Handle) -> Outcome<T> {
        self.get(handle)?;
        Ok(self.objects.remove(handle.index()).1)
    }

    /// All of them, which it has no more.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.objects).into_iter().map(|(_, (_, object))| object)
    }

    #[cold]
    fn missing(&self, handle: Handle) -> Failure {
        if handle.net() == self.net {
            return closed(self.kind);
        }
        Failure::invalid(format!("the {} belongs to another net", self.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(kind: Kind, net: u8) -> Table<&'static str> {
        Table::new(kind, net, Box::leak(Box::new(AtomicU32::new(u32::MAX - 1))))
    }

    #[test]
    fn an_object_is_found_until_it_is_closed_and_its_place_is_another_ones_then() {
        let mut table = table(Kind::Connection, 255);
        let first = table.insert("first").unwrap();
        assert_eq!(Handle::parse(first.raw(), Kind::Connection).unwrap(), first);
        assert_eq!((first.net(), *table.get(first).unwrap()), (255, "first"));
        assert_eq!(table.remove(first).unwrap(), "first");
        let second = table.insert("second").unwrap();
        assert_eq!(second.index(), first.index());
        assert!(table.get(first).unwrap_err().text.contains("closed already"));
        assert!(table.remove(first).is_err());
        // The generation wraps.
        for _ in 0..3 {
            table.remove(second).ok();
            let next = table.insert("next").unwrap();
            assert_eq!(*table.get(next).unwrap(), "next");
        }
    }

    #[test]
    fn what_is_no_handle_of_the_kind_is_an_error_in_words() {
        let mut own = table(Kind::Memory, 1);
        let memory = own.insert("memory").unwrap();
        let refused = |raw, words: &str| {
            let refusal = Handle::parse(raw, Kind::Connection).unwrap_err();
            assert!(refusal.text.contains(words), "{}", refusal.text);
        };
        refused(0, "the connection is NULL");
        refused(memory.raw(), "a handle of kind \"memory\"");
        refused(0x7f12_3456_7890, "is no handle");
        refused(u64::MAX, "is no handle");
        let other = table(Kind::Memory, 2);
        assert!(other.get(memory).unwrap_err().text.contains("another net"));
    }
}
