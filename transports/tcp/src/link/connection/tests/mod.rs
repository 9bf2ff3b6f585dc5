//! Connections over a pair of sockets: one end is a connection of an interface, the other one a test's, which writes and reads bytes.

mod acknowledging;
mod connecting;
mod framing;
mod keeping;
mod living;
mod placing;
mod queueing;
mod receiving;
mod remote;
mod sending;
mod taking_over;

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;
use ucs::units::MemSize;
use ucs::{Error, Result};
use uct_plugin::abi::*;
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{AmHandlers, AmPlacer, Completion, Iov, Outcome};

use super::{Conn, State};
use crate::config::TcpConfig;
use crate::iface::TcpIface;
use crate::md::TcpMd;
use crate::proto::wire::{FEATURE_RMA, Hello, HelloKind, frame_header, padded};

/// The settings of a test.
struct Values(&'static [(&'static str, &'static str)]);

impl ucs::config::Lookup for Values {
    fn text(&self, _section: &str, name: &str) -> Option<std::borrow::Cow<'_, str>> {
        self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
    }
}

/// What a handler does with a message.
type Handler = Box<dyn FnMut(u8, &[u8])>;

/// Whether a handler keeps a message.
type Keeper = Box<dyn FnMut(*mut u8, usize) -> bool>;

/// What the interface's handlers call. It lives behind a pointer that they are given.
#[derive(Default)]
struct Inbox {
    messages: RefCell<Vec<(u8, Vec<u8>)>>,
    handler: RefCell<Option<Handler>>,
    keeper: RefCell<Option<Keeper>>,
}

/// An argument of the handler for each id.
struct Slot {
    id: u8,
    inbox: *const Inbox,
}

struct Bed {
    iface: Rc<TcpIface>,
    conn: Rc<Conn>,
    peer: UnixStream,
    inbox: Rc<Inbox>,
    placing: Box<placing::Placing>,
    /// How often the host was asked for progress.
    requests: Rc<Cell<u32>>,
    _slots: Vec<Slot>,
    _table: Box<UctAmTable>,
}

unsafe extern "C" fn take(argument: *mut c_void, data: *mut c_void, length: usize, _flags: u32) -> UctStatus {
    // SAFETY: the bed keeps its slots as long as its interface.
    let slot = unsafe { &*argument.cast::<Slot>() };
    // SAFETY: as above.
    let inbox = unsafe { &*slot.inbox };
    let place = data.cast::<u8>();
    // SAFETY: a message is readable until its handler returns.
    let data = unsafe { std::slice::from_raw_parts(place, length) };
    inbox.messages.borrow_mut().push((slot.id, data.to_vec()));
    let handler = inbox.handler.borrow_mut().take();
    if let Some(mut handler) = handler {
        handler(slot.id, data);
        inbox.handler.borrow_mut().get_or_insert(handler);
    }
    let keeps = inbox.keeper.borrow_mut().as_mut().is_some_and(|keeper| keeper(place, length));
    if keeps { UCT_INPROGRESS } else { UCT_OK }
}

unsafe extern "C" fn unheard(_: *mut c_void, _: *mut c_void, _: UctStatus, _: UctStr) {}

impl Bed {
    /// A established connection.
    fn new(settings: &'static [(&'static str, &'static str)]) -> Bed {
        Bed::with_headroom(settings, 0)
    }

    /// The same whose messages have writable bytes ahead of them.
    fn with_headroom(settings: &'static [(&'static str, &'static str)], headroom: usize) -> Bed {
        Bed::with(settings, headroom).established()
    }

    fn established(mut self) -> Bed {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        self.peer = theirs;
        self.conn.establish(&self.iface.shared, &self.hello(HelloKind::Hello), Some(Socket::from(ours)));
        assert_eq!(self.conn.state(), State::Established);
        self.iface.advance();
        self
    }

    /// A connection without a socket; the peer's end is connected to nothing.
    fn unconnected(settings: &'static [(&'static str, &'static str)]) -> Bed {
        Bed::with(settings, 0)
    }

    fn with(settings: &'static [(&'static str, &'static str)], headroom: usize) -> Bed {
        Bed::of(TcpConfig::from_settings(&Values(settings)).unwrap(), headroom)
    }

    /// A established connection of an interface whose send buffers are larger than all memory.
    fn without_memory() -> Bed {
        let mut config = TcpConfig::from_settings(&Values(&[])).unwrap();
        config.tx_buf_size = MemSize::new(1 << 48);
        Bed::of(config, 0).established()
    }

    fn of(config: TcpConfig, headroom: usize) -> Bed {
        let inbox = Rc::new(Inbox::default());
        let mut slots: Vec<_> =
            (0..UCT_AM_IDS).map(|id| Slot { id: id as u8, inbox: Rc::as_ptr(&inbox) }).collect();
        let mut table =
            Box::new(UctAmTable { callbacks: [take; UCT_AM_IDS], arguments: [ptr::null_mut(); UCT_AM_IDS] });
        for (argument, slot) in table.arguments.iter_mut().zip(&mut slots) {
            *argument = ptr::from_mut(slot).cast();
        }
        // SAFETY: the bed keeps the table as long as the interface.
        let am = unsafe { AmHandlers::new(&raw mut *table) }.unwrap();
        let placing = Box::new(placing::Placing::default());
        // SAFETY: as the handlers' table.
        let placer = unsafe { AmPlacer::new(placing.table()) };
        // SAFETY: the handler takes any argument.
        let errors = unsafe { ErrorHandler::new(unheard, ptr::null_mut()) };
        let requests = Rc::<Cell<u32>>::default();
        let asked = Rc::clone(&requests);
        let request = Box::new(move || asked.set(asked.get() + 1));
        let md = Arc::new(TcpMd::default());
        let iface = TcpIface::open(&md, "lo", config, (am, placer), errors, request, headroom).unwrap();
        let conn = iface.table.add(7, 1, None).unwrap();
        let (peer, _) = UnixStream::pair().unwrap();
        Bed { iface, conn, peer, inbox, placing, requests, _slots: slots, _table: table }
    }

