//! What the tests share: a server in a thread of its own, and every transport of this machine.

#![allow(dead_code, reason = "each test program uses a part")]

#[path = "../../../ucs/testing/alone.rs"]
pub mod alone;
#[cfg(feature = "tls")]
pub mod certificates;
pub mod child;
#[path = "../../../ucs/testing/copy.rs"]
pub mod copy;
pub mod fate;
pub mod gate;
pub mod log;
pub mod logged_listener;
pub mod namespaces;
#[cfg(feature = "tls")]
pub mod path;
pub mod random;
pub mod raw;
pub mod rdmacm;
pub mod relay;
pub mod sandbox;
#[path = "../../../ucs/testing/seed.rs"]
pub mod seed;
#[path = "../../../ucs/testing/skip.rs"]
pub mod skip;
pub mod spans;
pub mod threads;
#[cfg(feature = "tls")]
pub mod tls_lane;
pub mod victim;

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use uct_core::Context;
use uct_core::configuration::{FileSource, Sources};
use uct_net::local::Net;
use uct_net::{NetOptions, Result};

/// Everything that has to come comes within this; it bounds a wait.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A place to listen at; the system chooses the port.
pub const LOOPBACK: &str = "127.0.0.1:0";

/// A context with defaults, whatever the environment of the tests contains, but for where plugins are.
pub fn context() -> Context {
    with(&[])
}

/// As [`context`], with values of keys.
pub fn with(values: &[(&str, &str)]) -> Context {
    let is_let_in = |name: &str| {
        // Where plugins are, and which verbs devices they find.
        let prefixes = ["UCT_IB_", "UCT_RC_VERBS_", "UCT_UD_VERBS_"];
        name == "UCT_MODULE_DIR" || prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let env = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_let_in)).collect();
    let overrides = values.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let sources = Sources { file: FileSource::None, env, overrides };
    Context::builder().sources(sources).build().expect("a context")
}

/// Options with limits that a busy machine does not reach.
pub fn patient() -> NetOptions {
    NetOptions {
        handshake_timeout: LIMIT / 2,
        lane_timeout: LIMIT / 3,
        connect_timeout: LIMIT,
        ..NetOptions::default()
    }
}

/// So many rounds of a long test, or fewer: `UCT_TEST_FEWER` is what they are divided by, where operations are slow.
pub fn rounds(all: u64) -> u64 {
    let fewer = std::env::var("UCT_TEST_FEWER").map_or(1, |fewer| fewer.parse().expect("a number"));
    all.div_ceil(fewer)
}

/// A net with options.
pub fn net(options: NetOptions) -> Net {
    Net::new(&context(), options).expect("a net")
}

/// Processor time of this process.
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The transports that two threads of this process can use between each other, on the loopback device or one of verbs.
/// `UCT_TEST_TRANSPORTS` names the only ones, `UCT_TEST_REQUIRE` names those that have to be there: `verbs`, or by their names.
pub fn transports() -> Vec<String> {
    let net = net(patient());
    let names = net.ifaces().iter().map(|iface| iface.resource().to_string());
    let mut names: Vec<String> = names.filter(|name| name != "self/memory").collect();
    names.retain(|name| !name.starts_with("tcp/") || name == "tcp/lo");
    if let Ok(only) = std::env::var("UCT_TEST_TRANSPORTS") {
        let only: Vec<&str> = only.split(',').collect();
        names.retain(|name| only.iter().any(|only| name.split('/').next() == Some(*only)));
        assert!(!names.is_empty(), "UCT_TEST_TRANSPORTS names none that is here");
        return names;
    }
    let required = std::env::var("UCT_TEST_REQUIRE").unwrap_or_default();
    for required in ["tcp"].into_iter().chain(required.split(',')) {
        let needed: &[&str] = match required {
            "tcp" => &["tcp/"],
            "shm" => &["posix/", "sysv/"],
            "verbs" => &["rc_verbs/", "ud_verbs/"],
            // The others are nothing of this test's.
            _ => &[],
        };
        for prefix in needed {
            assert!(names.iter().any(|name| name.starts_with(prefix)), "no {prefix}: {names:?}");
        }
    }
    names
}

/// Runs `server` in a thread and `client` here; each gets a net, the client also the server's address.
pub fn pair<S, C>(options: NetOptions, server: S, client: C)
where
    S: AsyncFnOnce(&Net, uct_net::local::Listener) -> Result<()> + Send + 'static,
    C: AsyncFnOnce(&Net, String) -> Result<()>,
{
    pair_of(&context(), options, server, client);
}

/// As [`pair`], with options for the server and for the client.
pub fn pair_with<S, C>((server_options, client_options): (NetOptions, NetOptions), server: S, client: C)
where
    S: AsyncFnOnce(&Net, uct_net::local::Listener) -> Result<()> + Send + 'static,
    C: AsyncFnOnce(&Net, String) -> Result<()>,
{
    pair_between(&context(), (server_options, client_options), server, client);
}

/// As [`pair`], with nets of this context.
pub fn pair_of<S, C>(context: &Context, options: NetOptions, server: S, client: C)
where
    S: AsyncFnOnce(&Net, uct_net::local::Listener) -> Result<()> + Send + 'static,
    C: AsyncFnOnce(&Net, String) -> Result<()>,
{
    pair_between(context, (options.clone(), options), server, client);
}

fn pair_between<S, C>(
    context: &Context,
    (server_options, client_options): (NetOptions, NetOptions),
    server: S,
    client: C,
) where
    S: AsyncFnOnce(&Net, uct_net::local::Listener) -> Result<()> + Send + 'static,
    C: AsyncFnOnce(&Net, String) -> Result<()>,
{
    let (thread, address) = serve(context, server_options, LOOPBACK, server);
    let net = Net::new(context, client_options).expect("a net");
    net.block_on(client(&net, address)).expect("the client's side");
    drop(net);
    thread.join().expect("the server's thread");
}

/// Runs `server` in a thread, with a net of its own and a listener at `place`. Returns the thread, which panics if the server fails, and
/// the listener's address.
pub fn serve<S>(context: &Context, options: NetOptions, place: &str, server: S) -> (JoinHandle<()>, String)
where
    S: AsyncFnOnce(&Net, uct_net::local::Listener) -> Result<()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel();
    let (context, place) = (context.clone(), place.to_owned());
    let thread = std::thread::spawn(move || {
        let net = Net::new(&context, options).expect("a net");
        net.block_on(async {
            let listener = net.listen(place).await?;
            sender.send(listener.address()).expect("the client waits");
            server(&net, listener).await
        })
        .expect("the server's side");
    });
    (thread, receiver.recv_timeout(LIMIT).expect("the server listens"))
}
