//! How an endpoint sends requests for put, get and atomics, which the peer's progress carries out (`uct_plugin::rma`).

use ucs::Error;
use uct_plugin::memory::{Accessor, Regions, RemoteKey};
use uct_plugin::rma::{Initiator, Operation, Payload, REQUEST_HEADER, RemoteLimits, Request, Requests};
use uct_plugin::{Completion, Iov, Outcome, Pack, Result};

use super::TcpEp;
use crate::link::connection::part::request_head;
use crate::link::connection::{Conn, State};
use crate::md::OWN;
use crate::proto::wire::FRAME_HEADER;

/// Bytes ahead of the data of a put.
const HEADS: usize = FRAME_HEADER + REQUEST_HEADER;

impl TcpEp {
    /// The connection, if the peer serves remote memory access and no operation overtakes another.
    fn capable(&self) -> Result<&Conn> {
        let conn = self.sendable()?;
        if conn.state() == State::Established && !conn.serves_rma() {
            return Err(Error::UNSUPPORTED);
        }
        Ok(conn)
    }

    /// A put that is sent from the memory of the vector.
    pub(super) fn put_in_place(
        &self,
        iov: Iov<'_>,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.may_put()?;
        let (length, limits) = (iov.total(), self.remote_limits());
        if length > limits.vector || iov.entries().len() > limits.max_iov {
            return Err(Error::INVALID_PARAM);
        }
        let conn = self.capable()?;
        let request = conn.initiator.put(key, address, length)?;
        conn.send_vector(&self.iface.shared, &put_heads(&request), iov, self.owner(), None)?;
        conn.initiator.posted(self.owner(), &request, Operation::Acknowledged(completion.into()));
        Ok(Outcome::InProgress)
    }
}

impl Requests for TcpEp {
    fn initiator(&self) -> Result<&Initiator> {
        self.capable().map(|conn| &conn.initiator)
    }

    fn owner(&self) -> u32 {
        self.member.owner
    }

    fn remote_limits(&self) -> RemoteLimits {
        let shared = &self.iface.shared;
        let (put, get) = (shared.seg_size(), shared.seg_size());
        RemoteLimits { put, get, vector: shared.max_message(), max_iov: self.iface.max_iov }
    }

    fn may_request(&self) -> Result {
        self.capable()?.error().map_or(Ok(()), Err)
    }

    fn may_put(&self) -> Result {
        if self.iface.config.put_enable { Ok(()) } else { Err(Error::UNSUPPORTED) }
    }

    fn is_quiet(&self) -> bool {
        self.conn.get().is_none_or(|conn| !conn.has_unfinished())
    }

    fn send_request(&self, request: &Request, data: impl Payload) -> Result {
        let (head, bytes) = request_head(request, data.length());
        self.connection()?.send_frame(&self.iface.shared, &head[..bytes], data)
    }

    fn send_packed_request(&self, pack: Pack, head: impl FnOnce(usize) -> Result<Request>) -> Result<usize> {
        let heads = |length| head(length).map(|put| put_heads(&put));
        self.connection()?.send_packed(&self.iface.shared, pack, heads)
    }

    fn pump(&self) {
        if let Some(conn) = self.conn.get() {
            conn.pump(&self.iface.shared);
        }
    }

    fn wait_until(&self, done: impl Fn() -> bool) -> Result {
        self.iface.wait_for(self.iface.config.get_timeout.to_duration(), done)
    }

    fn of_own_process(
        &self,
        identity: u64,
        read: impl FnOnce(&Regions, &Accessor) -> Result,
    ) -> Option<Result> {
        OWN.find(identity).map(|md| read(&md.regions, self.iface.shared.accessor()))
    }
}

/// The heads of a put, which has no operands.
fn put_heads(put: &Request) -> [u8; HEADS] {
    let (head, bytes) = request_head(put, put.length as usize);
    debug_assert_eq!(bytes, HEADS, "a put has no operands");
    std::array::from_fn(|index| head[index])
}
