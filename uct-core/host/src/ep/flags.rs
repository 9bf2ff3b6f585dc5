//! What the operations of endpoints and interfaces may be asked for besides.

use bitflags::bitflags;
use uct_abi::{UCT_FLUSH_CANCEL, UCT_FLUSH_LOCAL, UCT_FLUSH_REMOTE, UCT_SEND_SIGNALED};

bitflags! {
    /// What a flush waits for. Nothing: until the buffers of operations are free again.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flush: u32 {
        /// Until operations have taken effect at the peer.
        const REMOTE = UCT_FLUSH_REMOTE;
        /// Give up on what is outstanding; the endpoint is good only for being dropped afterwards.
        const CANCEL = UCT_FLUSH_CANCEL;
    }

    /// How to send.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SendFlags: u32 {
        /// Wake a receiver that sleeps for signalled messages only.
        const SIGNALED = UCT_SEND_SIGNALED;
    }
}

const _: () = assert!(UCT_FLUSH_LOCAL == 0, "no flag is a local flush");
