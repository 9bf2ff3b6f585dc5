//! Honest callers beside attackers that stall in all places, and beside a source that holds all the connections that it can: a table of
//! listeners, of what they demand of their callers, of steps in which the attackers stop, and of sources.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{Either, FutureExt, pending, select};
use futures_util::stream::FuturesUnordered;
use uct_net::local::{Connect, Connection, Incoming, Listener, Net};
use uct_net::{NetOptions, Result};

use super::attackers::Attackers;
use super::other_user::OtherUser;
use super::{TRANSPORTS, descriptors, options, permit, resident};
use crate::support::alone::is_alone;
#[cfg(feature = "tls")]
use crate::support::certificates::Authority;
use crate::support::namespaces::{add_to_loopback, enter, namespace};
use crate::support::raw::{self, Raw};
use crate::support::{LIMIT, child, context, log, net, processor_time, skip};

/// Attackers at a time, and callers that are served meanwhile.
pub const HELD: usize = 200;
pub const HONEST: usize = 20;
/// Places of callers that `accept` has not returned, and of those that streams open at once.
const PLACES: usize = 128;
/// Rows that run at the same time.
const AT_ONCE: usize = 7;
/// Connections that there may be to a listener of which one source holds all that it can.
const MOST: usize = 16;

/// What serves the callers.
#[derive(Clone, Copy, Debug)]
enum Server {
    /// A listener that accepts them one after the other.
    Listener,
    /// A stream for each.
    Streams,
}

/// What the listener demands of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    Nothing,
    Key,
    /// TLS, in which the listener has a certificate.
    #[cfg(feature = "tls")]
    Tls,
    /// TLS, in which both have.
    #[cfg(feature = "tls")]
    Certificates,
}

/// Where the attackers stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// They say nothing.
    Silent,
    /// After the first thing that an honest caller says: its addresses, the question about the key, or the first message of TLS.
    Begun,
}

/// Where the callers come from: the attackers of the first source, honest callers of that one and of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ipv4,
    Ipv6,
    /// A Unix path, which another user attacks.
    Unix,
}

const STALLS: &[(Server, Proof, Stop, Place)] = &[
    (Server::Listener, Proof::Nothing, Stop::Silent, Place::Ipv4),
    (Server::Listener, Proof::Key, Stop::Begun, Place::Ipv4),
    (Server::Streams, Proof::Nothing, Stop::Silent, Place::Ipv4),
    (Server::Streams, Proof::Nothing, Stop::Begun, Place::Ipv4),
    #[cfg(feature = "tls")]
    (Server::Listener, Proof::Tls, Stop::Begun, Place::Ipv4),
    #[cfg(feature = "tls")]
    (Server::Listener, Proof::Certificates, Stop::Silent, Place::Ipv4),
    #[cfg(feature = "tls")]
    (Server::Streams, Proof::Certificates, Stop::Begun, Place::Ipv4),
    (Server::Listener, Proof::Key, Stop::Silent, Place::Ipv6),
    (Server::Streams, Proof::Nothing, Stop::Begun, Place::Ipv6),
    #[cfg(feature = "tls")]
    (Server::Streams, Proof::Tls, Stop::Begun, Place::Ipv6),
    (Server::Listener, Proof::Nothing, Stop::Silent, Place::Unix),
    (Server::Streams, Proof::Key, Stop::Begun, Place::Unix),
    #[cfg(feature = "tls")]
    (Server::Listener, Proof::Tls, Stop::Begun, Place::Unix),
];

const HOLDS: &[(Proof, Place)] = &[
    (Proof::Nothing, Place::Ipv4),
    (Proof::Key, Place::Ipv6),
    (Proof::Nothing, Place::Unix),
    #[cfg(feature = "tls")]
    (Proof::Tls, Place::Ipv4),
    #[cfg(feature = "tls")]
    (Proof::Certificates, Place::Ipv6),
];

impl Proof {
    /// Whether another process knows how to give it.
    fn is_constant(self) -> bool {
        matches!(self, Proof::Nothing | Proof::Key)
    }

    /// With the name that the listener's certificate is for.
    fn named(self, connect: Connect) -> Connect {
        #[cfg(feature = "tls")]
        if !self.is_constant() {
            return connect.server_name(HOST);
        }
        connect
    }

