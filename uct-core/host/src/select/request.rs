//! What a transport is wanted for.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::attr::{Capabilities, IfaceAttr, MdAttr, OpLimits};

/// The operation that the choice is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Active message, short.
    #[default]
    AmShort,
    /// Active message, buffered copy.
    AmBcopy,
    /// Active message, zero copy.
    AmZcopy,
    /// Put, short.
    PutShort,
    /// Put, buffered copy.
    PutBcopy,
    /// Put, zero copy.
    PutZcopy,
    /// Get, short.
    GetShort,
    /// Get, buffered copy.
    GetBcopy,
    /// Get, zero copy.
    GetZcopy,
}

/// Whether the key of the remote memory is kept from one put or get to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyUse {
    /// The [`RemoteKey`](crate::RemoteKey) is unpacked once, and kept.
    #[default]
    Kept,
    /// It is unpacked for each operation. The memory is one to which keys are used all the time.
    Unpacked,
    /// It is unpacked for each operation, and each time it is to other memory.
    New,
}

impl KeyUse {
    /// All of them.
    pub const ALL: [KeyUse; 3] = [KeyUse::Kept, KeyUse::Unpacked, KeyUse::New];

    /// As the programs take and print it.
    pub fn name(self) -> &'static str {
        match self {
            KeyUse::Kept => "kept",
            KeyUse::Unpacked => "unpacked",
            KeyUse::New => "new",
        }
    }

    /// Seconds that it adds to an operation on so many bytes.
    pub(super) fn seconds(self, attr: &MdAttr, size: usize) -> f64 {
        let seconds = match self {
            KeyUse::Kept => 0.0,
            KeyUse::Unpacked => attr.rkey_cost,
            KeyUse::New => attr.rkey_cost + attr.rkey_map_cost + attr.rkey_map_growth * size as f64,
        };
        // A plugin's figures may be anything, also no number.
        seconds.max(0.0)
    }
}

/// An operation of some size, and what else the interface has to be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// Bytes of one operation; for [`Operation::AmShort`] without the 8-byte header.
    pub size: usize,
    /// Bytes of header that a message of [`Operation::AmBcopy`] or [`Operation::AmZcopy`] has in addition. Other operations have none.
    pub header: usize,
    /// What becomes of the key of a put or get. Messages have none.
    pub key: KeyUse,
    /// Further capabilities.
    #[serde(serialize_with = "names")]
    pub capabilities: Capabilities,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 9] = [
        Operation::AmShort,
        Operation::AmBcopy,
        Operation::AmZcopy,
        Operation::PutShort,
        Operation::PutBcopy,
        Operation::PutZcopy,
        Operation::GetShort,
        Operation::GetBcopy,
        Operation::GetZcopy,
    ];

    /// As the programs take and print it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::AmShort => "am_short",
            Operation::AmBcopy => "am_bcopy",
            Operation::AmZcopy => "am_zcopy",
            Operation::PutShort => "put_short",
            Operation::PutBcopy => "put_bcopy",
            Operation::PutZcopy => "put_zcopy",
            Operation::GetShort => "get_short",
            Operation::GetBcopy => "get_bcopy",
            Operation::GetZcopy => "get_zcopy",
        }
    }

    /// The capability it needs.
    pub fn capability(self) -> Capabilities {
        match self {
            Operation::AmShort => Capabilities::AM_SHORT,
            Operation::AmBcopy => Capabilities::AM_BCOPY,
            Operation::AmZcopy => Capabilities::AM_ZCOPY,
            Operation::PutShort => Capabilities::PUT_SHORT,
            Operation::PutBcopy => Capabilities::PUT_BCOPY,
            Operation::PutZcopy => Capabilities::PUT_ZCOPY,
            Operation::GetShort => Capabilities::GET_SHORT,
            Operation::GetBcopy => Capabilities::GET_BCOPY,
            Operation::GetZcopy => Capabilities::GET_ZCOPY,
        }
    }

    /// Whether data come back to the initiator.
    pub fn is_get(self) -> bool {
        matches!(self, Operation::GetShort | Operation::GetBcopy | Operation::GetZcopy)
    }

    /// Whether a handler of the peer receives the data.
    pub fn is_message(self) -> bool {
        matches!(self, Operation::AmShort | Operation::AmBcopy | Operation::AmZcopy)
    }

    /// The largest size that an interface takes at once, in bytes.
    pub fn limit(self, attr: &IfaceAttr) -> usize {
        match self {
            Operation::AmShort => attr.am.max_short,
            Operation::AmBcopy => attr.am.max_bcopy,
            Operation::AmZcopy => attr.am.max_zcopy,
            Operation::PutShort => attr.put.max_short,
            Operation::PutBcopy => attr.put.max_bcopy,
            Operation::PutZcopy => attr.put.max_zcopy,
            Operation::GetShort => attr.get.max_short,
            Operation::GetBcopy => attr.get.max_bcopy,
            Operation::GetZcopy => attr.get.max_zcopy,
        }
    }

    /// The smallest size that an interface takes, in bytes.
    pub fn minimum(self, attr: &IfaceAttr) -> usize {
        let limits: &OpLimits = match self {
            Operation::AmZcopy => &attr.am,
            Operation::PutZcopy => &attr.put,
            Operation::GetZcopy => &attr.get,
            _ => return 0,
        };
        limits.min_zcopy
    }
}

