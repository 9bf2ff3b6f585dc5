//! What goes wrong with a device, by plan: with requests, with calls, with objects, with its port.
//!
//! For `device`, which asks at each operation and at each turn. The clock is that of the link, so that a plan holds in virtual time.

use fastrand::Rng;

use super::{Nanos, Status};

/// Which of all requests or calls something goes wrong with, counted from 1 on since the device began.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Which {
    /// The one of this number.
    Number(u64),
    /// This share of them, 0.0 to 1.0, by the seed.
    Share(f64),
}

/// When something happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// When the send request of this number is posted, counted from 1 on.
    Send(u64),
    /// At this time.
    Time(Nanos),
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Each, with its word in a script.
            pub const ALL: &[($name, &str)] = &[$(($name::$variant, $word),)*];
        }
    };
}

named! {
    /// A call of the application that may be refused.
    Verb {
        /// To make a protection domain.
        AllocPd = "alloc_pd",
        /// To register memory.
        RegisterMemory = "reg_mr",
        /// To make a completion channel.
        CreateChannel = "create_comp_channel",
        /// To make a completion queue.
        CreateCq = "create_cq",
        /// To take completions out of a completion queue.
        PollCq = "poll_cq",
        /// To make a shared receive queue.
        CreateSrq = "create_srq",
        /// To make a queue pair.
        CreateQp = "create_qp",
        /// To modify a queue pair.
        ModifyQp = "modify_qp",
        /// To make an address handle.
        CreateAh = "create_ah",
        /// To post a send request.
        PostSend = "post_send",
        /// To post a receive request.
        PostReceive = "post_recv",
        /// To post a receive request to a shared queue.
        PostSharedReceive = "post_srq_recv",
    }
}

named! {
    /// What happens to an object, the port or the device by itself.
    Incident {
        /// A queue pair fails, and answers nothing any more.
        KillQp = "kill-qp",
        /// A queue pair fails, as for an invalid request of the peer.
        QpRequestError = "qp-req-err",
        /// A queue pair fails, as for an access of the peer that is not permitted.
        QpAccessError = "qp-access-err",
        /// A queue pair says that a packet came ahead of the word that the connection is there.
        CommunicationEstablished = "comm-est",
        /// A queue pair says that its send queue is drained.
        SendQueueDrained = "sq-drained",
        /// A queue pair says that it takes nothing more from its shared queue.
        LastReceiveReached = "last-wqe",
        /// A completion queue overruns, and its queue pairs fail.
        CqOverrun = "cq-overrun",
        /// A shared receive queue fails, and its queue pairs with it.
        SrqError = "srq-err",
        /// A shared receive queue says that it is below its limit.
        SrqLimitReached = "srq-limit",
        /// The port carries no traffic.
        PortDown = "port-down",
        /// The port carries traffic again.
        PortUp = "port-up",
        /// The device fails: nothing ends any more, and every call but those that end objects is refused.
        DeviceFatal = "device-fatal",
        /// The device says that the port's local identifier changed.
        LidChange = "lid-change",
        /// The device says that the port's table of partitions changed.
        PkeyChange = "pkey-change",
        /// The device says that the subnet manager changed.
        SubnetManagerChange = "sm-change",
        /// The subnet manager asks to register again.
        ClientReregister = "client-reregister",
        /// The device says that the port's table of addresses changed.
        GidChange = "gid-change",
    }
}

/// What goes wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Of what is chosen by share.
    pub seed: u64,
    /// Send requests that end with a status. They are not executed.
    pub sends: Vec<(Which, Status)>,
    /// Messages whose receive request ends with a status.
    pub receives: Vec<(Which, Status)>,
    /// Calls that are refused with an error number.
    pub verbs: Vec<(Verb, Which, i32)>,
    /// What happens by itself.
    pub incidents: Vec<(Moment, Incident)>,
}

impl FaultPlan {
    /// Whether nothing goes wrong.
    pub fn is_empty(&self) -> bool {
        let FaultPlan { seed: _, sends, receives, verbs, incidents } = self;
        sends.is_empty() && receives.is_empty() && verbs.is_empty() && incidents.is_empty()
    }
}

/// A plan, and how far it has come.
pub(super) struct Faults {
    plan: FaultPlan,
    random: Rng,
    sends: u64,
    receives: u64,
    calls: [u64; Verb::ALL.len()],
}

impl Faults {
    pub fn new(plan: FaultPlan) -> Faults {
        // Not the numbers that links draw from the same seed.
        let random = Rng::with_seed(plan.seed.rotate_left(32) ^ 0x6661_756c_7473);
        Faults { plan, random, sends: 0, receives: 0, calls: [0; Verb::ALL.len()] }
    }

