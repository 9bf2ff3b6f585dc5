//! The configuration of `ud_verbs`.

use ucs::units::{Count, MemSize, Ternary, Time};
use uct_ib::PortPreferences;
use uct_plugin::{Error, Failure};

use crate::io::queue::QueueLimits;
use crate::proto::Settings;

ucs::config_struct! {
    /// Reliable datagrams over InfiniBand or RoCE, with libibverbs: one queue pair for all peers.
    pub struct UdConfig in "ud_verbs" {
        /// Work requests in flight for each interface.
        pub tx_queue_len: u32 = "256" in 16..=32768,
        /// One work request in this many requests a completion, unless one is needed earlier.
        pub tx_moderation: u32 = "64" in 1..=32768,
        /// Largest number of unacknowledged datagrams for all endpoints of an interface: of short ones, and again of all others.
        pub tx_max_bufs: Count = "inf",
        /// Largest datagram that is sent inline in the work request, in bytes. The device may allow less.
        pub max_inline: u32 = "256" in 0..=1024,
        /// Largest number of iov entries of a zero-copy operation. The device may allow less.
        pub max_iov: u32 = "7" in 1..=7,
        /// Largest number of receive buffers posted for all endpoints of an interface; as many are posted as they need.
        pub rx_queue_len: u32 = "2048" in 32..=65536,
        /// Largest number of receive buffers, posted or kept by handlers.
        pub rx_max_bufs: Count = "inf",
        /// Largest number of unacknowledged datagrams to a peer.
        pub max_window: u32 = "256" in 1..=256,
        /// Number of unacknowledged datagrams that a new connection permits, if the peer has room for them. It grows as datagrams are acknowledged.
        pub initial_window: u32 = "16" in 1..=256,
        /// Number of unacknowledged datagrams that is permitted however many are lost, at most that of the new connection.
        pub min_window: u32 = "4" in 1..=256,
        /// Time to the first retransmission before a round trip has been measured.
        pub resend_initial: Time = "10ms",
        /// Shortest time to a retransmission.
        pub resend_min: Time = "4ms",
        /// Longest time between retransmissions. Each retransmission makes the time longer by half, up to this.
        pub resend_max: Time = "1s",
        /// Time limit for an acknowledgement to wait for a message that can carry it.
        pub ack_delay: Time = "1ms",
        /// Number of messages after which an acknowledgement is sent without waiting.
        pub ack_every: u32 = "32" in 1..=256,
        /// Interval in which each idle connection is probed once; 0 never.
        pub keepalive_interval: Time = "20s",
        /// Time without any response to datagrams or probes after which the peer counts as dead.
        pub keepalive_timeout: Time = "30s",
        /// Interval at which timers are checked while datagrams are unacknowledged.
        pub timer_tick: Time = "1ms",
        /// Time limit for a closing interface to wait for operations in flight.
        pub linger: Time = "2s",
        /// Largest number of puts, gets and atomics in flight for each endpoint.
        pub max_rma: u32 = "64" in 1..=256,
        /// Time limit of get_short, which blocks.
        pub get_timeout: Time = "30s",
        /// Largest number of connections of an interface. Peers cannot open the last eighth of them.
        #[security = true]
        pub max_connections: u32 = "65536" in 1..=1_048_576,
        /// Largest number of connections to an interface that were opened by peers of one port.
        #[security = true]
        pub max_connections_per_port: u32 = "4096" in 1..=1_048_576,
        /// Largest number of peer ports for which an interface caches an address handle. Unauthenticated peers of further ports get no response.
        #[security = true]
        pub max_peer_ports: u32 = "16384" in 1..=1_048_576,
        /// Number of refused requests for remote memory after which a connection is closed, so that keys cannot be guessed.
        #[security = true]
        pub max_refused: u32 = "256" in 1..=65_535,
        /// Bytes of queued responses to puts, gets and atomics, for all connections of an interface. Beyond this, the connection
        /// with most of them is closed.
        #[security = true]
        pub max_answer_bytes: MemSize = "256m" in 65_536..=1_099_511_627_776,
        /// Index in the GID table; auto chooses RoCE v2 with an address of the network device.
        pub gid_index: Count = "auto",
        /// Largest datagram, in bytes: 256, 512, 1024, 2048 or 4096; auto uses the port's. Must be the same on both sides.
        pub path_mtu: Count = "auto",
        /// Index in the partition key table.
        pub pkey_index: u16 = "0",
        /// Service level.
        pub service_level: u8 = "0" in 0..=15,
        /// Traffic class of global routes.
        pub traffic_class: u8 = "0",
        /// Hop limit of global routes.
        pub hop_limit: u8 = "64" in 1..=255,
        /// Use global routes inside an InfiniBand subnet as well.
        pub is_global: bool = "no",
        /// Allow fork while memory is registered.
        pub fork_init: Ternary = "try",
    }
}

