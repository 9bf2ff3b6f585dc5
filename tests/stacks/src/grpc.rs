//! A gRPC service. The messages are derived, and the service is written by hand, so that no protocol compiler is needed.

use std::pin::Pin;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use tokio_stream::Stream;
use tonic::Status;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic_prost::ProstCodec;

/// The path of the unary call that turns the bytes around.
pub const TURN: &str = "/test.Echo/Turn";
/// The path of the call with as many answers as are asked for.
pub const REPEAT: &str = "/test.Echo/Repeat";

/// What a client sends.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Question {
    /// Any bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub bytes: Vec<u8>,
    /// How many answers.
    #[prost(uint32, tag = "2")]
    pub count: u32,
}

/// What the server sends.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    /// The question's bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub bytes: Vec<u8>,
    /// Which answer it is.
    #[prost(uint32, tag = "2")]
    pub number: u32,
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

/// The server.
pub fn router() -> Router {
    let turn = |request: Request| async move {
        let codec = ProstCodec::<Answer, Question>::default();
        let response: Response<tonic::body::Body> = Grpc::new(codec).unary(Turn, request).await;
        response.map(Body::new)
    };
    let repeat = |request: Request| async move {
        let codec = ProstCodec::<Answer, Question>::default();
        let response: Response<tonic::body::Body> = Grpc::new(codec).server_streaming(Repeat, request).await;
        response.map(Body::new)
    };
    Router::new().route(TURN, post(turn)).route(REPEAT, post(repeat))
}
