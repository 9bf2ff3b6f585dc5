//! What a message says of itself, and which messages a receive accepts.

/// What is known of a message when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The peer that sent it, by the number that the engine has given that peer.
    pub source: u32,
    /// Its tag; 0 where messages have none.
    pub tag: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Data for the completion entry of its receive.
    pub data: Option<u64>,
}

/// Which messages a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The peer whose messages are accepted; `None` accepts those of any peer.
    pub source: Option<u32>,
    /// The expected tag.
    pub tag: u64,
    /// The bits of the tag that may differ.
    pub ignore: u64,
}

impl Filter {
    /// Accepts messages of any tag.
    pub fn untagged(source: Option<u32>) -> Filter {
        Filter { source, tag: 0, ignore: u64::MAX }
    }

    /// Whether the message is one of those.
    pub fn accepts(&self, envelope: &Envelope) -> bool {
        (self.tag ^ envelope.tag) & !self.ignore == 0
            && self.source.is_none_or(|source| source == envelope.source)
    }
}
