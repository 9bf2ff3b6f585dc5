//! Two devices in two network namespaces, over a pair of Ethernet devices, by IPv4 and IPv6. Only root can make namespaces.

use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uct_ib_soft::driver::{Driver, Options};
use uct_ib_soft::engine::wire::Extra;
use uct_ib_soft::engine::{
    Access, Attributes, Capacity, CqId, Mask, Path, Piece, Psn, QpConfig, QpKind, QpState, SendData,
    SendKind, SendRequest, Status, Target,
};

#[path = "../../../../ucs/testing/skip.rs"]
mod skip;

const LENGTH: usize = 300_000;

/// A network namespace of this test, with one end of the cable.
struct Namespace(String);

impl Namespace {
    fn run(command: &str) {
        let status = Command::new("sh").args(["-ec", command]).status().expect("a shell");
        assert!(status.success(), "{command}");
    }

    /// Two of them, each with these addresses on its end.
    fn pair(addresses: [[&str; 2]; 2]) -> [Namespace; 2] {
        let id = std::process::id();
        let names = [format!("softverbs-{id}-a"), format!("softverbs-{id}-b")];
        let [a, b] = &names;
        Self::run(&format!(
            "ip netns add {a}; ip netns add {b}; ip link add sv{id} netns {a} type veth peer name sv{id} netns {b}"
        ));
        let spaces = names.map(Namespace);
        for (space, [v4, v6]) in spaces.iter().zip(addresses) {
            let name = &space.0;
            Self::run(&format!(
                "ip -n {name} addr add {v4}/24 dev sv{id}; ip -n {name} addr add {v6}/64 dev sv{id} nodad; \
                 ip -n {name} link set sv{id} up"
            ));
        }
        spaces
    }

    /// A device in it. Its thread and its socket stay there.
    fn device(&self, address: IpAddr) -> Arc<Driver> {
        let file = std::fs::File::open(format!("/run/netns/{}", self.0)).expect("it was made");
        let start = move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind)
                .expect("root may");
            Driver::start(&Options { address: Some(address), ..Options::default() }).expect("a device")
        };
        std::thread::spawn(start).join().expect("it starts")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

struct End {
    driver: Arc<Driver>,
    cq: CqId,
    qp: u32,
    key: u32,
    memory: Vec<u8>,
}

impl End {
    fn new(driver: Arc<Driver>) -> End {
        let mut memory = vec![0; LENGTH];
        let mut port = driver.lock();
        let device = &mut port.device;
        let pd = device.alloc_pd();
        let cq = device.create_cq(16);
        let capacity = Capacity { sends: 4, receives: 4, send_pieces: 1, receive_pieces: 1, inline: 0 };
        let (kind, srq, signals_all) = (QpKind::Rc, None, true);
        let config = QpConfig { kind, pd, send_cq: cq, receive_cq: cq, srq, capacity, signals_all };
        let qp = device.create_qp(config).expect("a queue pair");
        let begin = memory.as_mut_ptr().expose_provenance() as u64;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        // SAFETY: the memory lives as long as the driver that this end holds.
        let key = unsafe { device.register(pd, begin, LENGTH as u64, access) }.expect("registered");
        drop(port);
        End { driver, cq, qp, key, memory }
    }

    fn connect(&self, peer: &End) {
        let attributes = Attributes {
            access: Access::REMOTE_READ | Access::REMOTE_WRITE,
            mtu: 1024,
            destination_qp: peer.qp,
            receive_psn: Psn::new(7),
            send_psn: Psn::new(7),
            reads_out: 1,
            reads_in: 1,
            // Half a second: the first packet over IPv6 waits until the link-local address is known to be unique.
            timeout: 17,
            retry_count: 7,
            rnr_retry: 7,
            path: Path { destination: peer.driver.address(), source_index: 0 },
            ..Attributes::default()
        };
        let to_receive = Mask::PATH
            | Mask::MTU
            | Mask::DESTINATION_QP
            | Mask::RECEIVE_PSN
            | Mask::READS_IN
            | Mask::MIN_RNR_TIMER;
        let to_send = Mask::SEND_PSN | Mask::TIMEOUT | Mask::RETRY_COUNT | Mask::RNR_RETRY | Mask::READS_OUT;
        for (state, mask) in [
            (QpState::Init, Mask::PORT | Mask::PKEY_INDEX | Mask::ACCESS),
            (QpState::ReadyToReceive, to_receive),
            (QpState::ReadyToSend, to_send),
        ] {
            let attributes = Attributes { state, ..attributes };
            self.driver
                .lock()
                .device
                .modify_qp(self.qp, &attributes, mask | Mask::STATE)
                .expect("a transition");
        }
    }

    fn run(&self, kind: SendKind) {
        let piece = Piece {
            address: self.memory.as_ptr().expose_provenance() as u64,
            length: LENGTH as u32,
            lkey: self.key,
        };
        let request = SendRequest {
            wr_id: 1,
            kind,
            data: SendData::Pieces([piece].into_iter().collect()),
            extra: Extra::None,
            is_signaled: true,
            is_solicited: false,
            is_fenced: false,
        };
        self.driver.lock().device.post_send(self.qp, request).expect("posted");
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut port = self.driver.lock();
            self.driver.drive(&mut port);
            if let Some(completion) = port.device.poll_cq(self.cq) {
                assert_eq!(completion.status, Status::Success);
                return;
            }
            assert!(Instant::now() < deadline, "no completion");
        }
    }
}

#[test]
fn devices_in_two_namespaces_write_and_read() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let addresses = [["10.77.0.1", "fd77::1"], ["10.77.0.2", "fd77::2"]];
    let spaces = Namespace::pair(addresses);
    for family in [0, 1] {
        let [mut a, b] = [0, 1].map(|side: usize| {
            let address: IpAddr = addresses[side][family].parse().expect("an address");
            End::new(spaces[side].device(address))
        });
        a.connect(&b);
        b.connect(&a);
        let target = Target { address: b.memory.as_ptr().expose_provenance() as u64, rkey: b.key };
        a.memory.iter_mut().zip(0_u32..).for_each(|(byte, index)| *byte = (index * 7 + family as u32) as u8);
        a.run(SendKind::Write(target));
        assert!(a.memory == b.memory, "{}", a.driver.address());
        a.memory.fill(0);
        a.run(SendKind::Read(target));
        assert!(a.memory == b.memory, "{}", a.driver.address());
    }
}
