//! The keys of several memory domains to the same memory, as bytes for a peer.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `UCTK` |
//! | 4 | version, 1 |
//! | 5 | number of keys, 1 to 32 |
//! | each | length of the domain's name (1 byte, 1 to 33), length of the key (2 bytes, little-endian, up to 1024), the name, the key |
//!
//! Used by memory of several domains. Built on `memory`.

#![forbid(unsafe_code)]

use std::fmt;

use ucs::Error;
use ucs::text::PeerText;

use super::{Memory, MemoryDomain, RemoteKey};
use crate::error::Refused;
use crate::loader::{COMPONENT_NAME_LIMIT, MD_NAME_LIMIT};

const MAGIC: &[u8; 4] = b"UCTK";
const VERSION: u8 = 1;
/// Most keys in one list: far more than a machine has memory domains.
const MAX_KEYS: usize = 32;
/// Longest key in bytes; those of the transports have less than 100.
const MAX_KEY: usize = 1024;
/// Longest name of a domain in bytes, with that of its component.
const MAX_NAME: usize = COMPONENT_NAME_LIMIT + 1 + MD_NAME_LIMIT;

/// The keys of a peer's memory, each for one memory domain: read from the bytes of
/// [`MultiDomainMemory::packed_keys`](crate::MultiDomainMemory::packed_keys).
#[derive(Clone)]
pub struct PackedKeys<'a> {
    /// At least one, no name twice.
    keys: Vec<NamedKey<'a>>,
}

#[derive(Clone, Copy)]
struct NamedKey<'a> {
    /// The domain of the peer, as [`MemoryDomain::name`] there.
    domain: &'a str,
    key: &'a [u8],
}

impl<'a> PackedKeys<'a> {
    /// Reads untrusted bytes. It unpacks no key.
    ///
    /// # Errors
    /// `INVALID_PARAM` with a reason: anything that [`MultiDomainMemory::packed_keys`](crate::MultiDomainMemory::packed_keys) does not make.
    pub fn parse(bytes: &'a [u8]) -> Result<PackedKeys<'a>, Refused> {
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| malformed("wrong magic".to_owned()))?;
        let (&[version, count], mut rest) = rest.split_first_chunk().ok_or_else(cut)?;
        if version != VERSION {
            let words = format!("version {version}, expected {VERSION}; the peer runs another release");
            return Err(malformed(words));
        }
        let count = usize::from(count);
        if count == 0 || count > MAX_KEYS {
            return Err(malformed(format!("{count} keys, expected 1 to {MAX_KEYS}")));
        }
        let mut keys = Vec::<NamedKey<'_>>::with_capacity(count);
        for _ in 0..count {
            let (named, after) = NamedKey::split_from(rest)?;
            if keys.iter().any(|other| other.domain == named.domain) {
                return Err(malformed(format!("two keys for {}", named.domain)));
            }
            keys.push(named);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(malformed(format!("{} bytes behind the last key", rest.len())));
        }
        Ok(PackedKeys { keys })
    }

    /// The names of the peer's domains, such as `tcp/tcp`, in the order of their keys.
    pub fn domains(&self) -> impl Iterator<Item = &'a str> {
        self.keys.iter().map(|named| named.domain)
    }

    /// Unpacks the key for endpoints of a domain ([`Iface::memory_domain`](crate::Iface::memory_domain)): the one of the same component.
    /// Unpack once and keep the key.
    ///
    /// # Errors
    /// `NO_ELEM` if there is none, `INVALID_PARAM` if there are several, because the peer has several devices; both list the
    /// domains of the keys. The domain's refusal.
    pub fn unpack(&self, domain: &MemoryDomain) -> Result<RemoteKey, Refused> {
        let component = component(domain.name());
        let mut matching = self.keys.iter().filter(|named| self::component(named.domain) == component);
        match (matching.next(), matching.next()) {
            (Some(named), None) => domain.unpack(named.key),
            (Some(_), Some(_)) => {
                let reason =
                    format!("several keys are for {component}, name the peer's domain: {}", self.list());
                Err(refused(domain.name(), Error::INVALID_PARAM, reason))
            }
            _ => Err(self.missing(domain, component)),
        }
    }

    /// As [`PackedKeys::unpack`], the key for one domain of the peer, such as `rc_verbs/mlx5_1`: the domain of the interface that the
    /// endpoint leads to.
    ///
    /// # Errors
    /// `NO_ELEM` if there is none, with a list of the domains; the domain's refusal.
    pub fn unpack_of(&self, domain: &MemoryDomain, peer_domain: &str) -> Result<RemoteKey, Refused> {
        match self.keys.iter().find(|named| named.domain == peer_domain) {
            Some(named) => domain.unpack(named.key),
            None => Err(self.missing(domain, peer_domain)),
        }
    }

    /// The keys of the same memory in several domains.
    pub(super) fn pack(memories: &[Memory]) -> Result<Vec<u8>, Refused> {
        let mut packed = MAGIC.to_vec();
        packed.extend([VERSION, memories.len().min(MAX_KEYS + 1) as u8]);
        for memory in memories {
            let name = memory.domain().name();
            let failed = |status, reason| Refused {
                operation: "pack a key",
                subject: name.to_owned(),
                status,
                reason,
            };
            let key = memory.packed_key().map_err(|status| failed(status, String::new()))?;
            if key.len() > MAX_KEY {
                let reason = format!("a key of {} bytes, at most {MAX_KEY} are possible", key.len());
                return Err(failed(Error::INVALID_PARAM, reason));
            }
            packed.push(name.len() as u8);
            packed.extend((key.len() as u16).to_le_bytes());
            packed.extend(name.as_bytes());
            packed.extend(key);
        }
        // What a peer would not read is not sent.
        PackedKeys::parse(&packed).map_err(|refused| Refused { operation: "pack keys", ..refused })?;
        Ok(packed)
    }

    fn missing(&self, domain: &MemoryDomain, wanted: &str) -> Refused {
        let reason = format!("no key is for {wanted}, the keys are for {}", self.list());
        refused(domain.name(), Error::NO_ELEM, reason)
    }

    fn list(&self) -> String {
        self.domains().collect::<Vec<_>>().join(", ")
    }
}

