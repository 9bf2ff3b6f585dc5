//! What a connection knows: what waits to be sent, what was received, credit both ways, and how far its end is.

use std::collections::VecDeque;

use ucs::Error as Status;
use uct_host::{BufferPool, Count};

use super::super::message::Message;
use super::kept::Staging;
use super::offer::{Offer, Source, TransferMode};
use super::wakers::Wakers;
use crate::error::{Error, Stage};
use crate::proto::assembly::Assembly;
use crate::proto::envelope::Kind;
use crate::proto::shared::Shared;
use crate::proto::window::{ReceiveWindow, SendWindow};

pub(super) struct State {
    pub(super) send: SendWindow,
    pub(super) receive: ReceiveWindow,
    pub(super) outgoing: VecDeque<Outgoing>,
    pub(super) made: u64,
    /// The first message that was queued and never will be sent.
    pub(super) lost_from: Option<u64>,
    /// Messages without credit that are to be sent, in this order.
    pub(super) control: VecDeque<(Kind, Vec<u8>)>,
    pub(super) received: VecDeque<(Message, u32)>,
    /// Messages of the transport that have arrived.
    pub(super) arrived: Count,
    pub(super) assembly: Assembly,
    /// What the parts of the message that is being assembled cost, as far as the sender was not given it back.
    pub(super) assembly_cost: u32,
    /// Bytes that the sink has been given of a message whose last fragment has not come.
    pub(super) delivered: usize,
    /// Credit that the sink holds back.
    pub(super) held: u32,
    /// A large message that the peer offers.
    pub(super) offer: Option<Offer>,
    /// The application reads what is offered.
    pub(super) leaves_offers: bool,
    /// Memory of messages that left, registered still.
    pub(super) retired: Vec<Source>,
    /// Memory for large messages, while none is in it.
    pub(super) staging: Option<Staging>,
    /// Large messages so far, up to a bound.
    pub(super) staged: u32,
    pub(super) shared: VecDeque<Shared>,
    /// Notifications of the peer's transfers, with what they cost.
    pub(super) notices: VecDeque<(Message, u32)>,
    pub(super) is_probed: bool,
    pub(super) has_probe_reply: bool,
    pub(super) fin: Fin,
    pub(super) failure: Option<Error>,
    pub(super) readers: Wakers,
    pub(super) writers: Wakers,
}

/// How far the end of a connection is.
#[derive(Default)]
pub(super) struct Fin {
    /// This side wants to end: `Some(true)` if it does not read either.
    pub(super) wanted: Option<bool>,
    pub(super) is_sent: bool,
    pub(super) is_acknowledged: bool,
    /// The peer sends no more.
    pub(super) has_come: bool,
    /// The peer does not read either.
    pub(super) is_deaf: bool,
}

/// A message that is being sent.
pub(super) struct Outgoing {
    pub(super) number: u64,
    /// When it was queued, in ticks of the clock.
    pub(super) since: u64,
    pub(super) kind: Kind,
    /// Its bytes, unless it is registered.
    pub(super) data: Vec<u8>,
    pub(super) sent: usize,
    pub(super) mode: TransferMode,
}

/// Where a queued message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub(super) u64);

impl State {
    /// Nothing sent and nothing received. `window` is what this side takes unread, and `buffers` what messages in parts are put together in.
    pub(super) fn new(window: u32, buffers: &BufferPool) -> State {
        State {
            send: SendWindow::new(0),
            receive: ReceiveWindow::new(window),
            outgoing: VecDeque::new(),
            made: 0,
            lost_from: None,
            control: VecDeque::new(),
            received: VecDeque::new(),
            arrived: Count::default(),
            assembly: Assembly::new(buffers),
            assembly_cost: 0,
            delivered: 0,
            held: 0,
            offer: None,
            leaves_offers: false,
            retired: Vec::new(),
            staging: None,
            staged: 0,
            shared: VecDeque::new(),
            notices: VecDeque::new(),
            is_probed: false,
            has_probe_reply: false,
            fin: Fin::default(),
            failure: None,
            readers: Wakers::default(),
            writers: Wakers::default(),
        }
    }

    #[inline]
    pub(super) fn check(&self) -> Result<(), Error> {
        match &self.failure {
            None => Ok(()),
            Some(failure) => Err(failure.clone()),
        }
    }

    /// All that wait, for an event that concerns them all.
    pub(super) fn take_waiting(&mut self) -> Wakers {
        let mut all = self.readers.take();
        all.append(&mut self.writers);
        all
    }

    /// Gives up what is queued.
    pub(super) fn lose(&mut self) {
        if let Some(first) = self.outgoing.front() {
            self.lost_from.get_or_insert(first.number);
        }
        // Registrations do not end inside a transport.
        self.retired.extend(self.outgoing.drain(..).filter_map(Outgoing::into_source));
    }

    pub(super) fn why_lost(&self, peer: &str) -> Error {
        self.failure.clone().unwrap_or_else(|| closed(peer))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.fin.is_deaf || self.fin.is_acknowledged
    }
}

pub(super) fn closed(peer: &str) -> Error {
    Error::new(Stage::Close, peer, Status::NOT_CONNECTED, "the peer closed the connection")
}
