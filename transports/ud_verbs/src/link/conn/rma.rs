//! Requests for puts, gets and atomics, and the responses to them.
//!
//! Built on `uct_plugin::rma` and on the messages of the connection.

use uct_plugin::Result;
use uct_plugin::rma::{MAX_REQUEST, Malformed, Payload, Request};

use super::Conn;
use crate::link::emulation::REQUEST;

impl Conn {
    /// Sends a request, and a copy of its data behind it.
    ///
    /// A vector is copied as well: the target responds while the device may still read for a second transmission. A copy of at most
    /// an MTU is simpler than waiting for both.
    pub(crate) fn send_request(&self, request: &Request, data: &impl Payload) -> Result {
        self.send(REQUEST, MAX_REQUEST + data.length(), |packet| {
            let mut head = [0; MAX_REQUEST];
            let length = request.write(&mut head);
            // SAFETY: the buffer holds the longest head and the data, or an MTU, and is no part of them.
            unsafe { packet.message().copy_from_nonoverlapping(head.as_ptr(), length) };
            // SAFETY: head and data fit into a message, as the limits of the endpoint say, and the buffer is no part of them.
            unsafe { data.write(packet.message().wrapping_add(length)) };
            packet.begin(length + data.length(), false);
            Ok(())
        })
    }

    /// Asks for what is still to be got, as far as there is room.
    pub(crate) fn pump(&self) {
        if !self.initiator.wants_pump() {
            return;
        }
        let guard = self.shared.enter();
        self.initiator.pump(|request| {
            let mut head = [0; MAX_REQUEST];
            let length = request.write(&mut head);
            guard.with(|core| core.send_bytes(self.connection, REQUEST, &head[..length]))
        });
        self.shared.arm_retransmit_timer(&guard);
    }

    /// Handles the response to a request. The bytes are untrusted.
    pub(crate) fn take_response(&self, body: &[u8]) -> Result<(), Malformed> {
        self.initiator.answer(body)?;
        self.on_news();
        Ok(())
    }
}
