//! The connection manager of `tcp` and peers that do not follow its protocol: sockets of the test that send garbage, parts, or
//! nothing. An honest client beside them is served throughout.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use crate::alone::is_alone;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uct_core::cm::{Cm, CmEp, CmEvent, ConnectOptions, Listener, Request};
use uct_core::{Context, Error, Worker};

const LIMIT: Duration = Duration::from_secs(60);

struct Scene {
    worker: Worker,
    cm: Cm,
}

type Requests = Rc<RefCell<Vec<Request>>>;
type Failures = Rc<RefCell<Vec<(Error, String)>>>;

impl Scene {
    fn new(settings: &[(&str, &str)]) -> Scene {
        let mut builder = Context::builder();
        for (key, value) in settings {
            builder = builder.set(format!("tcp.{key}"), *value);
        }
        let worker = Worker::new(&builder.build().unwrap()).unwrap();
        let cm = worker.open_cm("tcp").unwrap();
        Scene { worker, cm }
    }

    fn listen(&self) -> (Listener, SocketAddr, Requests) {
        let requests = Requests::default();
        let kept = Rc::clone(&requests);
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = self.cm.listen(any, None, move |request| kept.borrow_mut().push(request)).unwrap();
        let address = listener.address().unwrap();
        (listener, address, requests)
    }

    #[track_caller]
    fn until(&self, what: &str, done: impl FnMut() -> bool) {
        assert!(self.worker.progress_until(LIMIT, done), "it did not happen: {what}");
    }

    /// A client that records failures.
    fn client(&self, address: SocketAddr) -> (CmEp, Failures) {
        let failures = Failures::default();
        let kept = Rc::clone(&failures);
        let options = ConnectOptions { timeout: Some(Duration::from_secs(30)), source: None };
        let ep = self.cm.connect(address, options, move |ep, event| match event {
            CmEvent::Resolved { .. } => ep.send(b"honest").unwrap(),
            CmEvent::Failed { error, reason, .. } => kept.borrow_mut().push((error, reason.to_owned())),
            CmEvent::Disconnected { lost, .. } => {
                kept.borrow_mut().push((Error::CONNECTION_RESET, lost.unwrap_or("told").to_owned()));
            }
            _ => {}
        });
        (ep.unwrap(), failures)
    }

    /// An honest client is served.
    fn serve(&self, address: SocketAddr, requests: &Requests) {
        self.serve_from(None, address, requests);
    }

    /// The same, of an address of this machine.
    fn serve_from(&self, source: Option<SocketAddr>, address: SocketAddr, requests: &Requests) {
        let connected = Rc::new(RefCell::new(false));
        let kept = Rc::clone(&connected);
        let options = ConnectOptions { source, ..ConnectOptions::default() };
        let ep = self.cm.connect(address, options, move |ep, event| match event {
            CmEvent::Resolved { .. } => ep.send(b"honest").unwrap(),
            CmEvent::Connected { .. } => *kept.borrow_mut() = true,
            other => panic!("{other:?}"),
        });
        self.until("an honest request", || !requests.borrow().is_empty());
        let request = requests.borrow_mut().remove(0);
        assert_eq!(request.private(), b"honest");
        let server = request.accept(&self.cm, b"", None, |_, _| {}).unwrap();
        self.until("an honest client is connected", || *connected.borrow());
        drop((ep, server));
    }

    /// Waits until the other side has closed a socket; what it has sent until then.
    fn closed(&self, stream: &mut TcpStream) -> Vec<u8> {
        stream.set_nonblocking(true).unwrap();
        let mut sent = Vec::new();
        self.until("the socket is closed", || {
            let mut bytes = [0; 256];
            match stream.read(&mut bytes) {
                Ok(0) => true,
                Ok(length) => {
                    sent.extend_from_slice(&bytes[..length]);
                    false
                }
                Err(error) => error.kind() != ErrorKind::WouldBlock,
            }
        });
        sent
    }
}

/// A frame of the protocol.
fn frame(version: u16, kind: u16, length: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"UCTc".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(data);
    bytes
}

const REQUEST: u16 = 1;
const ACCEPT: u16 = 2;
const NOTIFY: u16 = 4;
const REFUSE: u16 = 6;

