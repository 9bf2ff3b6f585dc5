//! Registered memory: one side shares it and the other one reads and writes it, or a part of it is sent as a message; from any thread.

use std::fmt;
use std::sync::Arc;

use super::confined::Confined;
use super::connection::Connection;
use super::engine::Entered;
use super::memory::{Memory, MemorySlice};
use super::operation::Operation;
use crate::error::{Error, Result, Stage};
use crate::local;

/// Memory that the peer has shared: its length, and the key to access it. Cheap to clone.
#[derive(Clone)]
pub struct RemoteMemory {
    inner: Arc<Confined<local::RemoteMemory>>,
    length: u64,
}

impl RemoteMemory {
    fn new(entered: &Entered<'_>, remote: local::RemoteMemory) -> RemoteMemory {
        RemoteMemory { length: remote.len(), inner: Arc::new(entered.confine(remote)) }
    }

    pub(super) fn confined(&self) -> &Confined<local::RemoteMemory> {
        &self.inner
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl fmt::Debug for RemoteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteMemory").field("length", &self.length).finish_non_exhaustive()
    }
}

/// An operation starts when it is first polled. One that has started continues when its future is dropped, and keeps its memory until it has
/// ended.
impl Connection {
    /// Allocates at least `length` zeroed bytes, registered with the transport of this connection, for the peer to read, write and update once
    /// it is shared. Blocks, and with the key `populate` (default) until all pages are there, outside of the lock.
    ///
    /// # Errors
    /// No memory, or a limit of the system, which the error names.
    pub fn allocate(&self, length: usize) -> Result<Memory> {
        let allocate = |entered: &mut Entered<'_>, local: &local::Connection| {
            let (memory, populates) = local.allocate_absent(length)?;
            Ok::<_, Error>((Memory::new(entered, memory), populates))
        };
        Memory::populated(self.local().with(allocate).map_err(|forked| self.refused(forked))??)
    }

    /// Sends address and key of memory ([`Connection::allocate`], [`Net::allocate`](crate::Net::allocate)), or of a part of it, to the peer, as
    /// [`crate::local::Connection::share`].
    ///
    /// # Errors
    /// As [`crate::local::Connection::share`]; the memory belongs to another `Net`.
    pub fn share(&self, memory: impl Into<MemorySlice>) -> Operation<()> {
        let slice = memory.into();
        let begin = |entered: &Entered<'_>, local: local::Connection| {
            let slice = self.slice(entered, &slice);
            async move { local.share(slice?).await }
        };
        self.operation(begin, |_entered, ()| ())
    }

    /// Ends the keys to exactly this part that this connection has sent, as [`crate::local::Connection::unshare`].
    pub fn unshare(&self, part: &MemorySlice) -> bool {
        let unshare = |entered: &mut Entered<'_>, local: &local::Connection| {
            self.slice(entered, part).is_ok_and(|part| local.unshare(&part))
        };
        self.local().with(unshare).unwrap_or(false)
    }

    /// The next memory that the peer has shared. Waits for it without a limit. Up to 64 pieces may wait here; one more ends the connection.
    ///
    /// # Errors
    /// As [`crate::local::Connection::shared`].
    pub fn shared(&self) -> Operation<RemoteMemory> {
        let begin = |_entered: &Entered<'_>, local: local::Connection| async move { local.shared().await };
        self.operation(begin, RemoteMemory::new)
    }

    /// Sends a part of registered memory as one message, a large one without a copy on this side, as
    /// [`crate::local::Connection::send_slice`], which says what the peer may access then. Dropping the future withdraws a message of which nothing
    /// has been sent.
    ///
    /// # Errors
    /// As [`Connection::send`]. The memory belongs to another `Net`.
    pub fn send_slice(&self, slice: MemorySlice) -> Operation<()> {
        let begin = |entered: &Entered<'_>, connection: local::Connection| {
            let slice = self.slice(entered, &slice);
            async move { connection.send_slice(slice?).await }
        };
        self.operation(begin, |_entered, ()| ())
    }

    /// Writes local memory to the peer's memory from byte `offset` on, without a copy, as [`crate::local::Connection::put`].
    ///
    /// # Errors
    /// `OUT_OF_RANGE` if the range is not part of the remote memory. `INVALID_PARAM` if the slice is longer than one put of the transport
    /// (`max_zcopy`; a datagram over `ud_verbs`). The peer does not permit it. The connection has failed. The memory belongs to another
    /// `Net`.
    pub fn put(&self, local: MemorySlice, remote: &RemoteMemory, offset: u64) -> Operation<()> {
        let begin = |entered: &Entered<'_>, connection: local::Connection| {
            let (slice, remote) = (self.slice(entered, &local), self.owned(entered, &remote.inner));
            async move { connection.put(slice?, &remote?, offset).await }
        };
        self.operation(begin, |_entered, ()| ())
    }

    /// Reads the peer's memory from byte `offset` on into local memory, without a copy. As [`Connection::put`]; done when the bytes are here.
    ///
    /// # Errors
    /// As [`Connection::put`].
    pub fn get(&self, local: MemorySlice, remote: &RemoteMemory, offset: u64) -> Operation<()> {
        let begin = |entered: &Entered<'_>, connection: local::Connection| {
            let (slice, remote) = (self.slice(entered, &local), self.owned(entered, &remote.inner));
            async move { connection.get(slice?, &remote?, offset).await }
        };
        self.operation(begin, |_entered, ()| ())
    }

    /// Adds to the word of 64 bits at `offset` of the peer's memory, as one atomic operation, modulo 2^64; returns the old value.
    ///
    /// # Errors
    /// As [`Connection::put`]; the address of the word is not a multiple of 8.
    pub fn fetch_add(&self, remote: &RemoteMemory, offset: u64, value: u64) -> Operation<u64> {
        let begin = |entered: &Entered<'_>, connection: local::Connection| {
            let remote = self.owned(entered, &remote.inner);
            async move { connection.fetch_add(&remote?, offset, value).await }
        };
        self.operation(begin, |_entered, old| old)
    }

    /// Done when all puts and atomics of this connection that have started have taken effect at the peer: also those whose futures were dropped.
    ///
    /// # Errors
    /// The connection has failed, or one of the operations was refused.
    pub fn flush(&self) -> Operation<()> {
        let begin = |_entered: &Entered<'_>, local: local::Connection| async move { local.flush().await };
        self.operation(begin, |_entered, ()| ())
    }

    pub(super) fn operation<L: 'static, T: Send + 'static, F: Future<Output = Result<L>> + 'static>(
        &self,
        begin: impl FnOnce(&Entered<'_>, local::Connection) -> F + Send,
        finish: fn(&Entered<'_>, L) -> T,
    ) -> Operation<T> {
        let begin = move |entered: &Entered<'_>| begin(entered, self.local().inside(entered).clone());
        Operation::new(self.engine(), Stage::Connected, begin, finish)
    }

    /// A value of this connection's net.
    pub(super) fn owned<T: Clone>(&self, entered: &Entered<'_>, value: &Confined<T>) -> Result<T> {
        if Arc::ptr_eq(value.engine(), self.engine()) {
            return Ok(value.inside(entered).clone());
        }
        let reason = "the memory belongs to another Net: use memory of this connection's";
        Err(Error::new(Stage::Connected, self.peer(), ucs::Error::INVALID_PARAM, reason))
    }

    fn slice(&self, entered: &Entered<'_>, slice: &MemorySlice) -> Result<uct_host::MemorySlice> {
        let memory = self.owned(entered, slice.memory.confined())?;
        Ok(memory.slice(slice.start..slice.end))
    }
}
