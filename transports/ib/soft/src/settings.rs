//! What the environment says of the device.
//!
//! For `abi`. Read once; listing devices fails while a variable is invalid.

use std::net::IpAddr;
use std::sync::OnceLock;

use crate::driver::Options;
use crate::script::Script;

/// What the variables say.
pub struct Settings {
    /// The device's name.
    pub name: String,
    /// How it is started.
    pub options: Options,
    error: Option<String>,
}

impl Settings {
    /// Those of this process.
    pub fn of_process() -> &'static Settings {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok()))
    }

    /// Which variable is no value, and why.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Reads variables with this function.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Settings {
        let mut settings = Settings { name: "soft0".to_owned(), options: Options::default(), error: None };
        if let Err(error) = settings.fill(variable) {
            settings.error = Some(error);
        }
        settings
    }

    fn fill(&mut self, variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
        let given = |name| variable(name).filter(|value| !value.is_empty());
        if let Some(name) = given("SOFTVERBS_NAME") {
            let is_name =
                name.len() < 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_name {
                return Err(format!(
                    "SOFTVERBS_NAME={name}: up to 63 letters, digits and underscores are a name"
                ));
            }
            self.name = name;
        }
        if let Some(address) = given("SOFTVERBS_ADDRESS") {
            let is_of_one = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_multicast();
            let parsed = address.parse().ok().filter(is_of_one);
            let expected =
                || format!("SOFTVERBS_ADDRESS={address}: an IP address of this machine is expected");
            self.options.address = Some(parsed.ok_or_else(expected)?);
        }
        if let Some(thread) = given("SOFTVERBS_THREAD") {
            self.options.is_inline = match thread.as_str() {
                "yes" => false,
                "no" => true,
                _ => return Err(format!("SOFTVERBS_THREAD={thread}: yes or no is expected")),
            };
        }
        if let Some(faults) = given("SOFTVERBS_FAULTS") {
            self.options.faults =
                Script::parse(&faults).map_err(|error| format!("SOFTVERBS_FAULTS={faults}: {error}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Settings {
        Settings::read(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()))
    }

    #[test]
    fn without_variables_there_is_a_device() {
        let settings = read(&[]);
        assert_eq!((settings.name.as_str(), settings.error()), ("soft0", None));
    }

    #[test]
    fn all_of_it_is_read() {
        let settings = read(&[
            ("SOFTVERBS_NAME", "mlx5_0"),
            ("SOFTVERBS_ADDRESS", "10.0.0.5"),
            ("SOFTVERBS_THREAD", "no"),
            ("SOFTVERBS_FAULTS", "seed=7 loss=1% kill-qp@3"),
        ]);
        assert_eq!((settings.name.as_str(), settings.error()), ("mlx5_0", None));
        assert_eq!(settings.options.address, Some(IpAddr::from([10, 0, 0, 5])));
        assert!(settings.options.is_inline);
        assert_eq!(Ok(settings.options.faults), Script::parse("seed=7 loss=1% kill-qp@3"));
    }

    #[test]
    fn a_name_has_up_to_63_bytes() {
        for (length, is_one) in [(1, true), (63, true), (64, false)] {
            let name = "a".repeat(length);
            let settings = read(&[("SOFTVERBS_NAME", &name)]);
            assert_eq!((settings.error().is_none(), settings.name == name), (is_one, is_one), "{length}");
        }
    }

    #[test]
    fn what_is_no_value_is_named() {
        for (name, value, why) in [
            ("SOFTVERBS_NAME", "a/b", "letters"),
            ("SOFTVERBS_ADDRESS", "host", "IP address"),
            ("SOFTVERBS_ADDRESS", "0.0.0.0", "of this machine"),
            ("SOFTVERBS_ADDRESS", "ff02::1", "of this machine"),
            ("SOFTVERBS_THREAD", "1", "yes or no"),
            ("SOFTVERBS_FAULTS", "loss=1", "is not a share"),
            ("SOFTVERBS_FAULTS", "lost=1%", "there is no fault `lost`"),
        ] {
            let settings = read(&[(name, value)]);
            let error = settings.error().expect("it is none");
            assert!(error.contains(name) && error.contains(why), "{error}");
        }
    }
}
