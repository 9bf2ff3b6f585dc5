//! Long active messages that are received straight to where the application likes them.

use std::mem::offset_of;
use std::ptr::NonNull;

use uct_abi::{UCT_OK, UctAmPlacer, UctIfaceParams};

/// Where the table lies in a host's parameters.
const PLACER: usize = offset_of!(UctIfaceParams, am_placer);

/// The host's table of functions that take long messages.
#[derive(Clone, Copy)]
pub struct AmPlacer(NonNull<UctAmPlacer>);

impl AmPlacer {
    /// Of the host's table; `None` if it is null. For tests of a transport; an interface gets it with its parameters.
    ///
    /// # Safety
    /// `table` stays valid as long as the value is used, and is used by this thread alone, which the host promises for the life of an
    /// interface (`UctIfaceParams`).
    pub unsafe fn new(table: *const UctAmPlacer) -> Option<AmPlacer> {
        NonNull::new(table.cast_mut()).map(AmPlacer)
    }

    /// Of a host's parameters, which older hosts end earlier.
    ///
    /// # Safety
    /// As [`AmPlacer::new`].
    pub(crate) unsafe fn of(params: *const UctIfaceParams) -> Option<AmPlacer> {
        // SAFETY: every host's parameters begin with their size.
        let size =
            unsafe { params.wrapping_byte_add(offset_of!(UctIfaceParams, size)).cast::<usize>().read() };
        if size <= PLACER {
            return None;
        }
        // SAFETY: they are long enough for the field.
        let table = unsafe { params.wrapping_byte_add(PLACER).cast::<*const UctAmPlacer>().read() };
        // SAFETY: the caller's promise.
        unsafe { AmPlacer::new(table) }
    }

    fn table(&self) -> UctAmPlacer {
        // SAFETY: the promise of `new`; the host changes it between calls only.
        unsafe { self.0.read() }
    }

    /// Whether messages of this id may be taken.
    #[inline]
    pub fn takes(&self, id: u8) -> bool {
        let ids = self.0.as_ptr().wrapping_byte_add(offset_of!(UctAmPlacer, ids)).cast::<u32>();
        // SAFETY: as above.
        let ids = unsafe { ids.read() };
        ids.checked_shr(u32::from(id)).is_some_and(|ids| ids & 1 != 0)
    }

    /// Offers a message of `length` bytes, of which those in `head` have arrived. If it is taken, the rest goes where the arrival says.
    pub fn begin(&self, id: u8, head: &[u8], length: usize) -> Option<Arrival> {
        let table = self.table();
        let mut name = 0;
        let begin = table.begin?;
        // SAFETY: the slot goes with its argument; the head is readable for the call.
        let status = unsafe {
            begin(table.argument, u32::from(id), head.as_ptr().cast(), head.len(), length, &raw mut name)
        };
        (status == UCT_OK).then_some(Arrival { placer: *self, name, length, received: head.len() })
    }
}

/// A long message that is arriving. Dropped before its end, it is lost, as its connection is.
pub struct Arrival {
    placer: AmPlacer,
    name: u64,
    length: usize,
    received: usize,
}

impl Arrival {
    /// Bytes that have not arrived.
    pub fn missing(&self) -> usize {
        self.length - self.received
    }

    /// Where the next bytes go, and how many there; `None`: nobody wants the rest. Valid until the host is called again.
    pub fn place(&self) -> Option<(NonNull<u8>, usize)> {
        let table = self.placer.table();
        let mut room = 0;
        // SAFETY: the slot goes with its argument, and the name is one of its own.
        let place = unsafe { table.place?(table.argument, self.name, self.received, &raw mut room) };
        let room = room.min(self.missing());
        NonNull::new(place.cast::<u8>()).filter(|_| room > 0).map(|place| (place, room))
    }

    /// So many more bytes have arrived.
    pub fn advance(&mut self, received: usize) {
        debug_assert!(received <= self.missing());
        self.received += received.min(self.missing());
    }