    /// Options of a listener and of an honest caller.
    pub fn options(self) -> (NetOptions, NetOptions) {
        let options = || NetOptions { max_half_open: PLACES, ..options() };
        let same = |options: NetOptions| (options.clone(), options);
        match self {
            Proof::Nothing => same(options()),
            Proof::Key => same(NetOptions { shared_key: Some(vec![7; 32]), ..options() }),
            #[cfg(feature = "tls")]
            Proof::Tls | Proof::Certificates => {
                let authority = Authority::new("ours");
                let (own, callers) = (authority.issue(HOST), authority.issue("caller.test"));
                let (server, client) = match self {
                    Proof::Tls => (own.server(), authority.client(None)),
                    _ => (authority.strict_server(&own), authority.client(Some(&callers))),
                };
                let with = |tls| NetOptions { tls: Some(tls), ..options() };
                let tls = uct_net::Tls::confidential;
                (with(tls().server(server)), with(tls().client(client)))
            }
        }
    }

    /// What an attacker says.
    fn words(self, stop: Stop) -> Vec<u8> {
        match self {
            _ if stop == Stop::Silent => Vec::new(),
            Proof::Nothing => raw::frame(raw::HELLO, &Raw::new().hello_body()),
            Proof::Key => raw::frame(raw::ASK, &raw::field(raw::NONCE, &[7; 32])),
            #[cfg(feature = "tls")]
            Proof::Tls | Proof::Certificates => {
                let settings = Authority::new("theirs").client(None);
                let name = uct_net::rustls::pki_types::ServerName::try_from(HOST).expect("a name");
                let session = uct_net::rustls::ClientConnection::new(Arc::new(settings), name);
                let mut words = Vec::new();
                let written = session.expect("settings").write_tls(&mut words);
                assert!(written.expect("into memory") > 0);
                words
            }
        }
    }
}

/// The host that the certificates are for.
#[cfg(feature = "tls")]
const HOST: &str = "127.0.0.1";
/// An address of the namespace of tests with IPv6, in another network than that of `::1`.
const FAR_IPV6: &str = "fd00:9::1";

impl Place {
    /// Where the listener is, and addresses of the honest callers.
    fn places(self, user: Option<&OtherUser>) -> (String, Vec<Option<SocketAddr>>) {
        let at =
            |addresses: &[&str]| addresses.iter().map(|it| Some(it.parse().expect("an address"))).collect();
        match self {
            Place::Ipv4 => ("127.0.0.1:0".to_owned(), at(&["127.0.0.1:0", "127.0.0.2:0"])),
            Place::Ipv6 => ("[::1]:0".to_owned(), at(&["[::1]:0", &format!("[{FAR_IPV6}]:0")])),
            Place::Unix => (user.expect("there is one").path(), vec![None]),
        }
    }

    /// Runs a row, in this thread, where there are such sources.
    fn run(self, user: Option<&OtherUser>, row: impl FnOnce()) {
        match self {
            Place::Ipv6 if !skip::is_root("make a network namespace with two networks of IPv6") => {}
            Place::Ipv6 if !std::path::Path::new("/proc/net/if_inet6").exists() => {
                skip::skip("ipv6", "this kernel has no IPv6");
            }
            Place::Ipv6 => {
                let apart = namespace();
                enter(apart.0.id());
                add_to_loopback(&format!("{FAR_IPV6}/64"));
                row();
            }
            // Who may not become another user has said so.
            Place::Unix if user.is_none() => {}
            Place::Ipv4 | Place::Unix => row(),
        }
    }
}

/// A listener in a thread.
struct Serving {
    address: String,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start(serve: impl FnOnce(mpsc::Sender<String>, Arc<AtomicBool>) + Send + 'static) -> Serving {
        let is_over = Arc::new(AtomicBool::new(false));
        let ((sender, address), ends) = (mpsc::channel(), Arc::clone(&is_over));
        let thread = thread::spawn(move || serve(sender, ends));
        let address = address.recv_timeout(LIMIT).expect("it listens");
        Serving { address, is_over, thread: Some(thread) }
    }

