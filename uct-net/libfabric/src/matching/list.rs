//! A list in a table: entries have an order, and stay where they are when others come and go.
//!
//! Used by the queues of posted receives and of unexpected messages. Built on `slab`.

use slab::Slab;

/// An entry of a list. The id of a removed entry finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    slot: usize,
    serial: u64,
}

/// Where there is no neighbour: no slot has this number.
const NONE: usize = usize::MAX;

#[derive(Debug)]
struct Node<T> {
    value: T,
    serial: u64,
    previous: usize,
    next: usize,
    is_linked: bool,
}

/// Entries in the order in which they were appended. An unlinked entry has no place in the order any more, and is found by its id alone.
#[derive(Debug)]
pub(super) struct List<T> {
    nodes: Slab<Node<T>>,
    first: usize,
    last: usize,
    next_serial: u64,
}

impl<T> List<T> {
    pub(super) const fn new() -> List<T> {
        List { nodes: Slab::new(), first: NONE, last: NONE, next_serial: 0 }
    }

    /// Appends an entry.
    #[inline(always)]
    pub(super) fn append(&mut self, value: T) -> Id {
        let serial = self.next_serial;
        self.next_serial += 1;
        let (previous, next) = (self.last, NONE);
        let slot = self.nodes.insert(Node { value, serial, previous, next, is_linked: true });
        self.last = slot;
        match self.nodes.get_mut(previous) {
            Some(previous) => previous.next = slot,
            None => self.first = slot,
        }
        Id { slot, serial }
    }

    /// The linked entries in their order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        let mut at = self.first;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at)?;
            let id = Id { slot: at, serial: node.serial };
            at = node.next;
            Some((id, &node.value))
        })
    }

    #[inline]
    pub(super) fn get(&self, id: Id) -> Option<&T> {
        self.node(id).map(|node| &node.value)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let node = self.nodes.get_mut(id.slot).filter(|node| node.serial == id.serial);
        node.map(|node| &mut node.value)
    }

    pub(super) fn is_linked(&self, id: Id) -> bool {
        self.node(id).is_some_and(|node| node.is_linked)
    }

    /// Takes an entry out of the order and keeps it.
    pub(super) fn unlink(&mut self, id: Id) {
        let Some(node) = self.nodes.get_mut(id.slot).filter(|node| node.serial == id.serial) else { return };
        if std::mem::take(&mut node.is_linked) {
            let (previous, next) = (node.previous, node.next);
            self.join(previous, next);
        }
    }

    /// Takes an entry out.
    #[inline]
    pub(super) fn remove(&mut self, id: Id) -> Option<T> {
        self.node(id)?;
        let node = self.nodes.remove(id.slot);
        if node.is_linked {
            self.join(node.previous, node.next);
        }
        Some(node.value)
    }

    /// Takes out the linked entries that `is_chosen` names, in their order.
    pub(super) fn remove_each(&mut self, mut is_chosen: impl FnMut(&T) -> bool) -> Vec<T> {
        let chosen: Vec<Id> = self.iter().filter(|(_, value)| is_chosen(value)).map(|(id, _)| id).collect();
        chosen.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Makes neighbours of the entries on both sides of one that is taken out.
    #[inline]
    fn join(&mut self, previous: usize, next: usize) {
        match self.nodes.get_mut(previous) {
            Some(node) => node.next = next,
            None => self.first = next,
        }
        match self.nodes.get_mut(next) {
            Some(node) => node.previous = previous,
            None => self.last = previous,
        }
    }

    #[inline]
    fn node(&self, id: Id) -> Option<&Node<T>> {
        self.nodes.get(id.slot).filter(|node| node.serial == id.serial)
    }
}
