//! How a work request ended, as text and as a status.
//!
//! For error reports of the verbs transports. Built on `ucs::Status`.

use std::fmt;

use ucs::Status;

/// Status of a work completion. Open: a provider may know numbers that have no name here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WcStatus(pub(crate) i32);

impl WcStatus {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// The queue pair is in error, and this request was never executed.
    pub const FLUSHED: Self = Self(5);
    /// The peer did not answer.
    pub const RETRY_EXCEEDED: Self = Self(12);
    /// The peer had no receive buffer.
    pub const RNR_RETRY_EXCEEDED: Self = Self(13);

    /// The status of this number.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// The verbs' number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The verbs' name, without `IBV_WC_`.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// What happened, and what usually causes it.
    pub const fn text(self) -> &'static str {
        self.row().1
    }

    /// The status that an endpoint fails with.
    pub const fn status(self) -> Status {
        match self.0 {
            0 => Status::OK,
            // Flushed: executed never, because of an earlier error or a cancel.
            5 => Status::CANCELED,
            // Retries exhausted: the peer is gone, or its link is.
            12 | 13 | 20 => Status::ENDPOINT_TIMEOUT,
            // The peer refused the access or the request.
            9 | 10 | 15 => Status::REJECTED,
            11 | 16 => Status::CONNECTION_RESET,
            1 => Status::MESSAGE_TRUNCATED,
            4 | 8 => Status::INVALID_PARAM,
            _ => Status::IO_ERROR,
        }
    }

    const fn row(self) -> (&'static str, &'static str) {
        match self.0 {
            0 => ("SUCCESS", "success"),
            1 => ("LOC_LEN_ERR", "the message is longer than the receive buffer or the port allows"),
            2 => ("LOC_QP_OP_ERR", "the queue pair could not execute the request, which is malformed"),
            3 => ("LOC_EEC_OP_ERR", "the end-to-end context could not execute the request"),
            4 => ("LOC_PROT_ERR", "local memory is not registered for what the request does with it"),
            5 => ("WR_FLUSH_ERR", "never executed, because the queue pair is in error"),
            6 => ("MW_BIND_ERR", "a memory window could not be bound"),
            7 => ("BAD_RESP_ERR", "the peer sent an invalid response"),
            8 => ("LOC_ACCESS_ERR", "local memory may not be written by this request"),
            9 => ("REM_INV_REQ_ERR", "the peer rejected an invalid request, or its buffer is too small"),
            10 => ("REM_ACCESS_ERR", "the peer forbids the access: wrong remote key, address or permission"),
            11 => ("REM_OP_ERR", "the peer could not execute the request"),
            12 => ("RETRY_EXC_ERR", "the peer does not respond: its process has ended, or the link is down"),
            13 => ("RNR_RETRY_EXC_ERR", "the peer had no receive buffer after all retries"),
            14 => ("LOC_RDD_VIOL_ERR", "the reliable datagram domains differ"),
            15 => ("REM_INV_RD_REQ_ERR", "the peer rejected the read request as invalid"),
            16 => ("REM_ABORT_ERR", "the peer aborted the request"),
            17 => ("INV_EECN_ERR", "no such end-to-end context"),
            18 => ("INV_EEC_STATE_ERR", "the end-to-end context is in the wrong state"),
            19 => ("FATAL_ERR", "the device failed"),
            20 => ("RESP_TIMEOUT_ERR", "the response did not arrive in time"),
            21 => ("GENERAL_ERR", "another error of the transport"),
            22 => ("TM_ERR", "tag matching failed"),
            23 => ("TM_RNDV_INCOMPLETE", "software must complete the rendezvous of the tag matching"),
            _ => ("UNKNOWN", "a work completion status without a name"),
        }
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.text(), self.name(), self.0)
    }
}

impl fmt::Debug for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WcStatus({}, {})", self.0, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uct_ib_abi::*;

    #[test]
    fn only_success_maps_to_ok() {
        for number in -1..64 {
            let status = WcStatus::from_raw(number);
            assert_eq!(status.status() == Status::OK, number == 0, "{status}");
            assert!(number == 0 || status.status().is_error(), "{status}");
        }
    }

    #[test]
    fn a_dead_peer_is_an_endpoint_timeout() {
        assert_eq!(WcStatus::RETRY_EXCEEDED.status(), Status::ENDPOINT_TIMEOUT);
        assert!(WcStatus::RETRY_EXCEEDED.to_string().contains("RETRY_EXC_ERR"));
    }

    #[test]
    fn the_names_are_those_of_the_verbs() {
        macro_rules! check {
            ($($name:ident)*) => {
                $( assert_eq!(format!("IBV_WC_{}", WcStatus::from_raw($name).name()), stringify!($name)); )*
            };
        }
        check! {
            IBV_WC_SUCCESS IBV_WC_LOC_LEN_ERR IBV_WC_LOC_QP_OP_ERR IBV_WC_LOC_EEC_OP_ERR IBV_WC_LOC_PROT_ERR
            IBV_WC_WR_FLUSH_ERR IBV_WC_MW_BIND_ERR IBV_WC_BAD_RESP_ERR IBV_WC_LOC_ACCESS_ERR IBV_WC_REM_INV_REQ_ERR
            IBV_WC_REM_ACCESS_ERR IBV_WC_REM_OP_ERR IBV_WC_RETRY_EXC_ERR IBV_WC_RNR_RETRY_EXC_ERR
            IBV_WC_LOC_RDD_VIOL_ERR IBV_WC_REM_INV_RD_REQ_ERR IBV_WC_REM_ABORT_ERR IBV_WC_INV_EECN_ERR
            IBV_WC_INV_EEC_STATE_ERR IBV_WC_FATAL_ERR IBV_WC_RESP_TIMEOUT_ERR IBV_WC_GENERAL_ERR IBV_WC_TM_ERR
            IBV_WC_TM_RNDV_INCOMPLETE
        }
    }
}
