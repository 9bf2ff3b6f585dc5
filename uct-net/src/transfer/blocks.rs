//! Which blocks a transfer moves.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::proto::varint;

/// Which way the blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Get,
    Put,
}

/// A block of a transfer: where it is in the local and in the remote memory, and its length, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Offset of its first byte in the local memory.
    pub local: u64,
    /// Offset of its first byte in the remote memory.
    pub remote: u64,
    /// Its length. A block without bytes has moved once the transfer has started.
    pub length: u64,
}

/// Blocks of one length at regular distances: `Blocks::from(Stride { .. })`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stride {
    /// Number of blocks.
    pub count: usize,
    /// Bytes of each.
    pub length: u64,
    /// Offset of the first block in the local memory.
    pub local: u64,
    /// Bytes from the start of one block to that of the next in the local memory.
    pub local_stride: u64,
    /// Offset of the first block in the remote memory.
    pub remote: u64,
    /// Bytes from the start of one block to that of the next in the remote memory.
    pub remote_stride: u64,
}

impl Stride {
    /// The block of that number.
    fn block(&self, number: usize) -> Block {
        let at = |first: u64, stride: u64| first.saturating_add(stride.saturating_mul(number as u64));
        Block {
            local: at(self.local, self.local_stride),
            remote: at(self.remote, self.remote_stride),
            length: self.length,
        }
    }
}

/// Which blocks a transfer moves: a list, or a [`Stride`]. Cheap to clone; one may serve any number of transfers, of any connection.
///
/// Blocks are numbered from 0 in the order of the list. They move in any order, so those that overlap at their target leave any of their bytes.
/// Neighbours on both sides move as one operation.
#[derive(Clone, PartialEq, Eq)]
pub struct Blocks {
    shape: Shape,
    /// Bytes of all of them.
    bytes: u64,
    /// Where the furthest one ends in the local and in the remote memory.
    ends: (u64, u64),
}

#[derive(Clone, PartialEq, Eq)]
enum Shape {
    Regular(Stride),
    List(Arc<[Block]>),
}

impl Blocks {
    /// Most blocks of a transfer: a few bytes of a description, which may be a peer's, stand for any number.
    pub const MAX: usize = 1 << 24;

    /// Number of blocks.
    pub fn len(&self) -> usize {
        match &self.shape {
            Shape::Regular(stride) => stride.count,
            Shape::List(list) => list.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all blocks together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The block of that number, if there is one.
    pub fn get(&self, number: usize) -> Option<Block> {
        match &self.shape {
            Shape::Regular(stride) => (number < stride.count).then(|| stride.block(number)),
            Shape::List(list) => list.get(number).copied(),
        }
    }

    /// All blocks, by number.
    pub fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        (0..self.len()).map_while(|number| self.get(number))
    }

    /// Calls `each` with the blocks of these numbers, which there are, until it breaks.
    #[inline]
    pub(crate) fn each(&self, numbers: Range<usize>, each: impl FnMut(Block) -> ControlFlow<()>) {
        let _ = match &self.shape {
            Shape::Regular(stride) => numbers.map(|number| stride.block(number)).try_for_each(each),
            Shape::List(list) => list[numbers].iter().copied().try_for_each(each),
        };
    }

    /// The blocks of these numbers, in this order: of a list that was prepared once, those that a request needs.
    ///
    /// # Errors
    /// A number that there is no block of.
    pub fn choose(&self, numbers: impl IntoIterator<Item = usize>) -> Result<Blocks, BadBlocks> {
        let block = |number| {
            let reason = || BadBlocks(format!("there is no block {number} among {}", self.len()));
            self.get(number).ok_or_else(reason)
        };
        numbers.into_iter().map(block).collect()
    }

    /// Where the furthest block ends in the local and in the remote memory.
    pub(crate) fn ends(&self) -> (u64, u64) {
        self.ends
    }

    /// As bytes, for a message to the peer, which may start the transfer: up to 61 for a [`Stride`]; for a list about 4 to 13 a block, and 16 at most as
    /// long as the memories are shorter than 1 TiB and the blocks than 64 MiB.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match &self.shape {
            Shape::Regular(stride) => {
                bytes.push(REGULAR);
                let Stride { count, length, local, local_stride, remote, remote_stride } = *stride;
                for number in [count as u64, length, local, local_stride, remote, remote_stride] {
                    varint::write(&mut bytes, number);
                }
            }
            Shape::List(list) => {
                bytes.push(LIST);
                varint::write(&mut bytes, list.len() as u64);
                let mut before = Block { local: 0, remote: 0, length: 0 };
                for block in &**list {
                    varint::write_difference(&mut bytes, before.local, block.local);
                    varint::write_difference(&mut bytes, before.remote, block.remote);
                    varint::write_difference(&mut bytes, before.length, block.length);
                    before = *block;
                }
            }
        }
        bytes
    }

    /// What [`Blocks::to_bytes`] has made. The bytes may come from anybody; the offsets are checked where a transfer starts.
    ///
    /// # Errors
    /// The bytes are none of these.
    pub fn from_bytes(bytes: &[u8]) -> Result<Blocks, BadBlocks> {
        Blocks::parse(bytes)
            .ok_or_else(|| BadBlocks(format!("{} bytes are no description of blocks", bytes.len())))
    }

    fn parse(bytes: &[u8]) -> Option<Blocks> {
        let (&form, mut rest) = bytes.split_first()?;
        let blocks = match form {
            REGULAR => {
                let mut next = || varint::read(&mut rest);
                let count = usize::try_from(next()?).ok()?;
                let (length, local, local_stride) = (next()?, next()?, next()?);
                let (remote, remote_stride) = (next()?, next()?);
                Blocks::from(Stride { count, length, local, local_stride, remote, remote_stride })
            }
            LIST => {
                let count = usize::try_from(varint::read(&mut rest)?).ok()?;
                // Each takes three bytes at least, so that a count alone takes no memory.
                if count > rest.len() / 3 {
                    return None;
                }
                let mut list = Vec::with_capacity(count);
                let mut before = Block { local: 0, remote: 0, length: 0 };
                for _ in 0..count {
                    before = Block {
                        local: varint::read_difference(&mut rest, before.local)?,
                        remote: varint::read_difference(&mut rest, before.remote)?,
                        length: varint::read_difference(&mut rest, before.length)?,
                    };
                    list.push(before);
                }
                list.into_iter().collect()
            }
            _ => return None,
        };
        rest.is_empty().then_some(blocks)
    }
}

