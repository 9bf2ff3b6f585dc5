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

#[derive(Debug)]
struct Node<T> {
    value: T,
    serial: u64,
    previous: Option<usize>,
    next: Option<usize>,
    is_linked: bool,
}

/// Entries in the order in which they were appended. An unlinked entry has no place in the order any more, and is found by its id alone.
#[derive(Debug)]
pub(super) struct List<T> {
    nodes: Slab<Node<T>>,
    first: Option<usize>,
    last: Option<usize>,
    next_serial: u64,
}

impl<T> List<T> {
    pub(super) const fn new() -> List<T> {
        List { nodes: Slab::new(), first: None, last: None, next_serial: 0 }
    }

    /// Appends an entry.
    pub(super) fn append(&mut self, value: T) -> Id {
        let serial = self.next_serial;
        self.next_serial += 1;
        let slot =
            self.nodes.insert(Node { value, serial, previous: self.last, next: None, is_linked: true });
        match self.last.replace(slot) {
            Some(previous) => self.nodes[previous].next = Some(slot),
            None => self.first = Some(slot),
        }
        Id { slot, serial }
    }

    /// The first linked entry.
    pub(super) fn first(&self) -> Option<Id> {
        self.id(self.first)
    }

    /// The entry behind a linked one.
    pub(super) fn next(&self, id: Id) -> Option<Id> {
        self.node(id).and_then(|node| self.id(node.next))
    }

    /// The linked entries in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        let mut at = self.first;
        std::iter::from_fn(move || {
            let slot = at?;
            let node = &self.nodes[slot];
            at = node.next;
            Some((Id { slot, serial: node.serial }, &node.value))
        })
    }

    pub(super) fn get(&self, id: Id) -> Option<&T> {
        self.node(id).map(|node| &node.value)
    }

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
        if !std::mem::take(&mut node.is_linked) {
            return;
        }
        let (previous, next) = (node.previous.take(), node.next.take());
        match previous {
            Some(previous) => self.nodes[previous].next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => self.nodes[next].previous = previous,
            None => self.last = previous,
        }
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, id: Id) -> Option<T> {
        self.unlink(id);
        self.node(id)?;
        Some(self.nodes.remove(id.slot).value)
    }

    /// Takes out the linked entries that `is_chosen` names, in their order.
    pub(super) fn remove_each(&mut self, mut is_chosen: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        let mut at = self.first();
        while let Some(id) = at {
            at = self.next(id);
            if self.get(id).is_some_and(&mut is_chosen) {
                removed.extend(self.remove(id));
            }
        }
        removed
    }

    fn node(&self, id: Id) -> Option<&Node<T>> {
        self.nodes.get(id.slot).filter(|node| node.serial == id.serial)
    }

    fn id(&self, slot: Option<usize>) -> Option<Id> {
        slot.map(|slot| Id { slot, serial: self.nodes[slot].serial })
    }
}
