//! Addresses of sockets as people write them: for a listener, for a caller, or to name a machine.
//!
//! `uct-net` and the tools read every address here, so that each takes the same forms and refuses the others in the same words. Built on
//! std's parsers and the system's look-up of names; `services` has the names of ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::path::PathBuf;

use super::{services, snapshot};

/// The bytes of a path in the address of a Unix socket, with the zero that ends a path or begins an abstract name.
const UNIX_PATH: usize = 108;
/// Most devices that an error names.
const MAX_NAMED: usize = 8;

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To listen at: an address of this machine, or all of them.
    Listen,
    /// To connect to.
    Connect,
    /// To name a machine by its IP address; the port may be left out.
    Locate,
}

/// An address whose form is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedAddress {
    /// An IP address and a port. `[::]` is every address of the machine, those of IPv4 as well.
    Ip(SocketAddr),
    /// Names that have to be looked up, which may block: [`look_up`].
    Name {
        /// A host name, or an IP address with its scope.
        host: String,
        /// The port's number, or the name of a service.
        service: String,
    },
    /// The path of a Unix socket. An abstract name begins with a zero byte, as in the system's own addresses.
    Unix(PathBuf),
}

/// Why a text is not an address, and which form was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress {
    /// What is wrong.
    pub reason: String,
    /// What to write in its place.
    pub remedy: String,
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.remedy)
    }
}

impl std::error::Error for BadAddress {}

fn bad(reason: impl Into<String>, remedy: impl Into<String>) -> BadAddress {
    BadAddress { reason: reason.into(), remedy: remedy.into() }
}

impl Purpose {
    /// The forms that it takes.
    fn expected(self) -> &'static str {
        match self {
            Purpose::Listen => {
                "expected *:port for all addresses, host:port, 1.2.3.4:port, [::1]:port, unix:/path or unix:@name"
            }
            Purpose::Connect => "expected host:port, 1.2.3.4:port, [::1]:port, unix:/path or unix:@name",
            Purpose::Locate => {
                "expected an address like 10.0.0.1, 10.0.0.1:7000, fe80::1%eth0 or [fe80::1%2]:7000"
            }
        }
    }

    fn refuse(self, reason: impl Into<String>) -> BadAddress {
        bad(reason, self.expected())
    }
}

impl ParsedAddress {
    /// Reads an address. Looks nothing up but the numbers of network devices.
    pub fn parse(text: &str, purpose: Purpose) -> Result<ParsedAddress, BadAddress> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path, purpose).map(ParsedAddress::Unix);
        }
        if text.is_empty() {
            return Err(purpose.refuse("it is empty"));
        }
        if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(purpose.refuse("it contains a blank"));
        }
        if text.starts_with(['/', '@', '.']) && purpose != Purpose::Locate {
            return Err(bad("it is a path without its kind", format!("expected unix:{text}")));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return Err(bad(format!("it begins with {scheme}://"), format!("leave that out: {rest}")));
        }
        let (host, port) = split(text, purpose)?;
        let host = without_prefix(host, purpose)?;
        let port = match (port, purpose) {
            (Some(port), _) => port,
            (None, Purpose::Locate) => "0",
            (None, _) if host.is_ipv6() => {
                let host = host.text;
                return Err(purpose.refuse(format!("it names no port: [{host}]:port has one")));
            }
            (None, _) => return Err(purpose.refuse("it names no port")),
        };
        let number = number(port, purpose)?;
        if matches!(host.text, "*" | "") {
            return match (purpose, number) {
                (Purpose::Listen, Some(port)) => {
                    Ok(ParsedAddress::Ip(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)))
                }
                (Purpose::Listen, None) => Ok(name("::", port)),
                _ => Err(bad(
                    "it names no host: to be called at all addresses is for listeners",
                    format!("expected the host's name or address, for this machine localhost:{port}"),
                )),
            };
        }
        let Some(ip) = host.ip(purpose)? else {
            if purpose == Purpose::Locate {
                return Err(purpose.refuse(format!("{:?} is not an IP address", host.text)));
            }
            return Ok(name(host.text, port));
        };
        Ok(match number {
            Some(number) => ParsedAddress::Ip(with_port(ip, number)),
            None => name(host.text, port),
        })
    }

    /// The name or the address of the machine, without a scope; `None` for a path.
    pub fn host(&self) -> Option<String> {
        match self {
            ParsedAddress::Ip(address) => Some(address.ip().to_string()),
            ParsedAddress::Name { host, .. } => {
                Some(host.split_once('%').map_or(&**host, |(host, _scope)| host).to_owned())
            }
            ParsedAddress::Unix(_) => None,
        }
    }
}

