//! The network of one thread: its worker, its interfaces, its connections, and the engine that drives them.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use slab::Slab;
use ucs::Error as Status;
use ucs::admission::Source;
use ucs::log::Limited;
use ucs::memory::fork::Forked;
use ucs::stride::Countdown;
use uct_host::attach::{ConnectionReport, Connections};
use uct_host::cm::Cm;
use uct_host::select::Selector;
use uct_host::{AmMessage, Context, Iface, IfaceOptions, OpenError, Placer, Space, Worker, WorkerHandle};

use super::accepted::Accepted;
use super::agenda::Agenda;
use super::conn::{Conn, Large};
use super::lane::AM_ID;
use super::message::KeptCount;
#[cfg(feature = "tls")]
use super::pumps::Pumps;
use super::reactor::Reactor;
use super::strays::Strays;
use crate::error::{Error, Result, Stage};
use crate::options::{NetOptions, Wait};
use crate::polling::{self, Polling};
use crate::proto::envelope::{ENVELOPE, Envelope, HEADER, MAX_CONNECTIONS, NoEnvelope, Token};

/// Most passes from one look of a thread at its sockets and timers to the next while it polls: a look is a system call. Where a pass takes
/// long, because a task computes, they are fewer ([`Countdown`]).
const SOCKETS_INTERVAL: u32 = 64;
/// The same, and how often it lets others run, while a handshake goes over one.
const HANDSHAKE_INTERVAL: u32 = 8;
/// Most operations that tasks do without a pause, in which others have their turn: as many as tokio's budget has.
pub(crate) const OPERATIONS: u32 = 128;
/// How long an adaptive thread polls at least while a handshake is in progress: a sleep takes longer than the peer's response.
const HANDSHAKE_POLLING: Duration = Duration::from_micros(100);
/// How often a thread that polls for ever lets others run, in passes without an event.
const YIELD_INTERVAL: u32 = 1024;
/// How long a thread sleeps at most where an interface cannot wake it.
const BLIND_SLEEP: Duration = Duration::from_millis(1);
/// How long the end of a connection that was dropped may take, before the peer gets a notice that the rest is lost.
const LINGER: Duration = Duration::from_secs(1);
/// How long that notice may wait for room, if the thread goes on: a peer that computes makes none.
const ABORT_TIMEOUT: Duration = Duration::from_secs(60);

/// What a peer did wrong.
const NO_MESSAGE: &str = "it sent a message that is not of this protocol";

/// The network of one thread: all permitted transports, open, and the connections over them. Cheap to clone
/// within the thread.
///
/// It makes progress only while it is driven: by [`Net::block_on`], in a tokio runtime by `Net::run_until` (feature `tokio`), and for
/// a short time by each poll of a future of this crate.
///
/// Dropping the last handle, connection or listener delivers what was sent last. This blocks for up to 1 s.
#[derive(Clone)]
pub struct Net {
    pub(crate) inner: NetHandle,
}

/// A handle of the engine. The last one drives it until what was sent has arrived.
#[derive(Clone)]
pub(crate) struct NetHandle(Rc<NetInner>);

impl NetHandle {
    /// Offers long messages of the interface to the sinks of their connections while they arrive.
    pub(crate) fn place_messages(&self, iface: &Iface) {
        iface.set_am_placer(AM_ID, Rc::new(Arrivals(Rc::downgrade(&self.0))));
    }
}

impl Deref for NetHandle {
    type Target = NetInner;

    fn deref(&self) -> &NetInner {
        &self.0
    }
}

impl Drop for NetHandle {
    fn drop(&mut self) {
        // In a child of a fork all that lingers is the parent's to send.
        if Rc::strong_count(&self.0) == 1 && !std::thread::panicking() && self.0.reactor.check_fork().is_ok()
        {
            self.0.drain();
        }
    }
}

