//! What a transport is wanted for.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::attr::{Capabilities, IfaceAttr, OpLimits};

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

/// An operation of some size, and what else the interface has to be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// Bytes of one operation; for [`Operation::AmShort`] without the 8-byte header.
    pub size: usize,
    /// Bytes of header that a message of [`Operation::AmBcopy`] or [`Operation::AmZcopy`] has in addition. Other operations have none.
    pub header: usize,
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
        Request { operation, size, header: 0, capabilities: Capabilities::empty() }
    }

    /// The same with a header of so many bytes.
    #[must_use]
    pub fn with_header(self, header: usize) -> Request {
        Request { header, ..self }
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

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.operation.name(), self.size)?;
        match self.counted_header() {
            0 => Ok(()),
            header => write!(f, " with a header of {header}"),
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
