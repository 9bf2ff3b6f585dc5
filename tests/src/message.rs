//! The flavours of an active message as one: limits, sizes worth trying, and sending bytes by each.
//!
//! For cases that hold for every flavour. Built on `pair`.

use uct_host::{AmId, Capabilities, Completion, Ep, IfaceAttr, Posted, Result, SendFlags};

use crate::pair::Side;

/// Largest message that a case sends, where the limit of the transport is above it.
pub const LARGEST: usize = (4 << 20) + 3;

/// Bytes of the header of a short message.
pub const HEADER: usize = size_of::<u64>();

/// A flavour of an active message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Header and payload.
    Short,
    /// Gathered parts.
    ShortIov,
    /// Packed by a callback.
    Bcopy,
    /// Gathered parts, as many as a vector may have and more.
    BcopyIov,
    /// From registered memory.
    Zcopy,
}

/// How much a header may be, for zero copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Nothing.
    Empty,
    /// As much as is allowed and there.
    Full,
}

impl Flavour {
    /// All of them.
    pub const ALL: [Flavour; 5] =
        [Flavour::Short, Flavour::ShortIov, Flavour::Bcopy, Flavour::BcopyIov, Flavour::Zcopy];

    /// The capability that it needs.
    pub fn capability(self) -> Capabilities {
        match self {
            Flavour::Short | Flavour::ShortIov => Capabilities::AM_SHORT,
            Flavour::Bcopy | Flavour::BcopyIov => Capabilities::AM_BCOPY,
            Flavour::Zcopy => Capabilities::AM_ZCOPY,
        }
    }

    /// Those that an interface has.
    pub fn of(side: &Side) -> Vec<Flavour> {
        let has = |flavour: &Flavour| side.iface.capabilities().contains(flavour.capability());
        Flavour::ALL.into_iter().filter(has).collect()
    }

    /// Bytes of the smallest and the largest message, header included.
    pub fn limits(self, attributes: &IfaceAttr) -> (usize, usize) {
        let am = &attributes.am;
        match self {
            Flavour::Short | Flavour::ShortIov => (HEADER, am.max_short.saturating_add(HEADER)),
            Flavour::Bcopy | Flavour::BcopyIov => (0, am.max_bcopy),
            Flavour::Zcopy => (am.min_zcopy, am.max_zcopy),
        }
    }

    /// Sizes worth trying: the ends, and around powers of two and page sizes in between.
    pub fn sizes(self, attributes: &IfaceAttr) -> Vec<usize> {
        let (least, most) = self.limits(attributes);
        sizes(least, most)
    }

    /// Sends `bytes`; header included for the short ones.
    pub fn send(
        self,
        side: &Side,
        ep: &Ep,
        id: AmId,
        bytes: &[u8],
        completion: &Completion,
    ) -> Result<Posted> {
        match self {
            Flavour::Short => {
                let (header, payload) = bytes.split_first_chunk::<HEADER>().expect("8 bytes of header");
                ep.am_short(id, u64::from_ne_bytes(*header), payload).map(|()| Posted::Done)
            }
            Flavour::ShortIov => {
                // Uneven parts, one of them empty.
                let (front, rest) = bytes.split_at(bytes.len() / 3);
                let (middle, end) = rest.split_at(rest.len() / 2);
                let all: [&[u8]; 4] = [front, &[], middle, end];
                let parts = &all[..4.min(side.attributes().am.max_iov.max(1))];
                let parts: &[&[u8]] = if parts.len() < 4 { &[bytes] } else { parts };
                ep.am_short_iov(id, parts).map(|()| Posted::Done)
            }
            Flavour::Bcopy => {
                let packed = ep.am_bcopy(id, SendFlags::empty(), |buffer| {
                    buffer[..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                })?;
                assert_eq!(packed, bytes.len(), "am_bcopy answers another length than was packed");
                Ok(Posted::Done)
            }
            Flavour::BcopyIov => {
                // Few parts, or up to a hundred; one of them is empty.
                let count = if bytes.len().is_multiple_of(3) { 100 } else { 3 };
                let mut parts: Vec<&[u8]> = bytes.chunks(bytes.len().div_ceil(count).max(1)).collect();
                parts.insert(parts.len() / 2, &[]);
                let packed = ep.am_bcopy_iov(id, SendFlags::empty(), &parts)?;
                assert_eq!(packed, bytes.len(), "am_bcopy_iov returns another length");
                Ok(Posted::Done)
            }
            Flavour::Zcopy => {
                let header = (bytes.len() / 4).min(side.attributes().am.max_hdr);
                let (header, body) = bytes.split_at(header);
                let memory = side.memory(body.to_vec());
                ep.am_zcopy(id, header, &[memory.slice(..)], SendFlags::empty(), completion)
            }
        }
    }
}

/// Sizes from `least` to `most` worth trying, at most [`LARGEST`]: both ends and their neighbours, and around the places
/// where implementations change their ways.
pub fn sizes(least: usize, most: usize) -> Vec<usize> {
    let most = most.min(LARGEST);
    let mut sizes: Vec<usize> = vec![least, least + 1, most.saturating_sub(1), most, most / 2];
    for around in [8, 16, 64, 100, 256, 1024, 2048, 4096, 8192, 65536] {
        sizes.extend([around - 1, around, around + 1]);
    }
    sizes.retain(|size| (least..=most).contains(size));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_tried() {
        assert_eq!(sizes(0, 3), [0, 1, 2, 3]);
        let sizes = sizes(8, usize::MAX);
        assert_eq!(sizes.first(), Some(&8));
        assert_eq!(sizes.last(), Some(&LARGEST));
        assert!(sizes.contains(&(LARGEST - 1)));
    }
}
