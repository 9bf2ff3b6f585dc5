//! The interface: a device, the sockets it listens on, its connections, and what they share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;
use ucs::Error;
use ucs::event_set::Events;
use ucs::stride::Countdown;
use ucs::sys::{SystemError, net, random};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{AmHandlers, AmPlacer, Failure, Result};

use crate::config::TcpConfig;
use crate::io::device::{self, Family};
use crate::io::listener;
use crate::link::agenda::RequestProgress;
use crate::link::half_open::HalfOpenList;
use crate::link::route;
use crate::link::shared::{LISTENERS, Shared};
use crate::link::table::Table;
use crate::md::{OWN, TcpMd};
use crate::proto::addr::{DeviceAddress, IfaceAddress};

/// An interface of `tcp`.
pub(crate) struct TcpIface {
    pub(crate) shared: Shared,
    pub(crate) table: Table,
    /// Receives on the active connection until the next poll of the event set.
    pub(crate) spins: Countdown,
    pub(crate) sendv_thresh: usize,
    pub(crate) max_iov: usize,
    pub(crate) config: Box<TcpConfig>,
    pub(crate) device: net::Device,
    /// Where the device is: where the interface was opened, and its sockets belong.
    pub(crate) here: DeviceAddress,
    pub(crate) families: Vec<Family>,
    pub(crate) is_default: bool,
    pub(crate) address: IfaceAddress,
    pub(crate) listeners: Vec<Socket>,
    pub(crate) half_open: Box<RefCell<HalfOpenList>>,
    /// Connections that were not taken.
    pub(crate) dropped: Cell<u64>,
    _md: Arc<TcpMd>,
}

impl TcpIface {
    /// Opens an interface on a device.
    pub(crate) fn open(
        md: &Arc<TcpMd>,
        device: &str,
        config: TcpConfig,
        (am, placer): (AmHandlers, Option<AmPlacer>),
        errors: ErrorHandler,
        progress: RequestProgress,
        headroom: usize,
    ) -> Result<Rc<TcpIface>, Failure> {
        let families = device::families(&config.af_prio)?;
        let device = device::find(device, &families)?;
        let system = |error: SystemError| Failure::new(Error::from(&error), error.to_string());
        // Ids are unique over all processes of all machines, and keys cannot be guessed.
        let (id, key) = (random::secret().map_err(system)?, random::secret().map_err(system)?);
        let settings = config.link();
        let (listeners, sockets) = listener::listen(&device, &families, config.port_range, &settings.socket)?;
        let shared =
            Shared::new(id, settings, Arc::clone(&md.regions), (am, placer), errors, headroom, progress)?;
        for (number, listener) in (LISTENERS..).zip(&listeners) {
            shared.events().add(listener, Events::READ, number).map_err(system)?;
        }
        let iface = TcpIface {
            sendv_thresh: config.sendv_thresh.to_usize().min(shared.seg_size()),
            max_iov: config.max_iov as usize,
            is_default: config.prefer_default && device::is_default(&device),
            shared,
            table: Table::default(),
            half_open: Box::new(RefCell::new(HalfOpenList::new(config.max_half_open))),
            spins: Countdown::default(),
            config: Box::new(config),
            here: route::address(&device),
            device,
            families,
            address: IfaceAddress { id, key, sockets },
            listeners,
            dropped: Cell::new(0),
            _md: Arc::clone(md),
        };
        OWN.add(md.regions.identity(), md);
        Ok(Rc::new(iface))
    }
}
