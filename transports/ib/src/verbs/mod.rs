//! The verbs objects, safe to own: device list, context, protection domain, memory, queues, queue pairs, address handles.
//!
//! For the rest of this crate and the verbs transports. Built on [`VerbsTable`] and the C ABI in `uct-ib-abi`.
//! All unsafe code of the crate is here. Every object holds its parents, so destruction is always in the right order.

mod ah;
mod async_event;
mod chunks;
mod comp_channel;
mod context;
mod cq;
mod device_list;
pub mod fork;
mod mr;
mod pd;
mod qp;
mod srq;
mod table;
mod work;

pub use ah::{AddressVector, Ah, GlobalRoute};
pub use async_event::AsyncEvent;
pub use chunks::{RegisteredChunks, lkey};
pub use comp_channel::CompChannel;
pub use context::{Context, GidAttributes, UsedGid};
pub use cq::{Cq, Wc, WcBuffer};
pub use device_list::{Device, DeviceList};
pub use mr::{Access, Mr, MrBuffer};
pub use pd::Pd;
pub use qp::{Qp, QpCaps, QpConfig, QpKind, QpState, RcConnect};
pub use srq::Srq;
pub use table::{SOFTWARE, Verbs, load, load_from};
pub use uct_ib_abi as abi;
pub use uct_ib_abi::VerbsTable;
pub use work::{InlineData, InlineWr, PostError, RecvSlot, SendFlags, SendWr, Sge};

/// The current thread's `errno`.
fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
