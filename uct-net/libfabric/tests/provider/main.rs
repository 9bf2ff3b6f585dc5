//! The provider as libfabric calls it: through `fi_prov_ini` and the tables behind it, without libfabric.

mod addresses;
mod bad_input;
mod closing;
mod forking;
mod found;
mod hints;
mod layout;
mod memory;
mod messages;
mod session;
mod waiting;

#[path = "../../../../ucs/testing/alone.rs"]
mod alone;
#[path = "../../../../ucs/testing/skip.rs"]
mod skip;
