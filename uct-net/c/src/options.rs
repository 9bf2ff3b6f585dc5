//! Pairs of texts as options of a net, a connection or a listener.

use std::str::FromStr;

use uct_core::Context;
use uct_core::select::{Operation, Request};
use uct_core::units::{MemSize, Time};
use uct_net::local::{Connect, Listen};
use uct_net::{NetOptions, Wait};

use super::failure::{Failure, Outcome};

/// What a program has set, in its order.
#[derive(Clone, Debug, Default)]
pub struct Options(Vec<(String, String)>);

impl Options {
    /// A later value takes the place of an earlier one.
    pub fn set(&mut self, key: &str, value: &str) {
        self.0.retain(|(own, _)| own != key);
        self.0.push((key.to_owned(), value.to_owned()));
    }

    /// For a net: the configuration, and options that are no keys of it.
    pub fn for_net(&self) -> Outcome<(Context, NetOptions)> {
        let mut options = NetOptions::default();
        let mut keys = Vec::new();
        for (key, value) in &self.0 {
            let time = || number::<Time>(key, value).map(Time::to_duration);
            let bytes = || number::<MemSize>(key, value).map(MemSize::to_usize);
            match key.as_str() {
                "wait" => options.wait = wait(value)?,
                "window" => options.window = u32::try_from(bytes()?).unwrap_or(u32::MAX),
                "max_message" => options.max_message = bytes()?,
                "connect_timeout" => options.connect_timeout = time()?,
                "handshake_timeout" => options.handshake_timeout = time()?,
                "lane_timeout" => options.lane_timeout = time()?,
                "max_half_open" => options.max_half_open = number(key, value)?,
                "max_connections" => options.max_connections = number(key, value)?,
                "max_connections_per_source" => options.max_connections_per_source = number(key, value)?,
                "reserved_descriptors" => options.reserved_descriptors = number(key, value)?,
                "shared_key" => options.shared_key = Some(value.clone().into_bytes()),
                "request" => options.request = request(value)?,
                _ => keys.push((key, value)),
            }
        }
        Ok((context(&keys)?, options))
    }

    /// For a connection.
    pub fn for_connect(&self, mut connect: Connect) -> Outcome<Connect> {
        for (key, value) in &self.0 {
            connect = match key.as_str() {
                "timeout" => connect.within(number::<Time>(key, value)?.to_duration()),
                "require" => value.split(',').fold(connect, |connect, name| connect.require(name.trim())),
                "request" => connect.request(request(value)?),
                "from" => connect.from(number(key, value)?),
                "by" => connect.by(value.as_str()),
                "private" => connect.private(value.as_bytes()),
                _ => return Err(unknown(key, "uct_connect", "timeout, require, request, from, by, private")),
            };
        }
        Ok(connect)
    }

    /// For a listener.
    pub fn for_listen(&self, mut listen: Listen) -> Outcome<Listen> {
        for (key, value) in &self.0 {
            listen = match key.as_str() {
                "by" => listen.by(value.as_str()),
                _ => return Err(unknown(key, "uct_listen", "by")),
            };
        }
        Ok(listen)
    }
}

fn unknown(key: &str, function: &str, keys: &str) -> Failure {
    Failure::invalid(format!("{function} has no option \"{key}\"; its options are {keys}"))
}

fn bad(key: &str, value: &str, reason: &dyn std::fmt::Display) -> Failure {
    Failure::invalid(format!("option {key} = \"{value}\": {reason}"))
}

fn number<T: FromStr<Err: std::fmt::Display>>(key: &str, value: &str) -> Outcome<T> {
    value.trim().parse().map_err(|error| bad(key, value, &error))
}

fn wait(value: &str) -> Outcome<Wait> {
    match value.trim() {
        "spin" => Ok(Wait::Spin),
        "sleep" => Ok(Wait::Sleep),
        time => Ok(Wait::Adaptive(number::<Time>("wait", time)?.to_duration())),
    }
}

/// An operation and its size: `get_zcopy 64k`.
fn request(value: &str) -> Outcome<Request> {
    let Some((operation, size)) = value.trim().split_once(char::is_whitespace) else {
        return Err(bad("request", value, &"expected an operation and a size, as \"get_zcopy 64k\""));
    };
    let operation = operation.parse::<Operation>().map_err(|error| bad("request", value, &error))?;
    Ok(Request::new(operation, number::<MemSize>("request", size)?.to_usize()))
}

/// The configuration of the process with these keys.
fn context(keys: &[(&String, &String)]) -> Outcome<Context> {
    let builder = keys.iter().fold(Context::builder(), |builder, (key, value)| builder.set(*key, *value));
    builder.build().map_err(|error| Failure::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        let mut options = Options::default();
        pairs.iter().for_each(|(key, value)| options.set(key, value));
        options
    }

    #[test]
    fn options_of_a_net_are_parsed_and_the_rest_are_keys_of_the_configuration() {
        let set = [("wait", "sleep"), ("window", "2m"), ("connect_timeout", "1500ms"), ("tls", "tcp")];
        let (context, net) = options(&[("window", "x"), set[0], set[1], set[2], set[3]]).for_net().unwrap();
        assert_eq!((net.wait, net.window), (Wait::Sleep, 2 << 20));
        assert_eq!(net.connect_timeout, Duration::from_millis(1500));
        assert!(context.config().value("", "tls").is_some());
        let set = [("wait", "50us"), ("request", "get_zcopy 64k")];
        let (_, net) = options(&set).for_net().unwrap();
        assert_eq!(net.wait, Wait::Adaptive(Duration::from_micros(50)));
        assert_eq!((net.request.operation, net.request.size), (Operation::GetZcopy, 65536));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (key, value, words) in [
            ("wait", "soon", "option wait"),
            ("max_message", "big", "option max_message = \"big\""),
            ("request", "get_zcopy", "expected an operation and a size"),
            ("request", "fly 8", "fly"),
            ("tsl", "tcp", "tsl"),
            ("tcp.tx_seg_size", "many", "tx_seg_size"),
        ] {
            let Err(failure) = options(&[(key, value)]).for_net() else { panic!("{key} is refused") };
            assert!(failure.text.contains(words), "{}", failure.text);
        }
    }
}