/// The first byte of a description.
const REGULAR: u8 = 1;
const LIST: u8 = 2;

impl From<Stride> for Blocks {
    fn from(stride: Stride) -> Blocks {
        let last = stride.count.checked_sub(1).map(|last| stride.block(last));
        let end =
            |at: fn(&Block) -> u64| last.as_ref().map_or(0, |last| at(last).saturating_add(last.length));
        Blocks {
            bytes: stride.length.saturating_mul(stride.count as u64),
            ends: (end(|block| block.local), end(|block| block.remote)),
            shape: Shape::Regular(stride),
        }
    }
}

impl FromIterator<Block> for Blocks {
    fn from_iter<I: IntoIterator<Item = Block>>(blocks: I) -> Blocks {
        let list: Arc<[Block]> = blocks.into_iter().collect();
        let (mut bytes, mut ends) = (0u64, (0, 0));
        for Block { local, remote, length } in &*list {
            bytes = bytes.saturating_add(*length);
            ends.0 = local.saturating_add(*length).max(ends.0);
            ends.1 = remote.saturating_add(*length).max(ends.1);
        }
        Blocks { shape: Shape::List(list), bytes, ends }
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Shape::Regular(stride) => stride.fmt(f),
            Shape::List(list) => write!(f, "{} blocks, {} bytes", list.len(), self.bytes),
        }
    }
}

/// Why something is no description of blocks.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadBlocks(String);

ucs::debug_as_display!(BadBlocks);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STRIDE: Stride = Stride {
        count: 16_384,
        length: 65_536,
        local: 4096,
        local_stride: 65_536,
        remote: 1 << 40,
        remote_stride: 1 << 20,
    };

    #[test]
    fn a_stride_is_the_list_of_its_blocks() {
        let regular = Blocks::from(STRIDE);
        let list: Blocks = regular.iter().collect();
        assert_eq!(list.len(), 16_384);
        assert_eq!(list.bytes(), regular.bytes());
        assert_eq!(list.ends(), regular.ends());
        assert_eq!(
            list.get(3),
            Some(Block { local: 200_704, remote: (1 << 40) + (3 << 20), length: 65_536 })
        );
        assert_eq!((regular.get(16_384), list.get(16_384)), (None, None));
        let none = Blocks::from(Stride { count: 0, ..STRIDE });
        assert!(none.is_empty() && none.ends() == (0, 0) && none.bytes() == 0);
    }

    #[test]
    fn a_description_is_small() {
        let most = Stride {
            count: usize::MAX,
            length: u64::MAX,
            local: u64::MAX,
            local_stride: u64::MAX,
            remote: u64::MAX,
            remote_stride: u64::MAX,
        };
        assert!(Blocks::from(most).to_bytes().len() <= 64);
        // Anywhere in 1 TiB, of changing lengths.
        let far = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        let block =
            |number: u64| Block { local: far(number), remote: far(!number), length: far(number) >> 14 };
        let list: Blocks = (0..1000).map(block).collect();
        assert!(list.to_bytes().len() <= 16 * 1000);
    }

    #[test]
    fn blocks_are_chosen_by_number() {
        let chosen = Blocks::from(STRIDE).choose([7, 0, 7]).unwrap();
        let remotes: Vec<u64> = chosen.iter().map(|block| block.remote >> 20).collect();
        assert_eq!(remotes, [(1 << 20) + 7, 1 << 20, (1 << 20) + 7]);
        let refused = Blocks::from(STRIDE).choose([16_384]).unwrap_err();
        assert_eq!(refused.to_string(), "there is no block 16384 among 16384");
    }

    proptest! {
        #[test]
        fn a_description_is_parsed_to_the_same_blocks(
            list in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..40)
        ) {
            let list = list.into_iter().map(|(local, remote, length)| Block { local, remote, length });
            let blocks: Blocks = list.collect();
            let bytes = blocks.to_bytes();
            prop_assert_eq!(Blocks::from_bytes(&bytes), Ok(blocks));
            prop_assert!(Blocks::from_bytes(&bytes[..bytes.len() - 1]).is_err());
            prop_assert!(Blocks::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
        }

        #[test]
        fn any_bytes_are_blocks_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(blocks) = Blocks::from_bytes(&bytes) {
                prop_assert_eq!(Blocks::from_bytes(&blocks.to_bytes()), Ok(blocks));
            }
        }
    }
}
