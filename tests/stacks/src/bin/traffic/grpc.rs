//! Unary calls of gRPC by tonic: all over one connection.

use std::time::Instant;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use uct_net::UctConnector;
use uct_stacks::grpc::{Answer, Question, TURN, router};

use crate::figures::{Figure, Phase, Times, requests};
use crate::sides::{self, Server};
use crate::way::{Engine, Listener, Way};
use crate::{Options, Outcome};

const NOT_SENDABLE: &str =
    "tonic takes what any thread may use: tcp-socket, or a transport by send or send-in-tokio";

pub fn serve(way: &Way) -> Outcome {
    way.run(async {
        let (listener, address) = way.listen().await?;
        sides::announce(&address)?;
        match listener {
            Listener::Tcp(listener) => Ok(axum::serve(without_delay(listener), router()).await?),
            Listener::Threads(listener) => Ok(axum::serve(listener.into_streams(), router()).await?),
            Listener::Unix(_) | Listener::Local(_) => Err(NOT_SENDABLE.into()),
        }
    })
}

fn without_delay(listener: TcpListener) -> impl axum::serve::Listener<Addr = std::net::SocketAddr> {
    // A socket that refuses is slower, which shows.
    listener.tap_io(|stream| drop(stream.set_nodelay(true)))
}

pub fn call(way: &Way, server: &Server, options: &Options) -> Outcome<Vec<Figure>> {
    way.run(clients(way, server, options))
}

async fn clients(way: &Way, server: &Server, options: &Options) -> Outcome<Vec<Figure>> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address))?;
    let channel = match &way.engine {
        Engine::TcpSocket => endpoint.connect().await?,
        Engine::Threads(net, name) => {
            endpoint.connect_with_connector(UctConnector::new(net).require(name)).await?
        }
        Engine::UnixSocket | Engine::Local(..) => return Err(NOT_SENDABLE.into()),
    };
    let phase = Phase::new(options);
    let clients = (0..options.in_flight).map(|_| client(channel.clone(), phase, options.size));
    requests(phase, server, clients.map(tokio::spawn).collect()).await
}

async fn client(channel: Channel, phase: Phase, size: usize) -> Outcome<Times> {
    let mut client = Grpc::new(channel);
    let mut times = Times::default();
    let mut begun = Instant::now();
    while !phase.is_over(begun) {
        client.ready().await?;
        let request = tonic::Request::new(Question { bytes: vec![1; size], count: 1 });
        let codec = ProstCodec::<Question, Answer>::default();
        let answer = client.unary(request, PathAndQuery::from_static(TURN), codec).await?.into_inner();
        if answer.bytes.len() != size {
            return Err("an answer of another length".into());
        }
        let now = Instant::now();
        if phase.has_begun(begun) {
            times.add(now - begun);
        }
        begun = now;
    }
    Ok(times)
}
