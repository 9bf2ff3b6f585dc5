//! Endpoints of rc_verbs whose addresses travel as private data, and whose queue pairs stand for the connection.

use std::cell::Cell;
use std::rc::Rc;

use uct_core::cm::{CmData, ConnectOptions};
use uct_core::{AmId, Ep, Iface, IfaceAddress, Worker};

use crate::support::{Net, Told, is_pair, net};

const ID: AmId = AmId::new(5).unwrap();

/// An endpoint that is not connected yet, and what its interface has received.
struct Lane {
    iface: Iface,
    ep: Ep,
    received: Rc<Cell<u32>>,
}

impl Lane {
    fn new(worker: &Worker, device: &str) -> Lane {
        let iface = worker.open("rc_verbs", device).unwrap_or_else(|error| panic!("{error}"));
        let received = Rc::new(Cell::new(0));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |message| {
            assert_eq!(message.payload(), b"over the lane");
            count.set(count.get() + 1);
        });
        let ep = iface.create_ep(|failure| panic!("{failure}")).unwrap_or_else(|error| panic!("{error}"));
        Lane { iface, ep, received }
    }

    /// Device and endpoint: what fits into a request of 54 bytes.
    fn address(&self) -> Vec<u8> {
        let device = self.iface.address().expect("an address").device;
        [&[device.len() as u8][..], &device, &self.ep.address().expect("an address")].concat()
    }

    fn connect(&self, address: &[u8]) {
        let (device, ep) = address[1..].split_at(usize::from(address[0]));
        let own = self.iface.address().expect("an address");
        let peer = IfaceAddress { device: device.to_vec(), ..own };
        self.ep.connect_to_ep(&peer, ep).unwrap_or_else(|error| panic!("{error}"));
    }

    fn data<'a>(&self, address: &'a [u8]) -> CmData<'a> {
        CmData { private: address, token: Some(self.ep.cm_token().expect("a queue pair")) }
    }

    fn send(&self, net: &Net) {
        net.until("room", || self.ep.am_short(ID, 0, b"over the lane").ok());
    }
}

#[test]
fn an_endpoint_of_rc_verbs_connects_by_private_data() {
    let Some(net) = net() else { return };
    let far = if is_pair() { "mlx5_1:1" } else { "mlx5_0:1" };
    let near = Lane::new(&net.client.worker, "mlx5_0:1");
    let other = Lane::new(&net.server.worker, far);
    let listening = net.listen();

    let client = net.call(listening.address(), ConnectOptions::default());
    net.resolved(&client);
    let address = near.address();
    assert!(address.len() <= net.client.cm.limits().connect, "{} bytes", address.len());
    client.ep.send(near.data(&address)).expect("resolved");

    let request = net.request(&listening);
    other.connect(request.private());
    let server =
        net.try_accept(request, other.data(&other.address())).unwrap_or_else(|error| panic!("{error}"));
    let Told::Connected(address) = net.told(&client) else { panic!("not connected") };
    near.connect(&address);
    client.ep.notify().expect("connected");
    assert_eq!(net.told(&server), Told::Notified);

    for _ in 0..100 {
        near.send(&net);
        other.send(&net);
    }
    net.until("the messages", || (near.received.get() == 100 && other.received.get() == 100).then_some(()));
    client.ep.disconnect(b"").expect("connected");
    assert_eq!(net.told(&server), Told::Disconnected(None));
}
