//! Transfers of blocks between registered memory of both sides.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use ucs::Error as Status;
use uct_host::Memory;

use super::conn::{MAX_NOTICE, Moves, Part};
use super::connection::Connection;
use super::memory::OnConnection;
use super::message::Message;
use super::remote_memory::RemoteMemory;
use crate::error::{Error, Result, Stage};
use crate::flavour::{self, Plan, Transfers};
use crate::transfer::{Blocks, Direction, Moved, Receipt};

/// See [`Connection::get_blocks`].
pub type NewTransfer<'a> = flavour::NewTransfer<'a, Connection>;

impl Connection {
    /// Reads blocks of the peer's memory into local memory, without a copy of this library's:
    /// `connection.get_blocks(&local, &remote, &blocks).notify(b"read").start()?.await?`. How much is in flight at once is decided here, so that
    /// all blocks may be passed at once. Done when all of them are here.
    pub fn get_blocks(&self, local: &Memory, remote: &RemoteMemory, blocks: &Blocks) -> NewTransfer<'_> {
        NewTransfer::new(self, Direction::Get).and(local, remote, blocks)
    }

    /// Writes blocks of local memory to the peer's memory, as [`Connection::get_blocks`]. Done when all of them are at the peer.
    pub fn put_blocks(&self, local: &Memory, remote: &RemoteMemory, blocks: &Blocks) -> NewTransfer<'_> {
        NewTransfer::new(self, Direction::Put).and(local, remote, blocks)
    }

    /// The notification of the next transfer of the peer's that has moved all of its blocks: what it passed to `notify`. Waits for it without a limit.
    /// Notifications are apart from the messages of the connection and not ordered with them. Those that wait here take credit from the peer, as
    /// messages do. A future that is dropped loses none.
    ///
    /// # Errors
    /// The connection has failed, or the peer has closed it.
    pub async fn notified(&self) -> Result<Message> {
        poll_fn(|context| match self.conn().poll_notice(context) {
            Ok(Some(notice)) => Poll::Ready(Ok(notice)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }

    pub(crate) fn plan_transfer(&self, plan: Plan<Connection>) -> Result<Transfer> {
        let Plan { direction, parts, notice } = plan;
        if let Some(length) = notice.as_ref().map(Vec::len).filter(|length| *length > MAX_NOTICE) {
            let reason = format!("a notification of {length} bytes; at most {MAX_NOTICE} are sent");
            return Err(self.failed(Status::INVALID_PARAM, reason));
        }
        let attributes = self.iface().attributes();
        let (most, has) = match direction {
            Direction::Get => (attributes.get.max_zcopy, "get_zcopy"),
            Direction::Put => (attributes.put.max_zcopy, "put_zcopy"),
        };
        if most == 0 {
            let reason = format!("{} has no {has}", self.explanation().chosen);
            return Err(self.failed(Status::UNSUPPORTED, reason));
        }
        let total = parts.iter().fold(0, |sum: usize, (_, _, blocks)| sum.saturating_add(blocks.len()));
        if total > Blocks::MAX {
            let reason = format!("a transfer of {total} blocks; at most {} are moved at once", Blocks::MAX);
            return Err(self.failed(Status::INVALID_PARAM, reason));
        }
        let parts = parts.into_iter().map(|(memory, remote, blocks)| {
            let memory = memory.on(self)?;
            self.check(direction, &memory, &remote, &blocks)?;
            Ok(Part { memory, remote, blocks })
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let moves = Moves::new(direction, parts, notice, Arc::clone(self.over()), most);
        Ok(Transfer { connection: self.clone(), moves: Rc::new(moves) })
    }

    /// Whether the blocks are part of both memories, which this connection can use.
    fn check(&self, direction: Direction, memory: &Memory, remote: &RemoteMemory, blocks: &Blocks) -> Result {
        self.check_domain(remote)?;
        let (local_end, remote_end) = blocks.ends();
        for (end, length, whose) in [
            (local_end, memory.len() as u64, "the local memory"),
            (remote_end, remote.len(), "what the peer shared"),
        ] {
            if end > length {
                let reason = format!("a block ends at {end}, beyond the {length} bytes of {whose}");
                return Err(self.failed(Status::OUT_OF_RANGE, reason));
            }
        }
        match direction {
            Direction::Get => self.check_writable(memory),
            Direction::Put => Ok(()),
        }
    }
}

impl Transfers for Connection {
    type Memory = Memory;
    type RemoteMemory = RemoteMemory;
    type Transfer = Transfer;

    fn start_transfer(&self, plan: Plan<Connection>) -> Result<Transfer> {
        let transfer = self.plan_transfer(plan)?;
        transfer.begin()?;
        Ok(transfer)
    }
}

/// A transfer that has started, and its end as a future: a [`Receipt`] once all blocks have moved, or the reason of the first that has not.
/// [`Transfer::outcome`] has the status of each.
///
/// Progress of the `Net` moves the blocks, whether or not this is polled. Dropping it begins no further block and sends no notification; blocks
/// in flight go on, and keep their memory registered until they have ended. [`Transfer::cancel`] waits for that, and says which have moved.
#[must_use = "dropping a transfer cancels it"]
pub struct Transfer {
    connection: Connection,
    moves: Rc<Moves>,
}

impl Transfer {
    /// How many blocks have moved so far.
    pub fn moved(&self) -> usize {
        self.moves.count()
    }

    /// What became of each block so far; once it is over, whether with a receipt or an error, all of it. A block that is still to be moved is
    /// `CANCELED`.
    pub fn outcome(&self) -> Moved {
        self.moves.outcome()
    }

    /// Begins no further block, and waits until none is in flight. The result says which have moved: all of them, if it came too late. The
    /// peer gets no notification, unless that was sent already.
    pub fn cancel(self) -> Cancel {
        self.stop();
        Cancel { transfer: self }
    }

    /// Moves the same blocks once more, with the same notification, without an allocation.
    ///
    /// # Errors
    /// `BUSY` if it is not over. The connection has failed or is closed.
    pub fn again(&mut self) -> Result {
        if !self.moves.is_over() {
            return Err(self.connection.failed(Status::BUSY, "the transfer is not over"));
        }
        self.moves.reset();
        self.begin()
    }

    pub(crate) fn begin(&self) -> Result {
        self.connection.net().check_fork().map_err(|forked| self.forked(forked))?;
        self.connection.conn().check()?;
        self.connection.conn().start(&self.moves);
        Ok(())
    }

    fn forked(&self, forked: ucs::memory::fork::Forked) -> Error {
        Error::forked(Stage::Connected, self.connection.peer(), forked)
    }

    /// Begins no further block.
    pub(crate) fn stop(&self) {
        self.moves.stop();
        if self.connection.net().check_fork().is_ok() {
            self.connection.conn().pump_moves();
        }
    }

    /// Which blocks have moved, once it is over; registers the caller if it is not.
    pub(crate) fn poll_moved(&self, context: &Context<'_>) -> Poll<Moved> {
        // In a child of a fork nothing is in flight that is its own.
        self.poll_over(context).map(|_over| self.moves.outcome())
    }

    /// Whether it is over; registers the caller if not.
    fn poll_over(&self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        if let Err(forked) = self.connection.net().check_fork() {
            return Poll::Ready(Err(self.forked(forked)));
        }
        self.moves.poll_over(context).map(Ok)
    }
}

impl Future for Transfer {
    type Output = Result<Receipt>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_over(context).map(|over| {
            over?;
            self.moves.result(|| self.connection.failed(Status::CANCELED, "the transfer was cancelled"))
        })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("connection", &self.connection)
            .field("moved", &self.moved())
            .finish_non_exhaustive()
    }
}

/// The end of a transfer that is cancelled: which of its blocks have moved. None is in flight then.
#[derive(Debug)]
#[must_use = "the memory is in use until this is ready"]
pub struct Cancel {
    transfer: Transfer,
}

impl Future for Cancel {
    type Output = Moved;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Moved> {
        self.transfer.poll_moved(context)
    }
}
