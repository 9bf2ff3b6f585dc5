//! The table of docs/errors.md with what each stage reports is that of the code: every error in it is provoked here. `UPDATE_DOCS=1`
//! writes its rows anew.

use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::logged_listener::LoggedListener;
use crate::support::raw::Raw;
use crate::support::{LIMIT, net, pair, patient, raw, with};
use uct_net::local::{Connect, Net};
use uct_net::{Error, NetOptions};

/// A limit that is reached, in place of the default.
const SHORT: Duration = Duration::from_millis(50);

/// An error with its cause. `variable` is a part of the text that differs each time, or from the default, and what stands for it.
struct Row {
    cause: &'static str,
    error: Error,
    variable: Vec<(String, &'static str)>,
}

impl Row {
    fn new(cause: &'static str, error: Error) -> Row {
        Row { cause, error, variable: Vec::new() }
    }

    fn replace(mut self, text: impl Into<String>, placeholder: &'static str) -> Row {
        self.variable.push((text.into(), placeholder));
        self
    }

    fn line(&self) -> String {
        let readable = |text: &str| {
            let with = |text: String, (from, to): &(String, &str)| text.replace(from, to);
            self.variable.iter().fold(text.to_owned(), with).trim_end().replace('\n', " ").replace('|', "\\|")
        };
        let Error { stage, status, reason, hint, .. } = &self.error;
        let status = status.status().name().expect("it has a name");
        let hint = hint.as_deref().map_or("–".to_owned(), readable);
        format!("| {stage} | {} | {status} | {} | {hint} |", self.cause, readable(reason))
    }
}

/// Fails to connect with options, at an address.
fn refused(options: NetOptions, address: &str, add: impl FnOnce(Connect) -> Connect) -> Error {
    let net = net(options);
    net.block_on(add(net.connect(address))).expect_err("it cannot connect")
}

fn resolve_and_listen() -> Vec<Row> {
    let net = net(patient());
    let listen = |address: &str| net.block_on(net.listen(address)).expect_err("it cannot listen");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("an address").to_string();
    vec![
        Row::new("an address without a port", refused(patient(), "db", |connect| connect)),
        Row::new("the port is in use", listen(&taken)),
        Row::new("the address is another machine's", listen("203.0.113.77:0")),
    ]
}

fn call() -> Vec<Row> {
    let path = std::env::temp_dir().join(format!("uct-net-table-{}", std::process::id()));
    let full = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
    full.bind(&socket2::SockAddr::unix(&path).expect("an address")).expect("bound");
    full.listen(0).expect("listens");
    let first = std::os::unix::net::UnixStream::connect(&path).expect("the queue takes one");
    let late = refused(patient(), &format!("unix:{}", path.display()), |connect| connect.within(SHORT));
    std::fs::remove_file(&path).expect("a socket");
    drop(first);
    let elsewhere = "203.0.113.77:0".parse().expect("an address");
    vec![
        Row::new("no program listens", refused(patient(), "127.0.0.1:1", |connect| connect)),
        Row::new("no Unix socket at the path", refused(patient(), "unix:/no/such/path", |connect| connect)),
        Row::new("no reply to the call", late).replace("50ms", "30s"),
        Row::new(
            "the source address is another machine's",
            refused(patient(), "127.0.0.1:1", |connect| connect.from(elsewhere)),
        )
        .replace("203.0.113.77:0", "ADDRESS"),
    ]
}

fn handshake() -> Vec<Row> {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_address = silent.local_addr().expect("an address").to_string();
    let impatient = NetOptions { handshake_timeout: SHORT, ..patient() };
    let late = refused(impatient, &silent_address, |connect| connect);
    let mail = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mail_address = mail.local_addr().expect("an address").to_string();
    let server = thread::spawn(move || {
        let mut caller = mail.accept().expect("a caller").0;
        caller.write_all(b"220 mail\r\n").expect("sent");
        // Until the caller has read it.
        let _ = std::io::copy(&mut caller, &mut std::io::sink());
    });
    let foreign = refused(patient(), &mail_address, |connect| connect);
    server.join().expect("the server's thread");
    let key = |text: &str| NetOptions { shared_key: Some(text.into()), ..patient() };
    let locked = LoggedListener::new(key("a key of sixteen bytes"));
    let without = refused(patient(), &locked.address, |connect| connect);
    let wrong = refused(key("another key of sixteen bytes"), &locked.address, |connect| connect);
    let mut rejected = None;
    pair(
        patient(),
        async |_net, mut listener| listener.accept().await?.reject("not today").await,
        async |net, address| {
            rejected = net.connect(address).await.err();
            Ok(())
        },
    );
    vec![
        Row::new("no reply in the handshake", late).replace("50ms", "5s"),
        Row::new("another program listens there", foreign),
        Row::new("the listener requires a shared key", without),
        Row::new("the sides have different shared keys", wrong),
        Row::new("the application rejects the caller", rejected.expect("an error")),
    ]
}

fn lane() -> Vec<Row> {
    let (sender, receiver) = mpsc::channel();
    let near = thread::spawn(move || {
        let net = Net::new(&with(&[("tls", "posix")]), patient()).expect("a net");
        net.block_on(async {
            let mut listener = net.listen("127.0.0.1:0").await?;
            sender.send(listener.address()).expect("it is awaited");
            listener.accept().await?.accept().await.map(|_| ())
        })
    });
    let address = receiver.recv_timeout(LIMIT).expect("it listens");
    let net = Net::new(&with(&[("tls", "tcp"), ("net_devices", "lo")]), patient()).expect("a net");
    let none = net.block_on(net.connect(address)).expect_err("nothing in common");
    near.join().expect("the listener's thread").expect_err("nothing in common");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address").to_string();
    let (end, ended) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        let raw = Raw::new();
        let mut caller = socket.accept().expect("a caller").0;
        assert_eq!(raw.welcome(&mut caller), raw::TAKEOVER);
        let _ = ended.recv_timeout(LIMIT);
    });
    // Devices and plugins of this machine.
    let others = none.reason.split_once("the peer offers no tcp").expect("the reason of tcp/lo").1.to_owned();
    let impatient = NetOptions { lane_timeout: SHORT, ..patient() };
    let late = refused(impatient, &address, |connect| connect.require("tcp/lo"));
    drop(end);
    server.join().expect("the server's thread");
    vec![
        Row::new("no transport that both sides have and permit", none)
            .replace(others, "; … (the reason of each other candidate)"),
        Row::new("the chosen transport carries nothing", late).replace("50ms", "2s"),
    ]
}

