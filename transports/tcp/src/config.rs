//! The configuration of `tcp`. Names are UCX's where a key has the same meaning there.

use ucs::units::{Bandwidth, MemSize, Range, Time};

use crate::io::socket::Options;
use crate::link::shared::Settings;

ucs::config_struct! {
    /// TCP sockets.
    pub struct TcpConfig in "tcp" {
        /// Largest message of a buffered copy, and of a short one with its header.
        pub tx_seg_size: MemSize = "8k" in 64..=1_048_576,
        /// Size of a receive buffer, rounded up to a power of two. What one receive brings is delivered from it in place.
        pub rx_seg_size: MemSize = "256k" in 16_384..=16_777_216,
        /// Bytes that are collected before they are sent, where several messages share a system call; at least tx_seg_size.
        pub tx_buf_size: MemSize = "64k" in 4096..=16_777_216,
        /// Bytes that wait for a socket's room, or for a connection to stand, before a sender is told to wait too.
        pub tx_queue_size: MemSize = "256k" in 4096..=1_073_741_824,
        /// Bytes of answers to a peer (of requests for remote memory, signs of life) that wait for it to take them, in addition to
        /// tx_queue_size, before nothing more is read from it. No peer that keeps the protocol gets so far.
        #[security = true]
        pub answer_queue_size: MemSize = "2m" in 2_097_152..=1_073_741_824,
        /// Bytes of messages larger than rx_seg_size that may be on their way in, over all connections of an interface; at least
        /// two messages of max_message. Further ones wait. A connection that has brought less than 64 KiB a second of its message,
        /// and brings nothing now, ends if its room is needed.
        #[security = true]
        pub max_announced: MemSize = "1g" in 65_536..=1_099_511_627_776,
        /// The same of one source (max_connections_per_source); at least one message of max_message. 0: half of max_announced.
        #[security = true]
        pub max_announced_per_source: MemSize = "0" in 0..=1_099_511_627_776,
        /// Largest message that is sent or received, zero copy. A peer that may send larger ones is refused.
        pub max_message: MemSize = "64m" in 65_536..=2_147_483_648,
        /// Most entries of a vector.
        pub max_iov: u32 = "16" in 1..=64,
        /// Zero-copy messages up to this size are copied, so that they share system calls and end at once.
        pub sendv_thresh: MemSize = "2k",
        /// Among several interfaces of equal cost take the one of the default route.
        pub prefer_default: bool = "y",
        /// Offer put, carried out by the peer's progress.
        pub put_enable: bool = "y",
        /// Do not wait for the connection when an endpoint is created. Otherwise a peer that does not listen is an error of
        /// the creation.
        pub conn_nb: bool = "y",
        /// Most ready sockets served in one progress.
        pub max_poll: u32 = "16" in 1..=128,
        /// How often to try again to connect.
        pub max_conn_retries: u32 = "5" in 0..=1000,
        /// How long a connection may take to stand, retries included.
        pub connect_timeout: Time = "10s",
        /// How long an accepted connection may take to introduce itself.
        #[security = true]
        pub hello_timeout: Time = "5s",
        /// Most accepted connections that have not introduced themselves; the oldest makes room for a new one.
        #[security = true]
        pub max_half_open: u32 = "128" in 1..=65_536,
        /// Most connections that peers open; further ones wait, within their connect_timeout. 0: seven eighths of the descriptors that
        /// the process may have when the interface is opened.
        #[security = true]
        pub max_connections: u32 = "0" in 0..=16_777_216,
        /// The same of one source: an IPv4 address, or the network (64 bits) of an IPv6 one. 0: three quarters of max_connections.
        #[security = true]
        pub max_connections_per_source: u32 = "0" in 0..=16_777_216,
        /// How long a connection that a peer opened may carry nothing before it may be ended, where its room is needed for another one.
        #[security = true]
        pub unused_timeout: Time = "5s",
        /// Descriptors of the process that connections of peers leave free.
        #[security = true]
        pub reserved_descriptors: u32 = "32" in 0..=65_536,
        /// Requests of a connection for remote memory that are refused before it ends: keys are not to be guessed.
        #[security = true]
        pub max_refused: u32 = "256" in 1..=65_535,
        /// How long a connection that is done with waits for its peer to close it too, and an interface for its data to leave.
        pub linger_timeout: Time = "1s",
        /// How long a read of remote memory that blocks (get_short) may take.
        pub get_timeout: Time = "30s",
        /// Send small messages at once instead of waiting for more.
        pub nodelay: bool = "y",
        /// Size of the socket's send buffer; auto leaves it to the system.
        pub sndbuf: MemSize = "auto",
        /// Size of the socket's receive buffer; auto leaves it to the system.
        pub rcvbuf: MemSize = "auto",
        /// Congestion control of sockets, by the system's name for it. `system` leaves it to the system; so does `auto`, except
        /// between addresses of loopback: nothing is congested there, and one that paces itself by what it measures (bbr) would
        /// cost most of the bandwidth, so these take reno, which every system has.
        pub congestion: String = "auto",
        /// Most connection requests (SYN) that the system sends before it gives up; 0 leaves it to the system.
        pub syn_cnt: u8 = "0" in 0..=127,
        /// Ports to listen on, the first that is free; 0 lets the system choose.
        pub port_range: Range = "0-0",
        /// Address families, the preferred first.
        pub af_prio: Vec<String> = "inet,inet6",
        /// How long nothing may come from a peer before it is asked whether it lives. `inf` never asks.
        pub keepalive_interval: Time = "10s",
        /// How long a peer may leave that unanswered, its program not making progress, before it counts as dead.
        pub keepalive_timeout: Time = "5m",
        /// How long a connection is idle before the system asks the peer's system whether it lives; `inf` never.
        pub keepidle: Time = "10s",
        /// How often the system asks.
        pub keepintvl: Time = "2s",
        /// How many questions of the system may go unanswered before the connection is closed.
        pub keepcnt: u32 = "3" in 1..=127,
        /// How long sent data may stay unacknowledged by the peer's system before the connection is closed; `inf` leaves it
        /// to the system.
        pub user_timeout: Time = "30s",
        /// Bandwidth for the cost model, in place of what the device reports or its kind has by default.
        pub bandwidth: Bandwidth = "auto",
        /// Latency for the cost model, in place of the model's; 0 leaves that.
        pub latency: Time = "0us",
    }
}