    /// A send request is posted: the status that it ends with, if that is decided, and what happens at this moment.
    pub fn next_send(&mut self) -> (Option<Status>, Vec<Incident>) {
        self.sends += 1;
        let now = Moment::Send(self.sends);
        let due = self.plan.incidents.iter().filter(|(moment, _)| *moment == now);
        (find(&self.plan.sends, self.sends, &mut self.random), due.map(|(_, incident)| *incident).collect())
    }

    /// A message takes a receive request: the status that it ends with, if that is decided.
    pub fn next_receive(&mut self) -> Option<Status> {
        self.receives += 1;
        find(&self.plan.receives, self.receives, &mut self.random)
    }

    /// The error number that a call is refused with.
    pub fn refuse(&mut self, verb: Verb) -> Option<i32> {
        let calls = &mut self.calls[verb as usize];
        *calls += 1;
        let (number, random) = (*calls, &mut self.random);
        let of_verb = self.plan.verbs.iter().filter(|fault| fault.0 == verb);
        // All are drawn, so that what one word does is the same beside others.
        of_verb.fold(None, |found, (_, which, errno)| found.or(which.hits(number, random).then_some(*errno)))
    }

    /// When the next thing happens by itself.
    pub fn next_time(&self) -> Option<Nanos> {
        self.plan.incidents.iter().filter_map(|(moment, _)| moment.time()).min()
    }

    /// Takes what has happened by itself up to now, the earliest first.
    pub fn take_due(&mut self, now: Nanos) -> Vec<Incident> {
        let is_due = |moment: &Moment| moment.time().is_some_and(|time| time <= now);
        let mut due: Vec<_> = self.plan.incidents.extract_if(.., |(moment, _)| is_due(moment)).collect();
        due.sort_by_key(|(moment, _)| moment.time());
        due.into_iter().map(|(_, incident)| incident).collect()
    }
}

impl Moment {
    fn time(self) -> Option<Nanos> {
        match self {
            Moment::Time(time) => Some(time),
            Moment::Send(_) => None,
        }
    }
}

impl Which {
    fn hits(self, number: u64, random: &mut Rng) -> bool {
        match self {
            Which::Number(this) => this == number,
            Which::Share(share) => random.f64() < share,
        }
    }
}

fn find(faults: &[(Which, Status)], number: u64, random: &mut Rng) -> Option<Status> {
    faults.iter().fold(None, |found, (which, status)| {
        let is_hit = which.hits(number, random);
        found.or(is_hit.then_some(*status))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_chooses_the_same_requests_and_about_as_many_as_it_should() {
        let chosen = |seed| -> Vec<u64> {
            let sends = vec![(Which::Share(0.1), Status::General)];
            let mut faults = Faults::new(FaultPlan { seed, sends, ..FaultPlan::default() });
            (0..2000).filter(|_| faults.next_send().0.is_some()).collect()
        };
        assert_eq!(chosen(7), chosen(7));
        assert_ne!(chosen(7), chosen(8));
        assert!((150..250).contains(&chosen(7).len()), "{}", chosen(7).len());
    }

    #[test]
    fn a_share_is_of_the_numbers_below_it() {
        let random = Rng::with_seed(7);
        let drawn = random.clone().f64();
        for (share, is_hit) in [(drawn, false), (drawn.next_up(), true), (0.0, false), (1.0, true)] {
            assert_eq!(Which::Share(share).hits(1, &mut random.clone()), is_hit, "{share}");
        }
    }

    #[test]
    fn calls_are_counted_each_for_itself() {
        let verbs = vec![(Verb::CreateQp, Which::Number(2), 12), (Verb::CreateCq, Which::Number(1), 5)];
        let mut faults = Faults::new(FaultPlan { verbs, ..FaultPlan::default() });
        assert_eq!([(); 3].map(|()| faults.refuse(Verb::CreateQp)), [None, Some(12), None]);
        assert_eq!([(); 2].map(|()| faults.refuse(Verb::CreateCq)), [Some(5), None]);
        assert_eq!(faults.refuse(Verb::AllocPd), None);
    }

    #[test]
    fn what_happens_by_itself_comes_once_and_in_its_order() {
        let incidents = [(30, Incident::PortUp), (10, Incident::PortDown), (20, Incident::GidChange)];
        let incidents = incidents.map(|(time, incident)| (Moment::Time(time), incident)).to_vec();
        let mut faults = Faults::new(FaultPlan { incidents, ..FaultPlan::default() });
        assert_eq!(faults.next_time(), Some(10));
        assert_eq!(faults.take_due(20), [Incident::PortDown, Incident::GidChange]);
        assert_eq!((faults.take_due(29), faults.next_time()), (vec![], Some(30)));
        assert_eq!((faults.take_due(99), faults.next_time()), (vec![Incident::PortUp], None));
    }
}
