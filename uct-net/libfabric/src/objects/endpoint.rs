//! Endpoints: what they are bound to, and from `fi_enable` on an endpoint of the engine.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::abi::*;
use crate::boundary::Outcome;
use crate::engine::{self, EndpointOptions, Errno};
use crate::info::{RECEIVE_FLAGS, TRANSMIT_FLAGS, own_address, socket_address};

use super::address_vector::AddressVector;
use super::completion_queue::CompletionQueue;
use super::counter::Counter;
use super::domain::Domain;
use super::event_queue::EventQueue;
use super::methods;
use super::setup::{Direction, Setup};

/// An endpoint.
pub struct Endpoint {
    /// Ahead of what it is bound to.
    live: OnceLock<Live>,
    setup: Mutex<Setup>,
    domain: Arc<Domain>,
    caps: u64,
    /// Default flags of operations.
    transmit_flags: AtomicU64,
    receive_flags: AtomicU64,
    /// When a buffer for many messages is given back.
    minimum: AtomicUsize,
}

/// An endpoint that was enabled.
pub struct Live {
    pub engine: engine::Endpoint,
    /// Operations without `FI_COMPLETION` make an entry.
    pub reports_transmits: bool,
    pub reports_receives: bool,
    /// A receive takes messages of one peer if it names one.
    pub is_directed: bool,
}

/// Bytes that must be left in a buffer for many messages, unless the program says otherwise.
const MINIMUM: usize = 64;
const COUNTED: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

methods! {
    pub fn open(
        caller, domain: *mut fid_domain => Domain, info: *mut fi_info, target: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int {
        let info = caller.at(info)?;
        if caller.at(info.ep_attr).is_ok_and(|attr| ![FI_EP_UNSPEC, FI_EP_RDM].contains(&attr.r#type)) {
            return Err(Errno(ENOSYS));
        }
        let asked = match caller.list(info.src_addr.cast::<u8>().cast_const(), info.src_addrlen)? {
            [] => None,
            bytes => Some(socket_address::read(bytes).ok_or(Errno::INVALID)?),
        };
        let address = own_address(info.addr_format, asked)?;
        let transmit = caller.at(info.tx_attr).map_or(0, |attr| attr.op_flags);
        let receive = caller.at(info.rx_attr).map_or(0, |attr| attr.op_flags);
        let endpoint = Endpoint {
            live: OnceLock::new(),
            setup: Mutex::new(Setup::new(address)),
            domain: Arc::clone(domain),
            caps: info.caps,
            transmit_flags: AtomicU64::new(transmit & TRANSMIT_FLAGS),
            receive_flags: AtomicU64::new(receive & RECEIVE_FLAGS),
            minimum: AtomicUsize::new(MINIMUM),
        };
        caller.give(endpoint, context, target)?;
        Ok(0)
    }

    /// No flag is offered, and libfabric calls `open` itself where there is none.
    pub fn open_with_flags(
        caller, _domain: *mut fid_domain => Domain, _info: *mut fi_info, _target: *mut *mut fid_ep, _flags: u64,
        _context: *mut c_void,
    ) -> c_int {
        Err(Errno(EBADFLAGS))
    }

    pub fn bind(caller, endpoint: *mut fid => Endpoint, other: *mut fid, flags: u64) -> c_int {
        let mut setup = endpoint.setup();
        if endpoint.live.get().is_some() {
            return Err(Errno(EOPBADSTATE));
        }
        let is_own = |domain: &Arc<Domain>| if Arc::ptr_eq(domain, &endpoint.domain) { Ok(()) } else { Err(Errno(EDOMAIN)) };
        match caller.at(other)?.fclass {
            FI_CLASS_CQ => {
                let queue = caller.held::<CompletionQueue>(other)?;
                is_own(&queue.domain)?;
                setup.bind_queue(queue, flags)?;
            }
            FI_CLASS_CNTR => {
                let counter = caller.held::<Counter>(other)?;
                is_own(&counter.domain)?;
                if flags & !COUNTED != 0 || flags == 0 {
                    return Err(Errno(EBADFLAGS));
                }
                setup.counters.push((Arc::clone(counter), flags));
            }
            FI_CLASS_AV => {
                let vector = caller.held::<AddressVector>(other)?;
                is_own(&vector.domain)?;
                if setup.vector.replace(Arc::clone(vector)).is_some() {
                    return Err(Errno::INVALID);
                }
            }
            // It gets no event.
            _ => {
                caller.held::<EventQueue>(other)?;
            }
        }
        Ok(0)
    }

    pub fn control(caller, endpoint: *mut fid => Endpoint, command: c_int, argument: *mut c_void) -> c_int {
        match command {
            FI_ENABLE => endpoint.enable()?,
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                let flags = *caller.at(argument.cast::<u64>())?;
                let (own, offered) = match flags & (FI_SEND | FI_RECV) {
                    FI_SEND => (&endpoint.transmit_flags, TRANSMIT_FLAGS),
                    FI_RECV => (&endpoint.receive_flags, RECEIVE_FLAGS),
                    _ => return Err(Errno::INVALID),
                };
                if command == FI_GETOPSFLAG {
                    caller.put(argument.cast(), own.load(Ordering::Relaxed))?;
                } else if flags & !(FI_SEND | FI_RECV | offered) != 0 {
                    return Err(Errno(EBADFLAGS));
                } else {
                    own.store(flags & offered, Ordering::Relaxed);
                }
            }
            _ => return Err(Errno(ENOSYS)),
        }
        Ok(0)
    }

    pub fn cancel(caller, endpoint: *mut fid => Endpoint, context: *mut c_void) -> isize {
        endpoint.live()?.engine.cancel(context as usize)?;
        Ok(0)
    }

    pub fn getopt(
        caller, endpoint: *mut fid => Endpoint, level: c_int, name: c_int, target: *mut c_void, length: *mut usize,
    ) -> c_int {
        let value = match (level, name) {
            (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) => endpoint.minimum(),
            (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) => 0,
            _ => return Err(Errno(ENOPROTOOPT)),
        };
        let room = *caller.at(length)?;
        caller.put(length, size_of::<usize>())?;
        if room < size_of::<usize>() {
            return Err(Errno(ETOOSMALL));
        }
        caller.put(target.cast(), value)?;
        Ok(0)
    }

    pub fn setopt(
        caller, endpoint: *mut fid => Endpoint, level: c_int, name: c_int, value: *const c_void, length: usize,
    ) -> c_int {
        if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
            return Err(Errno(ENOPROTOOPT));
        }
        if length != size_of::<usize>() {
            return Err(Errno::INVALID);
        }
        endpoint.minimum.store(*caller.at(value.cast())?, Ordering::Relaxed);
        Ok(0)
    }
}

