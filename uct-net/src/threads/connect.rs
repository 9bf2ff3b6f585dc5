//! Connecting to a listener by its address, from any thread.

use std::fmt;

use super::connection::Connection;
use super::engine::Entered;
use super::net::Net;
use super::operation::Operation;
use crate::error::Stage;
use crate::{flavour, local};

/// See [`Net::connect`].
pub type Connect = flavour::Connect<Net>;

/// The future of [`Net::connect`]. Dropping it ends the attempt.
pub type Connecting = Operation<Connection>;

impl Net {
    /// Connects to a listener, as [`crate::local::Net::connect`].
    pub fn connect(&self, address: impl fmt::Display) -> Connect {
        Connect::new(self.clone(), address)
    }
}

impl IntoFuture for Connect {
    type Output = <Connecting as Future>::Output;
    type IntoFuture = Connecting;

    fn into_future(self) -> Connecting {
        let Connect { net, settings } = self;
        let begin = move |entered: &Entered<'_>| {
            let net = local::Net { inner: entered.net().clone() };
            local::Connect { net, settings }.into_future()
        };
        Operation::new(&net.engine, Stage::Dial, begin, Connection::new)
    }
}
