//! A case: a sentence about transports, and the function that finds out whether it holds.
//!
//! For the files of `cases`, and the runner. Built on the capabilities of `uct-host`.

use uct_host::{AtomicOps, Capabilities, IfaceAttr};

use crate::remote::Peer;
use crate::setup::Setup;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// What holds, as a sentence.
    pub name: &'static str,
    /// What a transport must be able to do for the case to concern it.
    pub needs: Needs,
    /// How many warnings and errors are to be logged; any number with `None`.
    pub logs: Option<usize>,
    /// Panics unless it holds.
    pub run: fn(&Setup),
    /// What the other process does, in cases with two processes.
    pub peer: Option<fn(&Setup, &mut Peer)>,
}

/// What a case needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// All of these.
    pub all: Capabilities,
    /// At least one of these, unless there are none.
    pub any: Capabilities,
    /// An event descriptor.
    pub events: bool,
    /// Any atomics.
    pub atomics: bool,
    /// A peer in another process.
    pub other_process: bool,
    /// An interface that reaches other interfaces of its process, not itself alone.
    pub two_ifaces: bool,
}

impl Needs {
    /// Nothing.
    pub const NOTHING: Needs = Needs {
        all: Capabilities::empty(),
        any: Capabilities::empty(),
        events: false,
        atomics: false,
        other_process: false,
        two_ifaces: false,
    };

    /// All of the capabilities.
    pub const fn all(capabilities: Capabilities) -> Needs {
        Needs { all: capabilities, ..Needs::NOTHING }
    }

    /// One of the capabilities.
    pub const fn any(capabilities: Capabilities) -> Needs {
        Needs { any: capabilities, ..Needs::NOTHING }
    }

    /// And an event descriptor.
    pub const fn and_events(self) -> Needs {
        Needs { events: true, ..self }
    }

    /// And atomics.
    pub const fn and_atomics(self) -> Needs {
        Needs { atomics: true, ..self }
    }

    /// And a peer in another process.
    pub const fn and_other_process(self) -> Needs {
        Needs { other_process: true, ..self }
    }

    /// And more than one interface in a process.
    pub const fn and_two_ifaces(self) -> Needs {
        Needs { two_ifaces: true, ..self }
    }

    /// What is missing, as text.
    pub(crate) fn missing(&self, able: &Able) -> Option<String> {
        let attributes = &able.attributes;
        let has = Capabilities::from_bits_retain(attributes.capabilities);
        let none = |ops: &AtomicOps| ops.post == 0 && ops.fetch == 0;
        if !has.contains(self.all) {
            return Some(format!("it has no {}", names(self.all - has)));
        }
        if !self.any.is_empty() && !has.intersects(self.any) {
            return Some(format!("it has none of {}", names(self.any)));
        }
        if self.events && attributes.events == 0 {
            return Some("it has no event descriptor".to_owned());
        }
        if self.atomics && none(&attributes.atomic32) && none(&attributes.atomic64) {
            return Some("it has no atomics".to_owned());
        }
        if self.other_process && able.own_process_only {
            return Some("it connects a process with itself only".to_owned());
        }
        if self.two_ifaces && able.own_iface_only {
            return Some("it connects an interface with itself only".to_owned());
        }
        None
    }
}

/// What a transport on a device is able to do.
#[derive(Clone)]
pub(crate) struct Able {
    pub(crate) attributes: IfaceAttr,
    pub(crate) own_process_only: bool,
    pub(crate) own_iface_only: bool,
}

fn names(capabilities: Capabilities) -> String {
    capabilities.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}
