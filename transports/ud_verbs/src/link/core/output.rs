//! What the protocol sends beyond new messages: control packets, and messages again.

use super::Core;
use crate::proto::{Body, HEADER_SIZE};

impl Core {
    /// Sends what the protocol has queued, while there is room.
    pub(crate) fn transmit(&mut self) {
        if !self.table.has_output() {
            return;
        }
        // Acknowledgements and questions carry times, and a handler may have run for long.
        self.clock.read();
        self.process_deferred();
        loop {
            if !self.queue.has_room() {
                self.queue.reap();
                if !self.queue.has_room() {
                    return;
                }
            }
            let Some(transmit) = self.table.poll_transmit(self.clock.now()) else { return };
            // What cannot be sent is as good as lost, and sent again.
            match transmit.body {
                Body::Control(bytes) if bytes.len() <= self.queue.max_inline() => {
                    let _ = self.queue.post_copied(bytes, transmit.path);
                }
                Body::Control(bytes) => {
                    let Some(mut packet) = self.packets.take(bytes.len() - HEADER_SIZE) else { return };
                    packet.begin(bytes.len() - HEADER_SIZE, false);
                    // SAFETY: a control packet is shorter than the smallest MTU, and the buffer is a pool's.
                    unsafe { packet.data().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                    let posted = self.queue.post(&mut packet, transmit.path, true);
                    match posted {
                        Ok(()) => {
                            self.zombies.push_back(packet);
                            self.pending_work.add();
                        }
                        Err(_) => self.packets.put(packet),
                    }
                }
                Body::Message(header, packet) => {
                    packet.set_header(&header);
                    packet.is_resent = true;
                    let _ = self.queue.post(packet, transmit.path, true);
                }
            }
        }
    }
}
