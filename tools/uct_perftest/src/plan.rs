//! What the two sides exchange: the client's plan, memory for remote access, the server's figures.
//!
//! Whatever comes from the peer is checked before it is used.

use serde::{Deserialize, Serialize};
use uct_core::{Capabilities, Iface};
use uct_tools_common::Failure;

use crate::kind::{Class, Layout, Test, Wait};
use crate::sizes::{LARGEST, shown};

/// Bytes of header of an active message.
pub(crate) const HEADER: usize = size_of::<u64>();

/// What is to be measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub test: Test,
    pub wait: Wait,
    /// Messages that the sender may be ahead; 0 is without limit.
    pub window: u32,
    /// Operations that may be outstanding.
    pub outstanding: u32,
    pub cases: Vec<Case>,
}

/// One size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    pub size: usize,
    pub layout: Layout,
    pub iterations: u64,
    pub warmup: u64,
}

/// Memory that the peer may access.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RemoteMemory {
    pub address: u64,
    pub key: Vec<u8>,
}

/// The server's figures of a case.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerReport {
    /// Processor time of the measured part, in nanoseconds.
    pub cpu_ns: u64,
    /// Messages of a wrong length.
    pub wrong: u64,
}

impl Plan {
    /// Bytes of the largest message.
    pub(crate) fn largest(&self) -> usize {
        self.cases.iter().map(|case| case.size).max().unwrap_or(0)
    }

    /// Whether this side can do its part.
    pub(crate) fn check(&self, iface: &Iface) -> Result<(), Failure> {
        if self.cases.is_empty() || self.window == 1 || self.outstanding == 0 || self.outstanding > 65536 {
            return Err(
                "the client's plan is invalid: use the same version of uct_perftest on both sides".into()
            );
        }
        if self.wait != Wait::Poll && iface.event_fd().is_err() {
            let (mode, resource) = (self.wait.name(), iface.resource());
            return Err(format!("-E {mode}: {resource} has no events to sleep on; use -E poll").into());
        }
        let sizes: Vec<usize> = self.cases.iter().map(|case| case.size).collect();
        if !self.test.has_atomics(iface.attributes(), &sizes) {
            return Err(
                format!("{} does not have the atomic of {}", iface.resource(), self.test.name()).into()
            );
        }
        self.cases.iter().try_for_each(|case| case.check(self.test, iface))
    }
}

impl Case {
    fn check(&self, test: Test, iface: &Iface) -> Result<(), Failure> {
        if let Err(expected) = test.check_size(self.size) {
            return Err(format!("{} of {} bytes: expected {expected}", test.name(), self.size).into());
        }
        if self.size > LARGEST {
            return Err(format!("{} bytes are more than {} in one message", self.size, shown(LARGEST)).into());
        }
        fits(test, self.layout, self.size, iface).map_err(Failure::from)
    }
}

/// Whether an interface takes a size with a layout; if not, why.
pub(crate) fn fits(test: Test, layout: Layout, size: usize, iface: &Iface) -> Result<(), String> {
    let (attr, resource) = (iface.attributes(), iface.resource());
    let test_is_net = test.class().is_net();
    if test_is_net != (layout == Layout::Auto) {
        let who = if test_is_net { "uct-net chooses" } else { "the client chooses" };
        return Err(format!("-D {}: {who} the layout of {}", layout.name(), test.name()));
    }
    if test_is_net {
        return Ok(());
    }
    if matches!(test.class(), Class::Post | Class::Fetch(_)) {
        return Ok(());
    }
    let operation = test.operation(layout);
    let name = operation.name();
    if !iface.capabilities().contains(operation.capability()) {
        return Err(format!("{resource} has no {name}"));
    }
    let (least, most) = (operation.minimum(attr), most(test, layout, iface));
    if size > most {
        let advice = "choose a smaller -s, another -D, or leave -D out";
        return Err(format!(
            "{size} bytes are more than the {most} that {name} of {resource} takes; {advice}"
        ));
    }
    if size < least {
        let advice = "choose a larger -s, another -D, or leave -D out";
        return Err(format!(
            "{size} bytes are fewer than the {least} that {name} of {resource} takes; {advice}"
        ));
    }
    if test.class() == Class::Am && layout == Layout::Zcopy && attr.am.max_hdr < HEADER {
        return Err(format!("am_zcopy of {resource} has no room for a header of {HEADER} bytes"));
    }
    Ok(())
}

/// Bytes of the largest message that a layout takes. The limit of am_short does not contain the header.
fn most(test: Test, layout: Layout, iface: &Iface) -> usize {
    let extra = header(test, layout);
    test.operation(layout).limit(iface.attributes()).saturating_sub(extra)
}

/// Bytes of header within the limit of a layout.
pub(crate) fn header(test: Test, layout: Layout) -> usize {
    if test.class() == Class::Am && layout != Layout::Short { HEADER } else { 0 }
}

/// The first layout in which an interface takes a size; if none does, why the one with the largest limit does not.
pub(crate) fn layout(
    test: Test,
    wanted: Option<Layout>,
    size: usize,
    iface: &Iface,
) -> Result<Layout, String> {
    if let Some(layout) = wanted {
        return fits(test, layout, size, iface).map(|()| layout);
    }
    if test.class().is_net() {
        return Ok(Layout::Auto);
    }
    if let Some(layout) = Layout::ALL.into_iter().find(|&layout| fits(test, layout, size, iface).is_ok()) {
        return Ok(layout);
    }
    let able = |layout: &Layout| iface.capabilities().contains(test.operation(*layout).capability());
    let layouts = Layout::ALL.into_iter().filter(able);
    let largest = layouts.max_by_key(|&layout| most(test, layout, iface)).unwrap_or(Layout::Short);
    fits(test, largest, size, iface).map(|()| largest)
}

/// Whether an interface has what the control messages of a test need.
pub(crate) fn has_control(iface: &Iface) -> bool {
    iface.capabilities().intersects(Capabilities::AM_SHORT | Capabilities::AM_BCOPY)
}