/// Looks up a host and a service. Blocks: the system may ask a server.
pub fn look_up(host: &str, service: &str) -> Result<Vec<SocketAddr>, BadAddress> {
    let port = match service.parse() {
        Ok(port) => port,
        Err(_) => services::port(service).ok_or_else(|| {
            bad(
                format!("there is no service {service:?} for tcp in /etc/services"),
                "give the port as a number",
            )
        })?,
    };
    let found = (host, port).to_socket_addrs().map_err(|error| {
        bad(
            format!("{host:?} is not found: {error}"),
            "check the name and the resolver, or give an IP address",
        )
    })?;
    Ok(found.collect())
}

fn name(host: &str, service: &str) -> ParsedAddress {
    ParsedAddress::Name { host: host.to_owned(), service: service.to_owned() }
}

/// The path of a Unix socket, or its abstract name behind a zero byte.
fn unix(path: &str, purpose: Purpose) -> Result<PathBuf, BadAddress> {
    if purpose == Purpose::Locate {
        return Err(purpose.refuse("it is a path"));
    }
    let (what, path) = match path.strip_prefix('@') {
        Some(name) => ("an abstract name", format!("\0{name}")),
        None => ("a path", path.to_owned()),
    };
    let text = path.trim_start_matches('\0');
    if text.is_empty() {
        return Err(bad("it has no path", "expected unix:/path or unix:@name"));
    }
    if text.contains('\0') {
        return Err(bad("its path has a zero byte", "expected unix:/path or unix:@name"));
    }
    if text.len() >= UNIX_PATH {
        let reason = format!("{what} of {} bytes, and a socket's has at most {}", text.len(), UNIX_PATH - 1);
        return Err(bad(reason, "choose a shorter one"));
    }
    Ok(path.into())
}

/// The host and the port, if there is one; the brackets are gone.
fn split(text: &str, purpose: Purpose) -> Result<(&str, Option<&str>), BadAddress> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| purpose.refuse("the bracket of the IPv6 address does not end"))?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(purpose.refuse(format!("{rest:?} follows the bracket in place of :port"))),
        };
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((host, port)) if !port.contains(':') => Ok((host, Some(port))),
        // An IPv6 address without brackets.
        Some(_) => Ok((text, None)),
    }
}

/// A host, with what an IPv6 address has behind it.
#[derive(Clone, Copy)]
struct Host<'a> {
    /// All of it: an address, its scope.
    text: &'a str,
    address: &'a str,
    scope: Option<&'a str>,
}

/// Without the length of a network's prefix, with which `ip address` shows the addresses of this machine.
fn without_prefix(host: &str, purpose: Purpose) -> Result<Host<'_>, BadAddress> {
    let text = match host.split_once('/') {
        None => host,
        Some((text, length)) => {
            let is_length = length.parse::<u8>().is_ok_and(|length| length <= 128);
            if !is_length {
                return Err(purpose.refuse(format!("{length:?} is not the length of a network's prefix")));
            }
            if purpose != Purpose::Listen {
                let reason = format!("{host} names a network");
                return Err(bad(reason, format!("leave out /{length}: {text}")));
            }
            text
        }
    };
    let (address, scope) = match text.split_once('%') {
        Some((address, scope)) => (address, Some(scope)),
        None => (text, None),
    };
    Ok(Host { text, address, scope })
}

