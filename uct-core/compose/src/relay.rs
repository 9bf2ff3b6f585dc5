//! The handlers that a plugin is given: they hand messages on to the application's, and frames to the interface.

use std::cell::OnceCell;
use std::ffi::c_void;
use std::rc::{Rc, Weak};

use ucs::log::Limited;
use uct_plugin::abi::{
    UCT_AM_DESC, UCT_AM_IDS, UCT_AM_SHARED, UCT_INPROGRESS, UCT_OK, UctAmCallback, UctAmTable, UctStatus,
};
use uct_plugin::{AmHandlers, Disposition, guarded};

use crate::wire::{CHANNEL, HEAD, Head, Kind};

/// Lines about frames that are none.
static DROPPED: Limited = Limited::new(Limited::LINES_A_SECOND);

/// What takes frames, requests among them ahead of the messages that were sent behind.
pub(crate) trait Receiver {
    /// Takes one in. A call of the plugin's is on the stack.
    fn take(&self, frame: Vec<u8>);
}

/// Where frames go; without one, messages of the last id are the application's like all others.
pub(crate) type Channel = Rc<OnceCell<Weak<dyn Receiver>>>;

/// The table of handlers, and what its entries are called with. Neither moves as long as it is there.
pub(crate) struct Relay {
    table: Box<UctAmTable>,
    _entries: Box<[Entry; UCT_AM_IDS]>,
}

/// What the handler of one id is called with.
struct Entry {
    handlers: AmHandlers,
    id: u8,
    channel: Channel,
}

impl Relay {
    /// A table whose messages go to these handlers, and frames into the channel.
    pub(crate) fn new(handlers: AmHandlers, channel: &Channel) -> Relay {
        let entry = |id: usize| Entry { handlers, id: id as u8, channel: Rc::clone(channel) };
        let entries = Box::new(std::array::from_fn::<Entry, UCT_AM_IDS, _>(entry));
        let arguments = entries.each_ref().map(|entry| std::ptr::from_ref(entry).cast_mut().cast::<c_void>());
        let mut callbacks = [pass_on as UctAmCallback; UCT_AM_IDS];
        callbacks[usize::from(CHANNEL)] = take_frame;
        Relay { table: Box::new(UctAmTable { callbacks, arguments }), _entries: entries }
    }

    /// For the plugin, which only reads it.
    pub(crate) fn as_ptr(&self) -> *mut UctAmTable {
        std::ptr::from_ref(&*self.table).cast_mut()
    }
}

/// # Safety
/// `argument` is one of the table's, which is there.
unsafe fn entry<'a>(argument: *mut c_void) -> &'a Entry {
    // SAFETY: the caller's promise; entries do not change.
    unsafe { &*argument.cast::<Entry>() }
}

/// One of [`UctAmTable::callbacks`]: as the application's.
unsafe extern "C" fn pass_on(
    argument: *mut c_void,
    data: *mut c_void,
    length: usize,
    flags: u32,
) -> UctStatus {
    // SAFETY: the callback is called with its argument (`UctAmTable`).
    let entry = unsafe { entry(argument) };
    // SAFETY: the plugin's data, as it describes them with the flags.
    unsafe { deliver(entry, entry.id, data.cast(), length, flags) }
}

/// # Safety
/// The data are as a plugin promises of them with these flags (`UctAmCallback`).
unsafe fn deliver(entry: &Entry, id: u8, data: *mut u8, length: usize, flags: u32) -> UctStatus {
    if flags & UCT_AM_DESC != 0 {
        // SAFETY: the caller's promise.
        let disposition = unsafe { entry.handlers.deliver_desc(id, data, length) };
        return if disposition == Disposition::Kept { UCT_INPROGRESS } else { UCT_OK };
    }
    if flags & UCT_AM_SHARED != 0 {
        // SAFETY: the caller's promise.
        unsafe { entry.handlers.deliver_shared(id, data, length) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { entry.handlers.deliver(id, data, length) };
    }
    UCT_OK
}

/// One of [`UctAmTable::callbacks`]: a message of the application's is delivered, other frames are the interface's.
unsafe extern "C" fn take_frame(
    argument: *mut c_void,
    data: *mut c_void,
    length: usize,
    flags: u32,
) -> UctStatus {
    // SAFETY: the callback is called with its argument (`UctAmTable`).
    let entry = unsafe { entry(argument) };
    let Some(receiver) = entry.channel.get() else {
        // SAFETY: as called.
        return unsafe { pass_on(argument, data, length, flags) };
    };
    let data = data.cast::<u8>();
    if length < HEAD {
        if let Some(left_out) = DROPPED.admit() {
            ucs::log::debug!(length, "a frame that is shorter than its head is dropped{left_out}");
        }
        return UCT_OK;
    }
    let mut head = [0; HEAD];
    // SAFETY: so many bytes are readable. Others may write there, so each is read once.
    unsafe { head.as_mut_ptr().copy_from_nonoverlapping(data, HEAD) };
    let (rest, length) = (data.wrapping_add(HEAD), length - HEAD);
    match Head::read(&head) {
        Some((Head { kind: Kind::Message, .. }, _)) => {
            // Without the mark that it may be kept: what is released would have to be the plugin's pointer.
            let flags = flags & UCT_AM_SHARED;
            // SAFETY: what lies behind the head of the plugin's data.
            unsafe { deliver(entry, CHANNEL, rest, length, flags) };
        }
        Some(_) => guarded("take_frame", (), || {
            let mut frame = vec![0; HEAD + length];
            let (first, body) = frame.split_at_mut(HEAD);
            first.copy_from_slice(&head);
            // SAFETY: the plugin's data, and the body is as long.
            unsafe { body.as_mut_ptr().copy_from_nonoverlapping(rest, length) };
            if let Some(receiver) = receiver.upgrade() {
                receiver.take(frame);
            }
        }),
        None => {
            if let Some(left_out) = DROPPED.admit() {
                ucs::log::debug!("a frame of an unknown kind is dropped{left_out}");
            }
        }
    }
    UCT_OK
}
