//! The configuration of `rdmacm`.

use ucs::units::{Ternary, Time};

ucs::config_struct! {
    /// Connections by address with librdmacm.
    pub struct RdmacmConfig in "rdmacm" {
        /// Time limit of each stage that waits for the peer or the network: resolving the peer, its response to a request, its
        /// notification, its response to a disconnect.
        pub timeout: Time = "10s",
        /// Time of one attempt to resolve the peer's address; it is repeated up to `timeout`.
        pub resolve_interval: Time = "100ms",
        /// Requests of clients that may wait in the kernel, for each listener.
        #[security = true]
        pub backlog: u32 = "1024" in 1..=65535,
        /// Let a listener take a port whose old connections have not ended yet.
        pub reuse_address: bool = "no",
        /// Number of retransmissions of a packet; 7 is infinite on some devices (software RoCE).
        pub retry_count: u8 = "6" in 0..=7,
        /// Number of retransmissions to a peer without receive buffers; 7 is infinite.
        pub rnr_retry_count: u8 = "7" in 0..=7,
        /// Allow fork while memory is registered.
        pub fork_init: Ternary = "try",
    }
}
