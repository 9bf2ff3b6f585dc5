//! Programs that know nothing of this library: `ucmatose`, `rping`, `rdma_client` and `rdma_server` of rdma-core, which bring their own queue
//! pairs and send no private data. Without them a test says that it is skipped.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uct_core::Posted;
use uct_ib::verbs::{InlineData, InlineWr, QpKind, SendFlags};
use uct_rdmacm::testing::abi::*;
use uct_rdmacm::testing::prepare;
use uct_rdmacm::testing::{Channel, ConnParam, Event, Id, load};

use crate::raw::End;
use crate::support::{End as CmEnd, Net, PATIENCE, Told, is_pair, net, skip};

/// A foreign program with these arguments; `None` says that the test is skipped.
fn start(program: &str, arguments: &str) -> Option<Running> {
    let path = Path::new("/usr/bin").join(program);
    if !path.exists() {
        skip::skip("rdmacm-utils", format!("{program} is not installed (package rdmacm-utils)"));
        return None;
    }
    // Its lines arrive as they are printed, not when it ends.
    let mut command = Command::new("/usr/bin/stdbuf");
    command.arg("-oL").arg(path).args(arguments.split(' '));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Some(Running {
        child: Some(child.expect("it starts")),
        command: format!("{program} {arguments}"),
        read: Vec::new(),
    })
}

struct Running {
    child: Option<Child>,
    command: String,
    /// What it printed so far, as far as that was waited for.
    read: Vec<u8>,
}

impl Running {
    /// Waits until it has printed this to its standard output.
    #[track_caller]
    fn printed(&mut self, text: &str) {
        let output = self.child.as_mut().and_then(|child| child.stdout.as_mut()).expect("a pipe");
        let deadline = Instant::now() + PATIENCE;
        while !String::from_utf8_lossy(&self.read).contains(text) {
            assert!(Instant::now() < deadline, "{}: no `{text}` within {PATIENCE:?}", self.command);
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            if poll(&mut [PollFd::new(&output.as_fd(), PollFlags::IN)], Some(&second)) == Ok(1) {
                let mut piece = [0; 1024];
                let length = output.read(&mut piece).expect("its output");
                assert_ne!(length, 0, "{} ended without `{text}`", self.command);
                self.read.extend_from_slice(&piece[..length]);
            }
        }
    }

    /// Waits for its end, with `progress`, which has to be a success.
    fn end(self, progress: impl FnMut()) {
        let command = self.command.clone();
        let (status, text) = self.ended(progress);
        assert!(status.success(), "{command}: {status}: {text}");
    }

    /// Waits for its end, with `progress`, and returns its status and what it printed.
    fn ended(mut self, mut progress: impl FnMut()) -> (ExitStatus, String) {
        let mut child = self.child.take().expect("it runs");
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().expect("a child").is_none() && Instant::now() < deadline {
            progress();
        }
        let _ = child.kill();
        let output = child.wait_with_output().expect("its output");
        let text = [std::mem::take(&mut self.read), output.stdout, output.stderr].concat();
        (output.status, String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let output = child.wait_with_output().expect("its output");
            let text = [std::mem::take(&mut self.read), output.stdout, output.stderr].concat();
            println!("{} printed: {}", self.command, String::from_utf8_lossy(&text));
        }
    }
}

/// The options of a foreign client that make it go over the cable, if there is one.
fn from_here() -> &'static str {
    if is_pair() { " -b 10.7.0.1" } else { "" }
}

fn both(net: &Net) -> impl FnMut() + '_ {
    || {
        net.client.worker.progress();
        net.server.worker.progress();
    }
}

#[test]
fn ucmatose_connects_to_a_listener() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let port = listening.address().port();
    let Some(program) =
        start("ucmatose", &format!("-s {} -p {port} -c 4 -C 0{}", net.server_ip, from_here()))
    else {
        return;
    };
    let mut servers = Vec::new();
    while servers.len() < 4 {
        let request = net.request(&listening);
        assert_eq!(request.private(), b"");
        servers.push(net.accept(request, b"not for it"));
    }
    for server in &servers {
        assert_eq!(net.told(server), Told::Notified);
    }
    // It waits for the server to disconnect, and answers.
    for server in &servers {
        assert_eq!(server.ep.disconnect(b""), Ok(Posted::Done));
    }
    for server in &servers {
        assert_eq!(net.told(server), Told::Disconnected(None));
    }
    program.end(both(&net));
}

