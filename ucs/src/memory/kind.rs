//! Where memory lives: in the host or in a device.
//!
//! Used by the API, which names the kind of each buffer from the first version on, so that a transport can refuse memory that
//! it cannot reach. No dependencies. The numbers are UCX's (`ucs_memory_type_t`).

use std::fmt;

/// The kind of memory a buffer is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[non_exhaustive]
pub enum MemoryKind {
    /// The host's memory.
    #[default]
    Host = 0,
    /// NVIDIA device memory.
    Cuda = 1,
    /// NVIDIA memory that moves between host and device.
    CudaManaged = 2,
    /// AMD device memory.
    Rocm = 3,
    /// AMD memory that moves between host and device.
    RocmManaged = 4,
    /// Memory on an RDMA device.
    Rdma = 5,
    /// Intel oneAPI host memory.
    ZeHost = 6,
    /// Intel oneAPI device memory.
    ZeDevice = 7,
    /// Intel oneAPI memory that moves between host and device.
    ZeManaged = 8,
}

impl MemoryKind {
    /// Every kind, in the order of the numbers.
    pub const ALL: [MemoryKind; 9] = [
        MemoryKind::Host,
        MemoryKind::Cuda,
        MemoryKind::CudaManaged,
        MemoryKind::Rocm,
        MemoryKind::RocmManaged,
        MemoryKind::Rdma,
        MemoryKind::ZeHost,
        MemoryKind::ZeDevice,
        MemoryKind::ZeManaged,
    ];

    /// The number, as on the plugin boundary.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// The kind of a number; `None` for one that this version does not know, which is then not host memory.
    pub fn from_raw(raw: u32) -> Option<MemoryKind> {
        MemoryKind::ALL.get(usize::try_from(raw).ok()?).copied()
    }

    /// The name as UCX prints it: "cuda-managed".
    pub const fn name(self) -> &'static str {
        match self {
            MemoryKind::Host => "host",
            MemoryKind::Cuda => "cuda",
            MemoryKind::CudaManaged => "cuda-managed",
            MemoryKind::Rocm => "rocm",
            MemoryKind::RocmManaged => "rocm-managed",
            MemoryKind::Rdma => "rdma",
            MemoryKind::ZeHost => "ze-host",
            MemoryKind::ZeDevice => "ze-device",
            MemoryKind::ZeManaged => "ze-managed",
        }
    }

    /// The kind of a name.
    pub fn from_name(name: &str) -> Option<MemoryKind> {
        MemoryKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_their_kind() {
        for (number, kind) in (0..).zip(MemoryKind::ALL) {
            assert_eq!(kind.raw(), number);
            assert_eq!(MemoryKind::from_raw(number), Some(kind));
            assert_eq!(MemoryKind::from_name(&kind.to_string()), Some(kind));
        }
        assert_eq!(MemoryKind::from_raw(9), None);
        assert_eq!(MemoryKind::from_name("gpu"), None);
        assert_eq!(MemoryKind::default(), MemoryKind::Host);
    }
}
