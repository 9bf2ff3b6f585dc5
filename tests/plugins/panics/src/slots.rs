//! A transport that can be opened and then panics wherever it is called.

use std::rc::Rc;
use std::sync::Arc;

use uct_plugin::rma::ByTransport;
use uct_plugin::{
    Component, Device, Endpoint, EpParams, Failure, Iface, IfaceAttr, IfaceParams, Md, MdAttr, Pack,
    PeerAddress, Result, Scope, Settings, Transport,
};

pub(crate) struct PanickingComponent;
pub(crate) struct PanickingMd;
pub(crate) struct PanickingTransport;
pub(crate) struct PanickingIface;
pub(crate) struct PanickingEp;

impl Component for PanickingComponent {
    const NAME: &'static str = "panics";
    type Md = PanickingMd;

    fn memory_domains(_settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        panic!("memory domain number {}", 1);
    }

    fn open(_name: &str, _settings: &Settings<'_>) -> Result<PanickingMd, Failure> {
        Ok(PanickingMd)
    }
}

impl Md for PanickingMd {
    type Memh = ();
    type Rkey = ();

    fn attributes(&self) -> MdAttr {
        panic!("attributes of a memory domain");
    }
}

impl Transport for PanickingTransport {
    const NAME: &'static str = "panics";
    type Md = PanickingMd;
    type Iface = PanickingIface;

    fn devices(_md: &PanickingMd, _settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        panic!("devices");
    }

    fn open(_md: &Arc<PanickingMd>, _params: IfaceParams<'_>) -> Result<Rc<PanickingIface>, Failure> {
        Ok(Rc::new(PanickingIface))
    }
}

impl Iface for PanickingIface {
    type Md = PanickingMd;
    type Ep = PanickingEp;

    fn attributes(&self) -> IfaceAttr {
        panic!("attributes of an interface");
    }

    fn device_address(&self, _buffer: &mut [u8]) -> Result {
        panic!("device address");
    }

    fn address(&self, _buffer: &mut [u8]) -> Result {
        panic!("address");
    }

    fn is_reachable(&self, _peer: PeerAddress<'_>, _scope: Scope) -> Result<(), String> {
        panic!("reachability");
    }

    fn progress(&self) -> u32 {
        panic!("progress");
    }

    fn create_ep(self: &Rc<Self>, _params: EpParams<'_>) -> Result<Rc<PanickingEp>, Failure> {
        Ok(Rc::new(PanickingEp))
    }
}

impl Endpoint for PanickingEp {
    type Iface = PanickingIface;
    type Remote = ByTransport;

    fn am_short(&self, _id: u8, _header: u64, _payload: &[u8]) -> Result {
        panic!("am_short");
    }

    fn am_bcopy(&self, _id: u8, _pack: Pack, _signaled: bool) -> Result<usize> {
        panic!("am_bcopy");
    }
}
