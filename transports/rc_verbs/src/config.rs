//! The configuration of `rc_verbs`.

use ucs::units::{Count, MemSize, Ternary, Time};
use uct_ib::PortPreferences;

ucs::config_struct! {
    /// Reliable connections over InfiniBand or RoCE, by libibverbs.
    pub struct RcConfig in "rc_verbs" {
        /// Size of a receive buffer: the largest active message. Peers need the same.
        pub seg_size: MemSize = "8k" in 64..=1_048_576,
        /// Largest short operation, carried inside the work request. The device may allow less.
        pub max_inline: MemSize = "128" in 16..=1024,
        /// Work requests that one endpoint may have under way. Software RoCE makes room for one more, rounded up to a power
        /// of two, so that 128 would take twice the memory.
        pub tx_queue_len: u32 = "127" in 16..=32768,
        /// One work request in this many asks for a completion, where nothing else needs one sooner.
        pub tx_moderation: u32 = "64" in 1..=32768,
        /// Work requests that all endpoints of an interface may have under way together.
        pub tx_cq_len: u32 = "4096" in 64..=4_194_304,
        /// Most pieces of memory in one zero-copy operation. The device may allow less.
        pub max_iov: u32 = "16" in 2..=32,
        /// Most receive buffers posted for all endpoints of an interface together; as many as the endpoints need are.
        pub rx_queue_len: u32 = "4096" in 32..=65536,
        /// Most receive buffers in all, posted and kept by handlers.
        pub rx_max_bufs: Count = "inf",
        /// Most messages that a peer may send before it hears that earlier ones were taken.
        pub fc_window: u32 = "256" in 1..=32767,
        /// Bytes of reads that an interface may have under way.
        pub max_get_bytes: MemSize = "inf",
        /// Reads and atomics that one endpoint may have under way at the device.
        pub max_rd_atomic: u8 = "4" in 1..=128,
        /// How long the device waits for an acknowledgement before it sends again; rounded up to 4.096 us times a power of
        /// two.
        pub timeout: Time = "130ms",
        /// How often the device sends again before it gives up; 7 is for ever on some (software RoCE).
        pub retry_count: u8 = "7" in 0..=7,
        /// How long nothing at all may be acknowledged before the peer counts as dead; inf leaves it to the device.
        pub peer_timeout: Time = "2s",
        /// How long a peer waits that found no receive buffer here, before it sends again.
        pub rnr_timeout: Time = "1ms",
        /// How often to send again to a peer without receive buffers; 7 is for ever.
        pub rnr_retry_count: u8 = "7" in 0..=7,
        /// How often to ask idle peers whether they live; inf never does.
        pub keepalive_interval: Time = "5s",
        /// How long closing an interface waits for what is still under way.
        pub linger: Time = "2s",
        /// Index into the table of GIDs; auto chooses RoCE v2 with an address of the network device.
        pub gid_index: Count = "auto",
        /// Largest packet on the path, in bytes: 256, 512, 1024, 2048 or 4096; auto takes what the port has.
        pub path_mtu: Count = "auto",
        /// Index into the table of partition keys.
        pub pkey_index: u16 = "0",
        /// Service level.
        pub service_level: u8 = "0" in 0..=15,
        /// Traffic class of global routes.
        pub traffic_class: u8 = "0",
        /// Hops before a packet is dropped.
        pub hop_limit: u8 = "64" in 1..=255,
        /// Use global routes inside an InfiniBand subnet, too.
        pub is_global: bool = "no",
        /// Make it safe to fork while memory is registered.
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
