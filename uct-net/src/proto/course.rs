//! The course of a transfer, without input and output: what is to be done next, and when the peer may be notified.
//!
//! The peer is notified once, behind the last block, and only if all have moved: a block has moved when its operation has ended, which means
//! that its bytes are where they belong (docs/completion.md). What has been handed to a transport has not.

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Hand over the next blocks.
    Post,
    /// Wait for blocks in flight, or for the notification.
    Wait,
    /// Send the notification.
    Notify,
    /// It is over.
    End,
}

/// The notification of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    None,
    Wanted,
    Sent,
}

/// How far a transfer is, in blocks.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    total: usize,
    begun: usize,
    moved: usize,
    failed: usize,
    /// No further blocks are begun, and the peer is not notified.
    is_stopped: bool,
    notice: Notice,
}

impl Course {
    pub(crate) fn new(total: usize, notifies: bool) -> Course {
        let notice = if notifies { Notice::Wanted } else { Notice::None };
        Course { total, begun: 0, moved: 0, failed: 0, is_stopped: false, notice }
    }

    pub(crate) fn next(&self) -> Step {
        if self.begun < self.total && !self.is_stopped {
            return Step::Post;
        }
        if self.moved + self.failed < self.begun {
            return Step::Wait;
        }
        match self.notice {
            Notice::Wanted if self.has_moved() && !self.is_stopped => Step::Notify,
            Notice::Sent if !self.is_stopped => Step::Wait,
            _ => Step::End,
        }
    }

    /// Blocks are in the hands of the transport.
    pub(crate) fn begin(&mut self, blocks: usize) {
        self.begun += blocks;
        debug_assert!(self.begun <= self.total);
    }

    /// Blocks that were begun are where they belong.
    pub(crate) fn moved(&mut self, blocks: usize) {
        self.moved += blocks;
        debug_assert!(self.moved + self.failed <= self.begun);
    }

    /// Blocks that were begun are not, and are not in flight.
    pub(crate) fn failed(&mut self, blocks: usize) {
        self.failed += blocks;
        debug_assert!(self.moved + self.failed <= self.begun);
    }

    /// No more is begun: it was cancelled, or the connection has failed.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// The notification is queued.
    pub(crate) fn notice_sent(&mut self) {
        self.notice = Notice::Sent;
    }

    /// The transport has the notification.
    pub(crate) fn notice_left(&mut self) {
        self.notice = Notice::None;
    }

    /// How many blocks have moved.
    pub(crate) fn count(&self) -> usize {
        self.moved
    }

    /// Whether all blocks have moved.
    pub(crate) fn has_moved(&self) -> bool {
        self.moved == self.total
    }
}

#[cfg(test)]
mod tests {
    //! A model: a lane that reorders whatever is in flight, the notification included, loses operations, and may be cancelled at any time.

    use super::*;

    /// What is on its way.
    #[derive(Clone, Copy, PartialEq)]
    enum Flight {
        Block(usize),
        Notice,
    }

    /// What the model gets wrong on purpose.
    #[derive(Clone, Copy, PartialEq)]
    enum Mistake {
        None,
        /// A block counts as moved once it was handed over.
        EarlyNotice,
        /// A block that failed counts as moved.
        ForgottenFailure,
    }

    /// Runs one transfer; an error is what its peer saw wrong.
    fn run(seed: u64, mistake: Mistake) -> Result<(), String> {
        let mut state = seed;
        let mut below = |limit: usize| {
            // The steps of SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % limit as u64) as usize
        };
        let (total, window, lossy) = (below(12), 1 + below(6), below(3) == 0);
        let cancels_at = if below(4) == 0 { below(30) } else { usize::MAX };
        let mut course = Course::new(total, true);
        let (mut flights, mut landed, mut next, mut notified) = (Vec::new(), vec![false; total], 0, 0);
        for turn in 0.. {
            if turn > 10_000 {
                return Err("it does not end".to_owned());
            }
            if turn == cancels_at {
                course.stop();
            }
            match course.next() {
                Step::Post if flights.len() < window && below(3) > 0 => {
                    flights.push(Flight::Block(next));
                    next += 1;
                    course.begin(1);
                    if mistake == Mistake::EarlyNotice {
                        course.moved(1);
                    }
                    continue;
                }
                Step::Notify => {
                    course.notice_sent();
                    flights.push(Flight::Notice);
                    continue;
                }
                Step::End => break,
                Step::Post | Step::Wait => {}
            }
            if flights.is_empty() {
                continue;
            }
            match flights.swap_remove(below(flights.len())) {
                Flight::Block(_) if lossy && below(8) == 0 => match mistake {
                    Mistake::ForgottenFailure => course.moved(1),
                    Mistake::EarlyNotice => {}
                    Mistake::None => course.failed(1),
                },
                Flight::Block(number) => {
                    landed[number] = true;
                    if mistake != Mistake::EarlyNotice {
                        course.moved(1);
                    }
                }
                Flight::Notice => {
                    if !landed.iter().all(|landed| *landed) {
                        return Err("it was notified ahead of a block".to_owned());
                    }
                    notified += 1;
                    course.notice_left();
                }
            }
        }
        // A cancelled transfer may end while its notification is still on its way: all blocks had landed before.
        let on_its_way = flights.contains(&Flight::Notice);
        if flights.iter().any(|flight| *flight != Flight::Notice) {
            return Err("it ended with blocks in flight".to_owned());
        }
        if cancels_at == usize::MAX && course.has_moved() != (notified == 1) {
            return Err("all blocks have moved, or the peer was notified, and not both".to_owned());
        }
        if notified > 1 || (on_its_way && notified > 0) {
            return Err("it was notified twice".to_owned());
        }
        if course.count() != landed.iter().filter(|landed| **landed).count() {
            return Err("it counts other blocks than those that moved".to_owned());
        }
        Ok(())
    }

    /// `UCT_TEST_SEEDS=1000000` for a long run.
    fn seeds() -> u64 {
        std::env::var("UCT_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100_000)
    }

    #[test]
    fn the_peer_is_notified_once_behind_all_blocks_or_never() {
        for seed in 0..seeds() {
            if let Err(wrong) = run(seed, Mistake::None) {
                panic!("seed {seed}: {wrong}");
            }
        }
    }

    #[test]
    fn the_model_finds_a_notification_that_is_early_and_a_failure_that_is_forgotten() {
        let find = |mistake| (0..1000).find_map(|seed| run(seed, mistake).err());
        assert_eq!(find(Mistake::EarlyNotice).as_deref(), Some("it was notified ahead of a block"));
        assert!(find(Mistake::ForgottenFailure).is_some());
    }
}
