//! A connector for clients of hyper and tonic.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tower_service::Service;

use crate::error::Error;
use crate::{Net, Stream};

/// Connects a client to the listener that a URI names: for `hyper_util`'s legacy client, and for tonic's
/// `Endpoint::connect_with_connector`. Cheap to clone. It adds no TLS: a URI with `https` and no port connects to port 443, and that is all.
#[derive(Clone, Debug)]
pub struct UctConnector {
    net: Net,
    address: Option<String>,
    require: Vec<String>,
    #[cfg(feature = "tls")]
    server_name: Option<String>,
}

impl UctConnector {
    /// Connects to the host and port of each URI; without a port to 80, with `https` to 443.
    pub fn new(net: &Net) -> UctConnector {
        UctConnector {
            net: net.clone(),
            address: None,
            require: Vec::new(),
            #[cfg(feature = "tls")]
            server_name: None,
        }
    }

    /// Connects to this address whatever the URI is, for example `unix:/run/service`.
    #[must_use]
    pub fn at(mut self, address: impl Into<String>) -> UctConnector {
        self.address = Some(address.into());
        self
    }

    /// Only over a transport or device of this name, as [`crate::Connect::require`].
    #[must_use]
    pub fn require(mut self, name: impl Into<String>) -> UctConnector {
        self.require.push(name.into());
        self
    }

    /// The name in the listener's certificate, as [`crate::Connect::server_name`].
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> UctConnector {
        self.server_name = Some(name.into());
        self
    }

    fn address_of(&self, uri: &Uri) -> String {
        if let Some(address) = &self.address {
            return address.clone();
        }
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        format!("{}:{port}", uri.host().unwrap_or_default())
    }
}

impl Service<Uri> for UctConnector {
    type Response = TokioIo<Stream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Stream>, Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connect = self.net.connect(self.address_of(&uri));
        let connect = self.require.iter().cloned().fold(connect, crate::Connect::require);
        #[cfg(feature = "tls")]
        let connect = self.server_name.iter().cloned().fold(connect, crate::Connect::server_name);
        Box::pin(async move { Ok(TokioIo::new(connect.await?.into_stream())) })
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use uct_host::Context;
    use uct_host::configuration::Sources;

    use super::*;
    use crate::NetOptions;

    #[test]
    fn a_uri_becomes_an_address() {
        let context = Context::builder().sources(Sources::default()).build().expect("a context");
        let connector = UctConnector::new(&Net::new(&context, NetOptions::default()).expect("a net"));
        let address = |uri: &'static str| connector.address_of(&Uri::from_static(uri));
        assert_eq!(address("http://db:7000/path"), "db:7000");
        assert_eq!(address("http://db/"), "db:80");
        assert_eq!(address("https://db/"), "db:443");
        assert_eq!(address("http://[::1]:7000/"), "[::1]:7000");
        let fixed = connector.clone().at("unix:/run/service");
        assert_eq!(fixed.address_of(&Uri::from_static("http://db/")), "unix:/run/service");
    }
}
