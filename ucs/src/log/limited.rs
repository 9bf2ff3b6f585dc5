//! Lines that a peer or an unauthenticated connection may cause at any rate: a few a second are written, the rest is counted.
//!
//! Used by the host and every transport, wherever input from outside makes a line of log. Built on the clock. A [`Limited`]
//! belongs to what writes the lines, an interface for example, so that its limit holds for all peers together.

use std::fmt;

use crate::clock;
use crate::sync::fixed::{AtomicU64, Ordering};

/// Nanoseconds of the period for which lines are counted.
const SECOND: u64 = 1_000_000_000;

/// A limit on lines of one kind.
///
/// ```
/// # let refused = ucs::log::Limited::default();
/// # let peer = "127.0.0.1:4711";
/// if let Some(left_out) = refused.admit() {
///     ucs::log::warn!("{peer}: the connection was refused{left_out}");
/// }
/// ```
///
/// Usable from any thread. Costs nothing until something is logged, and then a read of the clock.
#[derive(Debug)]
pub struct Limited {
    lines_a_second: u64,
    /// When the present second began, in nanoseconds of the clock.
    began: AtomicU64,
    /// How many lines were to be written since then.
    asked: AtomicU64,
}

impl Limited {
    /// The limit that [`Limited::default`] has.
    pub const LINES_A_SECOND: u32 = 5;

    /// At most `lines_a_second` lines a second; 0 is taken for 1.
    pub const fn new(lines_a_second: u32) -> Limited {
        let lines_a_second = if lines_a_second == 0 { 1 } else { lines_a_second as u64 };
        Limited { lines_a_second, began: AtomicU64::new(0), asked: AtomicU64::new(0) }
    }

    /// Whether one more line may be written now. The result belongs at the end of that line: it is the number of lines
    /// that were left out before it.
    pub fn admit(&self) -> Option<LeftOut> {
        self.admit_at(clock::now())
    }

    fn admit_at(&self, now: u64) -> Option<LeftOut> {
        // SYNC: relaxed throughout. Threads that meet at the border of a second may write a line more or miscount a few.
        let began = self.began.load(Ordering::Relaxed);
        let is_new = began == 0 || now.saturating_sub(began) >= SECOND;
        if is_new
            && self.began.compare_exchange(began, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let asked = self.asked.swap(1, Ordering::Relaxed);
            let before = asked.saturating_sub(self.lines_a_second);
            return Some(LeftOut { before, is_last: self.lines_a_second == 1 });
        }
        let line = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        (line <= self.lines_a_second).then_some(LeftOut { before: 0, is_last: line == self.lines_a_second })
    }
}

impl Default for Limited {
    fn default() -> Limited {
        Limited::new(Limited::LINES_A_SECOND)
    }
}

/// What a line of a [`Limited`] kind has to add at its end: nothing, or that lines were or will be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    before: u64,
    is_last: bool,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.before > 0 {
            write!(f, "; {} more lines like this were left out before", self.before)?;
        }
        if self.is_last {
            f.write_str("; further ones of the same second are only counted")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(limited: &Limited, times: impl IntoIterator<Item = u64>) -> Vec<String> {
        times.into_iter().filter_map(|at| limited.admit_at(at)).map(|left_out| left_out.to_string()).collect()
    }

    #[test]
    fn a_flood_is_a_few_lines_a_second_and_a_count() {
        let limited = Limited::new(3);
        // Ten thousand lines, one each 100 microseconds, from the clock's very beginning.
        let written = lines(&limited, (0..10_000).map(|line| line * 100_000));
        let last = "; further ones of the same second are only counted";
        assert_eq!(written, ["", "", last]);
        assert_eq!(lines(&limited, [SECOND]), [""; 0], "the second began with the first line, at 1");
        let left_out = limited.admit_at(SECOND + 1).expect("a new second");
        assert_eq!(left_out.to_string(), "; 9998 more lines like this were left out before");
        assert_eq!(lines(&limited, [SECOND + 2, SECOND + 2, SECOND + 2]), ["", last]);
    }

    #[test]
    fn lines_that_come_now_and_then_are_all_written_as_they_are() {
        let limited = Limited::new(2);
        assert_eq!(lines(&limited, (1..100).map(|line| line * SECOND)), [""; 99]);
    }

    #[test]
    fn a_limit_of_none_still_writes_one() {
        let limited = Limited::new(0);
        let written = lines(&limited, [5, 6, 7, SECOND + 5]);
        assert_eq!(written.len(), 2, "{written:?}");
        assert!(written[1].starts_with("; 2 more lines"), "{written:?}");
    }

    #[test]
    fn threads_share_the_limit_and_lose_no_line() {
        let limited = Limited::new(4);
        let written: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| lines(&limited, (0..1000).map(|_| 7)).len())).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        // The threads may meet at the first line, which begins the second.
        assert!((4..=7).contains(&written), "{written} lines");
    }

    #[test]
    fn the_clock_is_looked_at() {
        let limited = Limited::default();
        let written = (0..1000).filter(|_| limited.admit().is_some()).count();
        let most = Limited::LINES_A_SECOND as usize;
        // Twice as many if a second ends meanwhile.
        assert!((most..=2 * most).contains(&written), "{written} lines");
    }
}
