//! The private data of a connection manager: token and addresses of the sender's first endpoint.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | `U` |
//! | 1 | version, that of the handshake |
//! | 2..10 | [`Token`] of the sender's end, a short one, little-endian |
//! | 10.. | addresses of device, interface and endpoint, each as long as the reader's own |
//!
//! With `rc_verbs` these are 54 bytes, which is what a request of rdma_cm has room for. So there is no room for lengths: both sides
//! use one transport, and its addresses have one length.

use uct_host::IfaceAddress;

use super::envelope::Token;
use super::frame::{BadFrame, VERSION, check_version};

const MAGIC: u8 = b'U';
/// Bytes ahead of the addresses.
const HEADER: usize = 2 + size_of::<u64>();

/// The first endpoint of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneAddress {
    /// The token that messages to it carry.
    pub(crate) token: Token,
    /// Its interface.
    pub(crate) iface: IfaceAddress,
    /// The endpoint's address.
    pub(crate) endpoint: Vec<u8>,
}

impl LaneAddress {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![MAGIC, VERSION];
        bytes.extend_from_slice(&self.token.header().to_le_bytes());
        bytes.extend_from_slice(&self.iface.device);
        bytes.extend_from_slice(&self.iface.iface);
        bytes.extend_from_slice(&self.endpoint);
        bytes
    }

    /// Reads untrusted bytes, for a side with an interface at `own` whose endpoints have addresses of so many bytes. The transport
    /// checks the addresses.
    pub(crate) fn parse(bytes: &[u8], own: &IfaceAddress, endpoint: usize) -> Result<LaneAddress, BadFrame> {
        let bad = |problem: String| Err(BadFrame::new(problem));
        let Some((&[magic, version], rest)) = bytes.split_first_chunk::<2>() else {
            return bad("the peer is another program: it sent no private data".to_owned());
        };
        if magic != MAGIC {
            return bad("the peer is another program: its private data are none of uct-net".to_owned());
        }
        check_version(version)?;
        let parts = || {
            let (token, rest) = rest.split_first_chunk::<8>()?;
            let (device, rest) = rest.split_at_checked(own.device.len())?;
            let (iface, rest) = rest.split_at_checked(own.iface.len())?;
            (rest.len() == endpoint).then_some((token, device, iface, rest))
        };
        let Some((token, device, iface, endpoint)) = parts() else {
            let expected = HEADER + own.device.len() + own.iface.len() + endpoint;
            return bad(format!(
                "the peer's private data have {} bytes where {expected} are expected of {}",
                bytes.len(),
                own.transport
            ));
        };
        Ok(LaneAddress {
            token: Token::from_header(u64::from_le_bytes(*token)),
            iface: IfaceAddress {
                transport: own.transport.clone(),
                device: device.to_vec(),
                iface: iface.to_vec(),
            },
            endpoint: endpoint.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of an endpoint's address.
    const ENDPOINT: usize = 16;

    fn parse(bytes: &[u8]) -> Result<LaneAddress, BadFrame> {
        LaneAddress::parse(bytes, &address(1, 0).iface, ENDPOINT)
    }

    /// As long as those of `rc_verbs`.
    fn address(token: u64, byte: u8) -> LaneAddress {
        let iface = IfaceAddress {
            transport: "rc_verbs".to_owned(),
            device: vec![byte; 24],
            iface: vec![byte ^ 1; 4],
        };
        LaneAddress { token: Token::from_header(token), iface, endpoint: vec![byte ^ 2; ENDPOINT] }
    }

    #[test]
    fn an_address_is_encoded_and_parsed_and_fits_into_a_request_of_rdma_cm() {
        let bytes = address(77, 9).to_bytes();
        assert_eq!(bytes.len(), 54);
        assert_eq!(parse(&bytes).unwrap(), address(77, 9));
    }

    #[test]
    fn other_bytes_are_refused_with_the_reason() {
        let refused = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
        let good = address(77, 9).to_bytes();
        assert!(refused(b"").contains("sent no private data"));
        assert!(refused(b"U").contains("sent no private data"));
        assert!(refused(b"hello").contains("none of uct-net"));
        assert!(refused(&[b'U', VERSION + 1]).contains("update the older one"));
        for length in 2..good.len() {
            assert!(refused(&good[..length]).contains("where 54 are expected"), "{length}");
        }
        assert!(refused(&[&good[..], &[0]].concat()).contains("have 55 bytes"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), is_begun in any::<bool>()) {
            let begin: &[u8] = if is_begun { &[MAGIC, VERSION] } else { &[] };
            let bytes = [begin, &bytes].concat();
            if let Ok(read) = parse(&bytes) {
                prop_assert_eq!(read.to_bytes(), bytes);
            }
        }
    }
}
