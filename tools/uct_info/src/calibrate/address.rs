//! Where one side listens and the other one calls: as the command line has it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;

use uct_tools_common::Failure;

/// Without a port in the address of a peer.
const PORT: u16 = 13338;
/// As long as a name may be, of the system's resolver and in the file.
const MAX_HOST: usize = 255;

/// `[ADDRESS:]PORT`
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ListenAddress {
    /// `None` for all of this machine.
    address: Option<IpAddr>,
    port: u16,
}

/// `HOST[:PORT]`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PeerHost {
    pub host: String,
    pub port: u16,
}

impl ListenAddress {
    pub(super) fn bind(self) -> Result<TcpListener, Failure> {
        let bind = |address: IpAddr| TcpListener::bind(SocketAddr::new(address, self.port));
        let bound = match self.address {
            Some(address) => bind(address),
            // For IPv6 and IPv4, or for IPv4 alone where there is no IPv6.
            None => bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|error| match error.kind() {
                std::io::ErrorKind::AddrInUse | std::io::ErrorKind::PermissionDenied => Err(error),
                _ => bind(Ipv4Addr::UNSPECIFIED.into()),
            }),
        };
        bound.map_err(|error| format!("--listen {self}: {error}").into())
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        if let Ok(port) = text.parse() {
            return Ok(ListenAddress { address: None, port });
        }
        match text.parse::<SocketAddr>() {
            Ok(address) => Ok(ListenAddress { address: Some(address.ip()), port: address.port() }),
            Err(_) => {
                Err("expected a port, or an address and a port: 13338, 10.0.0.1:13338, [fe80::1]:13338"
                    .to_owned())
            }
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => SocketAddr::new(address, self.port).fmt(f),
            None => self.port.fmt(f),
        }
    }
}

impl PeerHost {
    /// Its addresses. The system's resolver has limits of its own.
    pub(super) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        Ok((&*self.host, self.port).to_socket_addrs()?.collect())
    }
}

impl FromStr for PeerHost {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerHost, String> {
        let problem =
            || "expected a host, with or without a port: node7, 10.0.0.2:13338, [fe80::1]:13338".to_owned();
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(problem)?;
                host.parse::<Ipv6Addr>().map_err(|_| problem())?;
                (host, port.strip_prefix(':').or(port.is_empty().then_some("")).ok_or_else(problem)?)
            }
            None if text.parse::<Ipv6Addr>().is_ok() => (text, ""),
            None => match text.split_once(':') {
                Some((_, "")) => return Err(problem()),
                split => split.unwrap_or((text, "")),
            },
        };
        let port = if port.is_empty() { PORT } else { port.parse().map_err(|_| problem())? };
        let is_name =
            (1..=MAX_HOST).contains(&host.len()) && !host.contains(|c: char| c.is_control() || c == ' ');
        if !is_name || port == 0 {
            return Err(problem());
        }
        Ok(PeerHost { host: host.to_owned(), port })
    }
}

impl fmt::Display for PeerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_host_with_or_without_a_port() {
        for (text, host, port) in [
            ("node7", "node7", PORT),
            ("node7:1", "node7", 1),
            ("10.0.0.2", "10.0.0.2", PORT),
            ("10.0.0.2:65535", "10.0.0.2", 65535),
            ("fe80::1", "fe80::1", PORT),
            ("[fe80::1]", "fe80::1", PORT),
            ("[fe80::1]:7", "fe80::1", 7),
        ] {
            let peer: PeerHost = text.parse().expect(text);
            assert_eq!(peer, PeerHost { host: host.to_owned(), port }, "{text}");
            assert_eq!(peer.to_string().parse(), Ok(peer), "{text}");
        }
        let long = "n".repeat(MAX_HOST + 1);
        for wrong in
            ["", ":", ":7", "n:", "n:0", "n:65536", "n:x", "n m", "a\nb", "[n]:7", "[::1", "[::1]7", &long]
        {
            assert!(wrong.parse::<PeerHost>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_listener_has_a_port_and_perhaps_an_address() {
        for text in ["0", "13338", "127.0.0.1:0", "[::1]:13338"] {
            assert_eq!(text.parse::<ListenAddress>().expect(text).to_string(), text);
        }
        for wrong in ["", "65536", "-1", "127.0.0.1", "node7:1", ":7", "::1"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong:?}");
        }
    }
}