impl<'a> NamedKey<'a> {
    /// The key at the front, and the bytes after it.
    fn split_from(bytes: &'a [u8]) -> Result<(NamedKey<'a>, &'a [u8]), Refused> {
        let (&[name, low, high], rest) = bytes.split_first_chunk().ok_or_else(cut)?;
        let (name, key) = (usize::from(name), usize::from(u16::from_le_bytes([low, high])));
        if name == 0 || name > MAX_NAME || key > MAX_KEY {
            let words = format!(
                "a name of {name} and a key of {key} bytes, expected 1 to {MAX_NAME} and up to {MAX_KEY}"
            );
            return Err(malformed(words));
        }
        let (name, rest) = rest.split_at_checked(name).ok_or_else(cut)?;
        let (key, rest) = rest.split_at_checked(key).ok_or_else(cut)?;
        // It is printed in errors.
        if !name.iter().all(u8::is_ascii_graphic) {
            return Err(malformed(format!("the name {} of a domain", PeerText::new(name))));
        }
        let domain = str::from_utf8(name).map_err(|error| malformed(error.to_string()))?;
        Ok((NamedKey { domain, key }, rest))
    }
}

impl fmt::Debug for PackedKeys<'_> {
    /// Without the keys, which are permissions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PackedKeys").field(&self.list()).finish()
    }
}

/// The component in the name of a domain.
fn component(name: &str) -> &str {
    name.split_once('/').map_or(name, |(component, _)| component)
}

fn refused(subject: &str, status: Error, reason: String) -> Refused {
    Refused { operation: "unpack a remote key", subject: subject.to_owned(), status, reason }
}

fn malformed(reason: String) -> Refused {
    refused("a list of keys", Error::INVALID_PARAM, reason)
}

fn cut() -> Refused {
    malformed("it is cut".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of keys, each with its name.
    fn list(keys: &[(&str, &[u8])]) -> Vec<u8> {
        let mut packed = b"UCTK\x01".to_vec();
        packed.push(keys.len() as u8);
        for (name, key) in keys {
            packed.push(name.len() as u8);
            packed.extend((key.len() as u16).to_le_bytes());
            packed.extend(name.as_bytes());
            packed.extend(*key);
        }
        packed
    }

    fn reason(bytes: &[u8]) -> String {
        let refused = PackedKeys::parse(bytes).expect_err("it is malformed");
        assert_eq!(refused.status, Error::INVALID_PARAM, "{refused}");
        refused.reason
    }

    #[test]
    fn names_and_keys_are_read_in_their_order() {
        let longest = ["c".repeat(COMPONENT_NAME_LIMIT), "m".repeat(MD_NAME_LIMIT)].join("/");
        let bytes = list(&[("tcp/tcp", b"one"), ("a", b""), (&longest, &[7; MAX_KEY])]);
        let keys = PackedKeys::parse(&bytes).expect("a list");
        assert_eq!(keys.domains().collect::<Vec<_>>(), ["tcp/tcp", "a", &longest]);
        let bytes: Vec<&[u8]> = keys.keys.iter().map(|named| named.key).collect();
        assert_eq!(bytes, [&b"one"[..], b"", &[7; MAX_KEY]]);
        assert!(!format!("{keys:?}").contains("111"), "a key is printed: {keys:?}");
    }

    #[test]
    fn a_list_beyond_a_limit_or_of_another_form_is_refused_with_the_reason() {
        let names: Vec<String> = (0..=MAX_KEYS).map(|number| format!("d{number}")).collect();
        let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"k"[..])).collect();
        assert!(PackedKeys::parse(&list(&many[..MAX_KEYS])).is_ok());
        let good = list(&[("tcp/tcp", b"key")]);
        let behind = [&good[..], b"x"].concat();
        let newer = [b"UCTK\x02", &good[5..]].concat();
        for (bytes, expected) in [
            (list(&many), "33 keys, expected 1 to 32"),
            (list(&[]), "0 keys"),
            (list(&[("", b"key")]), "a name of 0"),
            (list(&[(&"n".repeat(MAX_NAME + 1), b"key")]), "a name of 34"),
            (list(&[("tcp/tcp", &[7; MAX_KEY + 1])]), "a key of 1025 bytes"),
            (list(&[("tcp/tcp", b"a"), ("b", b""), ("tcp/tcp", b"c")]), "two keys for tcp/tcp"),
            (list(&[("tcp tcp", b"a")]), "\"tcp tcp\""),
            (list(&[("t\x1bcp", b"a")]), "\"t\\u{1b}cp\""),
            (list(&[("t\u{e9}p", b"a")]), "of a domain"),
            (behind, "1 bytes behind the last key"),
            (newer, "version 2, expected 1"),
            (b"UCTA\x01\x01".to_vec(), "wrong magic"),
        ] {
            let reason = reason(&bytes);
            assert!(reason.contains(expected), "{reason:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn a_list_that_is_cut_anywhere_is_refused() {
        let bytes = list(&[("tcp/tcp", b"one"), ("posix/posix", b"another")]);
        for length in 0..bytes.len() {
            reason(&bytes[..length]);
        }
    }
}
