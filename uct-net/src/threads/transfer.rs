//! Transfers of blocks, for any thread.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use ucs::memory::fork::Forked;

use super::confined::Confined;
use super::connection::Connection;
use super::engine::Entered;
use super::memory::Memory;
use super::message::Message;
use super::operation::Operation;
use super::outside::Signals;
use super::remote::RemoteMemory;
use crate::error::{Error, Result, Stage, THIS_PROCESS};
use crate::flavour::{self, Plan, Transfers};
use crate::local;
use crate::transfer::{Blocks, Direction, Moved, Receipt};

/// See [`Connection::get_blocks`].
pub type NewTransfer<'a> = flavour::NewTransfer<'a, Connection>;

impl Connection {
    /// Reads blocks of the peer's memory into local memory, as [`local::Connection::get_blocks`]:
    /// `connection.get_blocks(&local, &remote, &blocks).notify(b"read").start()?.await?`.
    pub fn get_blocks(&self, local: &Memory, remote: &RemoteMemory, blocks: &Blocks) -> NewTransfer<'_> {
        NewTransfer::new(self, Direction::Get).and(local, remote, blocks)
    }

    /// Writes blocks of local memory to the peer's memory, as [`local::Connection::put_blocks`].
    pub fn put_blocks(&self, local: &Memory, remote: &RemoteMemory, blocks: &Blocks) -> NewTransfer<'_> {
        NewTransfer::new(self, Direction::Put).and(local, remote, blocks)
    }

    /// The notification of the next transfer of the peer's that has moved all of its blocks, as [`local::Connection::notified`].
    ///
    /// # Errors
    /// The connection has failed, or the peer has closed it.
    pub fn notified(&self) -> Operation<Message> {
        let begin = |_entered: &Entered<'_>, local: local::Connection| async move { local.notified().await };
        self.operation(begin, Message::new)
    }
}

impl Transfers for Connection {
    type Memory = Memory;
    type RemoteMemory = RemoteMemory;
    type Transfer = Transfer;

    fn start_transfer(&self, plan: Plan<Connection>) -> Result<Transfer> {
        let Plan { direction, parts, notice } = plan;
        let started = self.local().with(|entered, local| {
            let part = |(memory, remote, blocks): &(Memory, RemoteMemory, Blocks)| {
                let memory = self.owned(entered, memory.confined())?;
                Ok((memory, self.owned(entered, remote.confined())?, blocks.clone()))
            };
            let parts = parts.iter().map(part).collect::<Result<Vec<_>>>()?;
            let transfer = local.plan_transfer(Plan { direction, parts, notice })?;
            transfer.begin()?;
            entered.returns();
            Ok(entered.confine(RefCell::new(transfer)))
        });
        let transfer = started.map_err(|forked| self.refused(forked))??;
        Ok(Transfer { transfer, signal: Signals::default() })
    }
}

/// A transfer that has started, and its end as a future, as [`local::Transfer`].
#[must_use = "dropping a transfer cancels it"]
pub struct Transfer {
    transfer: Confined<RefCell<local::Transfer>>,
    signal: Signals,
}

impl Transfer {
    /// How many blocks have moved so far.
    pub fn moved(&self) -> usize {
        self.transfer.with(|_entered, transfer| transfer.borrow().moved()).unwrap_or_default()
    }

    /// What became of each block so far, as [`local::Transfer::outcome`].
    pub fn outcome(&self) -> Moved {
        self.transfer.with(|_entered, transfer| transfer.borrow().outcome()).unwrap_or_default()
    }

    /// Begins no further block, and waits until none is in flight, as [`local::Transfer::cancel`].
    pub fn cancel(self) -> Cancel {
        let _ = self.transfer.with(|entered, transfer| {
            transfer.borrow().stop();
            entered.returns();
        });
        Cancel { transfer: self }
    }

    /// Moves the same blocks once more, with the same notification.
    ///
    /// # Errors
    /// `BUSY` if it is not over. The connection has failed or is closed.
    pub fn again(&mut self) -> Result {
        let begun = self.transfer.with(|entered, transfer| {
            let begun = transfer.borrow_mut().again();
            entered.returns();
            begun
        });
        begun.map_err(|forked| Error::forked(Stage::Connected, THIS_PROCESS, forked))?
    }

    fn poll_in<R: Send>(
        &self,
        context: &Context<'_>,
        poll: impl FnOnce(&mut local::Transfer, &mut Context<'_>) -> Poll<R> + Send,
    ) -> Result<Poll<R>, Forked> {
        let waker = self.signal.waker(self.transfer.engine().outside(), context.waker());
        let waker = &waker;
        self.transfer.with(|entered, transfer| {
            let outcome = poll(&mut transfer.borrow_mut(), &mut Context::from_waker(waker));
            if outcome.is_pending() {
                entered.rest();
            }
            outcome
        })
    }
}

impl Future for Transfer {
    type Output = Result<Receipt>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_in(context, |transfer, context| Pin::new(transfer).poll(context));
        polled
            .unwrap_or_else(|forked| Poll::Ready(Err(Error::forked(Stage::Connected, THIS_PROCESS, forked))))
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("moved", &self.moved()).finish_non_exhaustive()
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
        let polled = self.transfer.poll_in(context, |transfer, context| transfer.poll_moved(context));
        // In a child of a fork nothing is in flight that is its own.
        polled.unwrap_or_else(|_forked| Poll::Ready(Moved::default()))
    }
}
