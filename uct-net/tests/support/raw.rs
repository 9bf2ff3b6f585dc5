//! A peer that speaks the protocol by its bytes, and may break it wherever it wants to.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::rc::Rc;
use std::time::Instant;

use uct_core::select::{PeerAddresses, Selector};
use uct_core::{Ep, Error as Status, Iface, IfaceAddress, IfaceOptions, SendFlags, SocketSide, Worker};
use uct_net::local::AM_ID;

use super::{LIMIT, context};

pub const HELLO: u8 = 1;
pub const WELCOME: u8 = 2;
pub const REFUSED: u8 = 3;
pub const LANE: u8 = 4;
pub const OVER: u8 = 11;
pub const DIRECT: u8 = 12;
pub const TAKEOVER: u8 = 13;
pub const READY: u8 = 5;
pub const UNABLE: u8 = 6;
pub const CONNECTED: u8 = 7;
pub const ASK: u8 = 8;
pub const CHALLENGE: u8 = 9;
pub const ANSWER: u8 = 10;

pub const LAST: u8 = 1;
pub const PART: u8 = 2;
pub const CREDIT: u8 = 3;
pub const PROBE: u8 = 4;
pub const PROBE_REPLY: u8 = 5;
pub const FIN: u8 = 6;
pub const ABORT: u8 = 8;
pub const SHARE: u8 = 9;
pub const OFFER: u8 = 10;
pub const TAKEN: u8 = 11;
pub const IN_PARTS: u8 = 12;
pub const NOTIFY: u8 = 13;

/// The version of the protocol.
pub const VERSION: u8 = 6;

/// What messages to a connection carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The header.
    pub header: u64,
    /// The three bytes behind the kind.
    pub rest: u32,
}

/// The token that this side gives the peer.
const OWN_TOKEN: Token = Token { header: 0x0123_4567_89ab_cdef, rest: 0x01_2345 };

impl Token {
    /// As it is in a frame.
    pub fn to_bytes(self) -> Vec<u8> {
        [&self.header.to_le_bytes()[..], &self.rest.to_le_bytes()[..3]].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Token {
        let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        Token { header, rest: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], 0]) }
    }
}

