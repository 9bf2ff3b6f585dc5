//! The status numbers, as C sees them. `ucs::Status` gives them names and words.

/// What a slot returns: zero is success, positive is "going on", negative is an error.
pub type UctStatus = i32;

/// Success.
pub const UCT_OK: UctStatus = 0;
/// Started; a completion reports the end.
pub const UCT_INPROGRESS: UctStatus = 1;
/// No message is waiting.
pub const UCT_ERR_NO_MESSAGE: UctStatus = -1;
/// Nothing was started for want of a resource; retry, or queue with `pending_add`.
pub const UCT_ERR_NO_RESOURCE: UctStatus = -2;
/// Input or output failed.
pub const UCT_ERR_IO_ERROR: UctStatus = -3;
/// Out of memory.
pub const UCT_ERR_NO_MEMORY: UctStatus = -4;
/// A parameter is wrong.
pub const UCT_ERR_INVALID_PARAM: UctStatus = -5;
/// The peer cannot be reached.
pub const UCT_ERR_UNREACHABLE: UctStatus = -6;
/// The address is not valid.
pub const UCT_ERR_INVALID_ADDR: UctStatus = -7;
/// The function is not written.
pub const UCT_ERR_NOT_IMPLEMENTED: UctStatus = -8;
/// The message is longer than the place for it.
pub const UCT_ERR_MESSAGE_TRUNCATED: UctStatus = -9;
/// Nothing moved.
pub const UCT_ERR_NO_PROGRESS: UctStatus = -10;
/// The buffer is too small.
pub const UCT_ERR_BUFFER_TOO_SMALL: UctStatus = -11;
/// There is no such element.
pub const UCT_ERR_NO_ELEM: UctStatus = -12;
/// Some of several connections failed.
pub const UCT_ERR_SOME_CONNECTS_FAILED: UctStatus = -13;
/// There is no such device.
pub const UCT_ERR_NO_DEVICE: UctStatus = -14;
/// Busy: for `pending_add` "resources are there, retry now", for `event_arm` "events are unprocessed".
pub const UCT_ERR_BUSY: UctStatus = -15;
/// The operation was cancelled.
pub const UCT_ERR_CANCELED: UctStatus = -16;
/// A shared memory segment failed.
pub const UCT_ERR_SHMEM_SEGMENT: UctStatus = -17;
/// It exists already.
pub const UCT_ERR_ALREADY_EXISTS: UctStatus = -18;
/// An index or address is out of range.
pub const UCT_ERR_OUT_OF_RANGE: UctStatus = -19;
/// It took too long.
pub const UCT_ERR_TIMED_OUT: UctStatus = -20;
/// A limit that the user set was reached.
pub const UCT_ERR_EXCEEDS_LIMIT: UctStatus = -21;
/// The transport does not do this.
pub const UCT_ERR_UNSUPPORTED: UctStatus = -22;
/// The peer refused.
pub const UCT_ERR_REJECTED: UctStatus = -23;
/// The endpoint is not connected.
pub const UCT_ERR_NOT_CONNECTED: UctStatus = -24;
/// The peer closed or reset the connection.
pub const UCT_ERR_CONNECTION_RESET: UctStatus = -25;
/// The peer did not respond within the endpoint's time limit.
pub const UCT_ERR_ENDPOINT_TIMEOUT: UctStatus = -80;
