//! Certificates for tests: an authority, and what it has issued.

use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use uct_net::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use uct_net::rustls::server::WebPkiClientVerifier;
use uct_net::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Issues certificates.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    /// One of a name: two of the same name are taken for each other until a signature is checked.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    /// For a name or an address.
    pub fn issue(&self, name: &str) -> Identity {
        self.issue_until(name, 2999)
    }

    /// Valid until the first day of a year.
    pub fn issue_until(&self, name: &str, year: i32) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        Identity { certificate, key }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("a root");
        roots
    }

    /// Settings of a client that trusts this authority, and has a certificate or none.
    pub fn client(&self, own: Option<&Identity>) -> ClientConfig {
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        match own {
            Some(own) => builder.with_client_auth_cert(own.chain(), own.key()).expect("they belong together"),
            None => builder.with_no_client_auth(),
        }
    }

    /// Settings of a client as text, for another process.
    pub fn exported(&self, own: Option<&Identity>) -> String {
        let own = own.map(|own| format!(",{},{}", hex(&own.certificate), hex(&own.key.serialize_der())));
        hex(self.certificate.der()) + &own.unwrap_or_default()
    }

    /// Settings of a server that accepts certificates of this authority, and callers without one.
    pub fn lenient_server(&self, own: &Identity) -> ServerConfig {
        let verifier = WebPkiClientVerifier::builder(Arc::new(self.roots())).allow_unauthenticated();
        let builder = ServerConfig::builder().with_client_cert_verifier(verifier.build().expect("roots"));
        builder.with_single_cert(own.chain(), own.key()).expect("they belong together")
    }

    /// Settings of a server that requires certificates of this authority.
    pub fn strict_server(&self, own: &Identity) -> ServerConfig {
        let verifier = WebPkiClientVerifier::builder(Arc::new(self.roots())).build().expect("roots");
        let builder = ServerConfig::builder().with_client_cert_verifier(verifier);
        builder.with_single_cert(own.chain(), own.key()).expect("they belong together")
    }
}

/// Settings of a client in another process, from [`Authority::exported`].
pub fn imported(text: &str) -> ClientConfig {
    let mut parts = text.split(',').map(unhex);
    let mut next = || parts.next().expect("a part");
    let mut roots = RootCertStore::empty();
    roots.add(next().into()).expect("a root");
    let builder = ClientConfig::builder().with_root_certificates(roots);
    match text.split(',').count() {
        1 => builder.with_no_client_auth(),
        _ => {
            let (chain, key) = (vec![next().into()], PrivateKeyDer::try_from(next()).expect("a key"));
            builder.with_client_auth_cert(chain, key).expect("they belong together")
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("a byte");
    (0..text.len()).step_by(2).map(byte).collect()
}

impl Identity {
    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key")
    }

    /// Settings of a server that requires nothing of its callers.
    pub fn server(&self) -> ServerConfig {
        let builder = ServerConfig::builder().with_no_client_auth();
        builder.with_single_cert(self.chain(), self.key()).expect("they belong together")
    }
}