impl Host<'_> {
    fn is_ipv6(&self) -> bool {
        self.address.parse::<Ipv6Addr>().is_ok()
    }

    /// The IP address; `None` for a name.
    fn ip(&self, purpose: Purpose) -> Result<Option<SocketAddr>, BadAddress> {
        if let Ok(address) = self.address.parse::<Ipv4Addr>() {
            return match self.scope {
                None => Ok(Some(SocketAddr::new(address.into(), 0))),
                Some(scope) => Err(bad(
                    format!("an IPv4 address has no scope, and %{scope} is one"),
                    format!("leave it out: {address}"),
                )),
            };
        }
        let Ok(address) = self.address.parse::<Ipv6Addr>() else {
            // A name has none of these.
            if self.text.contains(['%', ':', '[', ']', '*', '@', ',']) {
                return Err(purpose.refuse(format!("{:?} is neither an IP address nor a name", self.text)));
            }
            return Ok(None);
        };
        let scope = match self.scope {
            None => 0,
            Some(scope) => index_of(scope).ok_or_else(|| {
                bad(format!("there is no network device {scope:?}, the scope of {address}"), scopes(address))
            })?,
        };
        // A peer that is called at an IPv4 address is an IPv4 peer, in whatever way it is written.
        if let IpAddr::V4(address) = IpAddr::V6(address).to_canonical() {
            return Ok(Some(SocketAddr::new(address.into(), 0)));
        }
        if address.is_unicast_link_local() && scope == 0 {
            let reason = format!("{address} is valid on each link, and the address does not name which");
            return Err(bad(reason, scopes(address)));
        }
        Ok(Some(SocketAddrV6::new(address, 0, 0, scope).into()))
    }
}

/// The number of a device that is given by its name or its number.
fn index_of(scope: &str) -> Option<u32> {
    let index = |name: &str| {
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None);
        rustix::net::netdevice::name_to_index(socket.ok()?, name).ok()
    };
    scope.parse().ok().filter(|&number| number != 0).or_else(|| index(scope))
}

/// The scopes that a link-local address may have here.
fn scopes(address: Ipv6Addr) -> String {
    let Ok(snapshot) = snapshot::current() else {
        return format!("write the device behind it, as in [{address}%eth0]:port");
    };
    let is_local =
        |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local() || ip == Ipv6Addr::LOCALHOST);
    let with_one =
        snapshot.links.iter().filter(|(_, link)| link.addresses.iter().any(|own| is_local(own.address)));
    let names: Vec<&str> = with_one.map(|(name, _)| name.as_str()).collect();
    match names.as_slice() {
        [] => "no device of this machine has a link-local address: use another address".to_owned(),
        [first, ..] => {
            let more = names.len().saturating_sub(MAX_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let names = names[..names.len().min(MAX_NAMED)].join(", ");
            format!("write the device behind it, as in [{address}%{first}]:port; there are: {names}{more}")
        }
    }
}

/// The port's number; `None` for the name of a service.
fn number(port: &str, purpose: Purpose) -> Result<Option<u16>, BadAddress> {
    let is_name = port.bytes().any(|byte| byte.is_ascii_alphabetic())
        && port.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_+.".contains(&byte));
    if is_name && purpose != Purpose::Locate {
        return Ok(None);
    }
    if port.is_empty() {
        return Err(purpose.refuse("it names no port"));
    }
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(0) if purpose == Purpose::Connect => Err(bad(
            "nothing listens at port 0",
            "give the port that the listener has; 0 lets the system choose one to listen at",
        )),
        Ok(number) if is_number => Ok(Some(number)),
        _ => Err(bad(format!("{port:?} is not a port"), "a port is a number from 0 to 65535")),
    }
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