impl Endpoint {
    /// The endpoint of the engine.
    ///
    /// # Errors
    /// It was not enabled.
    #[inline]
    pub fn live(&self) -> Outcome<&Live> {
        self.live.get().ok_or(Errno(EOPBADSTATE))
    }

    /// Flags of operations that the program calls without flags.
    #[inline]
    pub fn transmit_flags(&self) -> u64 {
        self.transmit_flags.load(Ordering::Relaxed)
    }

    /// Flags of receives that the program posts without flags.
    #[inline]
    pub fn receive_flags(&self) -> u64 {
        self.receive_flags.load(Ordering::Relaxed)
    }

    /// Bytes that must be left in a buffer for many messages.
    pub fn minimum(&self) -> usize {
        self.minimum.load(Ordering::Relaxed)
    }

    /// Sets the address to listen at.
    pub fn set_address(&self, address: SocketAddr) -> Outcome {
        let mut setup = self.setup();
        if self.live.get().is_some() {
            return Err(Errno(EOPBADSTATE));
        }
        setup.address = address;
        Ok(())
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enable(&self) -> Outcome {
        let setup = self.setup();
        if self.live.get().is_some() {
            return Err(Errno(EOPBADSTATE));
        }
        let options = EndpointOptions { listen: setup.address, bindings: setup.bindings(self.caps)? };
        let engine = engine::Endpoint::open(&self.domain.engine, options).map_err(|error| {
            ucs::log::warn!("libfabric: no endpoint at {}: {}", setup.address, error.reason);
            error.errno
        })?;
        let reports = |direction: &Option<Direction>| direction.as_ref().is_some_and(|it| !it.is_selective);
        let live = Live {
            engine,
            reports_transmits: reports(&setup.transmit),
            reports_receives: reports(&setup.receive),
            is_directed: self.caps & FI_DIRECTED_RECV != 0,
        };
        // The lock keeps others from enabling it meanwhile.
        self.live.set(live).map_err(|_| Errno(EOPBADSTATE))
    }
}
