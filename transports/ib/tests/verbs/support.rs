//! A device to test on, and connected queue pairs.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uct_ib::verbs::{
    self, Access, CompChannel, Cq, MrBuffer, Pd, Qp, QpCaps, QpConfig, QpKind, RcConnect, RecvSlot, Sge, Srq,
    Verbs, Wc, WcBuffer,
};
use uct_ib::{DeviceAddress, IbDevice, IbError, PortAddress, PortPreferences};

/// Longest wait for anything; a watchdog, not a tuning knob.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The names of the devices, and the turn to use them; `None` says that the test is skipped.
pub fn devices() -> Option<(MutexGuard<'static, ()>, Vec<String>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = verbs().and_then(uct_ib::device::devices);
    match found {
        Ok(devices) => Some((turn, devices.iter().map(|device| device.name()).collect())),
        Err(reason) => {
            let required = std::env::var("UCT_TEST_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == "verbs"), "{reason}");
            // Past the capture of a test that passes.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
            None
        }
    }
}

/// Those of the library that the transports use.
pub fn verbs() -> Result<Verbs, IbError> {
    verbs::load(&crate::library::library())
}

pub fn open(name: &str) -> IbDevice {
    uct_ib::device::open(verbs().expect("loaded before"), name).unwrap_or_else(|error| panic!("{error}"))
}

/// One end of a connection, with a buffer that the peer may do anything to.
pub struct End {
    pub device: IbDevice,
    pub port: PortAddress,
    pub cq: Arc<Cq>,
    pub channel: Arc<CompChannel>,
    pub srq: Option<Arc<Srq>>,
    pub qp: Qp,
    pub buffer: MrBuffer,
}

pub const BUFFER: usize = 16384;

impl End {
    pub fn new(name: &str, kind: QpKind) -> End {
        let device = open(name);
        let port = PortAddress::new(&device.context, 1, PortPreferences::default()).expect("a port");
        let pd = Pd::new(&device.context).expect("a domain");
        let channel = CompChannel::new(&device.context).expect("a channel");
        let cq = Cq::new(&device.context, 128, Some(&channel), 0).expect("a queue");
        let srq = (kind == QpKind::Rc).then(|| Srq::new(&pd, 64).expect("a shared queue"));
        let max_recv_wr = if kind == QpKind::Ud { 64 } else { 0 };
        let caps = QpCaps { max_send_wr: 32, max_recv_wr, max_send_sge: 4, max_recv_sge: 1, max_inline: 128 };
        let config = QpConfig { kind, send_cq: &cq, recv_cq: &cq, srq: srq.as_ref(), caps };
        let qp = Qp::new_with_inline_up_to(&pd, &config).expect("a queue pair");
        let access = Access::REMOTE_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_ATOMIC);
        let buffer = MrBuffer::new(&pd, BUFFER, access).expect("memory");
        End { device, port, cq, channel, srq, qp, buffer }
    }

    pub fn connect(&self, peer: &DeviceAddress, remote_qp: u32, timeout: u8) {
        let access = Access::REMOTE_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_ATOMIC);
        self.qp.init_rc(1, self.port.pkey_index(), access).expect("INIT");
        let connect = RcConnect {
            vector: self.port.vector_to(peer).expect("reachable"),
            remote_qp,
            path_mtu: self.port.path_mtu(peer).code(),
            receive_psn: 1,
            send_psn: 1,
            max_reads_out: 4,
            max_reads_in: 4,
            min_rnr_timer: 12,
            timeout,
            retry_count: 6,
            rnr_retry: 6,
        };
        self.qp.connect_rc(&connect).expect("RTS");
    }

    /// A piece of the buffer.
    pub fn piece(&self, offset: usize, length: usize) -> Sge {
        assert!(offset + length <= BUFFER);
        Sge::new(self.address(offset), length as u32, self.buffer.mr().lkey())
    }

    pub fn address(&self, offset: usize) -> u64 {
        self.buffer.as_ptr().wrapping_add(offset) as u64
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= BUFFER);
        let place = self.buffer.as_ptr().wrapping_add(offset);
        // SAFETY: inside the buffer, as asserted; no request is outstanding on this part when a test writes it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) }
    }

    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= BUFFER);
        let mut bytes = vec![0; length];
        let place = self.buffer.as_ptr().wrapping_add(offset);
        // SAFETY: inside the buffer, as asserted; tests read what a completion has announced.
        unsafe { std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), length) }
        bytes
    }

    /// Posts a receive buffer at the offset, of 2048 bytes.
    pub fn post_receive(&self, wr_id: u64, offset: usize) {
        let slots = [RecvSlot { wr_id, sge: self.piece(offset, 2048) }];
        let posted = match &self.srq {
            // SAFETY: the buffer lives as long as the end, and the queue pair (an earlier field) is dropped before it.
            Some(srq) => unsafe { srq.post(&slots) },
            // SAFETY: as above.
            None => unsafe { self.qp.post_recv(&slots) },
        };
        assert_eq!(posted, Ok(1));
    }

    /// The next completion.
    pub fn wait(&self) -> Wc {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut buffer = WcBuffer::<1>::new();
            if let [wc] = self.cq.poll(&mut buffer).expect("the queue works") {
                return *wc;
            }
            assert!(Instant::now() < deadline, "no completion in {PATIENCE:?}");
            std::thread::yield_now();
        }
    }

    pub fn wait_ok(&self, wr_id: u64) -> Wc {
        let wc = self.wait();
        assert!(wc.is_ok(), "request {} failed: {}", wc.wr_id(), wc.status());
        assert_eq!(wc.wr_id(), wr_id);
        wc
    }
}

/// Two ends that are connected: across the pair of devices if there are two, on the one otherwise.
pub fn connected(names: &[String]) -> (End, End) {
    let (a, b) = (End::new(&names[0], QpKind::Rc), End::new(names.last().expect("a device"), QpKind::Rc));
    a.connect(&b.port.device_address(), b.qp.number(), 14);
    b.connect(&a.port.device_address(), a.qp.number(), 14);
    (a, b)
}