fn connection() -> Vec<Row> {
    let (mut aborted, mut closed, mut late) = (None, None, None);
    pair(
        patient(),
        async |_net, mut listener| {
            listener.accept().await?.accept().await?.abort("out of space");
            let connection = listener.accept().await?.accept().await?;
            connection.recv().within(LIMIT).await?;
            connection.close().await
        },
        async |net, address| {
            aborted = net.connect(&address).await?.recv().within(LIMIT).await.err();
            let connection = net.connect(&address).await?;
            late = connection.recv().within(Duration::ZERO).await.err();
            connection.send(b"close").await?;
            closed = connection.recv().within(LIMIT).await.err();
            Ok(())
        },
    );
    vec![
        Row::new("the peer's application aborts", aborted.expect("an error")),
        Row::new("a limit of the application is over", late.expect("an error")).replace("0ns", "LIMIT"),
        Row::new("the peer has closed", closed.expect("an error")),
    ]
}

#[test]
fn the_table_of_the_page_is_that_of_the_errors() {
    const HEAD: &str = "| stage | cause | status | message | remedy |";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors.md");
    // The virtual machine has the program and not the sources.
    let Ok(page) = std::fs::read_to_string(&path) else { return };
    let rows = [resolve_and_listen(), call(), handshake(), lane(), connection()];
    let rows = rows.iter().flatten().map(Row::line);
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let first = lines.iter().position(|line| line == HEAD).expect("the table is on the page") + 2;
    let end = first + lines[first..].iter().take_while(|line| !line.is_empty()).count();
    lines.splice(first..end, rows);
    let wanted = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).expect("the page is written");
    } else {
        let differs = |(is, wanted): &(&str, &str)| is != wanted;
        let first = page.lines().zip(wanted.lines()).find(differs);
        assert!(
            page == wanted,
            "docs/errors.md is not up to date; UPDATE_DOCS=1 writes its table anew: {first:?}"
        );
    }
}
