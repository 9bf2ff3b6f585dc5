//! The target's side: carries requests out on registered memory, and says how it went.

use std::cell::Cell;
use std::ptr::NonNull;

use ucs::{Error, Status};

use super::wire::{Malformed, Opcode, RESPONSE_HEADER, Request, Response, ResponseKind, fold};
use crate::attr::AtomicOp;
use crate::memory::{MemoryAccess, Regions};

/// An answer to be sent: the header, then the data.
#[derive(Debug)]
pub struct Answer {
    /// The first bytes of the frame.
    pub header: [u8; RESPONSE_HEADER],
    /// The bytes behind, in registered memory or in this record: send or copy them before anything else is served. What
    /// the owner of registered memory writes meanwhile may be read or not.
    pub data: Data,
}

/// The data of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Data {
    /// Registered memory, checked: address and bytes.
    Memory(NonNull<u8>, usize),
    /// The former value: 8 bytes, of which so many count.
    Value([u8; 8], usize),
}

impl Answer {
    /// First byte and number of bytes behind the header.
    pub fn data(&self) -> (*const u8, usize) {
        match &self.data {
            Data::Memory(address, length) => (address.as_ptr(), *length),
            Data::Value(value, length) => (value.as_ptr(), *length),
        }
    }

    /// Bytes of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        RESPONSE_HEADER + self.data().1
    }
}

/// Carries out the requests of one connection, in order.
#[derive(Debug, Default)]
pub struct Target {
    /// The last request that was carried out and not told of.
    unacknowledged: Cell<Option<u32>>,
}

impl Target {
    /// Carries out a request whose frame is complete; `Some` is an answer to be sent now, ahead of any acknowledgement.
    ///
    /// # Errors
    /// The bytes are no request: the connection is to be closed.
    pub fn serve(&self, regions: &Regions, frame: &[u8]) -> Result<Option<Answer>, Malformed> {
        let (request, data) = Request::read(frame)?;
        if request.opcode == Opcode::Put {
            if data.len() != request.length as usize {
                return Err(Malformed("a put has another length than it says"));
            }
            let admitted = Target::admit_put(regions, &request);
            if let Ok(address) = admitted {
                // SAFETY: the memory is registered for puts and checked for the length; `data` are the transport's own.
                unsafe { address.as_ptr().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
            }
            return Ok(self.put_done(&request, admitted.map(drop)));
        }
        Ok(match Target::carry_out(regions, &request) {
            Ok(None) => {
                self.unacknowledged.set(Some(request.sequence));
                None
            }
            Ok(Some((kind, data))) => Some(self.answer(request.sequence, kind, Status::OK, data)),
            Err(error) => Some(self.refuse(request.sequence, error)),
        })
    }

    /// Checks a put whose data are still on the way, and answers where they go. Check again before writing later: the
    /// owner may deregister the memory meanwhile.
    ///
    /// # Errors
    /// The access is refused; the data are to be dropped, and [`Target::put_done`] told.
    pub fn admit_put(regions: &Regions, request: &Request) -> Result<NonNull<u8>, Error> {
        check(regions, request, MemoryAccess::REMOTE_PUT)
    }

    /// Notes that a put has ended; `Some` is an answer to be sent now.
    pub fn put_done(&self, request: &Request, result: Result<(), Error>) -> Option<Answer> {
        match result {
            Ok(()) => {
                self.unacknowledged.set(Some(request.sequence));
                None
            }
            Err(error) => Some(self.refuse(request.sequence, error)),
        }
    }

    /// Whether requests were carried out that were not told of.
    #[inline]
    pub fn has_unacknowledged(&self) -> bool {
        self.unacknowledged.get().is_some()
    }

    /// The acknowledgement of what was carried out so far, to be sent; `None` if the initiator knows.
    pub fn acknowledge(&self) -> Option<[u8; RESPONSE_HEADER]> {
        let sequence = self.unacknowledged.take()?;
        let kind = ResponseKind::Acknowledgement;
        Some(Response { kind, sequence, status: Status::OK, length: 0 }.header())
    }

    fn answer(&self, sequence: u32, kind: ResponseKind, status: Status, data: Data) -> Answer {
        // The answer says that all ahead of it was carried out.
        self.unacknowledged.set(None);
        let (Data::Memory(_, length) | Data::Value(_, length)) = data;
        // A get is at most `u32::MAX` bytes long.
        let header = Response { kind, sequence, status, length: length as u32 }.header();
        Answer { header, data }
    }

    fn refuse(&self, sequence: u32, error: Error) -> Answer {
        self.answer(sequence, ResponseKind::Error, error.status(), Data::Value([0; 8], 0))
    }

    fn carry_out(regions: &Regions, request: &Request) -> Result<Option<(ResponseKind, Data)>, Error> {
        let Some(atomic) = request.to_atomic() else {
            let address = check(regions, request, MemoryAccess::REMOTE_GET)?;
            return Ok(Some((ResponseKind::Data, Data::Memory(address, request.length as usize))));
        };
        atomic.check_alignment(request.address)?;
        let cell = check(regions, request, MemoryAccess::REMOTE_ATOMIC)?;
        // SAFETY: the cell is registered, checked and aligned.
        let former = unsafe { atomic.carry_out(cell) };
        Ok(match request.opcode {
            Opcode::Post32 | Opcode::Post64 => None,
            _ => Some((ResponseKind::Value, Data::Value(former.to_le_bytes(), atomic.width.bytes()))),
        })
    }
}

fn check(regions: &Regions, request: &Request, access: MemoryAccess) -> Result<NonNull<u8>, Error> {
    if request.identity != fold(regions.identity()) {
        return Err(Error::INVALID_PARAM);
    }
    regions.check(request.key, request.address, request.length as usize, access)
}

const _: () = assert!(AtomicOp::Add as u32 == 0, "requests without an atomic carry 0");
