//! Registered memory: allocated, shared, put from and got into.

use std::rc::Rc;

use ucs::Error as Status;
use uct_core::{Memory, MemorySlice};
use uct_net::protocol::Engine;

use super::{Done, State};
use crate::abi::*;
use crate::failure::{Failure, Outcome};
use crate::handles::{Handle, Kind};

/// A part of registered memory, as a program names it.
#[derive(Clone, Copy)]
pub struct Part {
    pub memory: Handle,
    pub offset: usize,
    pub length: usize,
}

/// Bytes of the peer's memory from an offset on.
#[derive(Clone, Copy)]
pub struct Far {
    pub remote: Handle,
    pub offset: u64,
}

impl State {
    /// Memory without its pages; where it is, and whether they should be made.
    pub fn allocate(&self, engine: &Engine, length: usize) -> Outcome<(Handle, u64, usize, bool)> {
        let (memory, populates) = engine.net().allocate_absent(length)?;
        let (address, length) = (memory.address(), memory.len());
        Ok((self.memories.borrow_mut().insert(memory)?, address, length, populates))
    }

    pub fn memory(&self, handle: Handle) -> Outcome<Memory> {
        self.memories.borrow().get(handle).cloned()
    }

    pub fn free_memory(&self, raw: u64) -> Outcome {
        self.remove(&self.memories, raw, Kind::Memory).map(drop)
    }

    pub fn remote_size(&self, handle: Handle) -> Outcome<u64> {
        self.remotes.borrow().get(handle).map(uct_net::local::RemoteMemory::len)
    }

    pub fn release_remote(&self, raw: u64) -> Outcome {
        self.remove(&self.remotes, raw, Kind::Remote).map(drop)
    }

    fn slice(&self, part: Part) -> Outcome<MemorySlice> {
        let memory = self.memory(part.memory)?;
        match part.offset.checked_add(part.length) {
            Some(end) if end <= memory.len() => Ok(memory.slice(part.offset..end)),
            _ => Err(Failure::new(
                Status::OUT_OF_RANGE,
                format!(
                    "{} bytes from {} on are not part of a memory of {} bytes",
                    part.length,
                    part.offset,
                    memory.len()
                ),
            )),
        }
    }

    pub fn share(self: &Rc<State>, engine: &Engine, conn: Handle, part: Part, user: u64) -> Outcome<u64> {
        let (slice, connection) = (self.slice(part)?, self.link(conn)?.connection.clone());
        let work = async move { connection.share(slice).await };
        Ok(self.start_droppable(engine, (UCT_EV_SHARE, user), work, |_, ()| Ok(Done::default())))
    }

    pub fn unshare(&self, conn: Handle, part: Part) -> Outcome {
        if self.link(conn)?.connection.unshare(&self.slice(part)?) {
            return Ok(());
        }
        Err(Failure::new(Status::NO_ELEM, "the connection has sent no key to exactly this part"))
    }

    pub fn send_memory(
        self: &Rc<State>,
        engine: &Engine,
        conn: Handle,
        part: Part,
        user: u64,
    ) -> Outcome<u64> {
        let (slice, connection) = (self.slice(part)?, self.link(conn)?.connection.clone());
        let work = async move { connection.send_slice(slice).await };
        Ok(self.start_droppable(engine, (UCT_EV_SEND, user), work, |_, ()| Ok(Done::default())))
    }

    pub fn put(
        self: &Rc<State>,
        engine: &Engine,
        conn: Handle,
        part: Part,
        far: Far,
        user: u64,
    ) -> Outcome<u64> {
        let (slice, connection) = (self.slice(part)?, self.link(conn)?.connection.clone());
        let remote = self.remotes.borrow().get(far.remote)?.clone();
        let work = async move { connection.put(slice, &remote, far.offset).await };
        Ok(self.start_droppable(engine, (UCT_EV_PUT, user), work, |_, ()| Ok(Done::default())))
    }

    pub fn get(
        self: &Rc<State>,
        engine: &Engine,
        conn: Handle,
        part: Part,
        far: Far,
        user: u64,
    ) -> Outcome<u64> {
        let (slice, connection) = (self.slice(part)?, self.link(conn)?.connection.clone());
        let remote = self.remotes.borrow().get(far.remote)?.clone();
        let work = async move { connection.get(slice, &remote, far.offset).await };
        Ok(self.start_droppable(engine, (UCT_EV_GET, user), work, |_, ()| Ok(Done::default())))
    }

    pub fn fetch_add(
        self: &Rc<State>,
        engine: &Engine,
        conn: Handle,
        far: Far,
        value: u64,
        user: u64,
    ) -> Outcome<u64> {
        let connection = self.link(conn)?.connection.clone();
        let remote = self.remotes.borrow().get(far.remote)?.clone();
        let work = async move { connection.fetch_add(&remote, far.offset, value).await };
        let done = |_: &State, old| Ok(Done { result: old, ..Done::default() });
        Ok(self.start_droppable(engine, (UCT_EV_FETCH_ADD, user), work, done))
    }

    pub fn flush(self: &Rc<State>, engine: &Engine, conn: Handle, user: u64) -> Outcome<u64> {
        let connection = self.link(conn)?.connection.clone();
        let work = async move { connection.flush().await };
        Ok(self.start_droppable(engine, (UCT_EV_FLUSH, user), work, |_, ()| Ok(Done::default())))
    }
}
