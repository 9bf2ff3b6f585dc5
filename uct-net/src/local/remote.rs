//! Registered memory: one side shares it and the other one reads and writes it, or a part of it is sent as a message.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use ucs::Error as Status;
use uct_host::{Access, AtomicOp, Completion, Fetched, Flush, Memory, MemoryKind, MemorySlice, Posted};

use super::conn::{Entry, RoomPlace};
use super::connection::{Connection, Send};
use super::memory::{self, OnConnection};
use super::remote_memory::{RemoteMemory, invalid_key};
use crate::error::{Error, Result, Stage};
use crate::proto::envelope::Kind;
use crate::proto::shared::{MAX_KEY, Shared};

impl Connection {
    /// Allocates at least `length` zeroed bytes, registered with the transport of this connection, for the peer to read, write and update once
    /// it is shared. Blocks, and with the key `populate` (default) until all pages are there: some tenths of a second for a GiB.
    ///
    /// # Errors
    /// No memory, or a limit of the system, which the error names.
    pub fn allocate(&self, length: usize) -> Result<Memory> {
        let memory = self.iface().memory_domain().allocate(length, Access::all(), MemoryKind::Host);
        memory.map_err(|refused| self.failed(refused.status, refused.to_string()))
    }

    /// As [`Connection::allocate`], without the pages; whether they are to be made present.
    pub(crate) fn allocate_absent(&self, length: usize) -> Result<(Memory, bool)> {
        let memory = self.iface().memory_domain().allocate_absent(length, Access::all());
        memory.map_err(|refused| self.failed(refused.status, refused.to_string()))
    }

    /// Sends address and key of memory ([`Connection::allocate`], [`Net::allocate`](super::Net::allocate)), or of a part of it, to the peer, which may read and write it from
    /// then on. Done when the transport has the message.
    ///
    /// The key to memory ends with the memory. The key to a part (`&memory.slice(4096..8192)`) is one of its own, which opens no other bytes; it
    /// ends with the memory, with the last handle of this connection, or with [`Connection::unshare`]. Over shared memory the peer does not map a part:
    /// the kernel copies, or this side's progress; docs/memory.md says what each transport enforces.
    ///
    /// # Errors
    /// The connection has failed. `INVALID_PARAM` if the memory belongs to another transport, or the slice is strided. The key has more than
    /// 1024 bytes. The transport refuses to register the memory.
    pub async fn share(&self, memory: impl Into<MemorySlice>) -> Result {
        let slice = memory.into();
        let shared = if slice.is_whole() {
            let memory = slice.memory().on(self)?;
            let key = memory.packed_key().map_err(|status| self.failed(status, "the memory has no key"))?;
            Shared { address: memory.address(), length: memory.len() as u64, key }
        } else {
            let grant = memory::grant(&slice, self)?;
            let (address, length, key) = (grant.address(), grant.len() as u64, grant.packed_key().to_vec());
            self.keep(grant);
            Shared { address, length, key }
        };
        drop(slice);
        if shared.key.len() > MAX_KEY {
            let reason = format!("a key of {} bytes; at most {MAX_KEY} are sent", shared.key.len());
            return Err(self.failed(Status::UNSUPPORTED, reason));
        }
        let ticket = self.conn().queue(Kind::Share, shared.to_bytes())?;
        poll_fn(|context| self.conn().poll_left(ticket, context)).await
    }

    /// Ends the keys to exactly this part that this connection has sent ([`Connection::share`]). Accesses of the peer in flight end first; later
    /// ones are refused. Returns whether there was one.
    pub fn unshare(&self, part: &MemorySlice) -> bool {
        part.address().is_some_and(|address| self.take_back(address, part.len()))
    }

    /// The next memory that the peer has shared. Waits for it without a limit. Up to 64 pieces may wait here; one more ends the connection.
    ///
    /// # Errors
    /// The connection has failed, the peer has closed it, or the key does not belong to this transport.
    pub async fn shared(&self) -> Result<RemoteMemory> {
        let shared = poll_fn(|context| match self.conn().poll_shared(context) {
            Ok(Some(shared)) => Poll::Ready(Ok(shared)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        });
        let Shared { address, length, key } = shared.await?;
        let key = self.iface().memory_domain().unpack(&key);
        let key = key.map_err(|refused| self.failed(refused.status, refused.to_string()))?;
        Ok(RemoteMemory::new(address, length, key))
    }

    /// Sends a part of registered memory as one message, as [`Connection::send`]. A large one (key `rndv_thresh`) is not copied on this side: the
    /// peer reads it in the memory, which must not change until this is done, or the message is a mixture. For that it gets the key to the whole
    /// memory, as by [`Connection::share`], so the memory should hold nothing that the peer may not access. A message is copied
    /// at the first poll, and no key is sent, if it is short or the peer cannot read it in place (over tcp; a strided slice; memory of another
    /// domain, or without [`Access::REMOTE_GET`]). If the peer refuses to read it, it is copied then. Dropping the future withdraws a message of which nothing has been
    /// sent; otherwise it is sent completely, and keeps the memory registered until then.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn send_slice(&self, slice: MemorySlice) -> Result {
        let queued = self.conn().send_slice(&slice)?;
        drop(slice);
        Send::begun(self, queued).await
    }

