//! Human-readable names of statuses, events and node types.

use std::ffi::{CStr, c_char, c_int};

/// Of the statuses of completions, from 0 on.
const STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local queue pair operation error",
    c"local end-to-end context operation error",
    c"local protection error",
    c"work request flushed",
    c"memory window bind error",
    c"bad response",
    c"local access error",
    c"remote invalid request",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"receiver-not-ready retry counter exceeded",
    c"local reliable datagram domain violation",
    c"remote invalid reliable datagram request",
    c"remote aborted",
    c"invalid end-to-end context number",
    c"invalid end-to-end context state",
    c"fatal error",
    c"response timeout",
    c"general error",
    c"tag matching error",
    c"tag matching rendezvous incomplete",
];

/// Of asynchronous events, from 0 on.
const EVENTS: &[&CStr] = &[
    c"completion queue error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"subnet manager change",
    c"shared receive queue catastrophic error",
    c"shared receive queue limit reached",
    c"last work request reached",
    c"client reregistration",
    c"GID table change",
    c"work queue fatal error",
];

/// Of node types, from 1 on.
const NODES: &[&CStr] = &[
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// Of the states of a port, from 0 on.
const PORTS: &[&CStr] = &[c"no state", c"down", c"init", c"armed", c"active", c"active defer"];

fn word(words: &'static [&'static CStr], index: Option<c_int>) -> *const c_char {
    let index = index.and_then(|index| usize::try_from(index).ok());
    index.and_then(|index| words.get(index)).copied().unwrap_or(c"unknown").as_ptr()
}

/// See `ibv_wc_status_str(3)`.
pub extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    word(STATUSES, Some(status))
}

/// See `ibv_event_type_str(3)`.
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    word(EVENTS, Some(event))
}

/// See `ibv_node_type_str(3)`.
pub extern "C" fn ibv_node_type_str(node: c_int) -> *const c_char {
    word(NODES, node.checked_sub(1))
}

/// See `ibv_port_state_str(3)`.
pub extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    word(PORTS, Some(state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uct_ib_abi::*;

    #[test]
    fn numbers_have_their_names_and_others_are_unknown() {
        // SAFETY: all are texts of this file.
        let text = |word: *const c_char| unsafe { CStr::from_ptr(word) }.to_str().expect("ASCII");
        assert_eq!(text(ibv_wc_status_str(IBV_WC_SUCCESS)), "success");
        assert_eq!(text(ibv_wc_status_str(IBV_WC_GENERAL_ERR)), "general error");
        assert_eq!(text(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE)), "tag matching rendezvous incomplete");
        assert_eq!(text(ibv_event_type_str(IBV_EVENT_WQ_FATAL)), "work queue fatal error");
        assert_eq!(text(ibv_event_type_str(IBV_EVENT_SRQ_ERR)), "shared receive queue catastrophic error");
        assert_eq!(text(ibv_node_type_str(IBV_NODE_CA)), "InfiniBand channel adapter");
        assert_eq!(text(ibv_node_type_str(IBV_NODE_UNSPECIFIED)), "unspecified");
        assert_eq!(text(ibv_port_state_str(IBV_PORT_ACTIVE)), "active");
        for word in [
            ibv_wc_status_str(-1),
            ibv_wc_status_str(24),
            ibv_event_type_str(20),
            ibv_node_type_str(IBV_NODE_UNKNOWN),
            ibv_node_type_str(0),
            ibv_node_type_str(c_int::MIN),
            ibv_port_state_str(6),
        ] {
            assert_eq!(text(word), "unknown");
        }
    }
}
