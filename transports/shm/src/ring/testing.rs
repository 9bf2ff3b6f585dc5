//! The shape of rings in tests.
//!
//! For: the models and tests of this module. Stands on nothing.

use super::{Geometry, Pool};

/// A small ring's shape.
pub fn geometry(slots: u32, blocks: u32) -> Geometry {
    Geometry {
        slots,
        small: Pool { count: blocks, stride: 128 },
        bulk: Pool { count: blocks, stride: 1024 },
        headroom: 64,
    }
}
