//! A handshake inside TLS: the client knows the server by its certificate before either tells anything.
//!
//!     tls_handshake FILE                 the server: writes its certificate to FILE, and prints how to start the client
//!     tls_handshake FILE HOST:PORT       the client: trusts that certificate and no other
//!
//! `Tls::confidential` permits transports within the machine, and between machines `tcp` inside the same TLS. `Tls::handshake_only` permits all
//! transports, without TLS.

#![forbid(unsafe_code)]

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use uct_core::Context;
use uct_net::local::Net;
use uct_net::{NetOptions, Tls};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [file] => serve(file),
        [file, address] => call(file, address),
        _ => Err("expected FILE or FILE HOST:PORT".into()),
    }
}

fn net(tls: Tls) -> Result<Net> {
    Ok(Net::new(&Context::builder().build()?, NetOptions { tls: Some(tls), ..NetOptions::default() })?)
}

fn serve(file: &str) -> Result {
    // In production: a certificate that an authority has issued.
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(file, made.cert.der())?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let settings =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    let net = net(Tls::confidential().server(settings))?;
    net.block_on(async {
        let mut listener = net.listen("[::]:0").await?;
        println!("now start: tls_handshake {file} localhost:{}", listener.port().unwrap_or_default());
        let connection = listener.accept().await?.accept().await?;
        connection.send(b"hello").await?;
        println!("a client over {}", connection.explanation().chosen);
        Ok(connection.close().await?)
    })
}

fn call(file: &str, address: &str) -> Result {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(file)?))?;
    let settings = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let net = net(Tls::confidential().client(settings))?;
    net.block_on(async {
        // The certificate has to be for the host that is called.
        let connection = net.connect(address).await?;
        println!("over {}", connection.explanation().chosen);
        println!("the server says {}", String::from_utf8_lossy(&connection.recv().await?));
        Ok(())
    })
}
