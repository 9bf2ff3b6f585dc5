//! The address of an interface, as bytes for any channel.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | length of the transport's name |
//! | 2 | length of the device address |
//! | 3 | length of the interface address |
//! | 4.. | name, device address, interface address |

#![forbid(unsafe_code)]

use ucs::text::PeerText;

use crate::loader::{TL_NAME_LIMIT, is_name};

const VERSION: u8 = 1;
const HEADER: usize = 4;

/// The address of an interface: its transport, and what peers need to connect to it. Most addresses contain a secret: pass them only over
/// channels that you trust (docs/security.md).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IfaceAddress {
    /// The transport.
    pub transport: String,
    /// The device address, in the transport's format.
    pub device: Vec<u8>,
    /// The interface address, in the transport's format.
    pub iface: Vec<u8>,
}

/// Why bytes are not an address.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the address of an interface: {problem}")]
pub struct AddressError {
    problem: String,
}

ucs::debug_as_display!(AddressError);

impl AddressError {
    pub(crate) fn new(problem: String) -> AddressError {
        AddressError { problem }
    }
}

impl IfaceAddress {
    /// The address as bytes: at most 4 + 10 + 2 · 255 = 524.
    ///
    /// # Errors
    /// A part is longer than its field permits.
    pub fn pack(&self) -> Result<Vec<u8>, AddressError> {
        let length = |bytes: usize, limit: usize, what: &str| match u8::try_from(bytes) {
            Ok(length) if bytes <= limit => Ok(length),
            _ => {
                Err(AddressError { problem: format!("{what} of {bytes} bytes, at most {limit} are allowed") })
            }
        };
        let mut packed = vec![
            VERSION,
            length(self.transport.len(), TL_NAME_LIMIT, "a transport's name")?,
            length(self.device.len(), 255, "a device address")?,
            length(self.iface.len(), 255, "an interface address")?,
        ];
        packed.extend_from_slice(self.transport.as_bytes());
        packed.extend_from_slice(&self.device);
        packed.extend_from_slice(&self.iface);
        Ok(packed)
    }

    /// Reads an address from the front of untrusted bytes; returns it and the bytes after it.
    ///
    /// # Errors
    /// The bytes do not begin with an address as [`IfaceAddress::pack`] makes it.
    pub fn unpack(bytes: &[u8]) -> Result<(IfaceAddress, &[u8]), AddressError> {
        let problem = |problem: String| Err(AddressError { problem });
        let Some((&[version, name, device, iface], rest)) = bytes.split_first_chunk::<HEADER>() else {
            return problem(format!("{} bytes, expected at least {HEADER}", bytes.len()));
        };
        if version != VERSION {
            return problem(format!("version {version}, expected {VERSION}; the peer runs another release"));
        }
        let (name, device, iface) = (usize::from(name), usize::from(device), usize::from(iface));
        if rest.len() < name + device + iface {
            return problem(format!("{} bytes, its header promises {}", rest.len(), name + device + iface));
        }
        let (transport, rest) = rest.split_at(name);
        let (device, rest) = rest.split_at(device);
        let (iface, rest) = rest.split_at(iface);
        if !is_name(transport, TL_NAME_LIMIT) {
            return problem(format!("{} is no transport's name", PeerText::new(transport)));
        }
        // All of a name is ASCII.
        let transport = String::from_utf8_lossy(transport).into_owned();
        Ok((IfaceAddress { transport, device: device.to_owned(), iface: iface.to_owned() }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> IfaceAddress {
        IfaceAddress { transport: "tcp".to_owned(), device: vec![1, 2, 3], iface: vec![4; 200] }
    }

    #[test]
    fn an_address_survives_the_way() {
        let mut packed = address().pack().unwrap();
        packed.extend_from_slice(b"more");
        assert_eq!(IfaceAddress::unpack(&packed).unwrap(), (address(), &b"more"[..]));
    }

    #[test]
    fn a_name_that_is_none_is_refused_in_a_line_of_the_error() {
        for (name, shown) in [
            (&b""[..], r#""""#),
            (b"tcp\nERROR\x1b", r#""tcp\nERROR\u{1b}""#),
            ("tcp\u{202e}".as_bytes(), r#""tcp\u{202e}""#),
            (b"tcp,self", r#""tcp,self""#),
            (b"12345678901", r#""12345678901""#),
            (b"\xff", "\"\u{fffd}\""),
        ] {
            let bytes = [&[VERSION, name.len() as u8, 0, 0], name].concat();
            let error = IfaceAddress::unpack(&bytes).expect_err("no name").to_string();
            assert_eq!(error, format!("not the address of an interface: {shown} is no transport's name"));
        }
    }

    #[test]
    fn a_cut_or_changed_address_is_an_error_or_another_address_but_never_a_panic() {
        let packed = address().pack().unwrap();
        for length in 0..packed.len() {
            assert!(IfaceAddress::unpack(&packed[..length]).is_err());
        }
        for index in 0..packed.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = packed.clone();
                changed[index] = value;
                let _ = IfaceAddress::unpack(&changed);
            }
        }
    }
}
