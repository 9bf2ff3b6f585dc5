//! Two network namespaces between which one port is forwarded, and nothing else: the listener's. Neither side's addresses lead to it from
//! the other one, and each sees the address of the forwarder.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use crate::support::child::{self, line};
use crate::support::namespaces::inside;
use crate::support::{self, LIMIT, skip, with};
use uct_net::local::Net;
use uct_net::{NetOptions, Result};

/// What this process is to be, and the key that it is to know.
const ROLE: &str = "UCT_NET_TEST_ROLE";
const KEY: &str = "UCT_NET_TEST_KEY";
/// The file for the server's certificate, if all is to be inside TLS.
const CERTIFICATE: &str = "UCT_NET_TEST_CERTIFICATE";
const CONNECTIONS: usize = 3;
const LARGE: usize = 1 << 20;
/// What is sent in large messages.
const CONTENT: u8 = 7;

fn options() -> NetOptions {
    let shared_key = std::env::var(KEY).ok().map(String::into_bytes);
    NetOptions {
        shared_key,
        #[cfg(feature = "tls")]
        tls: std::env::var(CERTIFICATE).ok().map(|file| tls(&file)),
        ..support::patient()
    }
}

/// The server makes a certificate, which the client finds in the file.
#[cfg(feature = "tls")]
fn tls(file: &str) -> uct_net::Tls {
    use uct_net::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use uct_net::rustls::{ClientConfig, RootCertStore, ServerConfig};

    if std::env::var(ROLE).as_deref() == Ok("server") {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        std::fs::write(file, made.cert.der()).expect("a file");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let settings = ServerConfig::builder().with_no_client_auth();
        let settings = settings.with_single_cert(vec![made.cert.der().clone()], key);
        return uct_net::Tls::confidential().server(settings.expect("they belong together"));
    }
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(file).expect("the server's file"))).expect("a root");
    let settings = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    uct_net::Tls::confidential().client(settings)
}

fn net() -> Net {
    Net::new(&with(&[("tls", "tcp")]), options()).expect("a net")
}

async fn serve(net: &Net) -> Result<()> {
    let mut listener = net.listen("127.0.0.1:0").await?;
    println!("port {}", listener.port().expect("a port"));
    for _ in 0..CONNECTIONS {
        let connection = listener.accept().await?.accept().await?;
        let message = connection.recv().await?;
        connection.send(&message).await?;
        assert_eq!(*connection.recv().await?, vec![CONTENT; LARGE]);
        connection.send(b"all").await?;
        connection.close().await?;
    }
    Ok(())
}

async fn call(net: &Net, port: u16) -> Result<()> {
    for at in 0..CONNECTIONS {
        let connection = net.connect(format!("127.0.0.1:{port}")).await?;
        println!("chosen {}", connection.explanation().chosen);
        let message = at.to_le_bytes();
        connection.send(&message).await?;
        assert_eq!(&*connection.recv().await?, &message);
        connection.send(&vec![CONTENT; LARGE]).await?;
        assert_eq!(&*connection.recv().await?, b"all");
        connection.close().await?;
    }
    Ok(())
}

/// The two programs, each in a namespace of its own.
#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Ok("server") => {
            let net = net();
            net.block_on(serve(&net)).expect("the server's side");
        }
        Ok("client") => {
            println!("ready");
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).expect("a port");
            let net = net();
            net.block_on(call(&net, line.trim().parse().expect("a port"))).expect("the client's side");
        }
        _ => {}
    }
}

/// This program again, in a network namespace of its own that has loopback alone.
fn spawn(role: &str, key: Option<&str>, certificate: Option<&str>) -> Child {
    let program = child::program(self::role);
    let mut command = Command::new("unshare");
    command.args(["--net", "--", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]);
    command.arg(program.get_program()).args(program.get_args());
    command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(key) = key {
        command.env(KEY, key);
    }
    if let Some(certificate) = certificate {
        command.env(CERTIFICATE, certificate);
    }
    command.spawn().expect("unshare (util-linux) starts")
}

fn copy(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        seen.lock().expect("no panic").extend_from_slice(&bytes[..length]);
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn through_one_port(key: Option<&'static str>, certificate: Option<&'static str>) {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let file = certificate.map(|name| std::env::temp_dir().join(format!("{name}-{}", std::process::id())));
    let file = file.as_deref().and_then(std::path::Path::to_str);
    let (mut server, mut client) = (spawn("server", key, file), spawn("client", key, file));
    let record = Arc::<Mutex<Vec<u8>>>::default();
    let seen = Arc::clone(&record);
    let (port, mut from_server) = line(&mut server, "port");
    let port: u16 = port.parse().expect("a port");
    let (_, mut from_client) = line(&mut client, "ready");
    let (server_id, (tell, forwarded)) = (server.id(), mpsc::channel());
    inside(client.id(), move || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port in the client's namespace");
        tell.send(listener.local_addr().expect("its address").port()).expect("it is awaited");
        for near in listener.incoming().map_while(std::result::Result::ok) {
            let far = inside(server_id, move || TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
            let Ok(Ok(far)) = far.join() else { return };
            let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let (there, back) = (Arc::clone(&record), Arc::clone(&record));
            thread::spawn(move || copy(near, far, &there));
            thread::spawn(move || copy(far_too, near_too, &back));
        }
    });
    let forwarded = forwarded.recv_timeout(LIMIT).expect("the forwarder listens");
    writeln!(client.stdin.take().expect("piped"), "{forwarded}").expect("the client reads");

    let (end, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut output = String::new();
        from_client.read_to_string(&mut output).expect("text");
        let client = client.wait().expect("the client ends");
        let mut rest = String::new();
        from_server.read_to_string(&mut rest).expect("text");
        let server = server.wait().expect("the server ends");
        end.send((output, client.success(), server.success())).expect("it is awaited");
    });
    let (output, client, server) = ended.recv_timeout(LIMIT).expect("both programs end");
    assert!(client && server, "client {client}, server {server}: {output}");
    let chosen = if certificate.is_some() { "chosen tcp/lo inside TLS\n" } else { "chosen tcp/lo\n" };
    assert_eq!(output.matches(chosen).count(), CONNECTIONS, "{output}");
    let seen = seen.lock().expect("no panic");
    assert!(seen.len() > CONNECTIONS * LARGE, "{} bytes went through", seen.len());
    let is_in_clear = seen.windows(64).any(|window| window.iter().all(|byte| *byte == CONTENT));
    assert_eq!(is_in_clear, certificate.is_none());
    if let Some(file) = file {
        let _ = std::fs::remove_file(file);
    }
}

#[test]
fn one_forwarded_port_is_enough() {
    through_one_port(None, None);
}

#[test]
fn one_forwarded_port_is_enough_for_a_shared_key() {
    through_one_port(Some("a key of more than sixteen bytes"), None);
}

#[cfg(feature = "tls")]
#[test]
fn one_forwarded_port_is_enough_for_a_lane_inside_tls() {
    through_one_port(None, Some("uct-net-one-port"));
}
