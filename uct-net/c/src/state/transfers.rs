//! Transfers of blocks.

use std::pin::Pin;
use std::rc::Rc;

use uct_net::Blocks;
use uct_net::protocol::Engine;

use super::{Done, State};
use crate::abi::*;
use crate::failure::{Failure, Outcome};
use crate::handles::Handle;

/// What is to move.
pub struct Transfer<'a> {
    pub is_put: bool,
    pub memory: Handle,
    pub remote: Handle,
    pub blocks: Blocks,
    pub notification: Option<&'a [u8]>,
}

impl State {
    pub fn transfer(
        self: &Rc<State>,
        engine: &Engine,
        conn: Handle,
        transfer: Transfer<'_>,
        user: u64,
    ) -> Outcome<u64> {
        let connection = self.link(conn)?.connection.clone();
        let memory = self.memory(transfer.memory)?;
        let remote = self.remotes.borrow().get(transfer.remote)?.clone();
        let (kind, new) = if transfer.is_put {
            (UCT_EV_PUT_BLOCKS, connection.put_blocks(&memory, &remote, &transfer.blocks))
        } else {
            (UCT_EV_GET_BLOCKS, connection.get_blocks(&memory, &remote, &transfer.blocks))
        };
        let new = match transfer.notification {
            Some(notification) => new.notify(notification),
            None => new,
        };
        let mut transfer = match new.start() {
            Ok(transfer) => transfer,
            Err(error) => return Ok(self.ended_at_once(kind, user, Err(error.into()))),
        };
        Ok(self.start(engine, (kind, user), |flight| async move {
            match flight.race(Pin::new(&mut transfer)).await {
                Some(Ok(receipt)) => Ok(Done { length: receipt.bytes, ..Done::default() }),
                Some(Err(error)) => Err(Failure::from(error).with_moved(transfer.outcome())),
                None => {
                    let moved = transfer.cancel().await;
                    Err(Failure::canceled("it was cancelled").with_moved(moved))
                }
            }
        }))
    }
}
