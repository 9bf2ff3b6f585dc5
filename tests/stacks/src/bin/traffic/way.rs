//! What carries the bytes, and what drives it: a socket of tokio, or a transport by either flavour of uct-net.

use std::convert::Infallible;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::str::FromStr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use uct_core::Context;
use uct_net::{Net, NetOptions, local};

use crate::{By, Options, Outcome, Test, Wait};

/// What carries the bytes.
#[derive(Clone, Debug)]
pub enum Over {
    TcpSocket,
    UnixSocket,
    Transport(String),
}

impl FromStr for Over {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Over, Infallible> {
        Ok(match name {
            "tcp-socket" => Over::TcpSocket,
            "unix-socket" => Over::UnixSocket,
            transport => Over::Transport(transport.to_owned()),
        })
    }
}

/// Any stream of bytes.
pub trait Bytes: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Bytes for T {}

/// What carries the bytes, opened.
pub enum Engine {
    TcpSocket,
    UnixSocket,
    Local(local::Net, String),
    Threads(Net, String),
}

/// Listens for streams of bytes.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    Local(local::Listener),
    Threads(uct_net::Listener),
}

/// What carries the bytes, and what drives it.
pub struct Way {
    pub engine: Engine,
    by: By,
    runtime: Runtime,
}

impl Way {
    pub fn new(options: &Options) -> Outcome<Way> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let by = options.by;
        let engine = match &options.over {
            Over::TcpSocket => Engine::TcpSocket,
            Over::UnixSocket => Engine::UnixSocket,
            Over::Transport(name) => {
                if by == By::Raw && !matches!(options.test, Test::Messages) {
                    return Err("--by raw: only for messages".into());
                }
                // Nothing else is open, as in uct_perftest.
                let context = Context::builder().set("tls", name).set("net_devices", "lo").build()?;
                let net_options = net_options(options);
                match by {
                    By::Raw | By::BlockOn | By::Tokio => {
                        Engine::Local(local::Net::new(&context, net_options)?, name.clone())
                    }
                    By::Send => Engine::Threads(Net::new(&context, net_options)?, name.clone()),
                    By::SendInTokio => {
                        let _inside = runtime.enter();
                        Engine::Threads(Net::in_tokio(&context, net_options)?, name.clone())
                    }
                }
            }
        };
        Ok(Way { engine, by, runtime })
    }

    /// Runs the traffic.
    pub fn run<T>(&self, traffic: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        match (&self.engine, self.by) {
            (Engine::Local(net, _), By::Raw | By::BlockOn) => net.block_on(traffic),
            (Engine::Local(net, _), _) => self.runtime.block_on(net.run_until(traffic))?,
            (Engine::Threads(net, _), By::Send) => net.block_on(traffic),
            _ => self.runtime.block_on(traffic),
        }
    }

    /// Listens; also returns the address.
    pub async fn listen(&self) -> Outcome<(Listener, String)> {
        const ADDRESS: &str = "127.0.0.1:0";
        Ok(match &self.engine {
            Engine::TcpSocket => {
                let listener = TcpListener::bind(ADDRESS).await?;
                let address = listener.local_addr()?.to_string();
                (Listener::Tcp(listener), address)
            }
            Engine::UnixSocket => {
                let name = format!("traffic-{}", std::process::id());
                let listener = unix::UnixListener::bind_addr(&named(&name)?)?;
                listener.set_nonblocking(true)?;
                (Listener::Unix(UnixListener::from_std(listener)?), name)
            }
            Engine::Local(net, _) => {
                let listener = net.listen(ADDRESS).await?;
                let address = listener.address();
                (Listener::Local(listener), address)
            }
            Engine::Threads(net, _) => {
                let listener = net.listen(ADDRESS).await?;
                let address = listener.address().to_owned();
                (Listener::Threads(listener), address)
            }
        })
    }

    /// Connects to a server's address.
    pub async fn connect(&self, address: &str) -> Outcome<Box<dyn Bytes>> {
        Ok(match &self.engine {
            Engine::TcpSocket => Box::new(without_delay(TcpStream::connect(address).await?)?),
            Engine::UnixSocket => {
                let stream = unix::UnixStream::connect_addr(&named(address)?)?;
                stream.set_nonblocking(true)?;
                Box::new(UnixStream::from_std(stream)?)
            }
            Engine::Local(net, name) => Box::new(net.connect(address).require(name).await?.into_stream()),
            Engine::Threads(net, name) => Box::new(net.connect(address).require(name).await?.into_stream()),
        })
    }
}

impl Listener {
    /// The next caller.
    pub async fn accept(&mut self) -> Outcome<Box<dyn Bytes>> {
        Ok(match self {
            Listener::Tcp(listener) => Box::new(without_delay(listener.accept().await?.0)?),
            Listener::Unix(listener) => Box::new(listener.accept().await?.0),
            Listener::Local(listener) => Box::new(listener.accept().await?.accept().await?.into_stream()),
            Listener::Threads(listener) => Box::new(listener.accept().await?.accept().await?.into_stream()),
        })
    }
}

fn net_options(options: &Options) -> NetOptions {
    let default = NetOptions::default();
    let wait = match options.wait {
        Wait::Spin => uct_net::Wait::Spin,
        Wait::Adaptive => default.wait,
        Wait::Sleep => uct_net::Wait::Sleep,
    };
    NetOptions { wait, ..default }
}

/// An address that is no file.
fn named(name: &str) -> std::io::Result<unix::SocketAddr> {
    unix::SocketAddr::from_abstract_name(name)
}

fn without_delay(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}
