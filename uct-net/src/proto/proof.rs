//! Proof that both sides know a key, without sending it: each replies to a number of the other's that was never used before.
//!
//! A proof is HMAC-SHA-256, by the shared key, over the side, the client's number and the server's. It does not cover what
//! follows: a host on the path can let both sides prove themselves and change what comes after.

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// A number that is used once.
pub(crate) type Nonce = [u8; 32];
/// What only a side that knows the key can make.
pub(crate) type Proof = [u8; 32];

/// Shortest key: fewer bytes can be guessed.
pub(crate) const MIN_KEY: usize = 16;

/// Who proves that it knows the key. A proof of one side is none of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A fresh number.
pub(crate) fn nonce() -> Result<Nonce, ucs::sys::SystemError> {
    let mut nonce = [0; 32];
    for chunk in nonce.chunks_exact_mut(8) {
        chunk.copy_from_slice(&ucs::sys::random::secret()?.to_le_bytes());
    }
    Ok(nonce)
}

fn mac(key: &[u8], side: Side, client: &Nonce, server: &Nonce) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(match side {
        Side::Client => b"uct-net client 1",
        Side::Server => b"uct-net server 1",
    });
    mac.update(client);
    mac.update(server);
    mac
}

/// The proof of one side.
pub(crate) fn prove(key: &[u8], side: Side, client: &Nonce, server: &Nonce) -> Proof {
    mac(key, side, client, server).finalize().into_bytes().into()
}

/// Whether that side knows the key. Takes as long for a wrong proof as for a right one.
pub(crate) fn check(key: &[u8], side: Side, client: &Nonce, server: &Nonce, proof: &Proof) -> bool {
    mac(key, side, client, server).verify_slice(proof).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_key_its_side_and_its_numbers_alone() {
        let (client, server) = (nonce().unwrap(), nonce().unwrap());
        assert_ne!(client, server);
        let proof = prove(b"a key of the two", Side::Client, &client, &server);
        assert!(check(b"a key of the two", Side::Client, &client, &server, &proof));
        assert!(!check(b"another key here", Side::Client, &client, &server, &proof));
        assert!(!check(b"a key of the two", Side::Server, &client, &server, &proof), "reflected");
        assert!(!check(b"a key of the two", Side::Client, &server, &client, &proof));
        assert!(!check(b"a key of the two", Side::Client, &client, &nonce().unwrap(), &proof), "replayed");
        let mut wrong = proof;
        wrong[31] ^= 1;
        assert!(!check(b"a key of the two", Side::Client, &client, &server, &wrong));
    }
}
