//! Answers as they go over the wire.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::Value;

/// Body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer with a JSON document. It ends its line, as each event of a watch must.
pub fn json_answer(code: StatusCode, document: &Value) -> Response<Body> {
    answer(
        code,
        Full::new(Bytes::from(format!("{document}\n"))).boxed_unsync(),
    )
}

/// An answer of Go's own web server: a line of text.
pub fn text_answer(code: StatusCode, text: &str) -> Response<Body> {
    let mut answer = answer(code, Full::new(Bytes::from(format!("{text}\n"))).boxed_unsync());
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    answer
}

/// An answer with this body.
pub fn answer(code: StatusCode, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}
