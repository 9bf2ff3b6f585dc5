//! Matching against a model of plain vectors.

use proptest::collection::vec;
use proptest::prelude::*;
use uct_fi::matching::*;

use super::property;

/// What the property test does. Numbers choose among what is there.
#[derive(Clone, Debug)]
enum Step {
    Arrive(Envelope),
    Post(Filter),
    PostMulti(Filter, u64, u64),
    Finish(usize),
    Cancel(usize),
    Peek(Filter),
    Claim(Filter, usize),
    TakeClaimed(usize),
    Discard(Filter),
    Complete(usize),
    FailSource(u32),
}

fn envelope() -> impl Strategy<Value = Envelope> {
    (0..3u32, 0..8u64, 0..40u64, any::<Option<u64>>()).prop_map(|(source, tag, length, data)| Envelope {
        source,
        tag,
        length,
        data,
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    let source = prop_oneof![Just(None), (0..3u32).prop_map(Some)];
    let ignore = prop_oneof![Just(0), Just(u64::MAX), 0..8u64];
    (source, 0..8u64, ignore).prop_map(|(source, tag, ignore)| Filter { source, tag, ignore })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => envelope().prop_map(Step::Arrive),
        4 => filter().prop_map(Step::Post),
        3 => (filter(), 0..100u64, 0..40u64).prop_map(|(filter, capacity, minimum)| Step::PostMulti(filter, capacity, minimum)),
        6 => any::<usize>().prop_map(Step::Finish),
        1 => (0..40usize).prop_map(Step::Cancel),
        1 => filter().prop_map(Step::Peek),
        1 => (filter(), 0..2usize).prop_map(|(filter, context)| Step::Claim(filter, context)),
        1 => (0..2usize).prop_map(Step::TakeClaimed),
        1 => filter().prop_map(Step::Discard),
        2 => any::<usize>().prop_map(Step::Complete),
        1 => (0..3u32).prop_map(Step::FailSource),
    ]
}

/// An unexpected message; its payload is its number, and whether all of it is here.
type Message = Unexpected<(usize, bool)>;

struct Receive {
    number: usize,
    filter: Filter,
    is_posted: bool,
    why: Why,
    /// Of a multi-receive: capacity, minimum, used, parts in use.
    multi: Option<(u64, u64, u64, u32)>,
}

/// The same by plain searches.
#[derive(Default)]
struct Model {
    receives: Vec<Receive>,
    messages: Vec<Message>,
    claimed: Vec<(usize, Message)>,
    released: Vec<Released<usize>>,
}

impl Model {
    /// The number of the receive that a message goes to, with offset and length in a multi-receive.
    fn arrive(&mut self, envelope: &Envelope) -> Option<(usize, Option<(u64, u64)>)> {
        for index in 0..self.receives.len() {
            let receive = &mut self.receives[index];
            let has_source =
                receive.filter.source.is_none() || receive.filter.source == Some(envelope.source);
            let has_tag = receive.filter.tag | receive.filter.ignore == envelope.tag | receive.filter.ignore;
            if !receive.is_posted || !has_source || !has_tag {
                continue;
            }
            let number = receive.number;
            let Some((capacity, minimum, used, filling)) = &mut receive.multi else {
                receive.is_posted = false;
                return Some((number, None));
            };
            if *used > 0 && *used + envelope.length > *capacity {
                receive.is_posted = false;
                if *filling == 0 {
                    self.released.push(Released { receive: number, why: Why::Consumed });
                }
                continue;
            }
            let (offset, length) = (*used, envelope.length.min(*capacity));
            *used = (offset + length).next_multiple_of(8).min(*capacity);
            *filling += 1;
            receive.is_posted = *used < *capacity && *capacity - *used >= *minimum;
            return Some((number, Some((offset, length))));
        }
        None
    }

    fn find(&self, filter: &Filter) -> Option<usize> {
        self.messages.iter().position(|message| filter.accepts(&message.envelope))
    }

    fn is_filling(&self, number: usize) -> bool {
        self.receives[number].multi.is_some_and(|(.., filling)| filling > 0)
    }

    /// Ends a posted receive; whether it is one of one message.
    fn end(&mut self, number: usize, why: Why) -> bool {
        let is_filling = self.is_filling(number);
        let receive = &mut self.receives[number];
        receive.is_posted = false;
        receive.why = why;
        if receive.multi.is_some() && !is_filling {
            self.released.push(Released { receive: number, why });
        }
        receive.multi.is_none()
    }
}

/// The real one and the model, and what both have returned.
struct Pair {
    real: Matching<usize, (usize, bool)>,
    model: Model,
    /// Parts in use.
    parts: Vec<(MultiId, usize)>,
    /// All messages that were kept.
    kept: Vec<UnexpectedId>,
}

impl Pair {
    fn new() -> Pair {
        Pair { real: Matching::new(), model: Model::default(), parts: Vec::new(), kept: Vec::new() }
    }

    fn number(&mut self, filter: Filter, multi: Option<(u64, u64)>) -> usize {
        let number = self.model.receives.len();
        let multi = multi.map(|(capacity, minimum)| (capacity, minimum, 0, 0));
        self.model.receives.push(Receive { number, filter, is_posted: true, why: Why::Consumed, multi });
        number
    }

    fn compare(&mut self, landing: Landing<usize>, expected: (usize, Option<(u64, u64)>)) {
        let place = landing.part.map(|part| (part.offset, part.length));
        assert_eq!((landing.receive, place), expected);
        self.parts.extend(landing.part.map(|part| (part.id, landing.receive)));
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Arrive(envelope) => {
                let (landing, expected) = (self.real.arrive(&envelope), self.model.arrive(&envelope));
                assert_eq!(landing.is_some(), expected.is_some(), "{landing:?}, expected {expected:?}");
                if let Some((landing, expected)) = landing.zip(expected) {
                    self.compare(landing, expected);
                } else {
                    let payload = (self.kept.len(), false);
                    self.kept.push(self.real.keep(envelope, payload));
                    self.model.messages.push(Unexpected { envelope, payload });
                }
            }
            Step::Post(filter) => {
                let number = self.number(filter, None);
                let met = self.real.post(filter, number);
                let expected = self.model.find(&filter).map(|at| (number, self.model.messages.remove(at)));
                self.model.receives[number].is_posted = expected.is_none();
                assert_eq!(met, expected);
            }
            Step::PostMulti(filter, capacity, minimum) => {
                let number = self.number(filter, Some((capacity, minimum)));
                let mut met = self.real.post_multi(filter, number, capacity, minimum).into_iter();
                while self.model.receives[number].is_posted
                    && let Some(at) = self.model.find(&filter)
                {
                    let others = self.model.receives.split_off(number);
                    let earlier = std::mem::replace(&mut self.model.receives, others);
                    let expected = self.model.arrive(&self.model.messages[at].envelope.clone());
                    let own = std::mem::replace(&mut self.model.receives, earlier);
                    self.model.receives.extend(own);
                    let Some(expected) = expected else { break };
                    let (landing, message) = met.next().expect("another message");
                    assert_eq!(message, self.model.messages.remove(at));
                    self.compare(landing, expected);
                }
                assert_eq!(met.next(), None);
            }
            Step::Finish(which) if !self.parts.is_empty() => {
                let (id, number) = self.parts.swap_remove(which % self.parts.len());
                let receive = &mut self.model.receives[number];
                if let Some((.., filling)) = &mut receive.multi {
                    *filling -= 1;
                }
                let (is_posted, why) = (receive.is_posted, receive.why);
                let is_last = !is_posted && !self.model.is_filling(number);
                assert_eq!(self.real.finish(id), is_last.then_some(Released { receive: number, why }));
            }
            Step::Cancel(number) => {
                let is_there = self.model.receives.get(number).is_some_and(|receive| receive.is_posted);
                let expected = if !is_there {
                    Cancel::NotFound
                } else if self.model.end(number, Why::Cancelled) {
                    Cancel::Now(number)
                } else {
                    Cancel::Released
                };
                assert_eq!(self.real.cancel(|handle| *handle == number), expected);
            }
            Step::Peek(filter) => {
                let expected = self.model.find(&filter).map(|at| &self.model.messages[at]);
                assert_eq!(self.real.peek(&filter).map(|(_, message)| message), expected);
            }
            Step::Claim(filter, context) => {
                let at = self.model.find(&filter);
                let found = self.real.peek(&filter).map(|(id, _)| id);
                assert_eq!(found.is_some(), at.is_some());
                if let Some((id, at)) = found.zip(at) {
                    let is_free = self.model.claimed.iter().all(|(other, _)| *other != context);
                    assert_eq!(self.real.claim(id, context), is_free);
                    if is_free {
                        self.model.claimed.push((context, self.model.messages.remove(at)));
                        assert!(!self.real.claim(id, context + 100), "it is claimed");
                        assert_eq!(self.real.discard(id), None, "it is claimed");
                    }
                }
            }
            Step::TakeClaimed(context) => {
                let at = self.model.claimed.iter().position(|(other, _)| *other == context);
                let expected = at.map(|at| self.model.claimed.remove(at).1);
                assert_eq!(self.real.take_claimed(context), expected);
            }
            Step::Discard(filter) => {
                let expected = self.model.find(&filter).map(|at| self.model.messages.remove(at));
                let found = self.real.peek(&filter).map(|(id, _)| id);
                assert_eq!(found.and_then(|id| self.real.discard(id)), expected);
                assert_eq!(found.and_then(|id| self.real.discard(id)), None, "it is taken");
            }
            Step::Complete(which) if !self.kept.is_empty() => {
                let number = which % self.kept.len();
                let claimed = self.model.claimed.iter_mut().map(|(_, message)| message);
                let mut all = self.model.messages.iter_mut().chain(claimed);
                let expected =
                    all.find(|message| message.payload.0 == number).map(|message| &mut message.payload);
                let found = self.real.payload(self.kept[number]);
                assert_eq!(found, expected);
                for payload in [found, expected].into_iter().flatten() {
                    payload.1 = true;
                }
            }
            Step::FailSource(source) => {
                let failed = self.real.fail_source(source, |(_, is_complete)| *is_complete);
                let directed =
                    |receive: &&Receive| receive.is_posted && receive.filter.source == Some(source);
                let numbers: Vec<_> = self.model.receives.iter().filter(directed).map(|r| r.number).collect();
                let ended: Vec<_> =
                    numbers.into_iter().filter(|number| self.model.end(*number, Why::SourceFailed)).collect();
                assert_eq!(failed.receives, ended);
                let is_lost = |message: &Message| message.envelope.source == source && !message.payload.1;
                let mut lost: Vec<_> =
                    self.model.messages.extract_if(.., |message| is_lost(message)).collect();
                let claimed = self.model.claimed.extract_if(.., |(_, message)| is_lost(message));
                lost.extend(claimed.map(|(_, message)| message));
                // Claimed ones have no order.
                let mut messages = failed.messages;
                messages.sort_by_key(|message| message.payload);
                lost.sort_by_key(|message| message.payload);
                assert_eq!(messages, lost);
            }
            Step::Finish(_) | Step::Complete(_) => {}
        }
        for expected in std::mem::take(&mut self.model.released) {
            assert_eq!(self.real.next_released(), Some(expected));
        }
        assert_eq!(self.real.next_released(), None);
    }
}

#[test]
fn matching_does_what_plain_searches_do() {
    proptest!(property::config(), |(steps in vec(step(), 0..100))| {
        let mut pair = Pair::new();
        for step in steps {
            pair.apply(step);
        }
    });
}
