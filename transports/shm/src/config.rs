//! The configuration of the shared memory transports: what they share, and a section for each.

use std::path::PathBuf;

use ucs::units::{MemSize, Ternary, Time};

ucs::config_enum! {
    /// Who may connect.
    pub enum Peers {
        /// Processes of the same user, and the administrator's.
        User = "user",
        /// Processes of any user who has got the address.
        Any = "any",
    }
}

ucs::config_enum! {
    /// What shared memory is made of.
    pub enum Segments {
        /// Anonymous memory of the kernel's, limited by nothing but the machine's memory.
        Memfd = "memfd",
        /// Files in `posix.dir`, whose names are removed at once.
        Dir = "dir",
    }
}

ucs::config_struct! {
    /// Shared memory: rings of messages, and how peers meet.
    pub struct ShmConfig in "shm" {
        /// Number of short messages on their way to one peer; rounded up to a power of two.
        pub fifo_size: u32 = "256" in 64..=65_536,
        /// Number of messages of one peer that are received before it is another's turn.
        pub fifo_max_poll: u32 = "16" in 1..=65_536,
        /// Largest active message: size of a bulk segment.
        pub seg_size: MemSize = "64k" in 8192..=4_194_304,
        /// Number of bulk segments for each peer. Memory is used when they are.
        pub seg_count: u32 = "8" in 2..=64,
        /// Size of a small segment, for messages that fit no slot.
        pub small_seg_size: MemSize = "2k" in 256..=65_536,
        /// Number of small segments for each peer.
        pub small_seg_count: u32 = "64" in 2..=64,
        /// Calls of progress between two looks at sockets: for connections, for dead peers, and into rings that are quiet.
        pub poll_interval: u32 = "1024" in 1..=1_048_576,
        /// Directory where peers in another network namespace find a socket; `auto` is /dev/shm where that is writable,
        /// an empty value is none.
        #[security = true]
        pub dir: String = "auto",
        /// Who may connect.
        #[security = true]
        pub peers: Peers = "user",
        /// How long a peer is tried that has no room for a connection: more wait for it than its system keeps.
        pub connect_timeout: Time = "10s",
        /// How long a connection of a peer may take to say hello.
        #[security = true]
        pub hello_timeout: Time = "5s",
        /// Most connections of peers that have not said hello. For a new one, that of the process with the most of them goes which
        /// has waited longest.
        #[security = true]
        pub max_half_open: u32 = "64" in 1..=1024,
        /// Most connections that peers have to one interface.
        #[security = true]
        pub max_connections: u32 = "4096" in 1..=65_536,
        /// Most of them that are of one other process; never more than a quarter of the descriptors that this process may have.
        #[security = true]
        pub max_connections_per_process: u32 = "256" in 1..=65_536,
        /// Most of them that are of one other user; never more than half of the descriptors that this process may have.
        #[security = true]
        pub max_connections_per_user: u32 = "1024" in 1..=65_536,
        /// Descriptors, of those that this process may have (ulimit -n), that connections of peers leave free.
        #[security = true]
        pub reserved_descriptors: u32 = "64" in 0..=1_048_576,
        /// Copy between the memories of two processes in the kernel (process_vm_readv), for memory that cannot be mapped.
        pub cma: Ternary = "try",
        /// How long the end of a registration waits for a copy that a peer has begun in the kernel. Memory that a peer holds up for longer is
        /// not used again, with a warning.
        #[security = true]
        pub copy_timeout: Time = "1s",
    }
}

ucs::config_struct! {
    /// Shared memory of memfd or of files.
    pub struct PosixConfig in "posix" {
        /// What shared memory is made of.
        #[security = true]
        pub segments: Segments = "memfd",
        /// Directory for `segments = "dir"`.
        #[security = true]
        pub dir: PathBuf = "/dev/shm",
        /// Huge pages for allocated memory, and for that of peers.
        #[security = true]
        pub hugetlb_mode: Ternary = "no",
    }
}

ucs::config_struct! {
    /// System V shared memory.
    pub struct SysvConfig in "sysv" {
        /// Huge pages for allocated memory.
        pub hugetlb_mode: Ternary = "no",
    }
}

ucs::config_struct! {
    /// Copies between the memories of two processes in the kernel.
    pub struct CmaConfig in "cma" {
        /// Permit other processes of this user to reach this one's memory where Yama's ptrace_scope is 1
        /// (PR_SET_PTRACER).
        #[security = true]
        pub ptracer: bool = "n",
    }
}
