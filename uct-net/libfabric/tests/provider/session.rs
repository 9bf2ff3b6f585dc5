//! What every test needs: hints, the objects of a program, and calls through their tables.

use std::ffi::{c_char, c_int, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use uct_fi::abi::*;

/// Calls a slot of a table of an object, which is the first argument: `call!(ep, msg.send(buffer, length, ..))`.
macro_rules! call {
    ($object:expr, $table:ident.$slot:ident($($argument:expr),* $(,)?)) => {{
        let object = $object;
        // SAFETY: the test has the object open, or passes what the provider has to refuse.
        let table = unsafe { (*object).$table };
        // SAFETY: tables live as long as the process.
        let slot = unsafe { (*table).$slot };
        // SAFETY: the arguments are valid for as long as the manual page demands.
        unsafe { slot(object.cast(), $($argument),*) }
    }};
}
pub(crate) use call;

/// A limit for what has to happen.
const LIMIT: Duration = Duration::from_secs(60);

/// Hints with all attributes, which are zeros but for what a test changes.
pub struct Hints {
    pub info: Box<fi_info>,
    pub transmit: Box<fi_tx_attr>,
    pub receive: Box<fi_rx_attr>,
    pub endpoint: Box<fi_ep_attr>,
    pub domain: Box<fi_domain_attr>,
    pub fabric: Box<fi_fabric_attr>,
}

fn zeros<T>() -> Box<T> {
    // SAFETY: used with structures of numbers and pointers.
    Box::new(unsafe { zeroed() })
}

impl Hints {
    pub fn new() -> Hints {
        Hints {
            info: zeros(),
            transmit: zeros(),
            receive: zeros(),
            endpoint: zeros(),
            domain: zeros(),
            fabric: zeros(),
        }
    }

    /// The answer to these hints, at an address of the loopback device.
    pub fn find(&mut self) -> Result<Info, c_int> {
        self.find_with(version(1, 17), FI_SOURCE)
    }

    pub fn find_with(&mut self, version: u32, flags: u64) -> Result<Info, c_int> {
        self.info.tx_attr = &raw mut *self.transmit;
        self.info.rx_attr = &raw mut *self.receive;
        self.info.ep_attr = &raw mut *self.endpoint;
        self.info.domain_attr = &raw mut *self.domain;
        self.info.fabric_attr = &raw mut *self.fabric;
        find(version, c"127.0.0.1".as_ptr(), flags, &raw const *self.info)
    }
}

/// The provider's `fi_getinfo`.
pub fn find(version: u32, node: *const c_char, flags: u64, hints: *const fi_info) -> Result<Info, c_int> {
    let mut found = null_mut();
    // SAFETY: the provider lives as long as the process.
    let getinfo = unsafe { (*uct_fi::fi_prov_ini()).getinfo };
    // SAFETY: the hints are valid.
    match unsafe { getinfo(version, node, std::ptr::null(), flags, hints, &raw mut found) } {
        0 => Ok(Info(found)),
        error => {
            assert!(found.is_null());
            Err(error)
        }
    }
}

/// An answer, freed as libfabric does.
pub struct Info(pub *mut fi_info);

impl Info {
    pub fn get(&self) -> fi_info {
        // SAFETY: the provider made it.
        unsafe { *self.0 }
    }

    pub fn transmit(&self) -> fi_tx_attr {
        // SAFETY: as above.
        unsafe { *self.get().tx_attr }
    }

    pub fn endpoint(&self) -> fi_ep_attr {
        // SAFETY: as above.
        unsafe { *self.get().ep_attr }
    }

    pub fn domain(&self) -> fi_domain_attr {
        // SAFETY: as above.
        unsafe { *self.get().domain_attr }
    }

    pub fn fabric(&self) -> fi_fabric_attr {
        // SAFETY: as above.
        unsafe { *self.get().fabric_attr }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        let info = self.get();
        let parts = [
            info.src_addr,
            info.dest_addr,
            info.tx_attr.cast(),
            info.rx_attr.cast(),
            info.ep_attr.cast(),
            self.domain().name.cast(),
            info.domain_attr.cast(),
            self.fabric().name.cast(),
            info.fabric_attr.cast(),
            self.0.cast(),
        ];
        for part in parts {
            // SAFETY: `calloc` made it, or it is null.
            unsafe { libc::free(part) };
        }
    }
}

/// The objects of a program with one endpoint, whose own address is in its address vector.
pub struct Session {
    pub info: Info,
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
    pub vector: *mut fid_av,
    pub queue: *mut fid_cq,
    pub ep: *mut fid_ep,
    pub own: fi_addr_t,
    /// Closed behind the endpoint.
    pub others: Vec<*mut fid>,
}

/// How a session differs from the usual one.
pub struct Options {
    /// 0: all.
    pub caps: u64,
    pub wait: u32,
    /// Added to the flags with which the queue is bound.
    pub bind: u64,
    pub transmit_flags: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { caps: 0, wait: FI_WAIT_NONE, bind: 0, transmit_flags: 0 }
    }
}

impl Session {
    pub fn new(options: Options) -> Session {
        Session::with(options, |_, _| ())
    }