pub(crate) struct NetInner {
    pub(crate) worker: Worker,
    pub(crate) selector: Selector,
    pub(crate) options: NetOptions,
    pub(crate) wait: Cell<Wait>,
    pub(crate) reactor: Rc<Reactor>,
    connections: RefCell<Slab<Rc<Conn>>>,
    pub(super) accepted: Accepted,
    pub(crate) agenda: Rc<Agenda>,
    lingering: RefCell<Vec<Lingering>>,
    kept: KeptCount,
    large: Large,
    passes: Cell<u32>,
    /// Passes to the next look at the sockets.
    looks: Countdown,
    /// Operations to the next pause of a task.
    pause: Cell<u32>,
    /// How long an adaptive thread polls.
    polling: Cell<Polling>,
    wake: Arc<ThreadWaker>,
    /// Ended after the interfaces, whose last bytes go through them.
    #[cfg(feature = "tls")]
    pub(crate) pumps: Pumps,
    /// Messages that were for no connection.
    strays: Strays,
    /// Lines about lanes that a peer does not open.
    pub(crate) given_up_lanes: Limited,
    /// The connection managers that were asked for.
    managers: RefCell<Vec<Cm>>,
}

/// A connection whose last handle is gone, until the peer has all that was sent.
struct Lingering {
    conn: Rc<Conn>,
    limit: Instant,
    /// The limit was over once: the next one is that of the abort to the peer.
    is_given_up: bool,
}

impl Net {
    /// Opens every transport that the configuration permits. Blocks meanwhile.
    ///
    /// # Errors
    /// An option is out of range, the system has no descriptor left, or no transport could be opened; that error contains the reason
    /// of each.
    pub fn new(context: &Context, options: NetOptions) -> Result<Net> {
        let worker = Worker::new(context).map_err(|error| failed(error.to_string()))?;
        let selector = Selector::examine(&worker, &IfaceOptions::default());
        Net::over(&worker, selector, options)
    }

    /// A network over interfaces that the application has opened on its worker.
    ///
    /// # Errors
    /// As [`Net::new`].
    pub fn over(worker: &Worker, selector: Selector, options: NetOptions) -> Result<Net> {
        if let Some(problem) = options.problem() {
            return Err(Error { status: Status::INVALID_PARAM, ..failed(problem) });
        }
        #[cfg(feature = "tls")]
        let selector = match &options.tls {
            Some(tls) => selector.without(|iface| tls.refuses(iface)),
            None => selector,
        };
        if selector.ifaces().is_empty() {
            let explanation = selector.explain(&options.request, None);
            let reason = format!("no transport is open: {}", explanation.why_none());
            return Err(Error { status: Status::NO_DEVICE, ..failed(reason) });
        }
        let worker = worker.clone();
        let reactor = Reactor::new(worker.event_fd()).map_err(|error| failed(error.to_string()))?;
        let reactor = Rc::new(reactor);
        let wake = Arc::new(ThreadWaker {
            is_woken: AtomicBool::new(false),
            owner: std::thread::current().id(),
            worker: worker.handle(),
        });
        let large = Large::new(worker.context().core_config().rndv_thresh.to_usize(), worker.clone());
        let inner = Rc::new_cyclic(|net: &Weak<NetInner>| {
            for iface in selector.ifaces() {
                let net = Weak::clone(net);
                iface.set_am_handler(AM_ID, move |message| {
                    if let Some(net) = net.upgrade() {
                        net.receive(message);
                    }
                });
            }
            NetInner {
                worker,
                selector,
                wait: Cell::new(options.wait),
                accepted: Accepted::new(&options),
                options,
                agenda: Rc::new(Agenda::new(Rc::clone(&reactor))),
                reactor,
                connections: RefCell::default(),
                lingering: RefCell::default(),
                kept: KeptCount::default(),
                large,
                passes: Cell::new(0),
                looks: Countdown::default(),
                pause: Cell::new(OPERATIONS),
                polling: Cell::default(),
                wake,
                #[cfg(feature = "tls")]
                pumps: Pumps::default(),
                strays: Strays::new(),
                given_up_lanes: Limited::default(),
                managers: RefCell::default(),
            }
        });
        let connections: Weak<dyn Connections> = Rc::<NetInner>::downgrade(&inner);
        inner.worker.report_connections(connections);
        Ok(Net { inner: NetHandle(inner) })
    }

