//! How the system detects that the peer of a lane inside TLS is gone: keepalive probes, and a limit for acknowledgements. `tcp` sees one
//! end of a pair of Unix sockets, so its keys are applied to the network's socket here.

use std::time::Duration;

use socket2::{Domain, Socket, TcpKeepalive};
use ucs::config::{Config, Value};
use ucs::units::Time;

/// The settings of a socket.
pub(crate) struct PeerLoss {
    keepalive: Option<TcpKeepalive>,
    user_timeout: Option<Duration>,
}

impl PeerLoss {
    /// By the keys of a transport: `keepidle`, `keepintvl`, `keepcnt`, `user_timeout`. What a transport has no key for is left to the system.
    pub(crate) fn of(config: &Config, transport: &str) -> PeerLoss {
        let value = |key| config.value(transport, key).map(|setting| &setting.value);
        let time = |key| value(key).and_then(Value::as_time);
        let keepalive = time("keepidle").filter(|idle| !idle.is_inf()).map(|idle| {
            let mut keepalive = TcpKeepalive::new().with_time(whole_seconds(idle));
            if let Some(interval) = time("keepintvl") {
                keepalive = keepalive.with_interval(whole_seconds(interval));
            }
            if let Some(count) = value("keepcnt").and_then(Value::as_u64) {
                keepalive = keepalive.with_retries(u32::try_from(count).unwrap_or(u32::MAX));
            }
            keepalive
        });
        let user_timeout = time("user_timeout").filter(|limit| !limit.is_inf()).map(Time::to_duration);
        PeerLoss { keepalive, user_timeout }
    }

    /// Has the system report a peer that is gone. A Unix socket does so by itself.
    pub(crate) fn set(&self, socket: &Socket) -> std::io::Result<()> {
        if socket.domain()? == Domain::UNIX {
            return Ok(());
        }
        if let Some(keepalive) = &self.keepalive {
            socket.set_tcp_keepalive(keepalive)?;
        }
        if self.user_timeout.is_some() {
            socket.set_tcp_user_timeout(self.user_timeout)?;
        }
        Ok(())
    }
}

/// The system counts whole seconds, at least one and at most 32767.
fn whole_seconds(time: Time) -> Duration {
    Duration::from_secs(time.seconds().clamp(1.0, 32_767.0).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use socket2::Type;
    use uct_host::Context;
    use uct_host::configuration::Sources;

    use super::*;

    /// A socket with the settings of a context whose keys have these values.
    fn socket(keys: &[(&str, &str)]) -> Socket {
        let overrides = keys.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let sources = Sources { overrides, ..Sources::default() };
        let context = Context::builder().sources(sources).build().expect("a context");
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        PeerLoss::of(context.config(), "tcp").set(&socket).expect("set");
        socket
    }

    #[test]
    fn the_keys_of_tcp_decide_when_the_system_reports_a_peer_that_is_gone() {
        let usual = socket(&[]);
        assert!(usual.keepalive().expect("read"));
        assert_eq!(usual.tcp_keepalive_time().expect("read"), Duration::from_secs(10));
        assert_eq!(usual.tcp_user_timeout().expect("read"), Some(Duration::from_secs(30)));
        let set = socket(&[
            ("tcp.keepidle", "1500ms"),
            ("tcp.keepintvl", "3s"),
            ("tcp.keepcnt", "5"),
            ("tcp.user_timeout", "70ms"),
        ]);
        assert_eq!(set.tcp_keepalive_time().expect("read"), Duration::from_secs(2));
        assert_eq!(set.tcp_keepalive_interval().expect("read"), Duration::from_secs(3));
        assert_eq!(set.tcp_keepalive_retries().expect("read"), 5);
        assert_eq!(set.tcp_user_timeout().expect("read"), Some(Duration::from_millis(70)));
    }

    #[test]
    fn never_leaves_it_to_the_system_and_a_unix_socket_needs_nothing() {
        let never = socket(&[("tcp.keepidle", "inf"), ("tcp.user_timeout", "inf")]);
        assert!(!never.keepalive().expect("read"));
        assert_eq!(never.tcp_user_timeout().expect("read"), None);
        let (unix, _other) = Socket::pair(Domain::UNIX, Type::STREAM, None).expect("a pair");
        let context = Context::builder().sources(Sources::default()).build().expect("a context");
        PeerLoss::of(context.config(), "tcp").set(&unix).expect("there is nothing to set");
    }
}
