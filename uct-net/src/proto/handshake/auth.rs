//! Proof that both sides know a key, without sending it, and that what follows comes from the side that has proved it.
//!
//! A proof is HMAC-SHA-256, by the shared key, over the side, the client's number and the server's, which were never used before. A key for the
//! frames of each direction is made of the same in two steps, as HKDF does it (RFC 5869). Each frame behind the proofs ends with
//! HMAC-SHA-256, by the key of its direction, over its place in the order of that direction's frames, what it is, and its fields. So a host that
//! passes the proofs on can neither change, leave out, reorder or repeat a frame behind them, nor send one of its own.

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
    let label = match side {
        Side::Client => b"uct-net client 1",
        Side::Server => b"uct-net server 1",
    };
    keyed(key, label).chain_update(client).chain_update(server)
}

/// The shared key within a session of TLS, of which both sides know this and nobody else does: a program that ends TLS in between has two
/// sessions, and what is proved in one proves nothing in the other.
#[cfg(feature = "tls")]
pub(crate) fn bound(key: &[u8], session: &[u8; 32]) -> Vec<u8> {
    keyed(key, b"uct-net tls key1").chain_update(session).finalize().into_bytes().to_vec()
}

/// The proof of one side.
pub(crate) fn prove(key: &[u8], side: Side, client: &Nonce, server: &Nonce) -> Proof {
    mac(key, side, client, server).finalize().into_bytes().into()
}

/// Whether that side knows the key. Takes as long for a wrong proof as for a right one.
pub(crate) fn check(key: &[u8], side: Side, client: &Nonce, server: &Nonce, proof: &Proof) -> bool {
    mac(key, side, client, server).verify_slice(proof).is_ok()
}

/// The frames of one direction.
#[derive(Clone)]
pub(crate) struct Seal {
    key: Hmac<Sha256>,
    /// How many there were.
    count: u64,
}

/// For what the client sends, and for what the server does.
pub(crate) fn seals(key: &[u8], client: &Nonce, server: &Nonce) -> (Seal, Seal) {
    let derived = keyed(key, b"uct-net session1").chain_update(client).chain_update(server);
    let derived = derived.finalize().into_bytes();
    let seal = |direction: &[u8]| {
        let key = keyed(&derived, direction).finalize().into_bytes();
        Seal { key: keyed(&key, b""), count: 0 }
    };
    (seal(b"client to server"), seal(b"server to client"))
}

fn keyed(key: &[u8], label: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length").chain_update(label)
}

impl Seal {
    fn next(&mut self, what: u8, fields: &[u8]) -> Hmac<Sha256> {
        let mac = self.key.clone().chain_update(self.count.to_le_bytes()).chain_update([what]);
        self.count += 1;
        mac.chain_update(fields)
    }

    /// What the next frame ends with.
    pub(crate) fn seal(&mut self, what: u8, fields: &[u8]) -> Proof {
        self.next(what, fields).finalize().into_bytes().into()
    }

    /// The fields of the next frame, if it is the next one of the other side. Takes as long for a wrong end as for a right one.
    pub(crate) fn open<'a>(&mut self, what: u8, body: &'a [u8]) -> Option<&'a [u8]> {
        let (fields, seal) = body.split_last_chunk::<{ size_of::<Proof>() }>()?;
        self.next(what, fields).verify_slice(seal).ok()?;
        Some(fields)
    }
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
    #[test]
    fn a_frame_is_the_next_one_of_its_direction_as_it_was_sent_or_none() {
        let (client, server) = (nonce().unwrap(), nonce().unwrap());
        let keys = || seals(b"a key of the two", &client, &server);
        let (mut sender, other) = keys();
        let frames: Vec<Vec<u8>> =
            (0..3_u8).map(|what| [&b"fields"[..], &sender.seal(what, b"fields")].concat()).collect();
        let (mut receiver, _) = keys();
        for (what, body) in (0..3).zip(&frames) {
            assert_eq!(receiver.open(what, body), Some(&b"fields"[..]));
        }
        assert_eq!(receiver.open(2, &frames[2]), None, "repeated");
        let first = |what, body: &[u8]| keys().0.open(what, body).map(<[u8]>::to_vec);
        assert!(first(0, &frames[0]).is_some());
        assert_eq!(first(1, &frames[1]), None, "the one before was left out");
        assert_eq!(first(1, &frames[0]), None, "of another kind");
        assert_eq!(other.clone().open(0, &frames[0]), None, "reflected");
        assert_eq!(seals(b"another key here", &client, &server).0.open(0, &frames[0]), None);
        assert_eq!(seals(b"a key of the two", &server, &client).0.open(0, &frames[0]), None);
        for at in 0..frames[0].len() {
            let mut changed = frames[0].clone();
            changed[at] ^= 1;
            assert_eq!(first(0, &changed), None, "byte {at}");
            assert_eq!(first(0, &frames[0][..at]), None, "cut at {at}");
        }
    }
}
