//! Whether datagrams may wait that have to be received before a deadline counts.
//!
//! The response that a deadline waits for may be among them. A slow interface that repeats requests before it receives the responses
//! never gets to them: it sends more than it receives, and what it sends waits behind the responses of its peers. The
//! [timers](super::timer) are built on this.

/// Datagrams received since the deadlines were last handled, as long as more may wait.
#[derive(Default)]
pub(super) struct Backlog(u32);

impl Backlog {
    /// So many datagrams were received, and more may wait.
    #[inline]
    pub(super) fn note(&mut self, datagrams: u32, is_more: bool) {
        self.0 = if is_more { self.0.saturating_add(datagrams) } else { 0 };
    }

    /// Whether deadlines are put off. They are not for longer than it takes to receive as many datagrams as there are `buffers` for: those that
    /// waited when the deadline came are received then.
    pub(super) fn puts_off(&mut self, buffers: u32) -> bool {
        let is_put_off = (1..buffers).contains(&self.0);
        if !is_put_off {
            self.0 = 0;
        }
        is_put_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_put_off_until_nothing_waits_or_all_that_waited_is_received() {
        let mut backlog = Backlog::default();
        assert!(!backlog.puts_off(48), "nothing was received");
        for _ in 0..3 {
            backlog.note(16, true);
            backlog.note(16, true);
            assert!(backlog.puts_off(48) && backlog.puts_off(48));
            backlog.note(16, true);
            assert!(!backlog.puts_off(48), "all that waited is received");
            assert!(!backlog.puts_off(48));
        }
        backlog.note(16, true);
        assert!(backlog.puts_off(48));
        backlog.note(15, false);
        assert!(!backlog.puts_off(48), "nothing waits");
    }
}
