//! HTTP/1.1 by hyper: requests without a body, responses of some bytes, each connection with one request at a time.

use std::convert::Infallible;
use std::time::Instant;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::rt::TokioIo;
use tokio::task::{LocalSet, spawn_local};

use crate::figures::{Figure, Phase, Times, requests};
use crate::sides::{self, Server};
use crate::way::{self, Way};
use crate::{Options, Outcome};

pub fn serve(way: &Way, options: &Options) -> Outcome {
    let tasks = LocalSet::new();
    way.run(tasks.run_until(accept(way, options)))
}

async fn accept(way: &Way, options: &Options) -> Outcome {
    let body = Bytes::from(vec![1; options.size]);
    let (mut listener, address) = way.listen().await?;
    sides::announce(&address)?;
    loop {
        let stream = TokioIo::new(listener.accept().await?);
        let body = body.clone();
        let answer = move |_request: Request<Incoming>| {
            let response = Response::new(Full::new(body.clone()));
            async { Ok::<_, Infallible>(response) }
        };
        spawn_local(server::conn::http1::Builder::new().serve_connection(stream, service_fn(answer)));
    }
}

pub fn request(way: &Way, server: &Server, options: &Options) -> Outcome<Vec<Figure>> {
    let tasks = LocalSet::new();
    way.run(tasks.run_until(clients(way, server, options)))
}

async fn clients(way: &Way, server: &Server, options: &Options) -> Outcome<Vec<Figure>> {
    let mut streams = Vec::new();
    for _ in 0..options.in_flight {
        streams.push(way.connect(&server.address).await?);
    }
    let phase = Phase::new(options);
    let clients = streams.into_iter().map(|stream| client(stream, phase, options.size));
    requests(phase, server, clients.map(spawn_local).collect()).await
}

async fn client(stream: Box<dyn way::Bytes>, phase: Phase, size: usize) -> Outcome<Times> {
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    spawn_local(connection);
    let mut times = Times::default();
    let mut begun = Instant::now();
    while !phase.is_over(begun) {
        sender.ready().await?;
        let request = Request::get("/").header("host", "localhost").body(Empty::<Bytes>::new())?;
        let body = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
        if body.len() != size {
            return Err("a body of another length".into());
        }
        let now = Instant::now();
        if phase.has_begun(begun) {
            times.add(now - begun);
        }
        begun = now;
    }
    Ok(times)
}
