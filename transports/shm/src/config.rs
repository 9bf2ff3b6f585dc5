//! The configuration of the shared memory transports: common settings, and a section for each transport.

use std::path::PathBuf;

use ucs::units::{MemSize, Ternary, Time};

ucs::config_enum! {
    /// The processes that may connect.
    pub enum Peers {
        /// Processes of the same user, and the administrator's.
        User = "user",
        /// Processes of any user that have the address.
        Any = "any",
    }
}

ucs::config_enum! {
    /// The kind of shared memory.
    pub enum Segments {
        /// Anonymous memory, limited by the memory of the machine only.
        Memfd = "memfd",
        /// Files in `posix.dir`, whose names are removed immediately.
        Dir = "dir",
    }
}

ucs::config_struct! {
    /// Shared memory: rings of messages, and connections to peers.
    pub struct ShmConfig in "shm" {
        /// Largest number of messages in flight to one peer: slots of a ring. Rounded up to a power of two. With little traffic 24 are
        /// used.
        pub fifo_size: u32 = "256" in 64..=65_536,
        /// Largest number of messages of one peer that are received before those of the next peer.
        pub fifo_max_poll: u32 = "16" in 1..=65_536,
        /// Size of a bulk segment, which is the largest active message.
        pub seg_size: MemSize = "64k" in 8192..=4_194_304,
        /// Number of bulk segments for each peer. A segment takes memory when it is first used.
        pub seg_count: u32 = "8" in 2..=64,
        /// Size of a small segment, for messages that do not fit in a slot.
        pub small_seg_size: MemSize = "2k" in 256..=65_536,
        /// Largest number of small segments for each peer. With little traffic 2 are used.
        pub small_seg_count: u32 = "64" in 2..=64,
        /// Time without messages to a peer after which its ring is small again, and the memory that only much traffic needs is given
        /// back. Time after which a segment of a peer to which no key was used is unmapped.
        pub trim_timeout: Time = "1s",
        /// Calls of progress from one poll of the sockets to the next; 1 ms, where calls are rarer than one in 1 µs. Sockets report
        /// new connections and dead peers.
        pub poll_interval: u32 = "1024" in 1..=1_048_576,
        /// Directory of a socket for peers in other network namespaces; auto is /dev/shm if that is writable, none is no
        /// directory.
        #[security = true]
        pub dir: String = "auto",
        /// The processes that may connect.
        #[security = true]
        pub peers: Peers = "user",
        /// Time limit for connecting to a peer whose listen queue is full.
        pub connect_timeout: Time = "10s",
        /// Time limit for the hello on a connection of a peer.
        #[security = true]
        pub hello_timeout: Time = "5s",
        /// Largest number of half-open connections. For a new one, the oldest one of the process that has most of them is closed.
        #[security = true]
        pub max_half_open: u32 = "64" in 1..=1024,
        /// Largest number of connections of peers to one interface.
        #[security = true]
        pub max_connections: u32 = "4096" in 1..=65_536,
        /// Largest number of connections of one other process; at most a quarter of the descriptors that this process may have.
        #[security = true]
        pub max_connections_per_process: u32 = "256" in 1..=65_536,
        /// Largest number of connections of one other user; at most half of the descriptors that this process may have.
        #[security = true]
        pub max_connections_per_user: u32 = "1024" in 1..=65_536,
        /// Number of descriptors, of those that this process may have (ulimit -n), that connections of peers leave free.
        #[security = true]
        pub reserved_descriptors: u32 = "64" in 0..=1_048_576,
        /// Largest number of segments of peers that an interface keeps mapped after their last key was released, until no key to them was
        /// unpacked and used for `trim_timeout`; 0 keeps none.
        #[security = true]
        pub max_cached_segments: u32 = "256" in 0..=16_384,
        /// Largest sum of their sizes. A larger segment is unmapped with its last key.
        #[security = true]
        pub max_cached_bytes: MemSize = "1g",
        /// Use copies by the kernel (process_vm_readv) for memory that cannot be mapped.
        pub cma: Ternary = "try",
        /// Time limit for the end of a registration to wait for a copy by the kernel that a peer has started. Memory that is still in use
        /// then is not used again, with a warning.
        #[security = true]
        pub copy_timeout: Time = "1s",
    }
}

ucs::config_struct! {
    /// POSIX shared memory: memfds or files.
    pub struct PosixConfig in "posix" {
        /// The kind of shared memory.
        #[security = true]
        pub segments: Segments = "memfd",
        /// Directory for `segments = "dir"`.
        #[security = true]
        pub dir: PathBuf = "/dev/shm",
        /// Use huge pages for allocated memory, and accept segments of peers that have them.
        #[security = true]
        pub hugetlb_mode: Ternary = "no",
    }
}

ucs::config_struct! {
    /// System V shared memory.
    pub struct SysvConfig in "sysv" {
        /// Use huge pages for allocated memory, and accept segments of peers that have them.
        #[security = true]
        pub hugetlb_mode: Ternary = "no",
    }
}

ucs::config_struct! {
    /// Copies between the memory of two processes by the kernel.
    pub struct CmaConfig in "cma" {
        /// Permit other processes of this user to access the memory of this one where Yama's ptrace_scope is 1 (PR_SET_PTRACER).
        #[security = true]
        pub ptracer: bool = "n",
    }
}
