//! Random operations from one device to another: the device in software, the kernel's rdma_rxe where one is named, and both. How each request
//! ends and what memory holds then is what the specification says, whichever devices they are.

mod end;
mod kernel;
mod plan;
mod session;
mod software;

#[path = "../../../../ucs/testing/seed.rs"]
mod seed;
#[path = "../../../../ucs/testing/skip.rs"]
mod skip;
