//! TLS inside of a stream: both sides prove who they are to rustls, and a stranger's certificate is refused.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::roads::{Road, pattern, same_over_every_road};

/// The server's settings, and those of a client that trusts it.
fn settings() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["here.test".to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.clone()], key).expect("they belong together");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    (server, ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

async fn exchange(road: Road) -> (Vec<u8>, Vec<u8>, bool) {
    let (server_settings, client_settings) = settings();
    let (_, stranger) = settings();
    let mut server = road.listen().await;
    let address = server.address.clone();
    let acceptor = TlsAcceptor::from(Arc::new(server_settings));
    let serving = tokio::spawn(async move {
        let mut stream = acceptor.accept(server.accept().await).await.expect("a handshake");
        let mut length = [0; 8];
        stream.read_exact(&mut length).await.expect("a length");
        let mut received = vec![0; u64::from_le_bytes(length) as usize];
        stream.read_exact(&mut received).await.expect("the bytes");
        received.reverse();
        stream.write_all(&received).await.expect("it is sent");
        stream.shutdown().await.expect("it is sent");
        // The second caller does not trust this server.
        let refused = acceptor.accept(server.accept().await).await.is_err();
        (received, refused)
    });
    let name = ServerName::try_from("here.test").expect("a name");
    let connector = TlsConnector::from(Arc::new(client_settings));
    let mut stream =
        connector.connect(name.clone(), road.connect(&address).await).await.expect("a handshake");
    let sent = pattern(1_000_000, 5);
    stream.write_all(&(sent.len() as u64).to_le_bytes()).await.expect("it is sent");
    stream.write_all(&sent).await.expect("it is sent");
    stream.flush().await.expect("it is sent");
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.expect("the bytes and an orderly end");
    let stranger = TlsConnector::from(Arc::new(stranger));
    assert!(stranger.connect(name, road.connect(&address).await).await.is_err(), "an unknown certificate");
    let (received, refused) = serving.await.expect("the server's task");
    assert!(back.iter().rev().eq(sent.iter()));
    (back, received, refused)
}

#[test]
fn tls_answers_the_same_over_every_transport() {
    same_over_every_road(exchange);
}
