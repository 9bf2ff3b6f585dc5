//! Objects that one side knows by a pointer alone.

/// A worker; the host's own.
#[repr(C)]
pub struct UctWorker {
    _opaque: [u8; 0],
}

/// An interface as the host knows it; the host's own.
#[repr(C)]
pub struct UctHostIface {
    _opaque: [u8; 0],
}

/// A memory domain; the plugin's own.
#[repr(C)]
pub struct UctMd {
    _opaque: [u8; 0],
}

/// A registration; the plugin's own.
#[repr(C)]
pub struct UctMemh {
    _opaque: [u8; 0],
}

/// An unpacked remote key; the plugin's own, shareable by all endpoints of the memory domain.
#[repr(C)]
pub struct UctRkey {
    _opaque: [u8; 0],
}

/// An interface; the plugin's own.
#[repr(C)]
pub struct UctIface {
    _opaque: [u8; 0],
}

/// An endpoint; the plugin's own.
#[repr(C)]
pub struct UctEp {
    _opaque: [u8; 0],
}

/// A connection manager; the plugin's own.
#[repr(C)]
pub struct UctCm {
    _opaque: [u8; 0],
}

/// A listener of a connection manager; the plugin's own.
#[repr(C)]
pub struct UctCmListener {
    _opaque: [u8; 0],
}

/// A client's request to be accepted or rejected; the plugin's own.
#[repr(C)]
pub struct UctCmRequest {
    _opaque: [u8; 0],
}

/// An endpoint of a connection manager; the plugin's own.
#[repr(C)]
pub struct UctCmEp {
    _opaque: [u8; 0],
}