impl UdConfig {
    /// What the port's address needs of it.
    pub(crate) fn port_preferences(&self) -> PortPreferences {
        PortPreferences {
            gid_index: given(self.gid_index),
            path_mtu: given(self.path_mtu),
            pkey_index: self.pkey_index,
            service_level: self.service_level,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            is_global: self.is_global,
        }
    }

    /// What the queue pair needs of it.
    pub(crate) fn queue_limits(&self) -> QueueLimits {
        QueueLimits {
            sends: self.tx_queue_len,
            receives: self.rx_queue_len,
            moderation: self.tx_moderation,
            pieces: self.max_iov,
            inline: self.max_inline,
        }
    }

    /// What the protocol needs of it. `seed` comes from the system's entropy.
    pub(crate) fn protocol(&self, seed: u128) -> Result<Settings, Failure> {
        let keepalive = self.keepalive_interval.to_duration();
        let settings = Settings {
            window_initial: self.initial_window.max(self.min_window).min(self.max_window),
            window_min: self.min_window.min(self.max_window),
            window_max: self.max_window,
            timeout_initial: self.resend_initial.to_duration(),
            timeout_min: self.resend_min.to_duration(),
            timeout_max: self.resend_max.to_duration(),
            ack_delay: self.ack_delay.to_duration(),
            ack_every: self.ack_every,
            give_up: self.keepalive_timeout.to_duration(),
            keepalive: (!keepalive.is_zero()).then_some(keepalive),
            close_timeout: self.linger.to_duration(),
            connections_max: self.max_connections,
            connections_per_port: self.max_connections_per_port,
            held_max: self.rx_queue_len / 4,
            receives: self.rx_queue_len,
            seed,
            ..Settings::default()
        };
        settings.checked().map_err(|error| {
            let reason = format!("the configuration of ud_verbs is inconsistent: {error}");
            Failure::new(Error::INVALID_PARAM, reason)
        })
    }
}

/// A random number.
///
/// # Errors
/// The kernel has no random numbers.
pub(crate) fn seed() -> Result<u128, Failure> {
    let half =
        || ucs::sys::random::secret().map_err(|error| Failure::new(Error::from(&error), error.to_string()));
    Ok(u128::from(half()?) << 64 | u128::from(half()?))
}

/// The number of a count, unless it is left to the transport.
fn given(count: Count) -> Option<u32> {
    (!count.is_auto()).then(|| limit(count))
}

/// A count as a limit.
pub(crate) fn limit(count: Count) -> u32 {
    u32::try_from(count.number()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ucs::config::Defaults;

    fn defaults() -> UdConfig {
        UdConfig::from_settings(&Defaults).expect("the defaults are in their ranges")
    }

    #[test]
    fn the_defaults_make_settings_of_the_protocol() {
        let settings = defaults().protocol(7).expect("the defaults fit together");
        assert_eq!((settings.window_max, settings.seed), (256, 7));
        assert_eq!((settings.connections_max, settings.connections_per_port), (65536, 4096));
        let few = UdConfig { max_connections_per_port: 9, ..defaults() };
        assert_eq!(few.protocol(7).expect("fits together").connections_per_port, 9);
        assert_eq!(settings.keepalive, Some(std::time::Duration::from_secs(20)));
    }

    #[test]
    fn a_small_window_takes_the_others_along_and_no_keepalive_is_zero() {
        let config = UdConfig { max_window: 2, keepalive_interval: Time::from_seconds(0.0), ..defaults() };
        let settings = config.protocol(0).expect("fits together");
        assert_eq!((settings.window_min, settings.window_initial), (2, 2));
        assert_eq!(settings.keepalive, None);
    }

    #[test]
    fn times_that_contradict_each_other_are_refused_by_name() {
        let config = UdConfig { keepalive_timeout: Time::from_seconds(0.001), ..defaults() };
        let failure = config.protocol(0).expect_err("shorter than the first retransmission");
        assert!(failure.reason.contains("give_up"), "{}", failure.reason);
    }
}
