//! HTTP/1.1 by hyper, both sides; and axum behind hyper's pooled client, also beside callers that stall.

use std::io::Write;
use std::net::TcpStream;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::routing::{get, post};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use uct_net::UctConnector;

use crate::alone::is_alone;
use crate::roads::{Acceptor, LIMIT, Road, net, net_with, pattern, same_over_every_road};

type Body = Full<Bytes>;

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut reply = format!("{} {} {}\n", head.method, head.uri.path(), body.len()).into_bytes();
    reply.extend(body.iter().rev());
    Ok(Response::builder().header("x-length", body.len()).body(Full::from(reply)).expect("a response"))
}

async fn one_connection(road: Road) -> Vec<(u16, String, Vec<u8>)> {
    let mut server = road.listen().await;
    let address = server.address.clone();
    let serving = tokio::spawn(async move {
        let io = TokioIo::new(server.accept().await);
        hyper::server::conn::http1::Builder::new().serve_connection(io, service_fn(answer)).await
    });
    let io = TokioIo::new(road.connect(&address).await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("a handshake");
    let connection = tokio::spawn(connection);
    let mut answers = Vec::new();
    for (number, length) in [0, 1, 100, 5000, 70_000, 1_500_000].into_iter().enumerate() {
        let method = if length == 0 { Method::GET } else { Method::POST };
        let request = Request::builder().method(method).uri(format!("/{number}")).header("host", "here");
        let body = Body::from(pattern(length, number));
        sender.ready().await.expect("the connection lives");
        let reply = sender.send_request(request.body(body).expect("a request")).await.expect("a reply");
        let length = reply.headers()["x-length"].to_str().expect("a number").to_owned();
        let status = reply.status().as_u16();
        let body = reply.into_body().collect().await.expect("a body").to_bytes();
        answers.push((status, length, body.to_vec()));
    }
    drop(sender);
    connection.await.expect("the client's task").expect("an orderly end");
    serving.await.expect("the server's task").expect("an orderly end");
    answers
}

#[test]
fn hyper_answers_the_same_over_every_transport() {
    same_over_every_road(one_connection);
}

fn router() -> Router {
    Router::new()
        .route("/hello/{name}", get(|Path(name): Path<String>| async move { format!("hello, {name}") }))
        .route("/turned", post(|body: Bytes| async move { body.iter().rev().copied().collect::<Vec<u8>>() }))
}

async fn many_requests(road: Road) -> Vec<(u16, Vec<u8>)> {
    let server = road.listen().await;
    let address = server.address;
    let serving = match server.acceptor {
        Acceptor::Socket(listener) => tokio::spawn(async move { axum::serve(listener, router()).await }),
        Acceptor::Streams(streams) => tokio::spawn(async move { axum::serve(*streams, router()).await }),
    };
    let builder = || Client::builder(TokioExecutor::new());
    let answers = match road {
        Road::Socket => requests(&builder().build::<_, Body>(HttpConnector::new()), &address).await,
        Road::Transport(name) => {
            let connector = UctConnector::new(&net()).require(name);
            requests(&builder().build::<_, Body>(connector), &address).await
        }
    };
    serving.abort();
    answers
}

async fn requests<C>(client: &Client<C, Body>, address: &str) -> Vec<(u16, Vec<u8>)>
where
    C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    // At once, so that the client opens several connections.
    let tasks: Vec<_> = (0..24)
        .map(|number| {
            let (client, address) = (client.clone(), address.to_owned());
            tokio::spawn(async move {
                let request = match number % 3 {
                    0 => Request::get(format!("http://{address}/hello/{number}")).body(Body::default()),
                    1 => Request::post(format!("http://{address}/turned"))
                        .body(pattern(number * 5000, 1).into()),
                    _ => Request::get(format!("http://{address}/nowhere")).body(Body::default()),
                };
                let reply = client.request(request.expect("a request")).await.expect("a reply");
                let status = reply.status().as_u16();
                (status, reply.into_body().collect().await.expect("a body").to_bytes().to_vec())
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("a request"));
    }
    assert_eq!(answers[0], (200, b"hello, 0".to_vec()));
    assert_eq!(answers[2].0, 404);
    answers
}

#[test]
fn axum_answers_the_same_over_every_transport() {
    same_over_every_road(many_requests);
}

/// Callers of each kind: more than a server of streams has places for.
const STALLED: usize = 200;

/// Calls that say nothing, and calls that say who they are and choose no transport.
fn stall(address: &str) -> Vec<TcpStream> {
    // A Hello without private data and with no interface.
    let hello = b"UCTN\x06\x01\0\0\x13\0\0\0\x01\x80\0\0\0\0\x02\x80\x07\0\0\0UCTA\x01\0\0";
    let call = |number| {
        let mut caller = TcpStream::connect(address).expect("it listens");
        caller.write_all(&hello[..if number % 2 == 0 { 0 } else { hello.len() }]).expect("sent");
        caller
    };
    (0..2 * STALLED).map(call).collect()
}

#[test]
fn callers_that_stall_in_all_places_keep_no_request_out_of_axum() {
    // They take descriptors that other tests need.
    if !is_alone() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        // Only that they give way lets others in.
        let listener = net_with(2 * LIMIT).listen("127.0.0.1:0").await.expect("it listens");
        let address = listener.address().to_owned();
        let serving = tokio::spawn(async { axum::serve(listener.into_streams(), router()).await });
        let stalled = stall(&address);
        for number in 0..20 {
            let connector = UctConnector::new(&net()).require(["posix", "tcp"][number % 2]);
            let client = Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
            let request = client.get(format!("http://{address}/hello/{number}").parse().expect("an address"));
            let reply = tokio::time::timeout(LIMIT, request).await.expect("an honest caller is served");
            assert_eq!(reply.expect("a reply").status(), 200);
        }
        drop(stalled);
        serving.abort();
    });
}