    /// What the peer's interface says of itself.
    fn hello(&self, kind: HelloKind) -> Hello {
        Hello { sender: 7, features: FEATURE_RMA, ..self.iface.shared.hello(kind) }
    }

    fn progress(&self) {
        rounds(&self.iface);
    }

    fn send(&self, id: u8, payload: &[u8]) -> Result {
        let header = frame_header(id, payload.len()).to_ne_bytes();
        self.conn.send_frame(&self.iface.shared, &header, payload)
    }

    /// Lets the socket take so little that it takes larger frames in parts.
    fn narrow(&self) {
        let socket = self.conn.socket.borrow();
        socket.as_ref().unwrap().set_send_buffer_size(1).unwrap();
    }

    /// Has exactly so many copied bytes wait.
    fn queue_exactly(&self, bytes: usize) {
        self.conn.drop_queue(&mut Vec::new());
        self.conn.append(&self.iface.shared, vec![0; bytes].as_slice());
        assert_eq!(self.conn.copied_bytes(), bytes);
    }

    /// Sends until there is no room; returns the bytes that the peer will read.
    fn fill(&self, payload: &[u8]) -> Vec<u8> {
        let mut sent = Vec::new();
        for _ in 0..100_000 {
            match self.send(3, payload) {
                Ok(()) => sent.extend(frame(3, payload)),
                Err(error) => {
                    assert_eq!(error, Error::NO_RESOURCE);
                    return sent;
                }
            }
            self.iface.shared.next_epoch();
        }
        panic!("there is always room");
    }

    /// Bytes received by the peer, without waiting for more.
    fn read(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (&self.peer).read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        bytes
    }

    /// What comes to the peer while this side makes progress.
    fn read_all(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            self.progress();
            let more = self.read();
            if more.is_empty() {
                return bytes;
            }
            bytes.extend(more);
        }
    }

    /// Writes as the peer, with progress in between.
    fn write(&self, mut bytes: &[u8]) {
        for _ in 0..100_000 {
            match (&self.peer).write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // This side has closed it.
                Err(_) => return,
            }
            self.progress();
            if bytes.is_empty() {
                return;
            }
        }
        panic!("{} bytes are not read", bytes.len());
    }

    fn messages(&self) -> Vec<(u8, Vec<u8>)> {
        self.inbox.messages.take()
    }

    fn on_message(&self, handler: impl FnMut(u8, &[u8]) + 'static) {
        *self.inbox.handler.borrow_mut() = Some(Box::new(handler));
    }

    fn failure(&self) -> Option<Error> {
        match self.conn.state() {
            State::Closed(error) => Some(error),
            _ => None,
        }
    }
}

/// Rounds of progress, more than anything here takes.
fn rounds(iface: &TcpIface) {
    for _ in 0..64 {
        iface.advance();
    }
}

/// A frame with the zeros behind it.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame_header(kind, payload.len()).to_ne_bytes().to_vec();
    bytes.extend(payload);
    bytes.resize(8 + padded(payload.len()), 0);
    bytes
}

/// Bytes of which no two neighbours are alike.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251 + 1) as u8).collect()
}

/// A completion of the host's, for one operation.
struct Ending(Box<UctCompletion>);

unsafe extern "C" fn ended(_completion: *mut UctCompletion) {}

impl Ending {
    fn new() -> Ending {
        Ending(Box::new(UctCompletion { func: ended, count: 1, status: UCT_OK }))
    }

    fn completion(&mut self) -> Option<Completion> {
        // SAFETY: the box outlives the operation in every test.
        unsafe { Completion::new(&raw mut *self.0) }
    }

    /// The status, once it was completed.
    fn status(&self) -> Option<UctStatus> {
        // SAFETY: the place is the box's own; the completion wrote through a pointer.
        let now = unsafe { ptr::read_volatile(&raw const *self.0) };
        (now.count == 0).then_some(now.status)
    }
}

/// The entries of a vector of these blocks.
fn entries(blocks: &[&[u8]]) -> Vec<UctIov> {
    let entry = |block: &&[u8]| UctIov {
        buffer: block.as_ptr().cast_mut().cast(),
        length: block.len(),
        memh: ptr::null_mut(),
        stride: 0,
        count: 1,
    };
    blocks.iter().map(entry).collect()
}

/// The vector, which is not written.
fn vector(entries: &[UctIov]) -> Iov<'_> {
    // SAFETY: the tests keep entries and blocks until the operation has ended.
    unsafe { Iov::new(entries.as_ptr(), entries.len()) }
}
