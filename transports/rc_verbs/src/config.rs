//! The configuration of `rc_verbs`.

use ucs::units::{Count, MemSize, Ternary, Time};
use uct_ib::PortPreferences;

ucs::config_struct! {
    /// Reliable connections over InfiniBand or RoCE, with libibverbs.
    pub struct RcConfig in "rc_verbs" {
        /// Size of a receive buffer, which is the largest active message. Must be the same on both sides.
        pub seg_size: MemSize = "8k" in 64..=1_048_576,
        /// Largest short operation, inline in the work request. The device may allow less.
        pub max_inline: MemSize = "128" in 16..=1024,
        /// Work requests in flight for each endpoint. Software RoCE allocates one more, rounded up to a power of two, so 128 takes
        /// twice the memory of 127.
        pub tx_queue_len: u32 = "127" in 16..=32768,
        /// One work request in this many requests a completion, unless one is needed earlier.
        pub tx_moderation: u32 = "64" in 1..=32768,
        /// Work requests in flight for all endpoints of an interface.
        pub tx_cq_len: u32 = "4096" in 64..=4_194_304,
        /// Largest number of iov entries of a zero-copy operation. The device may allow less.
        pub max_iov: u32 = "16" in 2..=32,
        /// Endpoints that an interface serves well: selection passes over rc_verbs where more are expected (`num_eps`), because each has a queue
        /// pair of its own. More can be created.
        pub max_num_eps: Count = "256",
        /// Largest number of receive buffers posted for all endpoints of an interface; as many are posted as they need.
        pub rx_queue_len: u32 = "4096" in 32..=65536,
        /// Largest number of receive buffers, posted or kept by handlers.
        pub rx_max_bufs: Count = "inf",
        /// Largest number of credits of a peer: messages that it may send before it gets new credits.
        pub fc_window: u32 = "256" in 1..=32767,
        /// Bytes of gets in flight for each interface.
        pub max_get_bytes: MemSize = "inf",
        /// Reads and atomics in flight at the device, for each endpoint.
        pub max_rd_atomic: u8 = "4" in 1..=128,
        /// Time without an acknowledgement after which the device retransmits; rounded up to 4.096 us times a power of two.
        pub timeout: Time = "130ms",
        /// Number of retransmissions of the device before it gives up; 7 is infinite on some devices (software RoCE).
        pub retry_count: u8 = "7" in 0..=7,
        /// Time without any acknowledgement after which the peer counts as dead; inf leaves it to the device.
        pub peer_timeout: Time = "2s",
        /// Pause before a peer that found no receive buffer here retransmits.
        pub rnr_timeout: Time = "1ms",
        /// Number of retransmissions to a peer without receive buffers; 7 is infinite.
        pub rnr_retry_count: u8 = "7" in 0..=7,
        /// Interval of keepalive probes to idle peers; inf never.
        pub keepalive_interval: Time = "5s",
        /// Time limit for a closing interface to wait for operations in flight.
        pub linger: Time = "2s",
        /// Index in the GID table; auto chooses RoCE v2 with an address of the network device.
        pub gid_index: Count = "auto",
        /// Largest packet on the path, in bytes: 256, 512, 1024, 2048 or 4096; auto uses the port's.
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

impl RcConfig {
    /// What the port address needs of it.
    pub(crate) fn port_preferences(&self) -> PortPreferences {
        let given =
            |count: Count| (!count.is_auto()).then(|| u32::try_from(count.number()).unwrap_or(u32::MAX));
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

    /// The verbs' code of the acknowledgement timeout: 4.096 us times two to this; at least 1, since 0 is for ever.
    pub(crate) fn timeout_code(&self) -> u8 {
        (1..31).find(|&code| 4.096e-6 * f64::from(1u32 << code) >= self.timeout.seconds()).unwrap_or(31)
    }

    /// The verbs' code of the wait of a peer that found no buffer.
    pub(crate) fn rnr_timer_code(&self) -> u8 {
        // Milliseconds of the codes 1 to 31; 0 is the longest.
        const CODES: [f64; 31] = [
            0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92, 2.56,
            3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76,
            327.68, 491.52,
        ];
        let wanted = self.rnr_timeout.seconds() * 1e3;
        CODES.iter().position(|&code| code >= wanted).map_or(0, |index| index as u8 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ucs::config::Defaults;

    #[test]
    fn times_are_rounded_up_to_what_the_verbs_can_say() {
        let mut config = RcConfig::from_settings(&Defaults).unwrap();
        for (seconds, code) in [(0.0, 1), (8e-6, 1), (0.13, 15), (1.0, 18), (1e9, 31)] {
            config.timeout = Time::from_seconds(seconds);
            assert_eq!(config.timeout_code(), code, "{seconds} s");
        }
        for (seconds, code) in [(0.0, 1), (1e-3, 14), (0.4, 31), (5.0, 0)] {
            config.rnr_timeout = Time::from_seconds(seconds);
            assert_eq!(config.rnr_timer_code(), code, "{seconds} s");
        }
    }

    #[test]
    fn a_number_is_taken_as_the_gid_index_and_auto_is_not() {
        let mut config = RcConfig::from_settings(&Defaults).unwrap();
        assert_eq!(config.port_preferences().gid_index, None);
        config.gid_index = Count::new(3);
        assert_eq!(config.port_preferences().gid_index, Some(3));
    }
}
