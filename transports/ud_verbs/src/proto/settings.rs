//! What can be set: windows, timers, limits.
//!
//! Built on nothing else; the transport fills it from its configuration section.

use std::time::Duration;

use super::control::WINDOW_LIMIT;
use super::header::Key;
use super::psn::Psn;

/// The settings of a [`Table`](super::Table). [`Settings::checked`] holds them to their ranges.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Packets that may be outstanding when a connection is new. The peer may permit fewer.
    pub window_initial: u32,
    /// Packets that may be outstanding whatever is lost, at least 1, if the peer permitted as many when the connection was new.
    pub window_min: u32,
    /// Packets that may be outstanding at most, up to 256; the peer's limit counts too.
    pub window_max: u32,
    /// Time to the first retransmission while the round trip is not known.
    pub timeout_initial: Duration,
    /// Shortest time to a retransmission.
    pub timeout_min: Duration,
    /// Longest time between retransmissions, each of which doubles it.
    pub timeout_max: Duration,
    /// How long an acknowledgement waits for a packet to ride on.
    pub ack_delay: Duration,
    /// Packets after which an acknowledgement does not wait.
    pub ack_every: u32,
    /// Time without a due response of a peer after which it counts as dead.
    pub give_up: Duration,
    /// Idle time of a connection after which the peer is probed; `None`: never.
    pub keepalive: Option<Duration>,
    /// How long a closed endpoint goes on delivering what was sent, and sending FINISH.
    pub close_timeout: Duration,
    /// How long after the last one a finished connection goes on answering late packets.
    pub linger: Duration,
    /// Connections at most, up to 2^20. An eighth of them peers cannot take.
    pub connections_max: u32,
    /// Connections at most that interfaces behind one port have made.
    pub connections_per_port: u32,
    /// Packets, over all connections, that may wait for one ahead of them.
    pub held_max: u32,
    /// Packets for which there are buffers: what peers may have outstanding when their connections are new is no more in all, but for one
    /// packet of each.
    pub receives: u32,
    /// First sequence number of each direction; `None`: one that cannot be guessed. Tests start close to the wrap.
    pub first_psn: Option<Psn>,
    /// What keys, the interface's identity and cookies are made of: from the system's entropy, fixed in tests.
    pub seed: u128,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            window_initial: 16,
            window_min: 4,
            window_max: WINDOW_LIMIT,
            timeout_initial: Duration::from_millis(10),
            timeout_min: Duration::from_millis(4),
            timeout_max: Duration::from_secs(1),
            ack_delay: Duration::from_millis(1),
            ack_every: 32,
            give_up: Duration::from_secs(30),
            keepalive: Some(Duration::from_secs(20)),
            close_timeout: Duration::from_secs(5),
            linger: Duration::from_secs(3),
            connections_max: 1 << 16,
            connections_per_port: 1 << 12,
            held_max: 1024,
            receives: 2048,
            first_psn: None,
            seed: 0,
        }
    }
}

/// A setting that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, but must be {expected}")]
pub struct SettingError {
    /// Which one.
    pub name: &'static str,
    /// What it was.
    pub value: String,
    /// What it may be.
    pub expected: &'static str,
}

