//! The ports that have names, from /etc/services.
//!
//! Used by `parse`. std's look-up takes numbers only.

/// The port of a service over TCP.
pub(super) fn port(name: &str) -> Option<u16> {
    find(&std::fs::read_to_string("/etc/services").ok()?, name)
}

/// A line is `name port/protocol alias… # comment`.
fn find(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (first, port) = (words.next()?, words.next()?.strip_suffix("/tcp")?);
        let is_meant = first == name || words.any(|alias| alias == name);
        is_meant.then(|| port.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_service_is_found_by_its_name_and_by_its_aliases() {
        let services = "# comment\n\nntp 123/udp\nhttp\t\t80/tcp\twww # WorldWideWeb web\nodd x/tcp\nshort\n";
        assert_eq!(find(services, "http"), Some(80));
        assert_eq!(find(services, "www"), Some(80));
        for unknown in ["web", "ntp", "odd", "short", "#", ""] {
            assert_eq!(find(services, unknown), None, "{unknown}");
        }
    }
}
