//! Flushes that have not ended: what each waits for, and its completion.
//!
//! For: flushes of interfaces and of connections that many endpoints share. What is waited for is the transport's: a connection and the
//! number of its last work request, an endpoint and a mark, or `()` for all that the interface has.

use std::cell::RefCell;

use ucs::{Error, Result};

use crate::completion::{Completion, Outcome};

/// The flushes of one interface, or of one connection.
#[derive(Debug)]
pub struct FlushSet<W>(RefCell<Vec<Flush<W>>>);

#[derive(Debug)]
struct Flush<W> {
    waits: Vec<W>,
    /// The first error among what it waited for.
    result: Result,
    completion: Completion,
}

impl<W> Default for FlushSet<W> {
    fn default() -> FlushSet<W> {
        FlushSet(RefCell::default())
    }
}

impl<W> FlushSet<W> {
    /// Begins a flush that waits for all of these. Without a completion it is not remembered: [`Outcome::InProgress`] means "call again".
    pub fn begin(&self, waits: Vec<W>, completion: Option<Completion>) -> Outcome {
        if waits.is_empty() {
            return Outcome::Done;
        }
        if let Some(completion) = completion {
            self.0.borrow_mut().push(Flush { waits, result: Ok(()), completion });
        }
        Outcome::InProgress
    }

    /// Whether no flush is to be ended.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Completes those that wait for nothing any more, from progress. `ended` returns how an item that is waited for has ended;
    /// `None` while it goes on. Completions may begin further flushes.
    pub fn end(&self, mut ended: impl FnMut(&W) -> Option<Result>) {
        if self.is_empty() {
            return;
        }
        let (mut open, mut done) = (Vec::new(), Vec::new());
        for mut flush in self.0.take() {
            flush.waits.retain(|wait| match ended(wait) {
                None => true,
                Some(result) => {
                    flush.result = flush.result.and(result);
                    false
                }
            });
            if flush.waits.is_empty() { done.push(flush) } else { open.push(flush) }
        }
        open.append(&mut self.0.borrow_mut());
        self.0.replace(open);
        for flush in done {
            flush.completion.complete(flush.result);
        }
    }

    /// Ends all with an error.
    pub fn fail(&self, error: Error) {
        self.fail_where(|_| true, error);
    }

    /// Ends those with an error that wait for something that `chosen` accepts.
    pub fn fail_where(&self, mut chosen: impl FnMut(&W) -> bool, error: Error) {
        let (failed, open): (Vec<_>, Vec<_>) =
            self.0.take().into_iter().partition(|flush| flush.waits.iter().any(&mut chosen));
        self.0.replace(open);
        for flush in failed {
            flush.completion.complete(Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uct_abi::{UCT_OK, UctCompletion, UctStatus};

    unsafe extern "C" fn called(_: *mut UctCompletion) {}

    /// Operations in flight: each begins with a count of one.
    fn completions<const N: usize>() -> [UctCompletion; N] {
        [const { UctCompletion { func: called, count: 1, status: UCT_OK } }; N]
    }

    fn state(completion: &UctCompletion) -> (i32, UctStatus) {
        (completion.count, completion.status)
    }

    #[test]
    fn a_flush_ends_when_all_that_it_waits_for_has_and_keeps_the_first_error() {
        let mut places = completions::<3>();
        // SAFETY: the places outlive the completions.
        let given = places.each_mut().map(|place| unsafe { Completion::new(place) });
        let [first, second, third] = given;
        let set = FlushSet::default();
        assert_eq!(set.begin(Vec::<u32>::new(), None), Outcome::Done);
        assert_eq!(set.begin(vec![1], None), Outcome::InProgress);
        assert!(set.is_empty(), "without a completion nothing is reported");
        for (waits, completion) in [(vec![1, 2], first), (vec![2, 3], second), (vec![4], third)] {
            assert_eq!(set.begin(waits, completion), Outcome::InProgress);
        }
        set.end(|&wait| (wait == 2).then_some(Err(Error::CONNECTION_RESET)));
        assert_eq!(places.each_ref().map(state), [(1, UCT_OK); 3]);
        set.end(|&wait| (wait == 1).then_some(Err(Error::CANCELED)));
        let reset = Error::CONNECTION_RESET.status().raw();
        assert_eq!(places.each_ref().map(state), [(0, reset), (1, UCT_OK), (1, UCT_OK)]);
        set.fail_where(|&wait| wait == 4, Error::TIMED_OUT);
        assert_eq!(state(&places[2]), (0, Error::TIMED_OUT.status().raw()));
        set.end(|_| Some(Ok(())));
        assert_eq!((state(&places[1]), set.is_empty()), ((0, reset), true));
    }
}
