//! The configuration of `self`.

use ucs::units::MemSize;

ucs::config_struct! {
    /// A process with itself.
    pub struct SelfConfig in "self" {
        /// Size of the message buffer: the largest bcopy or zcopy message.
        pub seg_size: MemSize = "8k" in 64..=16_777_216,
        /// Largest number of messages kept at a time.
        pub max_kept: u32 = "65536" in 1..=16_777_216,
    }
}
