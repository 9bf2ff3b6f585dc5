//! The target's side: carries requests out on registered memory, and returns their results.

use std::cell::Cell;

use ucs::{Error, Status};

use super::wire::{Malformed, Opcode, RESPONSE_HEADER, Request, Response, ResponseKind};
use crate::attr::AtomicOp;
use crate::memory::{Access, Accessor, MemoryAccess, Regions};

/// A response to be sent: the header, then the data. As long as it is there, the memory that it reads cannot be deregistered: send or copy it,
/// and drop it before a callback of the application's runs.
#[derive(Debug)]
pub struct Answer<'a> {
    header: [u8; RESPONSE_HEADER],
    data: Data<'a>,
}

/// The data of a response.
#[derive(Debug)]
enum Data<'a> {
    /// Registered memory.
    Memory(Access<'a>),
    /// The old value: 8 bytes, of which so many count.
    Value([u8; 8], usize),
}

impl Data<'_> {
    fn length(&self) -> usize {
        match self {
            Data::Memory(access) => access.length(),
            Data::Value(_, length) => *length,
        }
    }
}

impl Answer<'_> {
    /// Whether the request was refused.
    pub fn is_refusal(&self) -> bool {
        self.header[0] == ResponseKind::Error as u8
    }

    /// The first bytes of the frame.
    pub fn header(&self) -> &[u8; RESPONSE_HEADER] {
        &self.header
    }

    /// First byte and number of bytes behind the header. They are readable as long as the response exists; of registered memory the owner
    /// may write them meanwhile.
    pub fn data(&self) -> (*const u8, usize) {
        match &self.data {
            Data::Memory(access) => (access.start().as_ptr(), access.length()),
            Data::Value(value, length) => (value.as_ptr(), *length),
        }
    }

    /// Bytes of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        RESPONSE_HEADER + self.data.length()
    }

    /// A copy of the whole frame.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut frame = vec![0; self.frame_bytes()];
        let (header, data) = frame.split_at_mut(RESPONSE_HEADER);
        header.copy_from_slice(&self.header);
        match &self.data {
            Data::Memory(access) => access.read(0, data),
            Data::Value(value, length) => data.copy_from_slice(&value[..*length]),
        }
        frame
    }
}

/// Carries out the requests of one connection, in order.
#[derive(Debug, Default)]
pub struct Target {
    /// The last request that was carried out and not acknowledged.
    unacknowledged: Cell<Option<u32>>,
}

impl Target {
    /// Carries out a request whose frame is complete; `Some` is a response to be sent now, ahead of any acknowledgement.
    ///
    /// # Errors
    /// The bytes are no request: the connection is to be closed.
    pub fn serve<'a>(
        &self,
        regions: &Regions,
        accessor: &'a Accessor,
        frame: &[u8],
    ) -> Result<Option<Answer<'a>>, Malformed> {
        let (request, data) = Request::read(frame)?;
        if request.opcode == Opcode::Put {
            if data.len() != request.length as usize {
                return Err(Malformed("a put has another length than its frame"));
            }
            let access = Target::admit_put(regions, accessor, &request);
            return Ok(self.put_done(accessor, &request, access.map(|access| access.write(0, data))));
        }
        Ok(match Target::carry_out(regions, accessor, &request) {
            Ok(None) => {
                self.unacknowledged.set(Some(request.sequence));
                None
            }
            Ok(Some((kind, data))) => Some(self.answer(request.sequence, kind, Status::OK, data)),
            Err(error) => Some(self.refuse(request.sequence, error)),
        })
    }

    /// Begins the access of a put whose data come piece by piece. To be called again for each piece, since the owner may deregister the
    /// memory meanwhile.
    ///
    /// # Errors
    /// The access is refused; the data are to be dropped, and [`Target::put_done`] called.
    pub fn admit_put<'a>(
        regions: &Regions,
        accessor: &'a Accessor,
        request: &Request,
    ) -> Result<Access<'a>, Error> {
        access(regions, accessor, request, MemoryAccess::REMOTE_PUT)
    }

    /// Notes that a put has ended; `Some` is a response to be sent now.
    pub fn put_done(
        &self,
        accessor: &Accessor,
        request: &Request,
        result: Result<(), Error>,
    ) -> Option<Answer<'static>> {
        match result {
            Ok(()) => {
                accessor.served().put(request.length as usize);
                self.unacknowledged.set(Some(request.sequence));
                None
            }
            Err(error) => Some(self.refuse(request.sequence, error)),
        }
    }

    /// Whether requests were carried out and not acknowledged.
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

    fn answer<'a>(&self, sequence: u32, kind: ResponseKind, status: Status, data: Data<'a>) -> Answer<'a> {
        // The response means that all requests ahead of it were carried out.
        self.unacknowledged.set(None);
        // A get is at most `u32::MAX` bytes long.
        let header = Response { kind, sequence, status, length: data.length() as u32 }.header();
        Answer { header, data }
    }

    fn refuse(&self, sequence: u32, error: Error) -> Answer<'static> {
        self.answer(sequence, ResponseKind::Error, error.status(), Data::Value([0; 8], 0))
    }

    fn carry_out<'a>(
        regions: &Regions,
        accessor: &'a Accessor,
        request: &Request,
    ) -> Result<Option<(ResponseKind, Data<'a>)>, Error> {
        let Some(atomic) = request.to_atomic() else {
            let access = access(regions, accessor, request, MemoryAccess::REMOTE_GET)?;
            accessor.served().get(access.length());
            return Ok(Some((ResponseKind::Data, Data::Memory(access))));
        };
        atomic.check_alignment(request.address)?;
        let old = access(regions, accessor, request, MemoryAccess::REMOTE_ATOMIC)?.atomic(atomic)?;
        accessor.served().atomic(atomic.width.bytes());
        Ok(match request.opcode {
            Opcode::Post32 | Opcode::Post64 => None,
            _ => Some((ResponseKind::Value, Data::Value(old.to_le_bytes(), atomic.width.bytes()))),
        })
    }
}

fn access<'a>(
    regions: &Regions,
    accessor: &'a Accessor,
    request: &Request,
    access: MemoryAccess,
) -> Result<Access<'a>, Error> {
    let Request { slot, secret, address, length, .. } = *request;
    regions.access(accessor, (slot, secret), address, length as usize, access)
}

const _: () = assert!(AtomicOp::Add as u32 == 0, "requests without an atomic carry 0");
