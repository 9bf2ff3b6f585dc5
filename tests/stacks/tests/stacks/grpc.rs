//! gRPC by tonic: unary calls and a stream of answers.

use axum::http::uri::PathAndQuery;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use uct_net::UctConnector;
use uct_stacks::grpc::{Answer, Question, REPEAT, TURN, router};

use crate::roads::{Acceptor, Road, net, pattern, same_over_every_road};

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
    let mut client = Grpc::new(channel);
    let mut unary = Vec::new();
    for (count, length) in [(0, 1), (1, 5000), (2, 1_000_000)] {
        client.ready().await.expect("it lives");
        let request = tonic::Request::new(Question { bytes: pattern(length, 3), count });
        let path = PathAndQuery::from_static(TURN);
        unary.push(client.unary(request, path, codec()).await.expect("an answer").into_inner());
    }
    client.ready().await.expect("it lives");
    let request = tonic::Request::new(Question { bytes: pattern(3000, 7), count: 200 });
    let path = PathAndQuery::from_static(REPEAT);
    let answers = client.server_streaming(request, path, codec()).await.expect("answers").into_inner();
    let streamed: Vec<Answer> = answers.map(|answer| answer.expect("an answer")).collect().await;
    assert!(streamed.iter().map(|answer| answer.number).eq(0..200));
    client.ready().await.expect("it lives");
    let request = tonic::Request::new(Question::default());
    let path = PathAndQuery::from_static(TURN);
    let refused = client.unary(request, path, codec()).await.expect_err("no bytes").code();
    (unary, streamed, refused)
}

#[test]
fn tonic_answers_the_same_over_every_transport() {
    same_over_every_road(calls);
}
