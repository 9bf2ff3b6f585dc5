//! Connections to peers. Built on `proto` and `io`.

pub(crate) mod blocked;
pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod door;
pub(crate) mod emulation;
pub(crate) mod handshake;
pub(crate) mod limits;
pub(crate) mod member;
pub(crate) mod pair_layout;
pub(crate) mod peer;
pub(crate) mod place;
pub(crate) mod receive;
pub(crate) mod remote;
pub(crate) mod ring_pair;
pub(crate) mod table;
pub(crate) mod work;
