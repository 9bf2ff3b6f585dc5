//! The functions of `uct.h`, which documents them. Handles are numbers here, and never followed.

#![expect(unsafe_code, reason = "C calls these functions by their names, and passes pointers")]
#![allow(clippy::missing_safety_doc, reason = "uct.h says what callers promise")]

mod connections;
mod memory;
mod messages;
mod nets;
mod options;
mod texts;
mod transfers;

pub use connections::*;
pub use memory::*;
pub use messages::*;
pub use nets::*;
pub use options::*;
pub use texts::*;
pub use transfers::*;