#[test]
fn a_client_connects_to_ucmatose() {
    let Some(net) = net() else { return };
    let Some(program) = start("ucmatose", &format!("-b {} -p 7100 -c 2 -C 0", net.server_ip)) else { return };
    let clients: Vec<_> = (0..2).map(|_| connect_to_a_program(&net, 7100)).collect();
    for client in &clients {
        assert_eq!(client.ep.disconnect(b""), Ok(Posted::Done));
    }
    for client in &clients {
        assert_eq!(net.told(client), Told::Disconnected(None));
    }
    program.end(both(&net));
}

/// Connects to a program that begins to listen meanwhile.
fn connect_to_a_program(net: &Net, port: u16) -> CmEnd {
    loop {
        let client = net.connect(net.server_address(port), b"not for it");
        net.resolved(&client);
        match net.told(&client) {
            Told::Connected(private) => {
                assert_eq!(private, b"");
                return client;
            }
            // It does not listen yet.
            Told::Failed(uct_core::Error::NOT_CONNECTED, ..) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn rping_connects_to_a_listener_and_is_disconnected() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let source = if is_pair() { " -I 10.7.0.1" } else { "" };
    let arguments = format!("-d -c -a {} -p {} -C 1{source}", net.server_ip, listening.address().port());
    let Some(mut program) = start("rping", &arguments) else { return };
    let request = net.request(&listening);
    assert_eq!(request.private(), b"");
    let server = net.accept(request, b"not for it");
    assert_eq!(net.told(&server), Told::Notified);
    // It waits for a message; the end of the connection ends it. One that ends before it has looked at its state
    // leaves it hanging without an answer.
    program.printed("rdma_connect successful");
    assert_eq!(server.ep.disconnect(b""), Ok(Posted::Done));
    assert_eq!(net.told(&server), Told::Disconnected(None));
    let (status, text) = program.ended(both(&net));
    assert!(text.contains("DISCONNECT EVENT"), "{status}: {text}");
}

#[test]
fn rdma_client_connects_to_a_listener_which_learns_of_its_end() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let arguments = format!("-s {} -p {}", net.server_ip, listening.address().port());
    let Some(program) = start("rdma_client", &arguments) else { return };
    let request = net.request(&listening);
    assert_eq!(request.private(), b"");
    let server = net.accept(request, b"not for it");
    assert_eq!(net.told(&server), Told::Notified);
    // It waits for a message, for ever. This ends it.
    drop(program);
    assert_eq!(net.told(&server), Told::Disconnected(None));
}

#[test]
fn a_client_connects_to_rdma_server_and_learns_of_its_end() {
    let Some(net) = net() else { return };
    let Some(program) = start("rdma_server", &format!("-s {} -p 7300", net.server_ip)) else { return };
    let client = connect_to_a_program(&net, 7300);
    assert_eq!(client.ep.disconnect(b""), Ok(Posted::Done));
    net.idle(Duration::from_millis(300));
    assert!(client.told.borrow().is_empty(), "it waits for a message, and does not disconnect");
    drop(program);
    assert_eq!(net.told(&client), Told::Disconnected(None));
}

/// A queue pair of this test that goes to work as those of connections do.
struct Raw {
    channel: Arc<Channel>,
    end: End,
}

impl Raw {
    fn new(device: &str) -> Raw {
        Raw {
            channel: Channel::new(load().expect("loaded before")).unwrap_or_else(|error| panic!("{error}")),
            end: End::new(device, QpKind::Rc),
        }
    }

    /// The next event, which is this one.
    #[track_caller]
    fn expect(&self, event: u32) -> Event {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = Event::take(&self.channel).expect("events") {
                assert_eq!(found.event, event, "{found:?}");
                return found;
            }
            assert!(Instant::now() < deadline, "event {event}: not within {PATIENCE:?}");
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&self.channel.as_fd(), PollFlags::IN)], Some(&second));
        }
    }

    fn param(&self) -> ConnParam<'static> {
        ConnParam {
            private_data: b"",
            qp_number: self.end.qp.number(),
            has_srq: true,
            responder_resources: 4,
            initiator_depth: 4,
            retry_count: 6,
            rnr_retry_count: 7,
        }
    }

    /// Receives are posted between INIT and RTR, so that nothing arrives too early.
    fn prepare(&self, id: &Id, receives: u64) {
        prepare::initialize(id, &self.end.qp, "the peer").unwrap_or_else(|refusal| panic!("{refusal:?}"));
        (0..receives).for_each(|number| self.end.post_receive(number, number as usize * 2048));
        prepare::start(id, &self.end.qp, "the peer").unwrap_or_else(|refusal| panic!("{refusal:?}"));
    }

    /// A connection to a server that begins to listen meanwhile.
    fn connect(&self, server: std::net::SocketAddr, receives: u64) -> Id {
        let source = is_pair().then(|| "10.7.0.1:0".parse().expect("an address"));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let id = Id::new(&self.channel, 1).expect("an identifier");
            id.resolve_address(source, server, 2000).expect("begun");
            self.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
            id.resolve_route(2000).expect("begun");
            self.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
            id.connect(&self.param()).expect("begun");
            let answer = loop {
                if let Some(event) = Event::take(&self.channel).expect("events") {
                    break event.event;
                }
                assert!(Instant::now() < deadline, "no answer within {PATIENCE:?}");
            };
            if answer == RDMA_CM_EVENT_CONNECT_RESPONSE {
                self.prepare(&id, receives);
                id.establish().expect("established");
                return id;
            }
            assert_eq!(answer, RDMA_CM_EVENT_REJECTED, "it does not listen yet");
        }
    }

    fn send(&self, wr_id: u64, bytes: &[u8]) {
        let pieces = [InlineData::new(bytes)];
        self.end.qp.post_inline(InlineWr::send(wr_id, &pieces, SendFlags::SIGNALED)).expect("posted");
    }
}

