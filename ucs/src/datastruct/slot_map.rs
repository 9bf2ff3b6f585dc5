//! Objects by checked identifiers: an id that was given up does not find what came after.
//!
//! For: connection ids, remote keys, whatever a peer sends back as a number. Stands on nothing. Every operation is O(1).
//!
//! An id has 20 bits of index and 12 bits of generation. The index is used again as late as possible: [`RESERVE`] others
//! are given up first. An old id can therefore find a new object only after 4095 × [`RESERVE`] removals, that is a million.
//! This detects mistakes; it keeps out no peer who guesses.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;

/// How many objects one map can hold: 1 048 576.
pub const MAX_OBJECTS: usize = 1 << INDEX_BITS;

/// How many indices wait before one is used again, unless the map is full.
pub const RESERVE: usize = 256;

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const LAST_GENERATION: u32 = u32::MAX >> INDEX_BITS;

/// Names an object in its map. Never 0, so that 0 may mean "none" on a wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(NonZeroU32);

impl SlotId {
    /// The number, to send.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The id of a number that was received; `None` for one that no map gives. It may still name nothing.
    pub const fn new(number: u32) -> Option<SlotId> {
        // The generation is never 0.
        match NonZeroU32::new(number) {
            Some(number) if number.get() > INDEX_MASK => Some(SlotId(number)),
            _ => None,
        }
    }

    fn compose(index: u32, generation: u32) -> Option<SlotId> {
        SlotId::new(generation << INDEX_BITS | index)
    }

    fn index(self) -> usize {
        (self.get() & INDEX_MASK) as usize
    }

    fn generation(self) -> u32 {
        self.get() >> INDEX_BITS
    }
}

impl fmt::Debug for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotId({}#{})", self.index(), self.generation())
    }
}

/// Objects by [`SlotId`].
pub struct SlotMap<T> {
    slots: Vec<Slot<T>>,
    /// Indices given up, the longest ago first.
    free: VecDeque<u32>,
}

struct Slot<T> {
    /// Of the object in it, or of the next one; 1 to [`LAST_GENERATION`].
    generation: u32,
    object: Option<T>,
}

impl<T> SlotMap<T> {
    /// An empty map. Allocates nothing yet.
    pub const fn new() -> SlotMap<T> {
        SlotMap { slots: Vec::new(), free: VecDeque::new() }
    }

    /// Puts an object in; gives it back if the map holds [`MAX_OBJECTS`].
    pub fn insert(&mut self, object: T) -> Result<SlotId, T> {
        match self.vacant() {
            Some(id) => {
                self.slots[id.index()].object = Some(object);
                Ok(id)
            }
            None => Err(object),
        }
    }

    /// Puts the object in that `make` makes, which is told its id. `None`, and nothing made, if the map is full.
    pub fn insert_with(&mut self, make: impl FnOnce(SlotId) -> T) -> Option<SlotId> {
        let id = self.vacant()?;
        // Should `make` panic, the slot is empty and not among the free ones: lost, but nothing finds it.
        self.slots[id.index()].object = Some(make(id));
        Some(id)
    }

    /// The object of an id, unless it was removed.
    #[inline]
    pub fn get(&self, id: SlotId) -> Option<&T> {
        let slot = self.slots.get(id.index())?;
        if slot.generation == id.generation() { slot.object.as_ref() } else { None }
    }

    /// The object of an id, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index())?;
        if slot.generation == id.generation() { slot.object.as_mut() } else { None }
    }

    /// Takes the object of an id out; the id names nothing from then on.
    pub fn remove(&mut self, id: SlotId) -> Option<T> {
        let slot = self.slots.get_mut(id.index()).filter(|slot| slot.generation == id.generation())?;
        let object = slot.object.take()?;
        slot.generation = if slot.generation == LAST_GENERATION { 1 } else { slot.generation + 1 };
        self.free.push_back(id.get() & INDEX_MASK);
        Some(object)
    }

    /// How many objects are in it.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects with their ids, in no order. Walks the free slots too.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let object = slot.object.as_ref()?;
            Some((SlotId::compose(index, slot.generation)?, object))
        })
    }

    /// Takes everything out.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        let ids: Vec<_> = self.iter().map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.remove(id))
    }

    /// The id of a slot that is taken out of the free ones, or of a new one.
    fn vacant(&mut self) -> Option<SlotId> {
        let is_full_length = self.slots.len() == MAX_OBJECTS;
        if self.free.len() > RESERVE || is_full_length {
            let index = self.free.pop_front()?;
            return SlotId::compose(index, self.slots[index as usize].generation);
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot { generation: 1, object: None });
        SlotId::compose(index, 1)
    }
}

impl<T> Default for SlotMap<T> {
    fn default() -> SlotMap<T> {
        SlotMap::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for SlotMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
