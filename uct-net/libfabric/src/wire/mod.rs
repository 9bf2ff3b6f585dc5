//! What endpoints send each other: one frame is one message of a connection.
//!
//! Used by `engine`. A frame is untrusted: [`Frame::parse`] refuses what is malformed, and trusts no number in it.
//!
//! | offset | bytes | field, little endian |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 1 | flags |
//! | 2 | 2 | 0 |
//! | 4 | 4 | id: the operation that it belongs to, a number of the side that began it |
//! | 8 | | the fields of its kind, each of 8 bytes, then the payload |

mod build;
mod frame;
mod hello;
mod malformed;
mod offer;
#[cfg(test)]
mod tests;

pub use build::Head;
pub use frame::{Element, Envelope, Frame, MAX_BEGUN, MAX_HEAD, whole_message};
pub use hello::{Hello, NotHello};
pub use malformed::Malformed;
pub use offer::Offer;
