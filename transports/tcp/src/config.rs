//! The configuration of `tcp`. Names are UCX's where a key has the same meaning there.

use ucs::units::{Bandwidth, MemSize, Range, Time};

use crate::io::socket::Options;
use crate::link::shared::Settings;

ucs::config_struct! {
    /// TCP sockets.
    pub struct TcpConfig in "tcp" {
        /// Largest bcopy message, and largest short message with its header.
        pub tx_seg_size: MemSize = "8k" in 64..=1_048_576,
        /// Size of a receive buffer, rounded up to a power of two. Messages are delivered in place.
        pub rx_seg_size: MemSize = "256k" in 16_384..=16_777_216,
        /// Bytes that are collected for one system call; at least tx_seg_size. Larger zero-copy messages do not wait for others.
        pub tx_buf_size: MemSize = "256k" in 4096..=16_777_216,
        /// Bytes queued while a socket is full or a connection is not established; beyond it sends return NO_RESOURCE.
        pub tx_queue_size: MemSize = "256k" in 4096..=1_073_741_824,
        /// Bytes of responses (to requests for remote memory and pings) queued for a peer, in addition to tx_queue_size. Beyond it nothing
        /// more is read from that peer. A peer that follows the protocol does not reach it.
        #[security = true]
        pub answer_queue_size: MemSize = "2m" in 2_097_152..=1_073_741_824,
        /// Bytes of incoming messages larger than rx_seg_size, over all connections of an interface; at least twice max_message.
        /// Further messages wait. A connection that has delivered less than 64 KiB a second of its message, and delivers nothing
        /// now, ends if its room is needed.
        #[security = true]
        pub max_announced: MemSize = "1g" in 65_536..=1_099_511_627_776,
        /// The same for one source (max_connections_per_source); at least max_message. 0: half of max_announced.
        #[security = true]
        pub max_announced_per_source: MemSize = "0" in 0..=1_099_511_627_776,
        /// Largest message, sent or received by zero copy. A peer that may send larger ones is refused.
        #[security = true]
        pub max_message: MemSize = "64m" in 65_536..=2_147_483_648,
        /// Largest number of iov entries.
        pub max_iov: u32 = "16" in 1..=64,
        /// Zero-copy messages up to this size are copied: they share system calls and complete immediately.
        pub sendv_thresh: MemSize = "6k",
        /// Among interfaces of equal cost, prefer the one with the default route.
        pub prefer_default: bool = "y",
        /// Offer put, carried out by the peer's progress.
        pub put_enable: bool = "y",
        /// Do not wait for the connection when an endpoint is created. With `n`, creating an endpoint to a peer that does not listen
        /// fails.
        pub conn_nb: bool = "y",
        /// Largest number of ready sockets served in one progress.
        pub max_poll: u32 = "16" in 1..=128,
        /// Number of further attempts to connect.
        pub max_conn_retries: u32 = "5" in 0..=1000,
        /// Time limit for establishing a connection, with all attempts. For a stage of a connection of the connection manager, if the
        /// application sets none.
        pub connect_timeout: Time = "10s",
        /// Time limit for the handshake of an accepted connection, and for the request of a client of the connection manager.
        #[security = true]
        pub hello_timeout: Time = "5s",
        /// Largest number of accepted connections without a complete handshake; beyond it the oldest is closed.
        #[security = true]
        pub max_half_open: u32 = "128" in 1..=65_536,
        /// Clients of a listener of the connection manager whose requests have not arrived, or wait for the application; further ones
        /// wait in the system.
        #[security = true]
        pub cm_max_pending: u32 = "4096" in 1..=1_048_576,
        /// The same for one source: an IPv4 address or a /64 network; further ones are refused. 0: three quarters of cm_max_pending.
        #[security = true]
        pub cm_max_pending_per_source: u32 = "0" in 0..=1_048_576,
        /// Largest number of connections opened by peers; further ones wait within their connect_timeout. 0: seven eighths of the
        /// descriptors that the process may have when the interface is opened.
        #[security = true]
        pub max_connections: u32 = "0" in 0..=16_777_216,
        /// The same for one source: an IPv4 address or a /64 network. 0: three quarters of max_connections.
        #[security = true]
        pub max_connections_per_source: u32 = "0" in 0..=16_777_216,
        /// Time after which a connection that a peer opened, and that has carried nothing, may be closed for another one.
        #[security = true]
        pub unused_timeout: Time = "5s",
        /// Descriptors of the process that stay free of connections of peers.
        #[security = true]
        pub reserved_descriptors: u32 = "32" in 0..=65_536,
        /// Refused requests for remote memory after which a connection ends, so that keys cannot be guessed.
        #[security = true]
        pub max_refused: u32 = "256" in 1..=65_535,
        /// Time limit for a closing connection to wait for its peer, and for a closing interface to send its data. For both, once the
        /// endpoint over a socket that the program has passed in is gone.
        #[security = true]
        pub linger_timeout: Time = "1s",
        /// Time limit of a blocking read of remote memory (get_short).
        pub get_timeout: Time = "30s",
        /// Disable Nagle's algorithm (TCP_NODELAY).
        pub nodelay: bool = "y",
        /// Size of the socket's send buffer; auto leaves it to the system.
        pub sndbuf: MemSize = "auto",
        /// Size of the socket's receive buffer; auto leaves it to the system.
        pub rcvbuf: MemSize = "auto",
        /// Congestion control of sockets, by its name in the system. `system` leaves it to the system. `auto` does the same, except
        /// between loopback addresses, which use reno: loopback has no congestion, and an algorithm that limits its rate to what it
        /// has measured (bbr) would cost most of the bandwidth.
        pub congestion: String = "auto",
        /// Largest number of connection requests (SYN) that the system sends; 0 leaves it to the system.
        pub syn_cnt: u8 = "0" in 0..=127,
        /// Range of ports to listen on; the first free one is used; 0 lets the system choose.
        pub port_range: Range = "0-0",
        /// Address families in order of preference.
        pub af_prio: Vec<String> = "inet,inet6",
        /// Silence of a peer after which it is pinged; `inf` never.
        pub keepalive_interval: Time = "10s",
        /// Time without a response to a ping, because the peer makes no progress, after which the peer counts as dead.
        pub keepalive_timeout: Time = "5m",
        /// Idle time after which the system sends a keepalive probe to the peer's system; `inf` never.
        pub keepidle: Time = "10s",
        /// Interval between keepalive probes.
        pub keepintvl: Time = "2s",
        /// Number of unacknowledged keepalive probes after which the connection is closed.
        pub keepcnt: u32 = "3" in 1..=127,
        /// Time without an acknowledgement of sent data by the peer's system after which the connection is closed; `inf` leaves it
        /// to the system.
        pub user_timeout: Time = "30s",
        /// Bandwidth for the cost model, instead of the device's or the default one.
        pub bandwidth: Bandwidth = "auto",
        /// Latency for the cost model; 0 keeps the model's.
        pub latency: Time = "0us",
    }
}

impl TcpConfig {
    /// Its settings of connections.
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

    /// Its settings of sockets.
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
