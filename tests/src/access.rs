//! The flavours of put and get as one: limits, and carrying one out to its end.
//!
//! For cases that hold for every flavour. Built on `pair`. An operation has failed where the initiator is notified
//! so: by the call, the completion, the flush behind it, or the error handler.

use std::cell::RefCell;
use std::rc::Rc;

use uct_host::{Capabilities, Ep, Error, Flush, IfaceAttr, Posted, RemoteKey, Result};

use crate::pair::{Link, Side, flush, retry, wait};

/// A flavour of put or get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Copied inline.
    PutShort,
    /// Packed by a callback.
    PutBcopy,
    /// From registered memory.
    PutZcopy,
    /// From a slice.
    PutFrom,
    /// Read at once.
    GetShort,
    /// Unpacked by a callback.
    GetBcopy,
    /// Into registered memory.
    GetZcopy,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 7] = [
        Way::PutShort,
        Way::PutBcopy,
        Way::PutZcopy,
        Way::PutFrom,
        Way::GetShort,
        Way::GetBcopy,
        Way::GetZcopy,
    ];

    /// The capability that it needs.
    pub fn capability(self) -> Capabilities {
        match self {
            Way::PutShort | Way::PutFrom => Capabilities::PUT_SHORT,
            Way::PutBcopy => Capabilities::PUT_BCOPY,
            Way::PutZcopy => Capabilities::PUT_ZCOPY,
            Way::GetShort => Capabilities::GET_SHORT,
            Way::GetBcopy => Capabilities::GET_BCOPY,
            Way::GetZcopy => Capabilities::GET_ZCOPY,
        }
    }

    /// Those that an interface has, and that may be used while one thread drives both ends: an emulated `get_short`
    /// waits inside of the call for the other end.
    pub fn of(side: &Side) -> Vec<Way> {
        let blocks = side.iface.emulated() & Capabilities::GET_SHORT;
        let usable = side.iface.capabilities() - blocks;
        let has = |way: &Way| usable.contains(way.capability());
        Way::ALL.into_iter().filter(has).collect()
    }

    /// Whether it writes remote memory.
    pub fn is_put(self) -> bool {
        matches!(self, Way::PutShort | Way::PutBcopy | Way::PutZcopy | Way::PutFrom)
    }

    /// Fewest and most bytes.
    pub fn limits(self, attributes: &IfaceAttr) -> (usize, usize) {
        match self {
            Way::PutShort => (0, attributes.put.max_short),
            Way::PutBcopy => (0, attributes.put.max_bcopy),
            Way::PutZcopy => (attributes.put.min_zcopy, attributes.put.max_zcopy),
            Way::PutFrom => (0, attributes.put.max_short.max(attributes.put.max_bcopy)),
            Way::GetShort => (0, attributes.get.max_short),
            Way::GetBcopy => (0, attributes.get.max_bcopy),
            Way::GetZcopy => (attributes.get.min_zcopy, attributes.get.max_zcopy),
        }
    }

    /// Starts it. `bytes` are written, or replaced by what is read once the answer's completion is done.
    pub fn start(self, side: &Side, ep: &Ep, bytes: &[u8], remote: u64, key: &RemoteKey) -> Result<Started> {
        let completion = side.completion();
        let mut place = Place::Nowhere;
        let posted = match self {
            Way::PutShort => ep.put_short(bytes, remote, key).map(|()| Posted::Done),
            Way::PutBcopy => {
                let pack = |buffer: &mut [u8]| {
                    buffer[..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                };
                ep.put_bcopy(remote, key, pack).map(|length| {
                    assert_eq!(length, bytes.len(), "put_bcopy answers another length than was packed");
                    Posted::Done
                })
            }
            Way::PutZcopy => {
                let memory = side.memory(bytes.to_vec());
                ep.put_zcopy(&[memory.slice(..)], remote, key, &completion)
            }
            Way::PutFrom => {
                // The bytes are taken inside the call, so what becomes of them afterwards changes nothing.
                let mut source = bytes.to_vec();
                let answer = ep.put_from(&source, remote, key);
                source.fill(0xee);
                answer.map(|()| Posted::Done)
            }
            Way::GetShort => {
                let mut buffer = vec![0; bytes.len()];
                let answer = ep.get_short(&mut buffer, remote, key);
                place = Place::Here(buffer);
                answer.map(|()| Posted::Done)
            }
            Way::GetBcopy => {
                let unpacked = Rc::new(RefCell::new(Vec::new()));
                let list = Rc::clone(&unpacked);
                place = Place::Unpacked(unpacked);
                let unpack = move |data: &[u8]| list.borrow_mut().push(data.to_vec());
                ep.get_bcopy(bytes.len(), remote, key, &completion, unpack)
            }
            Way::GetZcopy => {
                let memory = side.memory(vec![0; bytes.len()]);
                let answer = ep.get_zcopy(&[memory.slice(..)], remote, key, &completion);
                place = Place::Memory(memory);
                answer
            }
        }?;
        assert!(posted == Posted::InProgress || completion.is_done(), "done, and yet outstanding");
        Ok(Started { completion, place })
    }
}

/// An operation that was started.
pub struct Started {
    /// Tells when it ended.
    pub completion: uct_host::Completion,
    place: Place,
}

enum Place {
    Nowhere,
    Here(Vec<u8>),
    Unpacked(Rc<RefCell<Vec<Vec<u8>>>>),
    Memory(uct_host::Memory),
}

impl Started {
    /// What was read; empty for a put. Once it has ended well.
    pub fn read(self) -> Vec<u8> {
        match self.place {
            Place::Nowhere => Vec::new(),
            Place::Here(bytes) => bytes,
            Place::Unpacked(calls) => {
                let mut calls = calls.take();
                assert_eq!(calls.len(), 1, "unpack is called once, ahead of the completion");
                calls.remove(0)
            }
            Place::Memory(memory) => memory.into_bytes().expect("the operation has ended"),
        }
    }
}

/// Carries a put or get out to its end, a remote flush included; what was read, or the error.
#[track_caller]
pub fn perform(
    way: Way,
    side: &Side,
    link: &Link,
    bytes: &[u8],
    remote: u64,
    key: &RemoteKey,
    mut progress: impl FnMut() -> u32,
) -> Result<Vec<u8>> {
    let started =
        retry("an operation that starts", &mut progress, || way.start(side, link, bytes, remote, key))?;
    finish(side, link, &started.completion, progress)?;
    Ok(started.read())
}

/// Waits until all that was started on an endpoint is done at the peer, or has failed.
#[track_caller]
pub fn finish(
    side: &Side,
    link: &Link,
    completion: &uct_host::Completion,
    mut progress: impl FnMut() -> u32,
) -> Result {
    let failed = || link.failures().first().map(|failure| failure.error);
    wait("an operation that ends", &mut progress, || completion.is_done() || failed().is_some());
    if let Some(error) = failed() {
        // Whatever is outstanding ends with an error, too.
        wait("an operation that fails", &mut progress, || completion.is_done());
        return Err(error);
    }
    completion.result()?;
    flush(&side.worker, link, Flush::REMOTE, &mut progress)?;
    failed().map_or(Ok(()), Err)
}

/// Whether an error says that a remote access was refused, and nothing that a retry would mend.
pub fn is_refusal(error: Error) -> bool {
    !matches!(error, Error::NO_RESOURCE | Error::BUSY | Error::UNSUPPORTED | Error::NOT_IMPLEMENTED)
}
