//! The part of HTTP/1.1 that metrics need: the head of one request, and one response, after which the connection is closed.
//!
//! Used by `client`. Built on `httparse`.

use std::rc::Rc;

use httparse::{EMPTY_HEADER, Error, Status};

/// Bytes of the head of a request.
pub(super) const MOST_HEAD: usize = 8 << 10;
/// Headers of a request.
const MOST_HEADERS: usize = 64;
/// The only path.
const PATH: &str = "/metrics";
/// Of metrics, and of all other texts.
const METRICS: &str = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
const TEXT: &str = "Content-Type: text/plain; charset=utf-8\r\n";
/// Of a method that is refused.
const ALLOW: &str = "Content-Type: text/plain; charset=utf-8\r\nAllow: GET\r\n";

/// What a client has sent so far.
pub(super) enum Request {
    /// Not the whole head.
    Incomplete,
    /// A request for metrics.
    Metrics,
    /// A request that is refused, and the response to it.
    Refused(Rc<[u8]>),
}

impl Request {
    /// Reads the head of a request: at most [`MOST_HEAD`] bytes.
    pub(super) fn parse(head: &[u8]) -> Request {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(Status::Complete(_)) => {}
            Ok(Status::Partial) if head.len() < MOST_HEAD => return Request::Incomplete,
            Ok(Status::Partial) | Err(Error::TooManyHeaders) => {
                let limit = format!("the head has more than {MOST_HEAD} bytes or {MOST_HEADERS} headers\n");
                return refused("431 Request Header Fields Too Large", TEXT, &limit);
            }
            Err(error) => {
                return refused(
                    "400 Bad Request",
                    TEXT,
                    &format!("this is not an HTTP/1.1 request: {error}\n"),
                );
            }
        }
        let path = request.path.unwrap_or_default().split('?').next();
        match request.method.unwrap_or_default() {
            // The response to it has no body.
            "HEAD" => refused("405 Method Not Allowed", ALLOW, ""),
            _ if path != Some(PATH) => refused("404 Not Found", TEXT, &format!("metrics are at {PATH}\n")),
            "GET" => Request::Metrics,
            _ => refused("405 Method Not Allowed", ALLOW, "metrics are read with GET\n"),
        }
    }
}

/// A response with metrics.
pub(super) fn metrics(text: &str) -> Rc<[u8]> {
    response("200 OK", METRICS, text)
}

/// The response where metrics cannot be sent.
pub(super) fn unavailable(reason: &str) -> Rc<[u8]> {
    response("503 Service Unavailable", TEXT, &format!("{reason}\n"))
}

fn refused(status: &str, headers: &str, body: &str) -> Request {
    Request::Refused(response(status, headers, body))
}

fn response(status: &str, headers: &str, body: &str) -> Rc<[u8]> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    head.into_bytes().into()
}
