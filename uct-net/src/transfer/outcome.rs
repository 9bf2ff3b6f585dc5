//! What became of a transfer.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ucs::Error as Status;

/// A transfer that has moved all of its blocks, and whose notification, if it has one, has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Transport and device that carried it, as in [`Explanation::chosen`](crate::local::Explanation::chosen).
    pub over: Arc<str>,
    /// Number of blocks.
    pub blocks: usize,
    /// Their bytes.
    pub bytes: u64,
    /// From the start until the last block was with the transport.
    pub posted: Duration,
    /// From the start until the end.
    pub elapsed: Duration,
}

/// Which blocks of a transfer have moved, and why the others have not.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Moved {
    /// A bit for each block.
    bits: Box<[u64]>,
    blocks: usize,
    failed: Box<[(usize, Status)]>,
}

/// Sets the bits of the blocks of these numbers.
pub(crate) fn mark(bits: &mut [u64], numbers: Range<usize>) {
    let mut at = numbers.start;
    while at < numbers.end {
        let count = (64 - at % 64).min(numbers.end - at);
        bits[at / 64] |= u64::MAX >> (64 - count) << (at % 64);
        at += count;
    }
}

impl Moved {
    pub(crate) fn new(blocks: usize, bits: &[u64], failed: &[(usize, Status)]) -> Moved {
        let mut failed = failed.to_vec();
        failed.sort_by_key(|(number, _)| *number);
        Moved { bits: bits.into(), blocks, failed: failed.into() }
    }

    /// What became of the block of that number: `Ok` if its bytes are at their target. `CANCELED` for one that was not moved because the
    /// transfer ended first; its target may hold some of its bytes.
    ///
    /// # Errors
    /// Why it has not moved. `OUT_OF_RANGE` also for a number that there is no block of.
    pub fn status(&self, number: usize) -> Result<(), Status> {
        if number >= self.blocks {
            return Err(Status::OUT_OF_RANGE);
        }
        if self.bits[number / 64] >> (number % 64) & 1 == 1 {
            return Ok(());
        }
        let failed = self.failed.binary_search_by_key(&number, |(failed, _)| *failed);
        Err(failed.map_or(Status::CANCELED, |at| self.failed[at].1))
    }

    /// How many have moved.
    pub fn count(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Number and reason of each block that has not moved.
    pub fn missing(&self) -> impl Iterator<Item = (usize, Status)> + '_ {
        (0..self.blocks).filter_map(|number| self.status(number).err().map(|status| (number, status)))
    }
}

impl fmt::Debug for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} blocks moved", self.count(), self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_a_range_are_set_and_no_others() {
        for (start, end) in
            [(0, 0), (5, 5), (0, 1), (63, 64), (0, 64), (3, 61), (60, 70), (64, 128), (1, 191)]
        {
            let mut bits = [0; 3];
            mark(&mut bits, start..end);
            let is_set = |number: usize| bits[number / 64] >> (number % 64) & 1 == 1;
            assert!(
                (0..192).all(|number| is_set(number) == (start..end).contains(&number)),
                "{start}..{end}"
            );
        }
    }

    #[test]
    fn each_block_has_its_status() {
        let moved = Moved::new(66, &[!2, 1], &[(1, Status::REJECTED)]);
        assert_eq!(moved.status(0), Ok(()));
        assert_eq!(moved.status(1), Err(Status::REJECTED));
        assert_eq!(moved.status(64), Ok(()));
        assert_eq!(moved.status(65), Err(Status::CANCELED));
        assert_eq!(moved.status(66), Err(Status::OUT_OF_RANGE));
        assert_eq!((moved.count(), moved.len(), moved.is_empty()), (64, 66, false));
        let missing: Vec<_> = moved.missing().collect();
        assert_eq!(missing, [(1, Status::REJECTED), (65, Status::CANCELED)]);
        assert_eq!(format!("{moved:?}"), "64 of 66 blocks moved");
    }
}