    /// Each caller is sent back what it has sent.
    fn callers(kind: Server, options: NetOptions, place: String) -> Serving {
        /// For so long a caller is waited for before the end is looked for.
        const TURN: Duration = Duration::from_millis(20);
        Serving::start(move |sender, is_over| {
            let net = uct_net::Net::new(&context(), options).expect("a net");
            let mut listener = net.block_on(net.listen(place)).expect("a listener");
            sender.send(listener.address().to_owned()).expect("it is awaited");
            net.block_on(async {
                if let Server::Listener = kind {
                    while !is_over.load(Ordering::Relaxed) {
                        let Some(incoming) = net.within(TURN, listener.accept()).await else { continue };
                        let connection = incoming.expect("a caller").accept().await.expect("an honest one");
                        let message = connection.recv().await.expect("a message");
                        connection.send(&message).await.expect("it is sent");
                    }
                    return;
                }
                let (mut streams, mut served) = (listener.into_streams(), Vec::new());
                while !is_over.load(Ordering::Relaxed) {
                    let Some(stream) = net.within(TURN, streams.next()).await else { continue };
                    let message = stream.connection().recv().await.expect("a message");
                    stream.connection().send(&message).await.expect("it is sent");
                    served.push(stream);
                }
            });
        })
    }

    /// All callers at once, as long as they stay.
    fn guests(options: NetOptions, place: String) -> Serving {
        Serving::start(move |sender, is_over| {
            let net = net(options);
            net.block_on(async {
                let mut listener = net.listen(place).await.expect("a listener");
                sender.send(listener.address()).expect("it is awaited");
                serve_all(&net, &mut listener, || is_over.load(Ordering::Relaxed)).await;
            });
        })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().expect("once").join();
        assert!(outcome.is_ok() || thread::panicking(), "the server's thread panicked");
    }
}

/// Sends back what comes over each connection until its end.
pub async fn serve_all(net: &Net, listener: &mut Listener, is_over: impl Fn() -> bool) {
    async fn echo(incoming: Incoming) {
        let Ok(connection) = incoming.accept().await else { return };
        while let Ok(message) = connection.recv().await {
            if connection.send(&message).await.is_err() {
                return;
            }
        }
    }
    let mut held = FuturesUnordered::from_iter([pending().boxed_local()]);
    while !is_over() {
        let waiting = net.within(Duration::from_millis(20), listener.accept());
        if let Either::Left((Some(incoming), _)) =
            select(std::pin::pin!(waiting), held.select_next_some()).await
        {
            held.push(echo(incoming.expect("a caller")).boxed_local());
        }
    }
}

/// A connection over which something was sent and came back.
pub async fn serves(
    (net, proof): (&Net, Proof),
    address: &str,
    source: Option<SocketAddr>,
    transport: &str,
) -> Result<Connection> {
    let connect = net.connect(address).require(transport);
    let connect = source.into_iter().fold(connect, Connect::from);
    let connection = proof.named(connect).await?;
    connection.send(b"served").await?;
    assert_eq!(*connection.recv().within(LIMIT).await?, *b"served");
    Ok(connection)
}

/// Takes as many connections as a source may have.
pub async fn hold((net, proof): (&Net, Proof), address: &str, source: Option<SocketAddr>) -> Vec<Connection> {
    let mut held = Vec::new();
    loop {
        match serves((net, proof), address, source, "tcp/lo").await {
            Ok(connection) => held.push(connection),
            Err(refusal) => {
                let reason = refusal.to_string();
                assert!(
                    reason.contains("max_connections_per_source") && held.len() == MOST / 4 * 3,
                    "{reason}"
                );
                return held;
            }
        }
    }
}

