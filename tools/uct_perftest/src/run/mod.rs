//! The measuring loops.
//!
//! A [`Side`] is one end of the connection: [`driver`] moves the worker on and waits, [`record`] keeps the times,
//! and [`am`], [`rma`], [`atomic`] and [`net`] are the operations. Between two readings of the clock a loop does nothing but
//! the operations and the worker's progress.

mod am;
mod atomic;
mod buffer;
mod connect;
mod driver;
mod loops;
mod net;
mod record;
mod rma;
mod side;

pub(crate) use connect::{connect_alone, connect_pair};
pub(crate) use record::{Interim, Times};
pub(crate) use side::{Measured, Role, Side};