impl Settings {
    /// These settings if all are in their ranges and fit together.
    ///
    /// # Errors
    /// The first that does not.
    pub fn checked(self) -> Result<Settings, SettingError> {
        let fail = |name, value: &dyn std::fmt::Debug, expected| {
            Err(SettingError { name, value: format!("{value:?}"), expected })
        };
        if !(1..=WINDOW_LIMIT).contains(&self.window_max) {
            return fail("window_max", &self.window_max, "1 to 256 packets");
        }
        if !(1..=self.window_max).contains(&self.window_min) {
            return fail("window_min", &self.window_min, "1 packet to window_max");
        }
        if !(self.window_min..=self.window_max).contains(&self.window_initial) {
            return fail("window_initial", &self.window_initial, "window_min to window_max");
        }
        if self.timeout_min.is_zero() || self.timeout_min > self.timeout_max {
            return fail("timeout_min", &self.timeout_min, "more than 0 and at most timeout_max");
        }
        if self.timeout_initial < self.timeout_min || self.timeout_initial > self.timeout_max {
            return fail("timeout_initial", &self.timeout_initial, "timeout_min to timeout_max");
        }
        if self.give_up <= self.timeout_initial {
            return fail("give_up", &self.give_up, "more than timeout_initial");
        }
        if self.keepalive.is_some_and(|interval| interval < self.timeout_min) {
            return fail("keepalive", &self.keepalive, "at least timeout_min, or off");
        }
        if self.ack_every == 0 {
            return fail("ack_every", &self.ack_every, "at least 1 packet");
        }
        if !(1..=1 << Key::INDEX_BITS).contains(&self.connections_max) {
            return fail("connections_max", &self.connections_max, "1 to 1048576");
        }
        if self.connections_per_port == 0 {
            return fail("connections_per_port", &self.connections_per_port, "at least 1");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range() {
        assert!(Settings::default().checked().is_ok());
    }

    #[test]
    fn a_setting_out_of_range_is_named() {
        let wrong = [
            ("window_max", Settings { window_max: 0, ..Settings::default() }),
            ("window_max", Settings { window_max: 257, ..Settings::default() }),
            ("window_min", Settings { window_min: 0, ..Settings::default() }),
            ("window_min", Settings { window_min: 9, window_max: 8, ..Settings::default() }),
            ("window_initial", Settings { window_initial: 3, ..Settings::default() }),
            ("window_initial", Settings { window_initial: 9, window_max: 8, ..Settings::default() }),
            (
                "timeout_min",
                Settings { timeout_min: Duration::from_nanos(1_000_000_001), ..Settings::default() },
            ),
            (
                "timeout_initial",
                Settings { timeout_initial: Duration::from_nanos(3_999_999), ..Settings::default() },
            ),
            ("give_up", Settings { give_up: Duration::from_millis(10), ..Settings::default() }),
            (
                "keepalive",
                Settings { keepalive: Some(Duration::from_nanos(3_999_999)), ..Settings::default() },
            ),
            ("timeout_min", Settings { timeout_min: Duration::ZERO, ..Settings::default() }),
            ("timeout_initial", Settings { timeout_initial: Duration::from_secs(5), ..Settings::default() }),
            ("give_up", Settings { give_up: Duration::from_millis(1), ..Settings::default() }),
            ("keepalive", Settings { keepalive: Some(Duration::ZERO), ..Settings::default() }),
            ("ack_every", Settings { ack_every: 0, ..Settings::default() }),
            ("connections_max", Settings { connections_max: 0, ..Settings::default() }),
            ("connections_max", Settings { connections_max: (1 << 20) + 1, ..Settings::default() }),
            ("connections_per_port", Settings { connections_per_port: 0, ..Settings::default() }),
        ];
        let just_right = [
            Settings { window_max: 1, window_min: 1, window_initial: 1, ..Settings::default() },
            Settings { window_max: 256, window_initial: 256, window_min: 256, ..Settings::default() },
            Settings { timeout_min: Duration::from_nanos(1), ..Settings::default() },
            Settings { timeout_initial: Duration::from_millis(4), ..Settings::default() },
            Settings { timeout_initial: Duration::from_secs(1), ..Settings::default() },
            Settings { give_up: Duration::from_nanos(10_000_001), ..Settings::default() },
            Settings { keepalive: Some(Duration::from_millis(4)), ..Settings::default() },
            Settings { ack_every: 1, ..Settings::default() },
            Settings { connections_max: 1, ..Settings::default() },
            Settings { connections_max: 1 << 20, connections_per_port: 1, ..Settings::default() },
        ];
        for settings in just_right {
            assert!(settings.clone().checked().is_ok(), "at the border: {settings:?}");
        }
        for (name, settings) in wrong {
            assert_eq!(settings.checked().expect_err(name).name, name);
        }
    }
}
