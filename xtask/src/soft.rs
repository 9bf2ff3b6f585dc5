//! The device in software, for tests of the verbs transports.
//!
//! For `test` and `try`.

use std::process::Command;

/// Has a run of the suite find the device, with one transport over it, loaded as a plugin.
///
/// Settings of `ud_verbs` give a receiver as many buffers as senders may fill at once: this device delivers within the call that
/// sends, datagrams without a buffer are lost, and the times that cases expect are not those of a network that loses packets. `rc_verbs` has fewer
/// than by default, since its pool grows for longer than the case that watches the memory takes, and waits longer, since an
/// acknowledgement may be late where the machine is busy: after 1, 2, and then 4 times the timeout, 7 s in all.
pub fn offer<'a>(suite: &'a mut Command, transport: &str) -> &'a mut Command {
    let settings: &[(&str, &str)] = match transport {
        "rc_verbs" => &[
            ("UCT_RC_VERBS_TIMEOUT", "250ms"),
            ("UCT_RC_VERBS_PEER_TIMEOUT", "15s"),
            ("UCT_RC_VERBS_RX_QUEUE_LEN", "512"),
        ],
        "ud_verbs" => &[("UCT_UD_VERBS_RX_QUEUE_LEN", "16384")],
        _ => return suite,
    };
    suite.env("UCT_IB_LIBRARY", "soft").env("SOFTVERBS_NAME", "mlx5_0").env("UCT_TEST_DEVICES", "mlx5_0:1");
    suite.env("UCT_MODULES", transport).env("UCT_TEST_REQUIRE", transport).envs(settings.iter().copied())
}