    /// All of it has arrived.
    pub fn end(self) {
        debug_assert_eq!(self.missing(), 0);
        let table = self.placer.table();
        let Some(end) = table.end else { return };
        // SAFETY: as in `place`.
        unsafe { end(table.argument, self.name, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::ffi::c_void;
    use std::mem::MaybeUninit;
    use std::ptr;
    use uct_abi::{UCT_ERR_NO_ELEM, UctStatus};

    /// What was called.
    #[derive(Default)]
    struct Told {
        begun: Vec<(u32, Vec<u8>, usize)>,
        placed: Vec<usize>,
        ended: Vec<(u64, usize)>,
        space: [u8; 16],
    }

    unsafe extern "C" fn begin(
        argument: *mut c_void,
        id: u32,
        head: *const c_void,
        head_length: usize,
        length: usize,
        arrival: *mut u64,
    ) -> UctStatus {
        // SAFETY: the table below has this argument.
        let told = unsafe { &*argument.cast::<RefCell<Told>>() };
        // SAFETY: the head is readable for the call.
        let head = unsafe { std::slice::from_raw_parts(head.cast::<u8>(), head_length) };
        told.borrow_mut().begun.push((id, head.to_vec(), length));
        // SAFETY: the caller's place for the answer.
        unsafe { arrival.write(77) };
        if id == 3 { UCT_OK } else { UCT_ERR_NO_ELEM }
    }

    unsafe extern "C" fn place(
        argument: *mut c_void,
        arrival: u64,
        offset: usize,
        room: *mut usize,
    ) -> *mut c_void {
        assert_eq!(arrival, 77);
        // SAFETY: as in `begin`.
        let told = unsafe { &*argument.cast::<RefCell<Told>>() };
        let mut told = told.borrow_mut();
        told.placed.push(offset);
        // SAFETY: the caller's place for the answer.
        unsafe { room.write(1000) };
        if offset < 12 { told.space[offset..].as_mut_ptr().cast() } else { ptr::null_mut() }
    }

    unsafe extern "C" fn end(argument: *mut c_void, arrival: u64, length: usize) {
        // SAFETY: as in `begin`.
        let told = unsafe { &*argument.cast::<RefCell<Told>>() };
        told.borrow_mut().ended.push((arrival, length));
    }

    #[test]
    fn a_message_that_is_taken_goes_where_it_is_told_and_ends_once() {
        let told = RefCell::new(Told::default());
        let argument = ptr::from_ref(&told).cast_mut().cast();
        let size = size_of::<UctAmPlacer>();
        let table = UctAmPlacer {
            size,
            argument,
            ids: 1 << 3,
            begin: Some(begin),
            place: Some(place),
            end: Some(end),
        };
        // SAFETY: the table outlives the value.
        let placer = unsafe { AmPlacer::new(&raw const table) }.expect("a table");
        assert!(placer.takes(3) && !placer.takes(4) && !placer.takes(32 + 3));
        assert!(placer.begin(4, b"he", 14).is_none(), "it is not taken");
        let mut arrival = placer.begin(3, b"head", 14).expect("it is taken");
        assert_eq!(told.borrow().begun, [(4, b"he".to_vec(), 14), (3, b"head".to_vec(), 14)]);
        let start = told.borrow_mut().space.as_mut_ptr();
        let (place, room) = arrival.place().expect("a place");
        assert_eq!((place.as_ptr(), room), (start.wrapping_add(4), 10), "no more than is missing");
        arrival.advance(8);
        assert_eq!(arrival.missing(), 2);
        assert!(arrival.place().is_none(), "nobody wants the rest");
        arrival.advance(2);
        assert_eq!(arrival.missing(), 0);
        arrival.end();
        assert_eq!((&told.borrow().placed[..], &told.borrow().ended[..]), (&[4, 12][..], &[(77, 14)][..]));
        assert!(placer.begin(3, b"head", 14).is_some());
        assert_eq!(told.borrow().ended.len(), 1, "one that was dropped does not end");
    }

    #[test]
    fn parameters_of_an_older_host_have_none() {
        let told = RefCell::new(Told::default());
        let table = UctAmPlacer {
            size: size_of::<UctAmPlacer>(),
            argument: ptr::from_ref(&told).cast_mut().cast(),
            ids: 0,
            begin: None,
            place: None,
            end: None,
        };
        let mut params = MaybeUninit::<UctIfaceParams>::zeroed();
        let field = params.as_mut_ptr().wrapping_byte_add(PLACER).cast::<*const UctAmPlacer>();
        // SAFETY: a field of the parameters.
        unsafe { field.write(&raw const table) };
        for (size, is_there) in [(PLACER, false), (size_of::<UctIfaceParams>(), true)] {
            // SAFETY: the first field of the parameters is their size.
            unsafe { params.as_mut_ptr().cast::<usize>().write(size) };
            // SAFETY: both fields are there, and the table outlives the value.
            assert_eq!(unsafe { AmPlacer::of(params.as_ptr()) }.is_some(), is_there);
        }
    }
}
