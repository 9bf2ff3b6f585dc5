//! Listening sockets: one for each family of addresses that a device has.

use std::net::SocketAddr;

use socket2::Socket;
use ucs::Error;
use ucs::sys::socket;
use ucs::units::Range;
use uct_plugin::Failure;

use super::device::{self, Family};
use super::socket::{Options, set_ahead};

/// Connections that may wait for it in the system.
const BACKLOG: i32 = 1024;

/// Listens on the device's addresses; returns the sockets and where they are.
pub(crate) fn listen(
    device: &ucs::sys::net::Device,
    families: &[Family],
    ports: Range,
    options: &Options,
) -> Result<(Vec<Socket>, Vec<SocketAddr>), Failure> {
    let mut listeners = Vec::new();
    let mut sockets = Vec::new();
    let mut refused = None;
    for own in device::addresses(device, families) {
        match listen_on(&own, ports, options) {
            Ok((listener, address)) => {
                listeners.push(listener);
                sockets.push(address);
            }
            Err(failure) => refused = Some(failure),
        }
    }
    match refused {
        Some(failure) if listeners.is_empty() => Err(failure),
        _ => Ok((listeners, sockets)),
    }
}

fn listen_on(
    own: &ucs::sys::net::Address,
    ports: Range,
    options: &Options,
) -> Result<(Socket, SocketAddr), Failure> {
    let mut refusal = None;
    for port in ports.first()..=ports.last() {
        let Ok(port) = u16::try_from(port) else {
            return Err(Failure::new(
                Error::INVALID_PARAM,
                format!("port_range: there is no port {port}, the largest is 65535"),
            ));
        };
        match socket::listen(device::socket_address(own, port), BACKLOG) {
            Ok(listener) => {
                set_ahead(&listener, own.address, options).map_err(|error| match error.raw_os_error() {
                    Some(_) => Failure::system("set up a socket", &error),
                    None => Failure::new(Error::INVALID_PARAM, error.to_string()),
                })?;
                let address = socket::local_address(&listener)
                    .map_err(|error| Failure::new(Error::from(&error), error.to_string()))?;
                return Ok((listener, address));
            }
            Err(error) => refusal = Some(error),
        }
    }
    Err(match refusal {
        Some(error) if ports.first() == ports.last() => Failure::new(Error::from(&error), error.to_string()),
        Some(error) => Failure::new(
            Error::from(&error),
            format!("no port of port_range {}-{} is free: {error}", ports.first(), ports.last()),
        ),
        None => Failure::new(Error::INVALID_PARAM, "port_range is empty"),
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use rustix::net::sockopt::tcp_congestion;

    use super::*;
    use crate::io::socket::tests::with;

    fn on_loopback(congestion: &str) -> Result<(Socket, SocketAddr), Failure> {
        listen_at([127, 0, 0, 1], "0-0", congestion)
    }

    fn listen_at(address: [u8; 4], ports: &str, congestion: &str) -> Result<(Socket, SocketAddr), Failure> {
        let own = ucs::sys::net::Address { address: IpAddr::from(address), prefix_length: 8, scope_id: 0 };
        listen_on(&own, ports.parse().unwrap(), &with(congestion))
    }

    #[test]
    fn what_is_accepted_on_loopback_is_not_paced() {
        let (listener, address) = on_loopback("auto").unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(tcp_congestion(&accepted).unwrap(), "reno");
    }

    #[test]
    fn the_range_of_ports_is_named_if_it_has_several_and_all_are_in_use() {
        // An address of loopback that nothing else takes ports of.
        let listen = |ports: &str| listen_at([127, 19, 83, 7], ports, "auto");
        let (_listener, taken) = listen("0-0").unwrap();
        let (first, last) = (taken.port() - 1, taken.port());
        let one = listen(&format!("{last}-{last}")).unwrap_err();
        assert_eq!(one.status, Error::BUSY);
        assert!(!one.reason.contains("port_range"), "{}", one.reason);
        // The port is in use from here on: by this listener, or by one of all addresses.
        let _other = listen(&format!("{first}-{first}"));
        let both = listen(&format!("{first}-{last}")).unwrap_err();
        let words = format!("no port of port_range {first}-{last} is free");
        assert!(both.reason.starts_with(&words), "{}", both.reason);
    }

    #[test]
    fn a_congestion_control_that_the_system_does_not_have_refuses_the_interface() {
        let failure = on_loopback("renno").unwrap_err();
        assert_eq!(failure.status, Error::INVALID_PARAM);
        assert!(failure.reason.contains("renno"), "{}", failure.reason);
    }
}
