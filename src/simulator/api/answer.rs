//! Answers: objects, lists, and the server's way to say no.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

/// Body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A request that is refused. `Display` is the message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `reason` of the Status.
    pub reason: &'static str,
    /// Message.
    pub message: String,
    /// `details` of the Status.
    pub details: Value,
}

impl Refusal {
    /// A refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
        }
    }

    /// The object does not exist.
    pub fn not_found(resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} {name:?} not found"))
    }

    /// The kind does not exist.
    pub fn no_such_kind() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// Somebody else wrote first.
    pub fn conflict(resource: &str, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {name:?}: the object has been modified; please apply your changes to \
             the latest version and try again"
        );
        Self::new(409, "Conflict", message)
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let (Value::Object(map), false) = (&mut status, self.details.is_null()) {
            map.insert("details".to_owned(), self.details.clone());
        }
        status
    }

    /// As an answer.
    pub fn answer(&self) -> Response<Body> {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        json_answer(code, &self.status())
    }

    /// As the event of a watch.
    pub fn event(&self) -> Value {
        json!({"type": "ERROR", "object": self.status()})
    }
}

/// An answer with a JSON document.
pub fn json_answer(code: StatusCode, document: &Value) -> Response<Body> {
    answer(code, Full::new(Bytes::from(document.to_string())).boxed_unsync())
}

/// An answer with this body.
pub fn answer(code: StatusCode, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}
