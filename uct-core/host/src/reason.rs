//! The reason of a refusal: a buffer for a plugin's text, and the error made of it.

#![forbid(unsafe_code)]

use std::ptr;

use ucs::Status;
use ucs::text::Visible;
use uct_abi::{UctStatus, UctText};

use crate::error::Refused;

const CAPACITY: usize = 1024;

/// A buffer for a plugin's reason.
pub(crate) struct Reason {
    buffer: [u8; CAPACITY],
    text: UctText,
}

impl Reason {
    pub(crate) fn new() -> Reason {
        let text = UctText { data: ptr::null_mut(), capacity: CAPACITY, length: 0 };
        Reason { buffer: [0; CAPACITY], text }
    }

    /// For the call; valid until the reason is moved or used again.
    pub(crate) fn as_mut(&mut self) -> *mut UctText {
        self.text.data = self.buffer.as_mut_ptr();
        &raw mut self.text
    }

    /// What was written, on one line.
    pub(crate) fn words(&self) -> String {
        let length = self.text.length.min(CAPACITY);
        Visible(String::from_utf8_lossy(&self.buffer[..length]).trim()).to_string()
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