#[test]
fn messages_cross_to_and_from_ucmatose() {
    let Some(net) = net() else { return };
    let far = if is_pair() { "mlx5_1" } else { "mlx5_0" };
    let raw = Raw::new(far);
    let listener = Id::new(&raw.channel, 7).expect("an identifier");
    listener.bind(net.server_address(0)).expect("bound");
    listener.listen(1).expect("it listens");
    let port = listener.local_address().expect("an address").port();
    let arguments = format!("-s {} -p {port} -C 5 -S 100{}", net.server_ip, from_here());
    let Some(program) = start("ucmatose", &arguments) else { return };
    let request = raw.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_eq!(request.key, 7);
    let id = request.request.expect("an identifier");
    raw.prepare(&id, 5);
    id.accept(&raw.param()).expect("accepted");
    raw.expect(RDMA_CM_EVENT_ESTABLISHED);
    // The server sends first, then the client replies.
    (0..5).for_each(|_| raw.send(99, &[1; 100]));
    let (mut sent, mut received) = (0, 0);
    while sent + received < 10 {
        let wc = raw.end.wait();
        assert!(wc.is_ok(), "{}", wc.status());
        if wc.is_receive() {
            assert_eq!(wc.byte_length(), 100);
            received += 1;
        } else {
            sent += 1;
        }
    }
    id.disconnect().expect("established");
    raw.expect(RDMA_CM_EVENT_DISCONNECTED);
    program.end(std::thread::yield_now);
}

#[test]
fn rping_reads_and_writes_the_memory_of_a_client() {
    let Some(net) = net() else { return };
    let Some(program) = start("rping", &format!("-s -a {} -p 7200 -C 1", net.server_ip)) else { return };
    let raw = Raw::new("mlx5_0");
    let id = raw.connect(net.server_address(7200), 2);
    // It writes back as much as a C string has, with its end.
    let text = b"what rping reads and writes back\0";
    let (source, sink) = (8192, 12288);
    raw.end.write(source, text);
    for offset in [source, sink] {
        // Where the memory is: address, key, length, in the network's order of bytes.
        let rkey = raw.end.buffer.mr().rkey();
        let info = [&(raw.end.address(offset)).to_be_bytes()[..], &rkey.to_be_bytes(), &64_u32.to_be_bytes()]
            .concat();
        raw.send(50, &info);
        let (first, second) = (raw.end.wait(), raw.end.wait());
        assert!(first.is_ok() && second.is_ok(), "{} {}", first.status(), second.status());
        assert!(first.is_receive() != second.is_receive());
    }
    assert_eq!(raw.end.read(sink, text.len()), text);
    id.disconnect().expect("connected");
    raw.expect(RDMA_CM_EVENT_DISCONNECTED);
    drop(program);
}