fn beside_callers_that_stall(
    &(kind, proof, stop, from): &(Server, Proof, Stop, Place),
    user: Option<&OtherUser>,
    most: &AtomicUsize,
) {
    let user = user.filter(|_| from == Place::Unix);
    let (begun, (for_server, for_client)) = (Instant::now(), proof.options());
    let (place, sources) = from.places(user);
    let serving = Serving::callers(kind, for_server, place);
    let (address, words) = (&*serving.address, proof.words(stop));
    let _attackers: (Option<Attackers>, Option<child::Running>) = match user {
        Some(user) => {
            user.permit(address);
            (None, Some(user.attacks(address, &words)))
        }
        None => (Some(Attackers::that_stall(address, HELD, words)), None),
    };
    let net = net(for_client);
    for number in 0..HONEST {
        let source = sources[number / 2 % sources.len()];
        let served = net.block_on(serves((&net, proof), address, source, TRANSPORTS[number % 2]));
        served
            .unwrap_or_else(|error| panic!("{kind:?} {proof:?} {stop:?} {from:?}, caller {number}: {error}"));
        most.fetch_max(descriptors(), Ordering::Relaxed);
    }
    if let Some(user) = user.filter(|_| proof.is_constant()) {
        user.calls(address, proof);
    }
    println!("{kind:?} {proof:?} {stop:?} {from:?}: {:.1?}", begun.elapsed());
}

#[test]
fn callers_that_stall_in_all_places_keep_no_honest_caller_out() {
    if !is_alone() {
        return;
    }
    let (log, subscriber) = log::warnings();
    tracing::subscriber::set_global_default(subscriber).expect("the only one");
    permit(AT_ONCE * HELD * 2);
    let (begun, time, before, memory) = (Instant::now(), processor_time(), descriptors(), resident());
    let most = AtomicUsize::new(0);
    let user = OtherUser::new();
    for rows in STALLS.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let run = |row: &'static (Server, Proof, Stop, Place)| {
                let (user, most) = (user.as_ref(), &most);
                scope.spawn(move || row.3.run(user, || beside_callers_that_stall(row, user, most)));
            };
            rows.iter().for_each(run);
        });
    }
    let (more, memory) = (most.load(Ordering::Relaxed) - before, resident().saturating_sub(memory));
    let lines = log.text().lines().count();
    println!(
        "{} rows in {:.1?}, {:.1?} of processor time, {more} descriptors, {memory} bytes, {lines} lines",
        STALLS.len(),
        begun.elapsed(),
        processor_time() - time
    );
    // Of each row the attackers, places of both steps, as many connections that are closed while they close, and those that are served.
    let each = HELD + 2 * PLACES + 3 * HONEST + 40;
    assert!(more <= AT_ONCE * each, "{more} descriptors more");
    assert!(memory < 32 << 20, "{memory} bytes more");
    // One a second and cause.
    assert!(lines as u64 <= 2 * begun.elapsed().as_secs() + 10, "{}", log.text());
}

fn beside_a_source_that_holds_all_it_can(&(proof, from): &(Proof, Place), user: Option<&OtherUser>) {
    let user = user.filter(|_| from == Place::Unix);
    let (begun, (for_server, for_client)) = (Instant::now(), proof.options());
    let (place, sources) = from.places(user);
    let serving = Serving::guests(NetOptions { max_connections: MOST, ..for_server }, place);
    let (address, net) = (&*serving.address, net(for_client));
    let mut holder = None;
    let held = match user {
        Some(user) => {
            user.permit(address);
            holder = Some(user.holds(address, proof));
            Vec::new()
        }
        None => net.block_on(hold((&net, proof), address, sources[0])),
    };
    net.block_on(async {
        for number in 0..HONEST {
            let transport = TRANSPORTS[number % 2];
            let connection = serves((&net, proof), address, *sources.last().expect("one"), transport).await;
            let connection =
                connection.unwrap_or_else(|error| panic!("{proof:?} {from:?}, caller {number}: {error}"));
            connection.close().within(LIMIT).await.expect("closed");
        }
        // What it holds is not taken from it.
        for connection in &held {
            connection.send(b"there").await.expect("it is connected");
            assert_eq!(*connection.recv().within(LIMIT).await.expect("an echo"), *b"there");
        }
    });
    drop(holder);
    println!("{proof:?} {from:?}: {:.1?}", begun.elapsed());
}

#[test]
fn a_source_that_holds_all_the_connections_it_can_leaves_room_for_others_of_each_kind() {
    if !is_alone() {
        return;
    }
    let user = OtherUser::new();
    for row in HOLDS {
        let user = user.as_ref();
        thread::scope(|scope| {
            scope.spawn(|| row.1.run(user, || beside_a_source_that_holds_all_it_can(row, user)));
        });
    }
}