    /// Ends after this time.
    pub async fn sleep(&self, time: Duration) {
        self.inner.reactor.sleep(time).await;
    }

    /// The output of the future, or `None` if it is not ready within the limit; it is dropped then.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut sleep = self.inner.reactor.sleep(limit);
        let mut future = pin!(future);
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => sleep.poll_due(context).map(|()| None),
        })
        .await
    }

    /// The worker of this network, for other operations of the application. Active message id [`AM_ID`] (31) is in use.
    pub fn worker(&self) -> &Worker {
        &self.inner.worker
    }

    /// The open interfaces, over which connections are made.
    pub fn ifaces(&self) -> &[Iface] {
        self.inner.selector.ifaces()
    }

    /// Changes how the thread waits ([`NetOptions::wait`]), from the next [`Net::block_on`] on.
    pub fn set_wait(&self, wait: Wait) {
        self.inner.wait.set(wait);
    }

    /// Runs the future, and drives the network until it is ready. Blocks; while nothing happens it waits as [`NetOptions::wait`] specifies.
    pub fn block_on<F: IntoFuture>(&self, future: F) -> F::Output {
        let net = &*self.inner;
        let _ = net.check_fork();
        let mut future = pin!(future.into_future());
        let waker = Waker::from(Arc::clone(&net.wake));
        let mut context = TaskContext::from_waker(&waker);
        let mut idle = Idle::new(net.wait.get());
        let mut is_first = true;
        loop {
            if std::mem::take(&mut is_first) || net.wake.take() {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    net.send_wrapped();
                    return output;
                }
                idle.reset();
            }
            if net.turn() {
                idle.is_busy(net);
            } else if net.wake.is_set() {
                // Arming takes system calls.
            } else if idle.is_over(net) && net.prepare_to_sleep() && !net.wake.is_set() {
                net.sleep();
            } else if net.reactor.has_handshakes() && net.passes.get().is_multiple_of(HANDSHAKE_INTERVAL) {
                // Where both sides share a processor, the other one has to run too.
                std::thread::yield_now();
            }
        }
    }
}

fn failed(reason: String) -> Error {
    Error::new(Stage::Choose, "this process", Status::IO_ERROR, reason)
}