    /// Writes local memory to the peer's memory from byte `offset` on, without a copy. Done when it has taken effect: the peer sees the
    /// bytes, and the local memory may be used again. A message that is sent then comes after the bytes; puts and messages without an await between
    /// them are not ordered. An operation that has started continues when the future is dropped, and keeps the memory until it has ended;
    /// [`Connection::flush`] waits for it.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` if the range is not part of the remote memory. `INVALID_PARAM` if the slice is longer than one put of the transport
    /// (`max_zcopy`; a datagram over `ud_verbs`), if the remote memory was received over another transport or from another process, or if its key
    /// has ended. The connection has failed.
    pub async fn put(&self, local: MemorySlice, remote: &RemoteMemory, offset: u64) -> Result {
        self.transfer(local, remote, offset, true).await
    }

    /// Reads the peer's memory from byte `offset` on into local memory, without a copy. As [`Connection::put`]; done when the bytes are here.
    ///
    /// # Errors
    /// As [`Connection::put`].
    pub async fn get(&self, local: MemorySlice, remote: &RemoteMemory, offset: u64) -> Result {
        self.transfer(local, remote, offset, false).await
    }

    /// Adds to the word of 64 bits at `offset` of the peer's memory, as one atomic operation, modulo 2^64; returns the old value.
    ///
    /// # Errors
    /// As [`Connection::put`]; the address of the word is not a multiple of 8.
    pub async fn fetch_add(&self, remote: &RemoteMemory, offset: u64, value: u64) -> Result<u64> {
        let address = self.range(remote, offset, size_of::<u64>())?;
        if !address.is_multiple_of(size_of::<u64>() as u64) {
            return Err(self.unaligned(offset, address));
        }
        let operation = Operation::new(self);
        let fetch = |completion: &Completion| {
            self.endpoint().atomic64_fetch(AtomicOp::Add, value, address, remote.key(), completion)
        };
        let is_pending = |fetched: &Fetched| *fetched == Fetched::InProgress;
        let fetched = operation.posted(self, fetch, is_pending).await?;
        if fetched == Fetched::InProgress {
            operation.ended(self).await?;
        }
        Ok(fetched.old_value(&operation.completion))
    }

    /// Done when all puts and atomics of this connection that have started have taken effect at the peer: also those whose futures were dropped.
    ///
    /// # Errors
    /// The connection has failed, or one of the operations was refused.
    pub async fn flush(&self) -> Result {
        let operation = Operation::new(self);
        let flush = |completion: &Completion| self.endpoint().flush(Flush::empty(), Some(completion));
        let posted = operation.posted(self, flush, |posted| *posted == Posted::InProgress).await?;
        if posted == Posted::InProgress { operation.ended(self).await } else { Ok(()) }
    }

    async fn transfer(&self, local: MemorySlice, remote: &RemoteMemory, offset: u64, is_put: bool) -> Result {
        let address = self.range(remote, offset, local.len())?;
        let attr = self.iface().attributes();
        let limits = if is_put { &attr.put } else { &attr.get };
        if local.len() > limits.max_zcopy || local.len() < limits.min_zcopy {
            let reason = format!(
                "{} bytes at once; {} takes {} to {}",
                local.len(),
                self.explanation().chosen,
                limits.min_zcopy,
                limits.max_zcopy
            );
            return Err(self.failed(Status::INVALID_PARAM, reason));
        }
        if !is_put {
            self.check_writable(local.memory())?;
        }
        let operation = Operation::new(self);
        let slices = [local.on(self)?];
        let ep = self.endpoint();
        let post = |completion: &Completion| {
            if is_put {
                ep.put_zcopy(&slices, address, remote.key(), completion)
            } else {
                ep.get_zcopy(&slices, address, remote.key(), completion)
            }
        };
        let posted = operation.posted(self, post, |posted| *posted == Posted::InProgress).await?;
        if posted == Posted::InProgress { operation.ended(self).await } else { Ok(()) }
    }

    /// Repeats an operation of [`Connection::endpoint`] while it returns `NO_RESOURCE`, when the transport may have room again. Operations of a
    /// connection that wait for room start in the order in which they were first polled.
    ///
    /// # Errors
    /// The operation's, with the reason if the connection has failed.
    pub async fn when_room<T>(&self, mut attempt: impl FnMut() -> Result<T, Status>) -> Result<T> {
        let mut place = RoomPlace::new(self.conn());
        poll_fn(|context| {
            ready!(self.net().poll_turn(context));
            match attempt() {
                Ok(outcome) => {
                    self.net().reactor.rouse();
                    Poll::Ready(Ok(outcome))
                }
                Err(Status::NO_RESOURCE) => {
                    place.wait(context);
                    Poll::Pending
                }
                Err(status) => {
                    let failure = self.endpoint().failure();
                    let reason = failure.map_or_else(|| status.to_string(), ToString::to_string);
                    Poll::Ready(Err(self.failed(status, reason)))
                }
            }
        })
        .await
    }

