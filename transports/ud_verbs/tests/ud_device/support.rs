//! Connected endpoints on whatever devices there are.

use uct_core::{Error, SendFlags};

#[path = "../../../ib/testing/endpoints.rs"]
mod endpoints;
pub use endpoints::*;

pub const TRANSPORT: &str = "ud_verbs";

impl Link {
    /// Sends a message, with progress while there is no room.
    pub fn send(&self, progress: impl Fn()) -> Result<(), Error> {
        patiently(progress, || self.ep.am_short(ID, 0, b"message"))
    }

    /// As [`Link::send`], packed by the application.
    pub fn send_packed(&self, progress: impl Fn()) -> Result<(), Error> {
        let pack = |buffer: &mut [u8]| {
            buffer[..7].copy_from_slice(b"message");
            7
        };
        patiently(progress, || self.ep.am_bcopy(ID, SendFlags::empty(), pack).map(drop))
    }
}
