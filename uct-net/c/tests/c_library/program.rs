//! What every test needs: nets, connections, and the ends of operations.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};

use uct_net_c::abi::*;
use uct_net_c::exports::*;

/// Everything that has to come comes within this.
pub const LIMIT: i64 = 60_000_000_000;
pub const OK: i32 = 0;
pub const IN_PROGRESS: i32 = 1;
pub const INVALID_PARAM: i32 = -5;
pub const TRUNCATED: i32 = -9;
pub const NO_ELEM: i32 = -12;
pub const CANCELED: i32 = -16;
pub const OUT_OF_RANGE: i32 = -19;
pub const NOT_CONNECTED: i32 = -24;

/// A handle.
pub type Raw = *mut c_void;

/// A handle of an event.
pub fn handle(event: &uct_event) -> Raw {
    std::ptr::without_provenance_mut(event.result as usize)
}

/// The reason of an operation, or of the last refusal of this thread.
pub fn reason(net: Raw, op: u64) -> String {
    let text = uct_error(net, op);
    if text.is_null() {
        return "none".to_owned();
    }
    // SAFETY: a text of the library, valid until the next call.
    unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").to_owned()
}

/// The last call was refused with this in its reason.
#[track_caller]
pub fn refused(words: &str) {
    let reason = reason(null_mut(), 0);
    assert!(reason.contains(words), "{reason}");
}

pub fn options(pairs: &[(&str, &str)]) -> Raw {
    let options = uct_options_create();
    assert!(!options.is_null());
    for (key, value) in pairs {
        let (key, value) = (CString::new(*key).unwrap(), CString::new(*value).unwrap());
        // SAFETY: two texts.
        assert_eq!(unsafe { uct_options_set(options, key.as_ptr(), value.as_ptr()) }, OK);
    }
    options
}

/// A net with limits that a busy machine does not reach.
pub fn open(pairs: &[(&str, &str)]) -> Raw {
    let patient = [("connect_timeout", "60s"), ("handshake_timeout", "30s"), ("lane_timeout", "20s")];
    let options = options(&[&patient, pairs].concat());
    let net = uct_net_open(options);
    assert!(!net.is_null(), "{}", reason(net, 0));
    assert_eq!(uct_options_free(options), OK);
    net
}

/// The event of an operation.
#[track_caller]
pub fn ended(net: Raw, op: u64) -> uct_event {
    assert_ne!(op, 0, "refused: {}", reason(net, 0));
    let mut event = uct_event::default();
    // SAFETY: room for one event.
    let status = unsafe { uct_wait(net, op, LIMIT, &raw mut event) };
    assert_eq!((status, event.op), (event.status, op), "{}", reason(net, 0));
    event
}

/// The event of an operation that has to succeed.
#[track_caller]
pub fn done(net: Raw, op: u64) -> uct_event {
    let event = ended(net, op);
    assert_eq!(event.status, OK, "{}", reason(net, op));
    event
}

pub fn listen(net: Raw, address: &str) -> Raw {
    let address = CString::new(address).unwrap();
    // SAFETY: a text.
    handle(&done(net, unsafe { uct_listen(net, address.as_ptr(), null(), 1) }))
}

pub fn address(listener: Raw) -> CString {
    let mut text = [0_u8; 128];
    // SAFETY: the room is that of the text.
    let length = unsafe { uct_listener_address(listener, text.as_mut_ptr().cast(), text.len()) };
    assert!(length > 0, "{}", reason(null_mut(), 0));
    CStr::from_bytes_until_nul(&text).unwrap().to_owned()
}

pub fn connect(net: Raw, address: &CStr) -> u64 {
    // SAFETY: a text.
    unsafe { uct_connect(net, address.as_ptr(), null(), 2) }
}

pub fn send(conn: Raw, bytes: &[u8], user: u64) -> u64 {
    // SAFETY: as many bytes as there are.
    unsafe { uct_send(conn, bytes.as_ptr().cast(), bytes.len(), user) }
}

/// The bytes of a message, which is released.
pub fn bytes(event: &uct_event) -> Vec<u8> {
    let start: *const u8 = std::ptr::with_exposed_provenance(event.data as usize);
    // SAFETY: a message of the library, until it is released.
    let bytes = unsafe { std::slice::from_raw_parts(start, event.length as usize) }.to_vec();
    assert_eq!(uct_message_release(handle(event)), OK);
    bytes
}

/// Two nets, and a connection between them.
pub struct Pair {
    pub nets: [Raw; 2],
    pub listener: Raw,
    pub conns: [Raw; 2],
}

impl Pair {
    pub fn new() -> Pair {
        Pair::with(&[])
    }

    pub fn with(pairs: &[(&str, &str)]) -> Pair {
        let nets = [open(pairs), open(pairs)];
        let listener = listen(nets[0], "127.0.0.1:0");
        let accept = uct_accept(listener, 3);
        let connected = connect(nets[1], &address(listener));
        let conns = [done(nets[0], accept), done(nets[1], connected)].map(|event| handle(&event));
        Pair { nets, listener, conns }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for net in self.nets {
            let status = uct_net_close(net);
            assert!(std::thread::panicking() || status == OK, "{}", reason(null_mut(), 0));
        }
    }
}
