//! gRPC by tonic: unary calls and a stream of answers. The messages are derived, and the service is written by hand, so that no
//! protocol compiler is needed.

use std::pin::Pin;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::response::Response;
use axum::routing::post;
use tokio_stream::{Stream, StreamExt};
use tonic::client::Grpc as Client;
use tonic::server::{Grpc as Server, ServerStreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use uct_net::UctConnector;

use crate::roads::{Acceptor, Road, net, pattern, same_over_every_road};

#[derive(Clone, PartialEq, prost::Message)]
struct Question {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
    #[prost(uint32, tag = "2")]
    count: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
    #[prost(uint32, tag = "2")]
    number: u32,
}

/// Turns the bytes around; has no answer without any.
#[derive(Clone)]
struct Turn;

impl UnaryService<Question> for Turn {
    type Response = Answer;
    type Future = std::future::Ready<Result<tonic::Response<Answer>, Status>>;

    fn call(&mut self, request: tonic::Request<Question>) -> Self::Future {
        let question = request.into_inner();
        std::future::ready(if question.bytes.is_empty() {
            Err(Status::invalid_argument("no bytes"))
        } else {
            let bytes = question.bytes.into_iter().rev().collect();
            Ok(tonic::Response::new(Answer { bytes, number: question.count }))
        })
    }
}

/// As many answers as are asked for.
#[derive(Clone)]
struct Repeat;

type Answers = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

impl ServerStreamingService<Question> for Repeat {
    type Response = Answer;
    type ResponseStream = Answers;
    type Future = std::future::Ready<Result<tonic::Response<Answers>, Status>>;

    fn call(&mut self, request: tonic::Request<Question>) -> Self::Future {
        let Question { bytes, count } = request.into_inner();
        let answers = (0..count).map(move |number| Ok(Answer { bytes: bytes.clone(), number }));
        std::future::ready(Ok(tonic::Response::new(Box::pin(tokio_stream::iter(answers)))))
    }
}

fn router() -> Router {
    let turn = |request: Request| async move {
        let codec = ProstCodec::<Answer, Question>::default();
        let response: Response<tonic::body::Body> = Server::new(codec).unary(Turn, request).await;
        response.map(Body::new)
    };
    let repeat = |request: Request| async move {
        let codec = ProstCodec::<Answer, Question>::default();
        let response: Response<tonic::body::Body> =
            Server::new(codec).server_streaming(Repeat, request).await;
        response.map(Body::new)
    };
    Router::new().route("/test.Echo/Turn", post(turn)).route("/test.Echo/Repeat", post(repeat))
}

type Outcome = (Vec<Answer>, Vec<Answer>, Code);

async fn calls(road: Road) -> Outcome {
    let server = road.listen().await;
    let address = server.address;
    let serving = match server.acceptor {
        Acceptor::Socket(listener) => tokio::spawn(async move { axum::serve(listener, router()).await }),
        Acceptor::Streams(streams) => tokio::spawn(async move { axum::serve(*streams, router()).await }),
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = match road {
        Road::Socket => endpoint.connect().await,
        Road::Transport(name) => {
            endpoint.connect_with_connector(UctConnector::new(&net()).require(name)).await
        }
    };
    let outcome = ask(channel.expect("a connection")).await;
    serving.abort();
    outcome
}

async fn ask(channel: Channel) -> Outcome {
    let codec = ProstCodec::<Question, Answer>::default;
    let mut client = Client::new(channel);
    let mut unary = Vec::new();
    for (count, length) in [(0, 1), (1, 5000), (2, 1_000_000)] {
        client.ready().await.expect("it lives");
        let request = tonic::Request::new(Question { bytes: pattern(length, 3), count });
        let path = PathAndQuery::from_static("/test.Echo/Turn");
        unary.push(client.unary(request, path, codec()).await.expect("an answer").into_inner());
    }
    client.ready().await.expect("it lives");
    let request = tonic::Request::new(Question { bytes: pattern(3000, 7), count: 200 });
    let path = PathAndQuery::from_static("/test.Echo/Repeat");
    let answers = client.server_streaming(request, path, codec()).await.expect("answers").into_inner();
    let streamed: Vec<Answer> = answers.map(|answer| answer.expect("an answer")).collect().await;
    assert!(streamed.iter().map(|answer| answer.number).eq(0..200));
    client.ready().await.expect("it lives");
    let request = tonic::Request::new(Question::default());
    let path = PathAndQuery::from_static("/test.Echo/Turn");
    let refused = client.unary(request, path, codec()).await.expect_err("no bytes").code();
    (unary, streamed, refused)
}

#[test]
fn tonic_answers_the_same_over_every_transport() {
    same_over_every_road(calls);
}
