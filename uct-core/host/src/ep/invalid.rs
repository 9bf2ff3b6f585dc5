//! Why an operation returned `INVALID_PARAM` or `UNSUPPORTED`, which contain no more: a line of debug for each.

#![forbid(unsafe_code)]

use std::ptr;

use ucs::Error;

use super::EpInner;
use super::am::MAX_IOV;
use crate::attr::OpLimits;
use crate::md::MemoryDomain;
use crate::stats::Counter;

impl EpInner {
    /// The transport returned it, for an operation of the class that `counter` counts. `bytes` is zero for a packed message.
    #[cold]
    pub(super) fn log_invalid(&self, counter: &Counter, bytes: usize) {
        let (name, limits) = self.class(counter);
        let limits = limits.map_or_else(String::new, listed);
        ucs::log::debug!(
            "{}: {name} of {bytes} bytes returned INVALID_PARAM: beyond a limit{limits}, an id, address or key that is not valid, or the \
             child of a fork",
            self.iface.resource()
        );
    }

    /// The transport returned it.
    #[cold]
    pub(super) fn log_unsupported(&self, counter: &Counter) {
        let (name, _) = self.class(counter);
        ucs::log::debug!(
            "{}: {name} returned UNSUPPORTED: the interface does not have this operation; Iface::capabilities and uct_info -d --matrix show \
             what it has, and a Request with the capability chooses an interface that has it",
            self.iface.resource()
        );
    }

    /// The class of operations that a counter is for, and its limits.
    fn class(&self, counter: &Counter) -> (&'static str, Option<&OpLimits>) {
        let (counters, attributes) = (&self.counters, self.iface.attributes());
        let classes = [
            ("am_short", &counters.am_short, Some(&attributes.am)),
            ("am_bcopy", &counters.am_bcopy, Some(&attributes.am)),
            ("am_zcopy", &counters.am_zcopy, Some(&attributes.am)),
            ("put", &counters.put, Some(&attributes.put)),
            ("get", &counters.get, Some(&attributes.get)),
        ];
        let class = classes.into_iter().find(|(_, of_class, _)| ptr::eq(*of_class, counter));
        class.map_or(("atomic", None), |(name, _, limits)| (name, limits))
    }

    /// More entries than any transport takes.
    #[cold]
    pub(super) fn too_many(&self, entries: usize) -> Error {
        ucs::log::debug!(
            "{}: INVALID_PARAM: a vector of {entries} entries; at most {MAX_IOV} are possible, and max_iov of the interface",
            self.iface.resource()
        );
        Error::INVALID_PARAM
    }

    /// Memory or a key of a domain that is not that of the interface.
    #[cold]
    pub(super) fn other_domain(&self, domain: &MemoryDomain) -> Error {
        // A context opens a domain once, so two of one name differ in the context, or in the process that opened them.
        let whose = match domain.name() == self.md.name() {
            true if domain.inner.is_parents() != self.md.inner.is_parents() => {
                " of another process of this fork"
            }
            true => " of another context",
            false => "",
        };
        ucs::log::debug!(
            "{}: INVALID_PARAM: memory or key belongs to the domain {}{whose}; register the memory, or unpack the key, with the domain of \
             this interface, {} (Iface::memory_domain)",
            self.iface.resource(),
            domain.name(),
            self.md.name()
        );
        Error::INVALID_PARAM
    }
}

/// The limits of a class, with the names of the attributes.
fn listed(limits: &OpLimits) -> String {
    let OpLimits { max_short, max_bcopy, min_zcopy, max_zcopy, max_hdr, max_iov, .. } = limits;
    format!(
        " (max_short {max_short}, max_bcopy {max_bcopy}, min_zcopy {min_zcopy}, max_zcopy {max_zcopy}, max_hdr {max_hdr}, max_iov \
         {max_iov})"
    )
}