impl TcpConfig {
    /// What it says of connections.
    pub(crate) fn link(&self) -> Settings {
        Settings {
            seg_size: self.tx_seg_size.to_usize(),
            rx_seg_size: self.rx_seg_size.to_usize(),
            tx_buf_size: self.tx_buf_size.to_usize(),
            tx_queue_size: self.tx_queue_size.to_usize(),
            answer_queue_size: self.answer_queue_size.to_usize(),
            max_message: self.max_message.to_usize(),
            max_announced: self.max_announced.to_usize(),
            max_announced_per_source: self.max_announced_per_source.to_usize(),
            max_connections: self.max_connections,
            max_connections_per_source: self.max_connections_per_source,
            max_conn_retries: self.max_conn_retries,
            max_refused: self.max_refused,
            connect_timeout: self.connect_timeout.to_duration(),
            linger_timeout: self.linger_timeout.to_duration(),
            keepalive_interval: self.keepalive_interval,
            keepalive_timeout: self.keepalive_timeout,
            socket: self.socket_options(),
        }
    }

    /// What it says of sockets.
    pub(crate) fn socket_options(&self) -> Options {
        Options {
            sndbuf: self.sndbuf,
            rcvbuf: self.rcvbuf,
            congestion: self.congestion.clone(),
            syn_cnt: self.syn_cnt,
            nodelay: self.nodelay,
            keepidle: self.keepidle,
            keepintvl: self.keepintvl,
            keepcnt: self.keepcnt,
            user_timeout: self.user_timeout,
        }
    }
}
