//! The errors of the control path.

#![forbid(unsafe_code)]

use std::fmt;

use ucs::config::{Config, ConfigError};
use ucs::{Error, Status};

/// Why a context could not be made.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// A file, a variable or the program set something that is not accepted.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A list has an entry that means nothing.
    #[error("{key} = {value}: {entry:?} is not known; expected {expected}")]
    Entry {
        /// The key.
        key: &'static str,
        /// Its value and where that came from.
        value: String,
        /// The entry.
        entry: String,
        /// What is known.
        expected: &'static str,
    },
    /// A plugin's keys clash with another's.
    #[error("configuration keys of a plugin clash: {0}")]
    Schema(#[from] ucs::config::SchemaError),
}

ucs::debug_as_display!(ContextError);

impl ContextError {
    /// About one entry of the list that is the value of `key`.
    pub(crate) fn entry(
        config: &Config,
        key: &'static str,
        entry: String,
        expected: &'static str,
    ) -> ContextError {
        ContextError::Entry { key, value: with_origin(config, key), entry, expected }
    }
}

/// The value of a key, and where it came from.
fn with_origin(config: &Config, key: &str) -> String {
    config.value("", key).map_or_else(String::new, ToString::to_string)
}

/// Why an interface could not be opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No loaded transport has that name.
    #[error("no transport {given:?}; there is {}{}{}", list(.known), hint(.nearest), and(.because))]
    NoSuchTransport {
        /// The name asked for.
        given: String,
        /// Those there are.
        known: Vec<String>,
        /// The nearest of them.
        nearest: Option<String>,
        /// Why a plugin of that name is not there, where that is known.
        because: Option<String>,
    },
    /// The transport has no device of that name.
    #[error("no device {given:?}{}; there is {}{}{}", of_transport(.transport), list(.known), hint(.nearest), and(.because))]
    NoSuchDevice {
        /// The transport; empty if any would do.
        transport: String,
        /// The name asked for.
        given: String,
        /// Those there are.
        known: Vec<String>,
        /// The nearest of them.
        nearest: Option<String>,
        /// Why there are none, where that is known.
        because: Option<String>,
    },
    /// No component of that name has a connection manager.
    #[error("no connection manager {given:?}; there is {}", list(.known))]
    NoSuchCm {
        /// The name asked for.
        given: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// The configuration excludes the transport or the device.
    #[error("{resource} is excluded by {key} = {value}")]
    Excluded {
        /// What was asked for.
        resource: String,
        /// The key that excludes it.
        key: &'static str,
        /// Its value and where that came from.
        value: String,
    },
    /// The transport refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The system refused.
    #[error("{what}: {error}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What came back.
        error: String,
    },
}

ucs::debug_as_display!(OpenError);

/// A transport's refusal: the operation, its object, the status, and the transport's reason.
#[derive(Clone, PartialEq, Eq)]
pub struct Refused {
    /// What was asked for: `open an interface`, `create an endpoint`.
    pub operation: &'static str,
    /// The object: `tcp/eth0`.
    pub subject: String,
    /// The status.
    pub status: Error,
    /// The reason; may be empty. Behind ` → `, what to do about it.
    pub reason: String,
}

ucs::debug_as_display!(Refused);

impl Refused {
    /// What to do about it, if the transport names something.
    pub fn remedy(&self) -> Option<&str> {
        split_remedy(&self.reason).1
    }

    /// The same without what to do about it.
    #[must_use]
    pub fn without_remedy(&self) -> Refused {
        Refused { reason: split_remedy(&self.reason).0.to_owned(), ..self.clone() }
    }
}

/// Parts a transport's text into the reason and what to do about it, which stands behind ` → `.
pub fn split_remedy(reason: &str) -> (&str, Option<&str>) {
    match reason.split_once(" → ") {
        Some((reason, remedy)) => (reason, Some(remedy)),
        None => (reason, None),
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: cannot {}: ", self.subject, self.operation)?;
        match split_remedy(&self.reason) {
            ("", _) => write!(f, "{}", self.status),
            (reason, None) => write!(f, "{reason} ({:?})", self.status),
            (reason, Some(remedy)) => write!(f, "{reason} ({:?}) → {remedy}", self.status),
        }
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        refused.status.status()
    }
}

fn of_transport(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" for transport {name}") }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

fn and(because: &Option<String>) -> String {
    because.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_split_from_what_to_do_about_it() {
        let refused = |reason: &str| Refused {
            operation: "list its devices",
            subject: "tcp".to_owned(),
            status: Error::NO_DEVICE,
            reason: reason.to_owned(),
        };
        let both = refused("lo is down → ip link set lo up");
        assert_eq!(
            both.to_string(),
            "tcp: cannot list its devices: lo is down (NO_DEVICE) → ip link set lo up"
        );
        assert_eq!(both.remedy(), Some("ip link set lo up"));
        assert_eq!(both.without_remedy(), refused("lo is down"));
        assert_eq!(refused("lo is down").remedy(), None);
        assert_eq!(refused("lo is down").to_string(), "tcp: cannot list its devices: lo is down (NO_DEVICE)");
    }
}
