use super::*;
use Purpose::{Connect, Listen, Locate};

/// An address, written so that a case fits a line: `ip …`, `name host service`, `unix …`.
fn shown(text: &str, purpose: Purpose) -> String {
    match ParsedAddress::parse(text, purpose) {
        Ok(ParsedAddress::Ip(address)) => format!("ip {address}"),
        Ok(ParsedAddress::Name { host, service }) => format!("name {host} {service}"),
        Ok(ParsedAddress::Unix(path)) => format!("unix {}", path.display().to_string().replace('\0', "@")),
        Err(error) => format!("bad {error}"),
    }
}

#[test]
fn each_form_is_read_as_what_it_means() {
    for (text, purpose, expected) in [
        ("1.2.3.4:7000", Connect, "ip 1.2.3.4:7000"),
        (" 1.2.3.4:7000\n", Connect, "ip 1.2.3.4:7000"),
        ("[::1]:7000", Connect, "ip [::1]:7000"),
        ("[fe80::1%1]:7000", Connect, "ip [fe80::1%1]:7000"),
        ("[fe80::1%lo]:7000", Connect, "ip [fe80::1%1]:7000"),
        ("[fe80::1%lo]:7000", Listen, "ip [fe80::1%1]:7000"),
        ("[fe80::1%lo/64]:7000", Listen, "ip [fe80::1%1]:7000"),
        ("[::1%lo]:7000", Connect, "ip [::1%1]:7000"),
        ("[::ffff:1.2.3.4]:7000", Connect, "ip 1.2.3.4:7000"),
        ("[::ffff:1.2.3.4]:7000", Listen, "ip 1.2.3.4:7000"),
        ("10.0.0.1/24:7000", Listen, "ip 10.0.0.1:7000"),
        ("[fd00::1/64]:7000", Listen, "ip [fd00::1]:7000"),
        ("[::]:7000", Listen, "ip [::]:7000"),
        ("0.0.0.0:0", Listen, "ip 0.0.0.0:0"),
        ("*:7000", Listen, "ip [::]:7000"),
        (":7000", Listen, "ip [::]:7000"),
        ("[*]:7000", Listen, "ip [::]:7000"),
        ("*:http", Listen, "name :: http"),
        ("host:7000", Connect, "name host 7000"),
        ("host:http", Connect, "name host http"),
        ("1.2.3.4:http", Connect, "name 1.2.3.4 http"),
        ("[fe80::1%lo]:http", Connect, "name fe80::1%lo http"),
        ("db-1.example.:7000", Connect, "name db-1.example. 7000"),
        ("unix:/run/service", Connect, "unix /run/service"),
        ("unix:beside", Listen, "unix beside"),
        ("unix:@name", Connect, "unix @name"),
        ("unix:@/a name", Listen, "unix @/a name"),
        ("10.0.0.1", Locate, "ip 10.0.0.1:0"),
        ("10.0.0.1:7000", Locate, "ip 10.0.0.1:7000"),
        ("fe80::1%lo", Locate, "ip [fe80::1%1]:0"),
        ("fe80::1%1", Locate, "ip [fe80::1%1]:0"),
        ("::ffff:1.2.3.4", Locate, "ip 1.2.3.4:0"),
        ("[fd00::1]:7000", Locate, "ip [fd00::1]:7000"),
    ] {
        assert_eq!(shown(text, purpose), expected, "{text:?}, {purpose:?}");
    }
}

