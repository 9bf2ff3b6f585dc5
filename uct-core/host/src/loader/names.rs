//! Names that a user chooses by must mean one thing.
//!
//! Used by [`load`](super::load), between plugins, and [`handshake`](super::handshake), within one. No dependencies.

#![forbid(unsafe_code)]

use super::{Component, failure::LoadFailureKind};

/// No component and no transport of `new` has the name of one of `old`.
pub(super) fn check_disjoint(
    new: &[Component],
    old: &[Component],
    taken_by: impl Fn() -> String,
) -> Result<(), LoadFailureKind> {
    let duplicate = |what, name: &String| {
        Err(LoadFailureKind::DuplicateName { what, name: name.clone(), taken_by: taken_by() })
    };
    for component in new {
        if old.iter().any(|old| old.name == component.name) {
            return duplicate("component", &component.name);
        }
        for transport in &component.transports {
            let mut transports = old.iter().flat_map(|old| &old.transports);
            if transports.any(|old| old.name == transport.name) {
                return duplicate("transport", &transport.name);
            }
        }
    }
    Ok(())
}

/// No component, and no transport, of a plugin has the name of another of the same plugin.
pub(super) fn check_distinct(components: &[Component]) -> Result<(), LoadFailureKind> {
    let taken_by = || "the same plugin".to_owned();
    for (index, component) in components.iter().enumerate() {
        check_disjoint(std::slice::from_ref(component), &components[..index], taken_by)?;
        for (index, transport) in component.transports.iter().enumerate() {
            if component.transports[..index].iter().any(|earlier| earlier.name == transport.name) {
                let name = transport.name.clone();
                return Err(LoadFailureKind::DuplicateName { what: "transport", name, taken_by: taken_by() });
            }
        }
    }
    Ok(())
}
