//! Endpoints of rc_verbs whose addresses travel as private data, and whose queue pairs stand for the connection.

use std::cell::RefCell;
use std::rc::Rc;

use uct_core::cm::{CmData, ConnectOptions};
use uct_core::{AmId, Ep, Iface, IfaceAddress, Worker};

use crate::support::{End, Listening, Net, Told, is_pair, net};

const ID: AmId = AmId::new(5).unwrap();

/// An interface, and how many messages came with each header.
struct Side {
    iface: Iface,
    received: Rc<RefCell<[u32; 2]>>,
}

impl Side {
    fn new(worker: &Worker, device: &str) -> Side {
        let iface = worker.open("rc_verbs", device).unwrap_or_else(|error| panic!("{error}"));
        let received = Rc::new(RefCell::new([0; 2]));
        let counts = Rc::clone(&received);
        iface.set_am_handler(ID, move |message| {
            assert_eq!(message.payload(), b"over the lane");
            counts.borrow_mut()[message.header().expect("a header") as usize] += 1;
        });
        Side { iface, received }
    }

    fn lane(&self) -> Lane<'_> {
        let ep = self.iface.create_ep(|failure| panic!("{failure}"));
        Lane { side: self, ep: ep.unwrap_or_else(|error| panic!("{error}")) }
    }

    fn has(&self, counts: [u32; 2]) -> bool {
        *self.received.borrow() == counts
    }
}

/// An endpoint that is not connected yet.
struct Lane<'a> {
    side: &'a Side,
    ep: Ep,
}

impl Lane<'_> {
    /// Device and endpoint: what fits into a request of 54 bytes.
    fn address(&self) -> Vec<u8> {
        let device = self.side.iface.address().expect("an address").device;
        [&[device.len() as u8][..], &device, &self.ep.address().expect("an address")].concat()
    }

    fn connect(&self, address: &[u8]) {
        let (device, ep) = address[1..].split_at(usize::from(address[0]));
        let own = self.side.iface.address().expect("an address");
        let peer = IfaceAddress { device: device.to_vec(), ..own };
        self.ep.connect_to_ep(&peer, ep).unwrap_or_else(|error| panic!("{error}"));
    }

    fn data<'a>(&self, address: &'a [u8]) -> CmData<'a> {
        CmData { private: address, token: Some(self.ep.cm_token().expect("a queue pair")) }
    }

    fn send(&self, net: &Net, header: u64) {
        net.until("room", || self.ep.am_short(ID, header, b"over the lane").ok());
    }
}

/// The interface of the client, and that of the server.
fn sides(net: &Net) -> (Side, Side) {
    let far = if is_pair() { "mlx5_1:1" } else { "mlx5_0:1" };
    (Side::new(&net.client.worker, "mlx5_0:1"), Side::new(&net.server.worker, far))
}

/// Both ends of a connection whose data go over these endpoints.
fn connected(net: &Net, listening: &Listening, near: &Lane<'_>, far: &Lane<'_>) -> (End, End) {
    let client = net.call(listening.address(), ConnectOptions::default());
    net.resolved(&client);
    let address = near.address();
    assert!(address.len() <= net.client.cm.limits().connect, "{} bytes", address.len());
    client.ep.send(near.data(&address)).expect("resolved");

    let request = net.request(listening);
    far.connect(request.private());
    let server = net.try_accept(request, far.data(&far.address())).unwrap_or_else(|error| panic!("{error}"));
    let Told::Connected(address) = net.told(&client) else { panic!("not connected") };
    near.connect(&address);
    client.ep.notify().expect("connected");
    assert_eq!(net.told(&server), Told::Notified);
    (client, server)
}

#[test]
fn an_endpoint_of_rc_verbs_connects_by_private_data() {
    let Some(net) = net() else { return };
    let (left, right) = sides(&net);
    let (near, far) = (left.lane(), right.lane());
    let (client, server) = connected(&net, &net.listen(), &near, &far);
    for _ in 0..100 {
        near.send(&net, 0);
        far.send(&net, 0);
    }
    net.until("the messages", || (left.has([100, 0]) && right.has([100, 0])).then_some(()));
    client.ep.disconnect(b"").expect("connected");
    assert_eq!(net.told(&server), Told::Disconnected(None));
}

/// The endpoints of an interface receive into one shared receive queue.
#[test]
fn two_connections_exchange_data_at_once_over_one_interface_and_one_goes_on_alone() {
    let Some(net) = net() else { return };
    let (left, right) = sides(&net);
    let listening = net.listen();
    let (near, far) = ([left.lane(), left.lane()], [right.lane(), right.lane()]);
    let (client, server) = connected(&net, &listening, &near[0], &far[0]);
    let _other = connected(&net, &listening, &near[1], &far[1]);
    for _ in 0..1000 {
        for number in 0..2 {
            near[number].send(&net, number as u64);
            far[number].send(&net, number as u64);
        }
    }
    net.until("the messages", || (left.has([1000; 2]) && right.has([1000; 2])).then_some(()));

    client.ep.disconnect(b"").expect("connected");
    assert_eq!(net.told(&server), Told::Disconnected(None));
    let ([first, near], [other, far]) = (near, far);
    drop((first, other));
    for _ in 0..1000 {
        near.send(&net, 1);
        far.send(&net, 1);
    }
    net.until("more messages", || (left.has([1000, 2000]) && right.has([1000, 2000])).then_some(()));
}