#[test]
fn a_wrong_address_is_refused_with_what_is_wrong_and_the_form_that_was_expected() {
    let long = format!("unix:/{}", "x".repeat(UNIX_PATH));
    for (text, purpose, reason, remedy) in [
        ("", Connect, "it is empty", "host:port"),
        ("  ", Listen, "it is empty", "*:port"),
        ("localhost", Connect, "names no port", "host:port"),
        ("1.2.3.4", Connect, "names no port", "1.2.3.4:port"),
        ("1.2.3.4:", Connect, "names no port", "1.2.3.4:port"),
        ("10.0.0.1/24", Listen, "names no port", "1.2.3.4:port"),
        ("[::1]", Connect, "names no port", "[::1]:port"),
        ("fe80::1%lo", Connect, "names no port", "[fe80::1%lo]:port"),
        ("::ffff:1.2.3.4", Connect, "names no port", "[::ffff:1.2.3.4]:port"),
        ("::1:7000", Connect, "names no port", "[::1]:port"),
        ("10.0.0.1/24:7000", Connect, "names a network", "leave out /24: 10.0.0.1"),
        ("10.0.0.1/24", Locate, "names a network", "leave out /24: 10.0.0.1"),
        ("10.0.0.1/x:7000", Listen, "prefix", "1.2.3.4:port"),
        ("10.0.0.1%lo:7000", Connect, "no scope", "10.0.0.1"),
        ("*:7000", Connect, "names no host", "localhost:7000"),
        (":7000", Connect, "names no host", "localhost:7000"),
        ("1.2.3.4:0", Connect, "port 0", "the listener has"),
        ("1.2.3.4:70000", Connect, "\"70000\" is not a port", "0 to 65535"),
        ("1.2.3.4:-1", Listen, "\"-1\" is not a port", "0 to 65535"),
        ("1.2.3.4:+1", Listen, "\"+1\" is not a port", "0 to 65535"),
        ("1.2.3.4:70:00", Connect, "no port", "1.2.3.4:port"),
        ("a:b:c", Connect, "no port", "host:port"),
        ("[::1:7000", Connect, "bracket", "[::1]:port"),
        ("[::1]7000", Connect, "in place of :port", "[::1]:port"),
        ("[host:1]:7000", Connect, "neither", "[::1]:port"),
        ("ho st:7000", Connect, "a blank", "host:port"),
        ("host: 7000", Connect, "a blank", "host:port"),
        ("a,b:7000", Connect, "neither", "host:port"),
        ("tcp://host:7000", Connect, "tcp://", "leave that out: host:7000"),
        ("/run/service", Connect, "a path", "unix:/run/service"),
        ("@name", Listen, "a path", "unix:@name"),
        ("unix:", Listen, "no path", "unix:/path or unix:@name"),
        ("unix:@", Listen, "no path", "unix:@name"),
        ("unix:/a\0b", Listen, "zero byte", "unix:/path"),
        (&*long, Listen, "109 bytes", "at most 107"),
        ("[fe80::1%no-such-dev]:7000", Connect, "no network device \"no-such-dev\"", ""),
        ("[fe80::1]:7000", Connect, "does not name which", ""),
        ("fe80::1", Locate, "does not name which", ""),
        ("host", Locate, "not an IP address", "10.0.0.1"),
        ("10.0.0.1:http", Locate, "not a port", "0 to 65535"),
        ("unix:/run/service", Locate, "a path", "10.0.0.1"),
    ] {
        let refused = shown(text, purpose);
        assert!(refused.starts_with("bad "), "{text:?}, {purpose:?}: {refused}");
        assert!(refused.contains(reason) && refused.contains(remedy), "{text:?}, {purpose:?}: {refused}");
    }
}

#[test]
fn a_link_local_address_without_its_link_is_refused_with_the_links_that_exist() {
    let refused = ParsedAddress::parse("[fe80::1]:7000", Connect).unwrap_err();
    let snapshot = snapshot::current().unwrap();
    let has_one = |link: &crate::sys::net::link::Link| {
        link.addresses.iter().any(|own| matches!(own.address, IpAddr::V6(ip) if ip.is_unicast_link_local()))
    };
    for (name, _) in snapshot.links.iter().filter(|(_, link)| has_one(link)).take(MAX_NAMED - 1) {
        assert!(refused.remedy.contains(name.as_str()), "{name}: {refused}");
    }
    assert!(!refused.remedy.is_empty());
}

#[test]
fn names_are_looked_up_with_numbers_and_with_services() {
    assert!(look_up("127.0.0.1", "7000").unwrap().contains(&"127.0.0.1:7000".parse().unwrap()));
    if let Some(port) = services::port("http") {
        assert_eq!(look_up("::1", "http").unwrap(), [SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port)]);
    }
    let unknown = look_up("localhost", "no-such-service").unwrap_err();
    assert!(unknown.to_string().contains("\"no-such-service\""), "{unknown}");
    assert!(unknown.to_string().contains("number"), "{unknown}");
}

#[test]
fn the_host_of_an_address_has_no_port_and_no_scope() {
    let host = |text| ParsedAddress::parse(text, Connect).unwrap().host();
    assert_eq!(host("db.example:7000").as_deref(), Some("db.example"));
    assert_eq!(host("1.2.3.4:7000").as_deref(), Some("1.2.3.4"));
    assert_eq!(host("[fe80::1%lo]:7000").as_deref(), Some("fe80::1"));
    assert_eq!(host("[fe80::1%lo]:http").as_deref(), Some("fe80::1"));
    assert_eq!(host("unix:/run/service"), None);
}