impl NetInner {
    /// Whether the task may go on; once in [`OPERATIONS`] calls it is woken again behind the others, so that a loop of operations that are done at
    /// once leaves time for other tasks and connections.
    #[inline]
    pub(crate) fn poll_turn(&self, context: &TaskContext<'_>) -> Poll<()> {
        let left = self.pause.get();
        if left > 0 {
            self.pause.set(left - 1);
            return Poll::Ready(());
        }
        self.pause.set(OPERATIONS);
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// One pass: what has arrived, what is to be sent, and now and then sockets and timers. Returns whether there was anything.
    pub(crate) fn turn(&self) -> bool {
        let is_busy = self.turn_transports();
        self.turn_sockets(is_busy)
    }

    /// As [`NetInner::turn`], and looks at sockets only if `looks`, or while something needs it: a look is a system call.
    pub(crate) fn turn_looking(&self, looks: bool) -> bool {
        let is_busy = self.turn_transports();
        if self.reactor.has_handshakes() || self.has_pumps() {
            return self.turn_sockets(is_busy);
        }
        if looks {
            let _ = self.check_fork();
            return self.reactor.turn(Duration::ZERO).unwrap_or(false) | is_busy;
        }
        let is_due = self.looks.is_over(SOCKETS_INTERVAL) && self.reactor.fire();
        is_due | is_busy
    }

    /// What has arrived, and what is to be sent.
    #[inline(always)]
    fn turn_transports(&self) -> bool {
        let mut is_busy = self.worker.progress() > 0;
        is_busy |= self.pump_due(is_busy);
        self.end_lingering();
        is_busy
    }

    #[inline(always)]
    fn turn_sockets(&self, mut is_busy: bool) -> bool {
        let passes = self.passes.get().wrapping_add(1);
        self.passes.set(passes);
        let is_answer_due = !is_busy && self.reactor.has_handshakes();
        let most = match is_answer_due {
            // What the transports send and receive goes through sockets of this net.
            _ if self.has_pumps() => 1,
            true => HANDSHAKE_INTERVAL,
            false => SOCKETS_INTERVAL,
        };
        if self.looks.is_over(most) {
            let _ = self.check_fork();
            is_busy |= self.reactor.look();
        }
        is_busy | self.pump_wrapped()
    }

    /// Sleeps until a descriptor is ready or a timer is due. Everything is armed.
    fn sleep(&self) {
        static REFUSED: Limited = Limited::new(1);
        if let Err(error) = self.reactor.turn(self.longest_sleep()) {
            if let Some(left_out) = REFUSED.admit() {
                ucs::log::error!(
                    "the network cannot wait for its descriptors, so its sockets make no progress: {error}; \
                     did the program close descriptors that are not its own?{left_out}"
                );
            }
            std::thread::sleep(BLIND_SLEEP);
        }
    }

    /// Refuses calls in a child of a fork, where all connections fail: they are the parent's.
    #[inline]
    pub(crate) fn check_fork(&self) -> std::result::Result<(), Forked> {
        self.reactor.check_fork().inspect_err(|forked| self.leave_to_parent(*forked))
    }

    #[cold]
    fn leave_to_parent(&self, forked: Forked) {
        // A call inside the fork's own may have them.
        if let Ok(connections) = self.connections.try_borrow() {
            connections.iter().for_each(|(_, conn)| conn.leave_to_parent(forked));
        }
    }

    /// Arms everything; false if there is something to do first.
    pub(crate) fn prepare_to_sleep(&self) -> bool {
        self.agenda.is_empty() && !self.is_pump_due() && !matches!(self.worker.arm(), Err(Status::BUSY))
    }

    /// Whether there are lanes inside TLS.
    fn has_pumps(&self) -> bool {
        #[cfg(feature = "tls")]
        return !self.pumps.is_empty();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Whether one of them has something to do that no descriptor reports.
    fn is_pump_due(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.pumps.is_due();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Moves their bytes. Returns whether there were any.
    fn pump_wrapped(&self) -> bool {
        #[cfg(feature = "tls")]
        if self.pumps.run() {
            if self.pumps.is_due() {
                // It stopped to give others their turn.
                self.reactor.rouse();
            }
            return true;
        }
        false
    }

    /// What was sent last over lanes inside TLS leaves, before the thread does something else: over other lanes it has.
    pub(crate) fn send_wrapped(&self) {
        if self.has_pumps() {
            let _ = self.reactor.turn(Duration::ZERO);
            self.pump_wrapped();
        }
    }

    /// Whether the system has what the transports have sent.
    pub(crate) fn is_sent(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.pumps.is_flushed();
        #[cfg(not(feature = "tls"))]
        true
    }

    /// How long a thread may sleep that no descriptor wakes.
    pub(crate) fn longest_sleep(&self) -> Duration {
        let can_be_woken = self.selector.ifaces().iter().all(|iface| iface.event_fd().is_ok());
        let limit = if can_be_woken { Duration::MAX } else { BLIND_SLEEP };
        let lingering = self.lingering.borrow();
        let first = lingering.iter().map(|lingering| lingering.limit).min();
        first.map_or(limit, |first| limit.min(first.saturating_duration_since(Instant::now())))
    }

    /// Does what connections left for when no transport is on the stack. `is_busy`: the transports have just had something to do.
    fn pump_due(&self, is_busy: bool) -> bool {
        if self.agenda.is_empty() {
            return false;
        }
        if self.agenda.has_ends() {
            self.report_ends(is_busy);
        }
        let due = self.agenda.take();
        for token in &due {
            if let Some(conn) = self.find(*token) {
                conn.pump_due();
            }
        }
        self.agenda.give_back(due);
        self.agenda.wake();
        self.agenda.settle();
        true
    }

    /// Reports the ends of connections, once the transports have delivered what has arrived.
    #[cold]
    fn report_ends(&self, is_busy: bool) {
        // Only arming looks at all transports: a pass leaves out those that were idle for long.
        let is_drained = !is_busy && self.worker.arm().is_ok();
        self.agenda.report_ends(is_drained);
    }

    fn find(&self, token: Token) -> Option<Rc<Conn>> {
        let conn = self.connections.borrow().get(token.index()).cloned();
        conn.filter(|conn| conn.token() == token)
    }

    /// Keeps a connection without a handle until the peer has all that was sent, or [`LINGER`] is over.
    pub(crate) fn linger(&self, conn: Rc<Conn>) {
        self.let_linger(conn, false);
    }

    /// Removes a connection whose handshake failed. A peer that has its side open gets an abort with the reason.
    pub(crate) fn forget(&self, token: Token, reason: &str) {
        match self.find(token) {
            Some(conn) if conn.lane().is_some() => {
                conn.abort(reason);
                self.let_linger(conn, true);
            }
            _ => self.remove(token),
        }
    }

    /// As [`NetInner::linger`]; one that is given up is forgotten after [`LINGER`] whatever happens.
    pub(crate) fn let_linger(&self, conn: Rc<Conn>, is_given_up: bool) {
        let limit = Instant::now() + LINGER;
        self.lingering.borrow_mut().push(Lingering { conn, limit, is_given_up });
        self.reactor.rouse();
    }

    #[inline]
    fn end_lingering(&self) {
        if !self.lingering.borrow().is_empty() {
            self.look_at_lingering();
        }
    }

    #[cold]
    fn look_at_lingering(&self) {
        let (mut ended, mut late) = (Vec::new(), Vec::new());
        let now = Instant::now();
        self.lingering.borrow_mut().retain_mut(|lingering| {
            let is_late = now >= lingering.limit;
            if lingering.conn.is_over() || (is_late && lingering.is_given_up) {
                ended.push(Rc::clone(&lingering.conn));
                return false;
            }
            if is_late {
                lingering.is_given_up = true;
                lingering.limit = now + ABORT_TIMEOUT;
                late.push(Rc::clone(&lingering.conn));
            }
            true
        });
        for conn in late {
            conn.abort("closed, and the rest not taken in time");
        }
        for conn in ended {
            self.remove(conn.token());
        }
    }

    /// A connection manager, which is opened the first time that it is asked for.
    pub(super) fn manager(&self, name: &str) -> std::result::Result<Cm, OpenError> {
        let mut managers = self.managers.borrow_mut();
        if let Some(cm) = managers.iter().find(|cm| cm.component() == name) {
            return Ok(cm.clone());
        }
        let cm = self.worker.open_cm(name)?;
        managers.push(cm.clone());
        Ok(cm)
    }

    /// Whether no connection lingers, and all has left.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_quiet(&self) -> bool {
        self.lingering.borrow().is_empty() && self.is_sent()
    }

    /// Drives until no connection lingers: what was sent reaches the peers. Blocks up to [`LINGER`].
    fn drain(&self) {
        self.end_lingering();
        let limit = Instant::now() + LINGER;
        while !(self.lingering.borrow().is_empty() && self.is_sent()) && Instant::now() < limit {
            if !self.turn() {
                std::thread::yield_now();
            }
        }
        // Those that are late send their abort; their transports have one pass for it.
        self.end_lingering();
        self.turn();
    }

    /// Adds a connection that a caller of a source opens, if there may be one more. `is_short`: the caller has one of the last descriptors.
    pub(super) fn add_accepted(&self, peer: &str, source: Source, is_short: bool) -> Result<Rc<Conn>> {
        let refused = |reason| Error::new(Stage::Handshake, peer, Status::EXCEEDS_LIMIT, reason);
        self.accepted.check(source, is_short).map_err(refused)?;
        let conn = self.add(peer)?;
        conn.take_place(self.accepted.add(source));
        Ok(conn)
    }

    /// Adds a connection, and gives it the token that its peer sends with each message.
    pub(crate) fn add(&self, peer: &str) -> Result<Rc<Conn>> {
        self.add_with((self.options.window, self.options.max_message), Token::new, peer)
    }

    /// As [`NetInner::add`], with a window and a longest message, and a token that is made of its index and a secret.
    pub(super) fn add_with(
        &self,
        limits: (u32, usize),
        token: impl FnOnce(usize, u64) -> Token,
        peer: &str,
    ) -> Result<Rc<Conn>> {
        let refused = |reason: String| Error::new(Stage::Open, "this process", Status::EXCEEDS_LIMIT, reason);
        let secret = ucs::sys::random::secret().map_err(|error| refused(error.to_string()))?;
        let mut connections = self.connections.borrow_mut();
        if connections.len() >= MAX_CONNECTIONS {
            return Err(refused(format!("{MAX_CONNECTIONS} connections are open, as many as there may be")));
        }
        let place = connections.vacant_entry();
        let token = token(place.key(), secret);
        let agenda = Rc::clone(&self.agenda);
        let (kept, large) = (self.kept.clone(), self.large.clone());
        let conn = Conn::new(limits, agenda, kept, large, token, peer.to_owned());
        place.insert(Rc::clone(&conn));
        Ok(conn)
    }

    /// Forgets a connection: messages to it are strays from now on.
    pub(crate) fn remove(&self, token: Token) {
        let mut connections = self.connections.borrow_mut();
        if connections.get(token.index()).is_some_and(|conn| conn.token() == token) {
            let conn = connections.remove(token.index());
            drop(connections);
            conn.forget();
        }
    }

    fn receive(&self, message: AmMessage<'_>) {
        // Not the whole: where the peer can write to it, that would be a copy.
        let Some(start) = message.first::<{ HEADER + ENVELOPE }>() else {
            return self.receive_short(&message);
        };
        let Some((header, envelope)) = start.split_first_chunk() else { return };
        let Some(conn) = self.conn_of(u64::from_ne_bytes(*header)) else {
            return self.strays.add("this side has no such connection");
        };
        match Envelope::from_bytes(envelope, conn.token()) {
            Ok(envelope) => conn.receive(envelope, HEADER + ENVELOPE, message),
            Err(NoEnvelope::Foreign) => self.strays.add("this side has no such connection"),
            Err(NoEnvelope::Malformed) => conn.broken(NO_MESSAGE),
        }
    }

    /// The connection with this header in its token.
    #[inline(always)]
    fn conn_of(&self, header: u64) -> Option<Rc<Conn>> {
        let connections = self.connections.borrow();
        let conn = connections.get(Token::from_header(header).index());
        conn.filter(|conn| conn.token().header() == header).cloned()
    }

    /// A message without room for an envelope.
    #[cold]
    fn receive_short(&self, message: &AmMessage<'_>) {
        let Some(header) = message.header() else { return self.strays.add("it is not of this protocol") };
        let conn = self.conn_of(header);
        let envelope = conn.as_ref().map(|conn| Envelope::from_bytes(message.payload(), conn.token()));
        match (conn, envelope) {
            // Only a peer that has the token may break the connection.
            (Some(conn), Some(Err(NoEnvelope::Malformed))) => conn.broken(NO_MESSAGE),
            _ => self.strays.add("this side has no such connection"),
        }
    }
}

/// Long fragments, which sinks may take where they like them. Each is known by the header of its connection's token.
struct Arrivals(Weak<NetInner>);

impl Placer for Arrivals {
    fn begin(&self, head: &[u8], length: usize) -> Option<u64> {
        let (header, rest) = head.split_first_chunk()?;
        let header = u64::from_ne_bytes(*header);
        let conn = self.0.upgrade()?.conn_of(header)?;
        let envelope = Envelope::from_bytes(rest, conn.token()).ok()?;
        let length = length.checked_sub(HEADER + ENVELOPE)?;
        conn.begin_fragment(envelope, &rest[ENVELOPE..], length).then_some(header)
    }

    fn place(&self, arrival: u64, offset: usize) -> Option<Space> {
        self.0.upgrade()?.conn_of(arrival)?.place_fragment(offset.checked_sub(HEADER + ENVELOPE)?)
    }

    fn end(&self, arrival: u64, length: usize) {
        if let Some(conn) = self.0.upgrade().and_then(|net| net.conn_of(arrival)) {
            conn.end_fragment(length);
        }
    }
}

impl Connections for NetInner {
    fn connections(&self) -> Vec<ConnectionReport> {
        self.connections.borrow().iter().map(|(_, conn)| conn.report()).collect()
    }
}

impl Drop for NetInner {
    fn drop(&mut self) {
        // Connections hold endpoints, which hold interfaces.
        self.connections.get_mut().clear();
        self.managers.get_mut().clear();
        for iface in self.selector.ifaces() {
            iface.clear_am_placer();
            iface.clear_am_handler(AM_ID);
        }
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("ifaces", &self.inner.selector.ifaces()).finish_non_exhaustive()
    }
}

/// Since when there was nothing to do.
pub(crate) struct Idle {
    wait: Wait,
    passes: u32,
    since: Option<Instant>,
    sleep: Sleep,
}

/// Whether the thread has slept since then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleep {
    None,
    /// Until an event.
    Open,
    /// No longer than to a timer that was due soon, so that it says nothing about the peers.
    Timed,
}

impl Idle {
    pub(crate) fn new(wait: Wait) -> Idle {
        Idle { wait, passes: 0, since: None, sleep: Sleep::None }
    }