#[test]
fn garbage_is_closed_and_reports_nothing() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[]);
    let (_listener, address, requests) = scene.listen();
    let bad = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        frame(1, 9, 0, b""),
        frame(1, ACCEPT, 0, b""),
        frame(1, REQUEST, 2065, &[7; 2065]),
        frame(1, REQUEST, u32::MAX, b""),
        [frame(1, REQUEST, 0, b""), frame(1, NOTIFY, 0, b"")].concat(),
    ];
    for bytes in bad {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&bytes).unwrap();
        assert_eq!(scene.closed(&mut stream), b"", "{bytes:?} deserves no answer");
        assert!(requests.borrow().is_empty());
    }
    scene.serve(address, &requests);
}

#[test]
fn another_version_is_refused_with_the_reason() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[]);
    let (_listener, address, requests) = scene.listen();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&frame(2, REQUEST, 0, b"")).unwrap();
    let mut expected = frame(1, REFUSE, 0, b"");
    expected[12] = 1;
    assert_eq!(scene.closed(&mut stream), expected);
    scene.serve(address, &requests);

    // And the other way.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_ep, failures) = scene.client(listener.local_addr().unwrap());
    let mut stream = listener.accept().unwrap().0;
    stream.write_all(&expected).unwrap();
    scene.until("the client fails", || !failures.borrow().is_empty());
    let (error, reason) = failures.borrow_mut().remove(0);
    assert!(error == Error::UNSUPPORTED && reason.contains("the same release"), "{reason}");
}

#[test]
fn a_silent_client_and_half_a_request_run_out_of_time() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[("hello_timeout", "50ms")]);
    let (_listener, address, requests) = scene.listen();
    let mut silent = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&frame(1, REQUEST, 100, b"not a hundred")).unwrap();
    for stream in [&mut silent, &mut half] {
        assert_eq!(scene.closed(stream), b"");
    }
    assert!(requests.borrow().is_empty());
    scene.serve(address, &requests);
}

#[test]
fn a_request_in_single_bytes_is_one_request() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[]);
    let (_listener, address, requests) = scene.listen();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in frame(1, REQUEST, 5, b"slow!") {
        stream.write_all(&[byte]).unwrap();
        for _ in 0..300 {
            scene.worker.progress();
        }
    }
    scene.until("the request", || !requests.borrow().is_empty());
    assert_eq!(requests.borrow()[0].private(), b"slow!");
}

#[test]
fn a_source_with_too_many_requests_is_refused_in_words() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[("cm_max_pending_per_source", "3")]);
    let (_listener, address, requests) = scene.listen();
    let clients: Vec<(CmEp, Failures)> = (0..4).map(|_| scene.client(address)).collect();
    let failed = || clients.iter().filter(|(_, failures)| !failures.borrow().is_empty()).count();
    scene.until("three wait and one is refused", || requests.borrow().len() == 3 && failed() == 1);
    let told = clients.iter().find_map(|(_, failures)| failures.borrow().first().cloned());
    let (error, reason) = told.expect("one has failed");
    assert!(error == Error::EXCEEDS_LIMIT && reason.contains("cm_max_pending_per_source"), "{reason}");
    requests.borrow_mut().clear();
    scene.serve(address, &requests);
}

#[test]
fn clients_beyond_the_limit_of_all_wait_in_the_system() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[("cm_max_pending", "2"), ("cm_max_pending_per_source", "2")]);
    let (_listener, address, requests) = scene.listen();
    let clients: Vec<(CmEp, Failures)> = (0..10).map(|_| scene.client(address)).collect();
    let mut served = 0;
    scene.until("all are served in turn", || {
        assert!(requests.borrow().len() <= 2);
        if let Some(request) = requests.borrow_mut().pop() {
            served += 1;
            request.reject(b"").unwrap();
        }
        served == clients.len()
    });
    scene.until("all have their answer", || clients.iter().all(|(_, failures)| failures.borrow().len() == 1));
    assert!(clients.iter().all(|(_, failures)| failures.borrow()[0].0 == Error::REJECTED));
}

