//! The reason of a refusal: a buffer for a plugin's text, and the error made of it.

#![forbid(unsafe_code)]

use std::pin::Pin;

use ucs::Status;
use uct_abi::{UctStatus, UctText};

use crate::error::Refused;

const CAPACITY: usize = 1024;

/// A buffer for a plugin's reason.
pub(crate) struct Reason {
    buffer: Pin<Box<[u8; CAPACITY]>>,
    text: UctText,
}

impl Reason {
    pub(crate) fn new() -> Reason {
        let mut buffer = Box::pin([0; CAPACITY]);
        let text = UctText { data: buffer.as_mut_ptr(), capacity: CAPACITY, length: 0 };
        Reason { buffer, text }
    }

    /// For the call; valid as long as the reason is.
    pub(crate) fn as_mut(&mut self) -> *mut UctText {
        &raw mut self.text
    }

    /// What was written, on one line.
    pub(crate) fn words(&self) -> String {
        let length = self.text.length.min(CAPACITY);
        String::from_utf8_lossy(&self.buffer[..length]).trim().replace(|c: char| c.is_control(), " ")
    }

    /// The error of a call that was refused.
    pub(crate) fn check(
        self,
        status: UctStatus,
        operation: &'static str,
        subject: impl FnOnce() -> String,
    ) -> Result<(), Refused> {
        Status::from_raw(status).into_result().map_err(|error| Refused {
            operation,
            subject: subject(),
            status: error,
            reason: self.words(),
        })
    }
}