    /// As `new`; before the endpoint is enabled the test binds more.
    pub fn with(options: Options, bind: impl FnOnce(*mut fid_domain, *mut fid_ep)) -> Session {
        let mut hints = Hints::new();
        hints.info.caps = options.caps;
        hints.transmit.op_flags = options.transmit_flags;
        let info = hints.find().expect("an offer");
        let fabric = open_fabric(&info);
        let (mut domain, mut vector, mut queue, mut ep) = (null_mut(), null_mut(), null_mut(), null_mut());
        assert_eq!(call!(fabric, ops.domain(info.0, &raw mut domain, null_mut())), 0);
        let mut attr = vector_attr();
        assert_eq!(call!(domain, ops.av_open(&raw mut attr, &raw mut vector, null_mut())), 0);
        let mut attr = queue_attr(FI_CQ_FORMAT_TAGGED, options.wait);
        assert_eq!(call!(domain, ops.cq_open(&raw mut attr, &raw mut queue, null_mut())), 0);
        assert_eq!(call!(domain, ops.endpoint(info.0, &raw mut ep, null_mut())), 0);
        let object = ep.cast::<fid>();
        assert_eq!(call!(object, ops.bind(vector.cast(), 0)), 0);
        assert_eq!(call!(object, ops.bind(queue.cast(), FI_SEND | FI_RECV | options.bind)), 0);
        bind(domain, ep);
        assert_eq!(call!(object, ops.control(FI_ENABLE, null_mut())), 0);
        let mut session =
            Session { info, fabric, domain, vector, queue, ep, own: FI_ADDR_NOTAVAIL, others: Vec::new() };
        let name = session.name();
        session.own = session.insert(&name);
        session
    }

    /// The endpoint's address.
    pub fn name(&self) -> Vec<u8> {
        let (mut name, mut length) = (vec![0_u8; 64], 64);
        let got = call!(self.ep, cm.getname(name.as_mut_ptr().cast(), &raw mut length));
        assert_eq!(got, 0);
        name.truncate(length);
        name
    }

    pub fn insert(&self, address: &[u8]) -> fi_addr_t {
        let mut index = 0;
        let inserted =
            call!(self.vector, ops.insert(address.as_ptr().cast(), 1, &raw mut index, 0, null_mut()));
        assert_eq!(inserted, 1);
        index
    }

    /// Cancels an operation.
    pub fn cancel(&self, context: *mut c_void) -> isize {
        call!(self.ep, ops.cancel(context))
    }

    /// The next entry, and its source; `Err` for an error entry.
    pub fn next(&self) -> Result<(fi_cq_tagged_entry, fi_addr_t), fi_cq_err_entry> {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            match self.poll() {
                Some(found) => return found,
                None => std::thread::yield_now(),
            }
        }
        panic!("no completion");
    }

    /// The next entry, if there is one.
    pub fn poll(&self) -> Option<Result<(fi_cq_tagged_entry, fi_addr_t), fi_cq_err_entry>> {
        let (mut entry, mut source) = (*zeros::<fi_cq_tagged_entry>(), 0);
        let target = (&raw mut entry).cast();
        match call!(self.queue, ops.readfrom(target, 1, &raw mut source)) {
            1 => Some(Ok((entry, source))),
            error if error == -(EAVAIL as isize) => {
                let mut error = *zeros::<fi_cq_err_entry>();
                assert_eq!(call!(self.queue, ops.readerr(&raw mut error, 0)), 1);
                Some(Err(error))
            }
            other => {
                assert_eq!(other, -(EAGAIN as isize));
                None
            }
        }
    }

    /// The next `count` entries by context, all of which are successes.
    pub fn entries(&self, count: usize) -> Vec<fi_cq_tagged_entry> {
        let next = || self.next().map_err(|error| error.err).expect("a success").0;
        let mut all: Vec<_> = std::iter::repeat_with(next).take(count).collect();
        all.sort_by_key(|entry| entry.op_context as usize);
        all
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let first = [self.ep.cast::<fid>()];
        let last = [self.queue.cast::<fid>(), self.vector.cast(), self.domain.cast(), self.fabric.cast()];
        for object in first.iter().chain(&self.others).chain(&last) {
            assert_eq!(close(*object), 0);
        }
    }
}

pub fn close(object: *mut fid) -> c_int {
    call!(object, ops.close())
}

pub fn open_fabric(info: &Info) -> *mut fid_fabric {
    let mut fabric = null_mut();
    // SAFETY: the provider lives as long as the process.
    let open = unsafe { (*uct_fi::fi_prov_ini()).fabric };
    // SAFETY: the attributes are the provider's own.
    assert_eq!(unsafe { open(info.get().fabric_attr, &raw mut fabric, null_mut()) }, 0);
    fabric
}

pub fn vector_attr() -> fi_av_attr {
    fi_av_attr { r#type: FI_AV_TABLE, ..*zeros() }
}

pub fn queue_attr(format: u32, wait_obj: u32) -> fi_cq_attr {
    fi_cq_attr { format, wait_obj, ..*zeros() }
}

/// A context of the test's, which is never followed.
pub fn context(number: usize) -> *mut c_void {
    number as *mut c_void
}