    /// There is something to do that is not the network's.
    pub(crate) fn reset(&mut self) {
        (self.since, self.sleep) = (None, Sleep::None);
    }

    /// There was an event of the network.
    pub(crate) fn is_busy(&mut self, net: &NetInner) {
        let (Some(since), Wait::Adaptive(_)) = (self.since, self.wait) else { return };
        let mut polling = net.polling.get();
        match self.sleep {
            Sleep::None => polling.hit(),
            Sleep::Open => polling.slept(since.elapsed()),
            Sleep::Timed => {}
        }
        net.polling.set(polling);
        self.reset();
    }

    /// Whether it is time to sleep.
    #[inline]
    pub(crate) fn is_over(&mut self, net: &NetInner) -> bool {
        match self.wait {
            Wait::Spin => {
                self.passes = self.passes.wrapping_add(1);
                if self.passes.is_multiple_of(YIELD_INTERVAL) {
                    // Where both sides share a processor, the other one has to run too.
                    std::thread::yield_now();
                }
                false
            }
            Wait::Sleep => true,
            Wait::Adaptive(usual) => self.has_polled(net, usual),
        }
    }

    /// Whether an adaptive thread has polled for as long as it should.
    #[inline(never)]
    fn has_polled(&mut self, net: &NetInner, usual: Duration) -> bool {
        let least = if net.reactor.has_handshakes() { HANDSHAKE_POLLING } else { Duration::ZERO };
        let limit = net.polling.get().limit(usual).max(least);
        let is_over = self.since.get_or_insert_with(Instant::now).elapsed() >= limit;
        if is_over && self.sleep == Sleep::None {
            let next = net.reactor.next_timer();
            let is_soon = next.is_some_and(|next| next <= polling::LONGEST);
            self.sleep = if is_soon { Sleep::Timed } else { Sleep::Open };
        }
        is_over
    }
}

/// Wakes the thread of a [`Net`]: with a flag, and from another thread with the worker's descriptor as well.
struct ThreadWaker {
    is_woken: AtomicBool,
    owner: ThreadId,
    worker: WorkerHandle,
}

impl ThreadWaker {
    fn is_set(&self) -> bool {
        // SYNC: pairs with `wake` of other threads.
        self.is_woken.load(Ordering::Acquire)
    }

    fn take(&self) -> bool {
        // The flag is mostly down, and a load is cheaper than a swap.
        // SYNC: what was made ready ahead of a `wake` is seen by the poll that follows.
        self.is_set() && self.is_woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // SYNC: pairs with `is_set`.
        self.is_woken.store(true, Ordering::Release);
        if std::thread::current().id() != self.owner {
            self.worker.wake();
        }
    }
}
