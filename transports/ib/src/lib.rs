//! transports/ib
