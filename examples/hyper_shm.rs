//! hyper over shared memory: HTTP between two programs of one machine, without a socket in the data path.
//!
//!     hyper_shm                          the server; it prints how to start the client
//!     hyper_shm HOST:PORT [TRANSPORT]    one request, over posix unless another transport is named
//!
//! A stream of `uct-net` takes the place of a TCP socket; the rest is hyper's usual code.

#![forbid(unsafe_code)]

use std::convert::Infallible;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::rt::TokioIo;
use uct_core::Context;
use uct_net::{Net, NetOptions};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result {
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    match std::env::args().nth(1) {
        None => serve(&net).await,
        Some(address) => request(&net, &address).await,
    }
}

async fn serve(net: &Net) -> Result {
    let listener = net.listen("[::]:0").await?;
    println!("now start: hyper_shm localhost:{}", listener.port().unwrap_or_default());
    // One client that fails, or stops in the middle, does not delay others.
    let mut streams = listener.into_streams();
    loop {
        let stream = streams.next().await;
        println!("a client over {}", stream.connection().explanation().chosen);
        let stream = TokioIo::new(stream);
        tokio::spawn(server::conn::http1::Builder::new().serve_connection(stream, service_fn(reply)));
    }
}

async fn reply(request: Request<Incoming>) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from(format!("you asked for {}\n", request.uri()))))
}

async fn request(net: &Net, address: &str) -> Result {
    let transport = std::env::args().nth(2).unwrap_or("posix".to_owned());
    let connection = net.connect(address).require(transport).await?;
    println!("over {}", connection.explanation().chosen);
    let stream = TokioIo::new(connection.into_stream());
    let (mut sender, connection) = client::conn::http1::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get("/news").header("host", address).body(Empty::<Bytes>::new())?;
    let reply = sender.send_request(request).await?;
    let status = reply.status();
    let body = reply.into_body().collect().await?.to_bytes();
    print!("{status}: {}", String::from_utf8_lossy(&body));
    drop(sender);
    Ok(connection.await??)
}
