//! One side: a device, memory with several permissions, and a queue pair that is made anew for each session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uct_ib::verbs::{
    Access, Cq, MrBuffer, Pd, Qp, QpCaps, QpConfig, QpKind, RcConnect, RecvSlot, Sge, Wc, WcBuffer,
};
use uct_ib::{IbDevice, PortAddress, PortPreferences};

use crate::plan::{MOST, Region, SIZE};

/// Longest wait for anything: for a guest that shares its processors.
const LIMIT: Duration = Duration::from_secs(60);
/// Payload of a packet: 1,024 bytes, so that requests have several.
const MTU: u8 = 3;

pub struct End {
    pub port: PortAddress,
    pd: Arc<Pd>,
    pub sends: Arc<Cq>,
    pub receives: Arc<Cq>,
    regions: [MrBuffer; 3],
}

/// How requests are sent again.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// As the verbs code it.
    pub timeout: u8,
    /// 7 is for ever.
    pub rnr: u8,
}

impl End {
    pub fn new(device: IbDevice, gid_index: Option<u32>) -> End {
        let preferences = PortPreferences { gid_index, ..PortPreferences::default() };
        let port = PortAddress::new(&device.context, 1, preferences).expect("a port");
        let pd = Pd::new(&device.context).expect("a domain");
        let [sends, receives] =
            [(); 2].map(|()| Cq::new(&device.context, 64, None, 0).expect("a completion queue"));
        let regions = Region::ALL.map(|region| {
            let access = match region {
                Region::Open => Access::REMOTE_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_ATOMIC),
                Region::Readable => Access::REMOTE_READ,
                Region::Writable => Access::REMOTE_WRITE,
            };
            MrBuffer::new(&pd, SIZE, access).expect("memory")
        });
        End { port, pd, sends, receives, regions }
    }

    pub fn queue_pair(&self) -> Qp {
        let requests = MOST as u32 * 2;
        let caps = QpCaps {
            max_send_wr: requests,
            max_recv_wr: requests,
            max_send_sge: 3,
            max_recv_sge: 1,
            max_inline: 64,
        };
        let (send_cq, recv_cq) = (&self.sends, &self.receives);
        Qp::new(&self.pd, &QpConfig { kind: QpKind::Rc, send_cq, recv_cq, srq: None, caps })
            .expect("a queue pair")
    }

    pub fn connect(&self, qp: &Qp, peer: &End, remote_qp: u32, retries: Retries) {
        let access = Access::REMOTE_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_ATOMIC);
        qp.init_rc(1, self.port.pkey_index(), access).expect("INIT");
        let connect = RcConnect {
            vector: self.port.vector_to(&peer.port.device_address()).expect("reachable"),
            remote_qp,
            path_mtu: MTU,
            receive_psn: 0xff_fffe,
            send_psn: 0xff_fffe,
            max_reads_out: 4,
            max_reads_in: 4,
            min_rnr_timer: 1,
            timeout: retries.timeout,
            retry_count: 6,
            rnr_retry: retries.rnr,
        };
        qp.connect_rc(&connect).expect("RTS");
    }

    fn region(&self, region: Region) -> &MrBuffer {
        &self.regions[region as usize]
    }

    pub fn address(&self, region: Region, offset: usize) -> u64 {
        self.region(region).as_ptr().wrapping_add(offset) as u64
    }

    pub fn rkey(&self, region: Region) -> u32 {
        self.region(region).mr().rkey()
    }

    pub fn lkey(&self, region: Region) -> u32 {
        self.region(region).mr().lkey()
    }

    /// A piece of the open region.
    pub fn piece(&self, offset: usize, length: usize) -> Sge {
        Sge::new(self.address(Region::Open, offset), length as u32, self.lkey(Region::Open))
    }

    pub fn write(&self, region: Region, bytes: &[u8]) {
        assert!(bytes.len() <= SIZE);
        // SAFETY: inside the region; nothing is outstanding on it between sessions.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.region(region).as_ptr(), bytes.len()) }
    }

    pub fn read(&self, region: Region) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        // SAFETY: inside the region; its queue pair has ended when a session looks at what it left.
        unsafe { std::ptr::copy_nonoverlapping(self.region(region).as_ptr(), bytes.as_mut_ptr(), SIZE) }
        bytes
    }

    pub fn post_receive(&self, qp: &Qp, wr_id: u64, offset: usize, length: usize) {
        let slots = [RecvSlot { wr_id, sge: self.piece(offset, length) }];
        // SAFETY: the memory lives as long as this side, whose user drops the queue pair first.
        assert_eq!(unsafe { qp.post_recv(&slots) }, Ok(1));
    }
}

impl End {
    pub fn post_receive_with_wrong_key(&self, qp: &Qp, wr_id: u64, offset: usize, length: usize) {
        let sge = Sge::new(self.address(Region::Open, offset), length as u32, self.lkey(Region::Open) ^ 0x5a);
        // SAFETY: as above.
        assert_eq!(unsafe { qp.post_recv(&[RecvSlot { wr_id, sge }]) }, Ok(1));
    }
}

/// So many completions of a queue.
pub fn wait(cq: &Cq, count: usize, what: &str) -> Vec<Wc> {
    let deadline = Instant::now() + LIMIT;
    let mut came = Vec::new();
    while came.len() < count {
        let mut buffer = WcBuffer::<8>::new();
        match cq.poll(&mut buffer).expect("the queue works") {
            [] => std::thread::yield_now(),
            some => came.extend_from_slice(some),
        }
        assert!(Instant::now() < deadline, "{} of {count} completions of {what}", came.len());
    }
    came
}
