//! What carries the bytes: a TCP socket, or a transport.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use uct_core::Context;
use uct_core::configuration::{FileSource, Sources};
use uct_net::{Net, NetOptions, Streams};

/// Everything that has to come comes within this.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Any stream of bytes.
pub trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Bytes for T {}

/// A way between a client and a server.
#[derive(Clone, Copy, Debug)]
pub enum Road {
    /// A socket of the system's.
    Socket,
    /// A transport by its name.
    Transport(&'static str),
}

/// All of them; the socket's answers are what the others are compared with. `UCT_TEST_TRANSPORTS` names other transports.
pub fn roads() -> impl Iterator<Item = Road> {
    let names = std::env::var("UCT_TEST_TRANSPORTS").unwrap_or_else(|_| "tcp,posix".to_owned());
    let names: &'static str = names.leak();
    [Road::Socket].into_iter().chain(names.split(',').map(Road::Transport))
}

pub enum Acceptor {
    Socket(TcpListener),
    Streams(Box<Streams>),
}

/// The server's end.
pub struct Server {
    pub acceptor: Acceptor,
    pub address: String,
}

pub fn net() -> Net {
    net_with(Duration::from_secs(30))
}

/// With a limit for a step of the handshake.
pub fn net_with(handshake_timeout: Duration) -> Net {
    let is_let_in = |name: &str| {
        // Where plugins are, and which verbs devices they find.
        let prefixes = ["UCT_IB_", "UCT_RC_VERBS_", "UCT_UD_VERBS_"];
        name == "UCT_MODULE_DIR" || prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let env = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_let_in)).collect();
    let sources = Sources { file: FileSource::None, env, overrides: Vec::new() };
    let context = Context::builder().sources(sources).build().expect("a context");
    Net::new(
        &context,
        NetOptions { lane_timeout: Duration::from_secs(20), handshake_timeout, ..NetOptions::default() },
    )
    .expect("a net")
}

impl Road {
    pub async fn listen(self) -> Server {
        match self {
            Road::Socket => {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
                let address = listener.local_addr().expect("it has an address").to_string();
                Server { acceptor: Acceptor::Socket(listener), address }
            }
            Road::Transport(_) => {
                let listener = net().listen("127.0.0.1:0").await.expect("it listens");
                let address = listener.address().to_owned();
                Server { acceptor: Acceptor::Streams(Box::new(listener.into_streams())), address }
            }
        }
    }

    pub async fn connect(self, address: &str) -> Box<dyn Bytes> {
        match self {
            Road::Socket => Box::new(TcpStream::connect(address).await.expect("a connection")),
            Road::Transport(name) => {
                let connection = net().connect(address).require(name).await.expect("a connection");
                assert!(connection.explanation().chosen.starts_with(name));
                Box::new(connection.into_stream())
            }
        }
    }
}

impl Server {
    pub async fn accept(&mut self) -> Box<dyn Bytes> {
        match &mut self.acceptor {
            Acceptor::Socket(listener) => Box::new(listener.accept().await.expect("a caller").0),
            Acceptor::Streams(streams) => Box::new(streams.next().await),
        }
    }
}

/// Runs the traffic over every road; all answers are those of the socket.
pub fn same_over_every_road<A, F>(traffic: impl Fn(Road) -> F)
where
    A: PartialEq + std::fmt::Debug,
    F: Future<Output = A>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut expected = None;
    for road in roads() {
        let traffic: Pin<Box<F>> = Box::pin(traffic(road));
        let answer = runtime.block_on(async { tokio::time::timeout(LIMIT, traffic).await });
        let answer = answer.unwrap_or_else(|_late| panic!("{road:?} takes longer than {LIMIT:?}"));
        let expected = expected.get_or_insert_with(|| None::<A>);
        match expected {
            None => *expected = Some(answer),
            Some(expected) => assert!(*expected == answer, "{road:?} answers otherwise than a socket"),
        }
    }
}

/// Bytes that show what is missing, doubled or out of place.
pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}
