//! The client: connects, sends the string, and has it confirmed.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use uct_core::{Access, Completion, Error as Status, MemoryKind, SendFlags};
use uct_net::local::{Connection, Net};
use uct_net::{Error, Stage};

use crate::options::{Flavour, Options};
use crate::{Failure, HELLO, print_choice, say};

/// Sent ahead of the string, where `am_short` has its header.
pub(crate) const HEADER: u64 = u64::from_le_bytes(*b"uct_helo");

/// How long a server that is just being started is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn run(options: &Options, net: &Net, name: &str, deadline: Instant) -> Result<(), Failure> {
    let connection = connect(options, net, name, deadline).await?;
    print_choice(options, &connection, "Chosen for the lowest latency of")?;
    let text = test_string(options.size);
    send(&connection, options.flavour(), &text).await?;

    let received = connection.recv().await?;
    if *received != *text {
        let (received, sent) = (received.len(), text.len());
        return Err(format!("the server received {received} bytes that are not the {sent} sent").into());
    }
    connection.close().await?;
    say(&format!("The server received all {} bytes.\n", text.len()))
}

/// Connects; tries again while nobody listens there yet, for a moment.
async fn connect(options: &Options, net: &Net, name: &str, deadline: Instant) -> Result<Connection, Failure> {
    let address = resolve(options, name)?;
    let patience = deadline.min(Instant::now() + PATIENCE);
    loop {
        let connect = net.connect(address).private(options.to_private());
        let error = match connect.within(deadline.saturating_duration_since(Instant::now())).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        let Error { stage: Stage::Dial, status: Status::UNREACHABLE, reason, .. } = &error else {
            return Err(error.into());
        };
        if Instant::now() >= patience {
            let port = options.server_port;
            let advice = format!("start one with: uct_hello_world -p {port}");
            return Err(format!("no server at {address}: {reason}; {advice}").into());
        }
        net.sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn resolve(options: &Options, name: &str) -> Result<SocketAddr, Failure> {
    let wanted = |address: &SocketAddr| address.is_ipv6() == options.ipv6 || name.parse::<IpAddr>().is_ok();
    let found = (name, options.server_port)
        .to_socket_addrs()
        .map_err(|error| format!("server {name:?}: {error}; expected a host name or an address"))?
        .find(wanted);
    found.ok_or_else(|| {
        let (family, other) = if options.ipv6 { ("IPv6", "without -6") } else { ("IPv4", "with -6") };
        format!("server {name:?} has no {family} address; try {other}").into()
    })
}

/// The string that UCX's program sends.
pub(crate) fn test_string(size: usize) -> Vec<u8> {
    (b'A'..=b'Z').cycle().take(size).collect()
}

/// Sends the string by the operation that the flags ask for, over the endpoint below the connection.
async fn send(connection: &Connection, flavour: Flavour, text: &[u8]) -> Result<(), Failure> {
    let ep = connection.endpoint();
    let completion = Completion::new(&connection.iface().worker());
    let memory = match flavour {
        Flavour::Zcopy => {
            let domain = connection.iface().memory_domain();
            let memory = domain.allocate(text.len().max(1), Access::ALL, MemoryKind::Host)?;
            memory.write(0, text);
            Some(memory.slice(..text.len()))
        }
        _ => None,
    };
    let attempt = || match (flavour, &memory) {
        (Flavour::Zcopy, Some(slice)) => {
            let slices = std::slice::from_ref(slice);
            ep.am_zcopy(HELLO, &HEADER.to_ne_bytes(), slices, SendFlags::empty(), &completion).map(drop)
        }
        (Flavour::Bcopy, _) => ep
            .am_bcopy(HELLO, SendFlags::empty(), |buffer| {
                let (header, rest) = buffer.split_at_mut(size_of::<u64>());
                header.copy_from_slice(&HEADER.to_ne_bytes());
                rest[..text.len()].copy_from_slice(text);
                header.len() + text.len()
            })
            .map(drop),
        _ => ep.am_short(HELLO, HEADER, text),
    };
    connection.when_room(attempt).await?;
    Ok(connection.flush().await?)
}
