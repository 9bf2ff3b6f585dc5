//! From a choice to a connected endpoint, on either side.

use std::cell::RefCell;
use std::rc::Rc;

use uct_core::{Capabilities, Ep, EpFailure, Iface, IfaceAddress};

use crate::Failure;
use crate::oob::{Kind, Oob};

/// An endpoint, and its failure once there is one.
pub(crate) struct Connection {
    pub ep: Ep,
    failure: Rc<RefCell<Option<EpFailure>>>,
}

impl Connection {
    /// Connects to the peer's interface, or where the transport needs that, to its endpoint. Both sides call it.
    pub(crate) fn new(iface: &Iface, peer: &IfaceAddress, oob: &mut Oob) -> Result<Connection, Failure> {
        let failure = Rc::new(RefCell::new(None));
        let seen = Rc::clone(&failure);
        let on_failure = move |failure| {
            seen.replace(Some(failure));
        };
        let ep = if iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
            let ep = iface.connect_with(peer, on_failure)?;
            oob.send(Kind::Endpoint, &[])?;
            oob.receive(Kind::Endpoint)?;
            ep
        } else {
            let ep = iface.create_ep(on_failure)?;
            oob.send(Kind::Endpoint, &ep.address()?)?;
            let address = oob.receive(Kind::Endpoint)?;
            ep.connect_to_ep(peer, &address)?;
            ep
        };
        Ok(Connection { ep, failure })
    }

    /// The failure as an error.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &*self.failure.borrow() {
            Some(failure) => Err(format!("the connection failed: {failure}").into()),
            None => Ok(()),
        }
    }
}
