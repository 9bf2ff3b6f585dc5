//! The device in software alone, in any environment.

use uct_ib::device::open;
use uct_ib::verbs;

use crate::end::End;
use crate::plan::Abilities;
use crate::seed;
use crate::session::Way;

/// What this device can do.
pub const ALL: Abilities =
    Abilities { atomics: true, odd_atomics: true, fences: true, local_mistakes: true, mistakes: true };

/// The name of the device in software.
pub fn name() -> String {
    std::env::var("SOFTVERBS_NAME").unwrap_or_else(|_| "soft0".to_owned())
}

#[test]
fn operations_between_devices_in_software_end_as_the_specification_says() {
    let [sender, peer] = [(); 2].map(|()| {
        let verbs = verbs::load(verbs::SOFTWARE).expect("it is linked in");
        End::new(open(verbs, &name()).expect("a device"), None)
    });
    let way = Way {
        name: "software to software",
        sender: &sender,
        peer: &peer,
        timeout: 17,
        can: ALL,
        deviate: |_, _| {},
    };
    way.sessions(seed::printed(), 400);
}
