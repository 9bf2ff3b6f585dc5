//! How long entries that say nothing keep a place that others need.

use std::time::{Duration, Instant};

/// A burst of callers looks like an attack at first: there are more of them than places, and none has said anything. Callers of a burst need
/// a moment, and silent ones never say anything. So silent entries keep their places for a time. If all places are still taken behind it,
/// the oldest entry gives way to each new one at once, until places have been free for a longer time.
#[derive(Debug)]
pub struct Patience {
    first: Duration,
    memory: Duration,
    /// Since when, and until when as far as is known, all places were taken.
    pressure: Option<(Instant, Instant)>,
}

/// A second, and not again until places have been free for ten.
impl Default for Patience {
    fn default() -> Patience {
        Patience::new(Duration::from_secs(1), Duration::from_secs(10))
    }
}

impl Patience {
    /// Silent entries keep their places for `first`, and not again until places have been free for `memory`.
    pub fn new(first: Duration, memory: Duration) -> Patience {
        Patience { first, memory, pressure: None }
    }

    /// All places are taken now. Returns the time for which an entry keeps its place while others need it.
    pub fn at(&mut self, now: Instant) -> Duration {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= self.first;
        let since = match self.pressure {
            Some((since, last)) => {
                let gap = if last.saturating_duration_since(since) >= self.first {
                    self.memory
                } else {
                    self.first
                };
                if now.saturating_duration_since(last) <= gap { since } else { now }
            }
            None => now,
        };
        self.pressure = Some((since, now));
        if is_over(since) { Duration::ZERO } else { self.first }
    }
}
