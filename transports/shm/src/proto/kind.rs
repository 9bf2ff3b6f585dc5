//! Which of the transports.

/// `posix`, `sysv` or `cma`, as in addresses, keys and hellos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// memfd or files.
    Posix = 1,
    /// System V.
    Sysv = 2,
    /// Copies by the kernel; its rings and segments are those of posix.
    Cma = 3,
}

impl Kind {
    /// Name of component, memory domain and transport.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Posix => "posix",
            Kind::Sysv => "sysv",
            Kind::Cma => "cma",
        }
    }
}
