//! What a packed remote key holds behind the part that all transports have.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// 8 bytes in the machine's byte order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Tail {
    /// Which transport, as [`Kind`](super::kind::Kind).
    pub(crate) kind: u32,
    /// 1 if the peer lends the segment of the memory, else 0.
    pub(crate) is_lent: u32,
}
