//! Programs of others over uct-net: the same traffic over a TCP socket of the system's and over streams of several transports; what
//! comes back is equal.

#[path = "../../../../ucs/testing/alone.rs"]
mod alone;
mod grpc;
mod http;
mod redis_server;
mod roads;
mod tls;
