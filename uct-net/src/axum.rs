//! A listener for axum's server.

use std::io;

use crate::{Stream, Streams};

/// For `axum::serve(listener.into_streams(), router)`. The address of a connection is the peer's, as text for humans.
impl axum::serve::Listener for Streams {
    type Io = Stream;
    type Addr = String;

    async fn accept(&mut self) -> (Stream, String) {
        let stream = self.next().await;
        let peer = stream.connection().peer().to_owned();
        (stream, peer)
    }

    fn local_addr(&self) -> io::Result<String> {
        Ok(self.address().to_owned())
    }
}
