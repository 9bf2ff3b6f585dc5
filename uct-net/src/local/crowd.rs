//! Callers in one step of their handshake, and what they give way to.
//!
//! A listener has one of those whose hello has not arrived, and one of those whose connections are being opened. Built on `ucs::admission`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ucs::admission::{Limits, Patience, Places, Source, Vacancy};

use super::reactor::{Reactor, Sleep};
use crate::error::Result;

type Step<T> = Pin<Box<dyn Future<Output = Result<T>>>>;

/// Handshakes that lead to a `T` each, and those that were not taken yet.
pub(super) struct Crowd<T> {
    places: Places<u64>,
    patience: Patience,
    /// The oldest first.
    under_way: BTreeMap<u64, Step<T>>,
    done: BTreeMap<u64, T>,
    made: u64,
    /// Until one may give way.
    pause: Option<Sleep>,
}

impl<T> Crowd<T> {
    pub(super) fn new(most: usize) -> Crowd<T> {
        Crowd {
            places: Places::new(Limits::shared(most)),
            patience: Patience::default(),
            under_way: BTreeMap::new(),
            done: BTreeMap::new(),
            made: 0,
            pause: None,
        }
    }

    /// Whether all places are taken, also if one of the callers may give way.
    pub(super) fn is_full(&self) -> bool {
        self.places.is_full()
    }

    /// Whether one more has a place. If none has, and one may give way later, the task is woken then.
    pub(super) fn has_room(&mut self, reactor: &Rc<Reactor>, context: &mut Context<'_>) -> bool {
        loop {
            self.pause = None;
            if !self.places.is_full() {
                return true;
            }
            let now = Instant::now();
            let patience = self.patience.at(now);
            let Some(change) = self.places.next_change(now, patience) else { return false };
            if change <= now {
                return true;
            }
            let mut pause = reactor.sleep(change - now);
            if pause.poll_due(context).is_pending() {
                self.pause = Some(pause);
                return false;
            }
        }
    }

    /// Begins a handshake. The oldest one of the source with the most gives way if all places are taken, or if descriptors are short. False:
    /// none can; the new one is dropped.
    pub(super) fn begin(
        &mut self,
        (source, is_short): (Source, bool),
        mut step: Step<T>,
        context: &mut Context<'_>,
    ) -> bool {
        let now = Instant::now();
        match self.places.ask(source, is_short, (now, Duration::ZERO), |_| true) {
            Vacancy::Free => {}
            Vacancy::Instead(number) => self.drop_one(number),
            Vacancy::None => return false,
        }
        let number = self.made;
        self.made += 1;
        self.places.add(number, source, now);
        // What it waits for may have come with it: nothing makes it give way then.
        match step.as_mut().poll(context) {
            Poll::Pending => drop(self.under_way.insert(number, step)),
            Poll::Ready(outcome) => self.end(number, outcome),
        }
        true
    }

    /// The oldest one of the source with the most gives way, for the sake of its descriptor; false if there is none.
    pub(super) fn give_way(&mut self) -> bool {
        let number = self.places.give_way((Instant::now(), Duration::ZERO));
        number.is_some_and(|number| {
            self.drop_one(number);
            true
        })
    }

    fn drop_one(&mut self, number: u64) {
        self.under_way.remove(&number);
        ucs::log::debug!("a caller was dropped: another one needs its place, and it has not gone on in time");
    }

    /// Goes on with all of them.
    pub(super) fn go_on(&mut self, context: &mut Context<'_>) {
        let mut ended = Vec::new();
        self.under_way.retain(|number, step| match step.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                ended.push((*number, outcome));
                false
            }
        });
        for (number, outcome) in ended {
            self.end(number, outcome);
        }
    }

    fn end(&mut self, number: u64, outcome: Result<T>) {
        match outcome {
            Ok(outcome) => {
                self.places.keep(number);
                self.done.insert(number, outcome);
            }
            Err(error) => {
                self.places.remove(number);
                ucs::log::debug!("a caller was dropped: {error}");
            }
        }
    }

    /// The oldest one that has ended well.
    pub(super) fn take(&mut self) -> Option<T> {
        let (number, outcome) = self.done.pop_first()?;
        self.places.remove(number);
        Some(outcome)
    }
}