    fn range(&self, remote: &RemoteMemory, offset: u64, length: usize) -> Result<u64> {
        self.check_domain(remote)?;
        remote.at(offset, length).ok_or_else(|| {
            let reason = format!(
                "{length} bytes from {offset} on are not part of the {} bytes that the peer shared",
                remote.len()
            );
            self.failed(Status::OUT_OF_RANGE, reason)
        })
    }

    /// Whether the remote memory is that of the transport of this connection.
    pub(super) fn check_domain(&self, remote: &RemoteMemory) -> Result {
        let own = self.iface().memory_domain();
        if remote.key().domain().is_same(own) { Ok(()) } else { Err(self.other_domain(remote)) }
    }

    /// Whether a get may write to the local memory.
    pub(super) fn check_writable(&self, local: &Memory) -> Result {
        if local.is_writable() {
            return Ok(());
        }
        Err(self.failed(Status::INVALID_PARAM, "the local memory is read-only, and a get writes to it"))
    }

    /// The error of an access that the transport or the peer has refused.
    #[cold]
    fn refused(&self, error: Error) -> Error {
        let is_key = error.status == Status::INVALID_PARAM && self.endpoint().failure().is_none();
        if is_key && self.net().check_fork().is_ok() { invalid_key(self.peer()) } else { error }
    }

    #[cold]
    fn other_domain(&self, remote: &RemoteMemory) -> Error {
        let (own, its) = (self.iface().memory_domain().name(), remote.key().domain().name());
        let whose = if own == its { " of another Net" } else { "" };
        let reason =
            format!("the peer's memory was received over {its}{whose}, and this connection uses {own}");
        let remedy = "use the connection that has received it, or have the peer share it over this one";
        self.failed(Status::INVALID_PARAM, reason).hint(remedy)
    }

    #[cold]
    fn unaligned(&self, offset: u64, address: u64) -> Error {
        let reason =
            format!("the address of the word, {address:#x} at offset {offset}, is not a multiple of 8");
        self.failed(Status::INVALID_PARAM, reason)
    }

    pub(super) fn failed(&self, status: Status, reason: impl Into<String>) -> Error {
        if let Err(forked) = self.net().check_fork() {
            return Error::forked(Stage::Connected, self.peer(), forked);
        }
        Error::new(Stage::Connected, self.peer(), status, reason)
    }
}

/// One operation: a completion that wakes the waiting task.
struct Operation {
    completion: Completion,
    pending: Rc<RefCell<Pending>>,
}

/// Of an operation that does not end inside of its call.
#[derive(Default)]
struct Pending {
    waker: Option<Waker>,
    /// Until its end it counts as under way, whatever becomes of its future.
    entry: Option<Entry>,
}

impl Operation {
    fn new(connection: &Connection) -> Operation {
        let pending = Rc::new(RefCell::new(Pending::default()));
        let (ended, agenda) = (Rc::clone(&pending), Rc::clone(&connection.net().agenda));
        let completion = Completion::with_callback(&connection.net().worker, move |_result| {
            agenda.wake_later(std::mem::take(&mut *ended.borrow_mut()).waker);
        });
        Operation { completion, pending }
    }

    /// Repeats it until the transport takes it ([`Connection::when_room`]). What has not ended then is under way.
    async fn posted<T>(
        &self,
        connection: &Connection,
        mut attempt: impl FnMut(&Completion) -> Result<T, Status>,
        is_pending: impl Fn(&T) -> bool,
    ) -> Result<T> {
        let attempt = || {
            let outcome = attempt(&self.completion);
            let waits = match &outcome {
                Ok(posted) => is_pending(posted),
                Err(status) => *status == Status::NO_RESOURCE,
            };
            // A transport may report the end inside of the call.
            if waits && !(outcome.is_ok() && self.completion.is_done()) {
                self.pending.borrow_mut().entry.get_or_insert_with(|| connection.conn().begin_operation());
            }
            outcome
        };
        connection.when_room(attempt).await.map_err(|error| connection.refused(error))
    }

    /// Waits for its end.
    async fn ended(&self, connection: &Connection) -> Result {
        let outcome = poll_fn(|context: &mut Context<'_>| {
            if self.completion.is_done() {
                return Poll::Ready(self.completion.result());
            }
            self.pending.borrow_mut().waker = Some(context.waker().clone());
            Poll::Pending
        });
        outcome.await.map_err(|status| {
            let failure = connection.endpoint().failure();
            let reason =
                failure.map_or_else(|| format!("the peer refused it: {status}"), ToString::to_string);
            connection.refused(connection.failed(status, reason))
        })
    }
}