/// An honest client of the attacker's address, and one of another, after every few of the attacker's connections.
fn serve_beside_silent_clients(scene: &Scene, address: SocketAddr, requests: &Requests, silent: usize) {
    let call = || TcpStream::connect(address).unwrap();
    let mut callers: VecDeque<TcpStream> = (0..silent).map(|_| call()).collect();
    for number in 0..20 {
        for _ in 0..5 {
            callers.pop_front();
            callers.push_back(call());
        }
        let source = (number % 2 == 0).then(|| "127.0.0.2:0".parse().unwrap());
        scene.serve_from(source, address, requests);
    }
}

#[test]
fn silent_clients_in_all_places_keep_no_honest_one_out() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[("cm_max_pending", "16"), ("hello_timeout", "1h")]);
    let (_listener, address, requests) = scene.listen();
    serve_beside_silent_clients(&scene, address, &requests, 40);
}

#[test]
fn silent_clients_leave_descriptors_to_honest_ones_and_to_the_application() {
    if !is_alone() {
        return;
    }
    const SILENT: usize = 60;
    const TAKEN: usize = 30;
    const RESERVED: usize = 64;
    let scene = Scene::new(&[("reserved_descriptors", "64"), ("hello_timeout", "1h")]);
    let (_listener, address, requests) = scene.listen();
    let lowest = File::open("/dev/null").unwrap().as_raw_fd() as usize;
    let limits = getrlimit(Resource::Nofile);
    // Each silent client has a descriptor on either side.
    let most = (lowest + SILENT + TAKEN + RESERVED) as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limits }).unwrap();
    serve_beside_silent_clients(&scene, address, &requests, SILENT);
    let files: Vec<_> = (0..RESERVED - 8).map(|_| File::open("/dev/null")).collect();
    setrlimit(Resource::Nofile, limits).unwrap();
    assert!(files.iter().all(Result::is_ok), "the application has its descriptors");
}

#[test]
fn a_server_that_breaks_the_protocol_fails_the_client() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[]);
    let bad: [(&[u8], Error, &str); 5] = [
        (b"SSH-2.0-x\r\n", Error::IO_ERROR, "does not use the protocol"),
        (&frame(1, NOTIFY, 0, b""), Error::IO_ERROR, "out of turn"),
        (&frame(1, REQUEST, 0, b""), Error::IO_ERROR, "out of turn"),
        (&frame(1, ACCEPT, 2065, b""), Error::IO_ERROR, "2065 bytes"),
        (b"", Error::CONNECTION_RESET, "closed the connection"),
    ];
    for (bytes, error, words) in bad {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (ep, failures) = scene.client(listener.local_addr().unwrap());
        let mut stream = listener.accept().unwrap().0;
        // It has read the request before it answers, so that its end is no reset.
        let mut request = [0; 16 + 6];
        stream.set_nonblocking(true).unwrap();
        let mut have = 0;
        scene.until("the request arrives", || {
            have += stream.read(&mut request[have..]).unwrap_or(0);
            have == request.len()
        });
        stream.write_all(bytes).unwrap();
        drop(stream);
        scene.until("the client fails", || !failures.borrow().is_empty());
        let told = failures.borrow()[0].clone();
        assert!(told.0 == error && told.1.contains(words), "{told:?}, expected {words:?}");
        assert_eq!(ep.disconnect(b""), Err(Error::NOT_CONNECTED));
    }
}

#[test]
fn a_peer_that_dies_after_the_connection_stands_is_a_loss() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ep, failures) = scene.client(listener.local_addr().unwrap());
    let mut stream = listener.accept().unwrap().0;
    stream.write_all(&frame(1, ACCEPT, 0, b"")).unwrap();
    scene.until("it is connected", || ep.notify().is_ok());
    drop(stream);
    scene.until("the loss is reported", || !failures.borrow().is_empty());
    assert!(
        failures.borrow()[0].1.contains("closed") || failures.borrow()[0].1.contains("reset"),
        "{failures:?}"
    );
    assert_eq!(ep.disconnect(b""), Err(Error::NOT_CONNECTED));
}

#[test]
fn an_address_without_its_device_is_refused_in_words() {
    if !is_alone() {
        return;
    }
    let scene = Scene::new(&[]);
    let refused = scene.cm.connect("[fe80::1]:7".parse().unwrap(), ConnectOptions::default(), |_, _| {});
    let refused = refused.map(drop).expect_err("no device is named");
    assert!(refused.status == Error::INVALID_ADDR && refused.reason.contains("%eth0"), "{refused}");
}