/// A body with its header.
pub fn frame(what: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"UCTN".to_vec();
    bytes.extend_from_slice(&[VERSION, what, 0, 0]);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The fields of frames.
pub const PRIVATE: u16 = 1;
pub const ADDRESSES: u16 = 2;
pub const EXPLANATION: u16 = 3;
pub const REASON: u16 = 4;
pub const OWN: u16 = 5;
pub const THEIRS: u16 = 6;
pub const TOKEN: u16 = 7;
pub const WINDOW: u16 = 8;
pub const ENDPOINT: u16 = 9;
pub const NONCE: u16 = 10;
/// The bit of those that must be understood.
pub const MUST: u16 = 1 << 15;

/// A field of these that has to be understood.
pub fn field(number: u16, bytes: &[u8]) -> Vec<u8> {
    any_field(number | MUST, bytes)
}

/// A field with any tag.
pub fn any_field(tag: u16, bytes: &[u8]) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

/// The value of a field.
pub fn value(mut body: &[u8], number: u16) -> Vec<u8> {
    while let Some((&[a, b, c, d, e, f], rest)) = body.split_first_chunk() {
        let (value, rest) = rest.split_at(u32::from_le_bytes([c, d, e, f]) as usize);
        if u16::from_le_bytes([a, b]) & !MUST == number {
            return value.to_vec();
        }
        body = rest;
    }
    panic!("no field {number}");
}

/// Kinds and payloads.
type Inbox = VecDeque<(u8, Vec<u8>)>;

/// What such a peer has of its own.
pub struct Raw {
    pub worker: Worker,
    selector: Selector,
    inbox: Rc<RefCell<Inbox>>,
}

/// A call of a listener, as far as it came.
pub struct Call {
    pub raw: Rc<Raw>,
    pub socket: TcpStream,
    /// What the peer makes of the interfaces of this side.
    pub explanation: String,
    pub theirs: IfaceAddress,
    own: IfaceAddress,
    iface: Iface,
    /// The token in the Welcome.
    token: Token,
    window: u32,
}

/// A connection of such a peer.
pub struct RawConnection {
    pub call: Call,
    pub ep: Ep,
    /// What messages to the peer carry.
    pub token: Token,
    pub window: u32,
}

impl Raw {
    pub fn new() -> Rc<Raw> {
        let worker = Worker::new(&context()).expect("a worker");
        let selector = Selector::open(&worker, &IfaceOptions::default()).expect("a transport");
        let inbox = Rc::new(RefCell::new(VecDeque::new()));
        for iface in selector.ifaces() {
            let inbox = Rc::clone(&inbox);
            iface.set_am_handler(AM_ID, move |message| {
                inbox.borrow_mut().push_back((message[8], message[16..].to_vec()));
            });
        }
        Rc::new(Raw { worker, selector, inbox })
    }

    pub fn addresses(&self) -> Vec<u8> {
        self.selector.addresses().pack().expect("addresses")
    }

    /// The fields of a Hello.
    pub fn hello_body(&self) -> Vec<u8> {
        [field(PRIVATE, b""), field(ADDRESSES, &self.addresses())].concat()
    }

    /// Waits for a frame without standing still.
    pub fn read(&self, socket: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
        socket.set_nonblocking(true)?;
        let mut fill = |buffer: &mut [u8]| {
            let (begun, mut filled) = (Instant::now(), 0);
            while filled < buffer.len() {
                self.worker.progress();
                match socket.read(&mut buffer[filled..]) {
                    Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        assert!(begun.elapsed() < LIMIT, "the peer is silent");
                        std::thread::yield_now();
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        let mut header = [0; 12];
        fill(&mut header)?;
        let mut body = vec![0; u32::from_le_bytes(header[8..].try_into().expect("four bytes")) as usize];
        fill(&mut body)?;
        socket.set_nonblocking(false)?;
        Ok((header[5], body))
    }

    /// Lets what was sent arrive.
    pub fn settle(&self) {
        let begun = Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(50) {
            self.worker.progress();
            std::thread::yield_now();
        }
    }

    /// Calls, and sends Hello.
    pub fn hello(&self, address: &str) -> TcpStream {
        self.hello_over(TcpStream::connect(address).expect("the listener lives"))
    }

    fn hello_over(&self, mut socket: TcpStream) -> TcpStream {
        self.send_hello(&mut socket);
        socket
    }

    /// Passes a frame of this kind on, after a change of its body. Returns it.
    pub fn pass_on(
        &self,
        what: u8,
        from: &mut TcpStream,
        to: &mut TcpStream,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<u8> {
        let (found, mut body) = self.read(from).expect("a frame");
        assert_eq!(found, what);
        change(&mut body);
        let bytes = frame(what, &body);
        to.write_all(&bytes).expect("sent");
        bytes
    }

    /// Sends Hello.
    pub fn send_hello(&self, socket: &mut TcpStream) {
        socket.write_all(&frame(HELLO, &self.hello_body())).expect("sent");
    }

    /// Answers a caller until it has chosen a lane; returns the kind of the frame with its choice.
    pub fn welcome(&self, caller: &mut TcpStream) -> u8 {
        self.answer_hello(caller);
        self.read(caller).expect("a frame").0
    }

    /// Answers the Hello of a caller with a Welcome; returns the Hello.
    pub fn answer_hello(&self, caller: &mut TcpStream) -> Vec<u8> {
        let (what, hello) = self.read(caller).expect("a frame");
        assert_eq!(what, HELLO);
        let body = [self.hello_body(), field(EXPLANATION, b"mine\n"), first_end()].concat();
        caller.write_all(&frame(WELCOME, &body)).expect("sent");
        hello
    }

    /// Calls, and takes in the Welcome.
    pub fn call(self: &Rc<Raw>, address: &str, transport: &str) -> Call {
        self.call_over(TcpStream::connect(address).expect("the listener lives"), transport)
    }

    /// The same over a socket that is connected to the listener.
    fn call_over(self: &Rc<Raw>, socket: TcpStream, transport: &str) -> Call {
        let (socket, body) = self.welcome_over(socket);
        let name = transport.split('/').next().expect("a name");
        let same = |found: &&uct_core::select::PeerIface| {
            found.address.transport == name && (name != "tcp" || found.device == "lo")
        };
        let theirs = named(&body).ifaces.iter().find(same).expect("the peer has it").address.clone();
        self.call_to((socket, body), transport, theirs)
    }

    /// Says Hello over a socket that is connected to the listener; returns the Welcome.
    pub fn welcome_over(&self, socket: TcpStream) -> (TcpStream, Vec<u8>) {
        let mut socket = self.hello_over(socket);
        let (what, body) = self.read(&mut socket).expect("an answer");
        assert_eq!(what, WELCOME);
        (socket, body)
    }

    /// A call with its Welcome, that is for an interface of the listener whether or not the Welcome names it.
    pub fn call_to(
        self: &Rc<Raw>,
        (socket, body): (TcpStream, Vec<u8>),
        transport: &str,
        theirs: IfaceAddress,
    ) -> Call {
        let explanation = String::from_utf8(value(&body, EXPLANATION)).expect("text");
        let (token, window) = end(&body);
        let named = |iface: &&Iface| iface.resource().to_string() == transport;
        let iface = self.selector.ifaces().iter().find(named).expect("this transport").clone();
        let own = iface.address().expect("an address");
        Call { raw: Rc::clone(self), socket, explanation, theirs, own, iface, token, window }
    }
}

/// The interfaces that a Hello or a Welcome names.
pub fn named(body: &[u8]) -> PeerAddresses {
    PeerAddresses::unpack(&value(body, ADDRESSES)).expect("addresses")
}

/// An end of a listener: a token, a window, and no address of an endpoint.
pub fn first_end() -> Vec<u8> {
    end_fields(Token { header: 7, rest: 9 }, 65_536)
}

fn end_fields(token: Token, window: u32) -> Vec<u8> {
    let window = field(WINDOW, &window.to_le_bytes());
    [field(TOKEN, &token.to_bytes()), window, field(ENDPOINT, b"")].concat()
}

/// The token and the window of an end.
fn end(body: &[u8]) -> (Token, u32) {
    let window = value(body, WINDOW).try_into().expect("four bytes");
    (Token::from_bytes(&value(body, TOKEN)), u32::from_le_bytes(window))
}

impl Call {
    /// Proposes a lane, with a frame of this kind.
    pub fn propose(&mut self, what: u8) {
        let fields = [
            field(OWN, &self.own.pack().expect("an address")),
            field(THEIRS, &self.theirs.pack().expect("an address")),
            end_fields(OWN_TOKEN, 256 << 10),
        ];
        self.socket.write_all(&frame(what, &fields.concat())).expect("sent");
    }

    /// Names another socket in place of the one that its interface, one of tcp, listens on.
    pub fn listens_at(&mut self, other: SocketAddrV4) {
        let address = &mut self.own.iface;
        // One socket, of IPv4.
        address[3] = 1;
        address[20..].fill(0);
        address[20] = 4;
        address[22..24].copy_from_slice(&other.port().to_be_bytes());
        address[24..28].copy_from_slice(&other.ip().octets());
    }

    /// Names an interface that the peer does not have.
    pub fn names_no_interface(&mut self) {
        self.theirs.iface[0] ^= 1;
    }

    /// The answer to what was proposed.
    pub fn answer(&mut self) -> (u8, Vec<u8>) {
        self.raw.read(&mut self.socket).expect("an answer")
    }

    /// Opens this side's end of a lane to the end in the Welcome, before the peer knows of it.
    pub fn open_early(self) -> RawConnection {
        let ep = self.iface.connect_with(&self.theirs, |_| {}).expect("an endpoint");
        let (token, window) = (self.token, self.window);
        RawConnection { call: self, ep, token, window }
    }

    /// Opens the lane; the peer has sent Ready. One of tcp is the socket of the handshake.
    pub fn open(mut self) -> RawConnection {
        let is_socket = self.iface.adopts();
        self.propose(if is_socket { OVER } else { LANE });
        let (what, body) = self.answer();
        assert_eq!(what, READY);
        let (token, window) = end(&body);
        let ep = if is_socket {
            let socket = self.socket.try_clone().expect("a descriptor").into();
            self.iface.connect_over(&self.theirs, socket, SocketSide::Called, |_| {})
        } else {
            self.iface.connect_with(&self.theirs, |_| {})
        };
        RawConnection { call: self, ep: ep.expect("an endpoint"), token, window }
    }

    /// All of the handshake.
    pub fn connect(self) -> RawConnection {
        let mut connection = self.open();
        assert_eq!(connection.send(PROBE, connection.window_of_mine(), b""), Ok(()));
        assert_eq!(connection.receive().expect("an answer").0, PROBE_REPLY);
        if !connection.call.iface.adopts() {
            connection.call.socket.write_all(&frame(CONNECTED, b"")).expect("sent");
        }
        connection
    }
}

impl RawConnection {
    /// Credit as an honest peer grants it at first.
    pub fn window_of_mine(&self) -> u32 {
        256 << 10
    }

    /// Any bytes behind any header.
    pub fn send_bytes(&self, header: u64, bytes: &[u8]) -> Result<(), Status> {
        let begun = Instant::now();
        loop {
            let pack = |buffer: &mut [u8]| {
                buffer[..8].copy_from_slice(&header.to_ne_bytes());
                buffer[8..8 + bytes.len()].copy_from_slice(bytes);
                8 + bytes.len()
            };
            match self.ep.am_bcopy(AM_ID, SendFlags::empty(), pack) {
                Ok(_) => {
                    self.call.raw.worker.progress();
                    return Ok(());
                }
                Err(Status::NO_RESOURCE) => {
                    self.call.raw.worker.progress();
                    assert!(begun.elapsed() < LIMIT, "no room");
                    std::thread::yield_now();
                }
                Err(status) => return Err(status),
            }
        }
    }

    pub fn send(&self, kind: u8, granted: u32, payload: &[u8]) -> Result<(), Status> {
        self.send_to(self.token, kind, &[&granted.to_le_bytes(), payload].concat())
    }

    /// A message of a kind to any token, with any bytes behind it.
    pub fn send_to(&self, token: Token, kind: u8, bytes: &[u8]) -> Result<(), Status> {
        let [a, b, c, _] = token.rest.to_le_bytes();
        self.send_bytes(token.header, &[&[kind, a, b, c], bytes].concat())
    }

    /// The next message that came: its kind and its payload; `None` if the endpoint has failed.
    pub fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let begun = Instant::now();
        loop {
            self.call.raw.worker.progress();
            if let Some(message) = self.call.raw.inbox.borrow_mut().pop_front() {
                return Some(message);
            }
            if self.ep.failure().is_some() {
                return None;
            }
            assert!(begun.elapsed() < LIMIT, "nothing comes");
            std::thread::yield_now();
        }
    }

    /// The reason with which the peer gives the connection up.
    pub fn aborted(&mut self) -> Option<String> {
        loop {
            let (kind, payload) = self.receive()?;
            if kind == ABORT {
                return Some(String::from_utf8_lossy(&payload).into_owned());
            }
        }
    }
}