impl Request {
    /// A request for an operation of `size` bytes.
    pub fn new(operation: Operation, size: usize) -> Request {
        Request { operation, size, header: 0, key: KeyUse::Kept, capabilities: Capabilities::empty() }
    }

    /// The same with a header of so many bytes.
    #[must_use]
    pub fn with_header(self, header: usize) -> Request {
        Request { header, ..self }
    }

    /// The same with keys that are kept, unpacked for each operation, or to new memory each time.
    #[must_use]
    pub fn with_key(self, key: KeyUse) -> Request {
        Request { key, ..self }
    }

    /// What becomes of the key, if the operation has one.
    pub(super) fn counted_key(&self) -> KeyUse {
        match self.operation {
            Operation::AmShort | Operation::AmBcopy | Operation::AmZcopy => KeyUse::Kept,
            _ => self.key,
        }
    }

    /// The header that counts against the limits of an interface.
    pub(super) fn counted_header(&self) -> usize {
        match self.operation {
            Operation::AmBcopy | Operation::AmZcopy => self.header,
            _ => 0,
        }
    }
}

impl std::str::FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Operation, String> {
        Operation::ALL.into_iter().find(|operation| operation.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
            format!("no operation {text:?}; expected one of {}", names.join(", "))
        })
    }
}

impl std::str::FromStr for KeyUse {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyUse, String> {
        let found = KeyUse::ALL.into_iter().find(|key| key.name() == text);
        found.ok_or_else(|| format!("no use of a key {text:?}; expected one of kept, unpacked, new"))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.operation.name(), self.size)?;
        match (self.counted_header(), self.counted_key()) {
            (0, KeyUse::Kept) => Ok(()),
            (0, KeyUse::Unpacked) => f.write_str(" with a key that is unpacked for it"),
            (0, KeyUse::New) => f.write_str(" with a key that is unpacked for it, to memory that is new"),
            (header, _) => write!(f, " with a header of {header}"),
        }
    }
}

fn names<S: Serializer>(capabilities: &Capabilities, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(capabilities.iter_names().map(|(name, _)| name.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_one_name_in_text_and_in_files() {
        for operation in Operation::ALL {
            assert_eq!(serde_json::to_value(operation).expect("a text"), operation.name());
        }
    }

    #[test]
    fn the_use_of_a_key_has_one_name_and_counts_for_puts_and_gets() {
        for key in KeyUse::ALL {
            assert_eq!(serde_json::to_value(key).expect("a text"), key.name());
            assert_eq!(key.name().parse(), Ok(key));
            for operation in Operation::ALL {
                let counted = Request::new(operation, 8).with_key(key).counted_key();
                let expected = if operation.name().starts_with("am") { KeyUse::Kept } else { key };
                assert_eq!(counted, expected, "{}", operation.name());
            }
        }
        assert!("keep".parse::<KeyUse>().is_err());
        let request = Request::new(Operation::GetShort, 8).with_key(KeyUse::New);
        assert!(request.to_string().ends_with("to memory that is new"), "{request}");
    }

    #[test]
    fn a_key_costs_what_its_use_takes() {
        let attr =
            MdAttr { rkey_cost: 3.0, rkey_map_cost: 5.0, rkey_map_growth: 0.25, ..crate::attr::blank_md() };
        let seconds = KeyUse::ALL.map(|key| key.seconds(&attr, 8));
        assert_eq!(seconds, [0.0, 3.0, 10.0]);
        let none = MdAttr { rkey_cost: f64::NAN, ..attr };
        assert_eq!(KeyUse::New.seconds(&none, 8), 0.0);
    }

    #[test]
    fn an_operation_is_read_by_its_name_and_by_nothing_else() {
        for operation in Operation::ALL {
            assert_eq!(operation.name().parse(), Ok(operation));
        }
        let refused = "am_shor".parse::<Operation>().expect_err("there is none of that name");
        let names =
            "am_short, am_bcopy, am_zcopy, put_short, put_bcopy, put_zcopy, get_short, get_bcopy, get_zcopy";
        assert_eq!(refused, format!("no operation \"am_shor\"; expected one of {names}"));
    }
}
