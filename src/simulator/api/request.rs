//! What a request asks for.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, request::Parts};
use serde_json::Value;

use super::{
    kinds::Resource,
    refusal::{FieldError, Refusal},
};

/// A request, taken apart.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Method, path and query as they came: for the log.
    pub line: String,
    /// Path segments.
    segments: Vec<String>,
    /// Parameters.
    pub query: BTreeMap<String, String>,
    /// Whether only metadata is wanted.
    pub metadata_only: bool,
    /// Content type.
    pub content_type: String,
    /// Body.
    pub body: Bytes,
}

/// Parameters that the server understands, or may ignore.
const PARAMETERS: [&str; 14] = [
    "allowWatchBookmarks",
    "continue",
    "dryRun",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "labelSelector",
    "limit",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The kind.
    pub resource: Resource,
    /// Version in the path.
    pub version: String,
    /// Namespace, if the path has one.
    pub namespace: Option<String>,
    /// Name, if it is about one object.
    pub name: Option<String>,
    /// Subresource.
    pub subresource: Option<String>,
}

impl Request {
    /// Takes a request apart.
    pub fn new(parts: &Parts, body: Bytes) -> Self {
        let header = |name: &str| {
            let value = parts.headers.get(name).and_then(|v| v.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let path = parts.uri.path_and_query().map_or("", |p| p.as_str());
        Self {
            method: parts.method.clone(),
            line: format!("{} {path}", parts.method),
            segments: parts
                .uri
                .path()
                .split('/')
                .filter(|s| !s.is_empty())
                .map(decoded)
                .collect(),
            query: parameters(parts.uri.query().unwrap_or_default()),
            metadata_only: header("accept").contains("as=PartialObjectMetadata"),
            content_type: header("content-type"),
            body,
        }
    }

    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// What it is about; `None` for a path that is none of objects.
    pub fn place(&self) -> Option<Place> {
        let segments: Vec<&str> = self.segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] | ["namespaces", _] => (None, rest),
            ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
            _ => return None,
        };
        let own = |s: &str| s.to_owned();
        Some(Place {
            resource: Resource {
                group: group.to_owned(),
                plural: plural.to_owned(),
            },
            version: version.to_owned(),
            namespace: namespace.map(own),
            name: name.map(own),
            subresource: subresource.map(own),
        })
    }

    /// Whether the server knows all that is asked for.
    pub fn is_understood(&self) -> bool {
        self.query.keys().all(|name| PARAMETERS.contains(&name.as_str()))
    }

    /// Whether the write is only tried. Deletions say so in their bodies.
    pub fn is_dry_run(&self) -> Result<bool, Refusal> {
        let body: Option<Value> = (self.method == Method::DELETE)
            .then(|| serde_json::from_slice(&self.body).ok())
            .flatten();
        let told = match (
            self.parameter("dryRun"),
            body.as_ref().and_then(|b| b.get("dryRun")),
        ) {
            (Some(told), _) => vec![Value::from(told)],
            (None, Some(Value::Array(told))) => told.clone(),
            (None, _) => Vec::new(),
        };
        if told.iter().all(|v| v == "All") {
            return Ok(!told.is_empty());
        }
        let error = FieldError::not_supported("dryRun", &Value::from(told), &["All".into()]);
        Err(Refusal::invalid("meta.k8s.io", "Options", "", &[error]))
    }

    /// A parameter, unless it is empty.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// Whether a boolean parameter is set.
    pub fn is_set(&self, name: &str) -> bool {
        matches!(self.parameter(name), Some("true" | "1"))
    }
}

fn parameters(query: &str) -> BTreeMap<String, String> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(&key.replace('+', " ")), decoded(&value.replace('+', " ")))
        })
        .collect()
}

/// Percent-decoded; what is no escape stays as it is.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        if let (Some((high, low)), Some(after)) = (escape, tail.get(2..)) {
            out.push(high * 16 + low);
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn request(uri: &str) -> Request {
        let (parts, ()) = http::Request::builder().uri(uri).body(()).unwrap().into_parts();
        Request::new(&parts, Bytes::new())
    }

    #[rstest]
    #[case("/api/v1/nodes", "/nodes - - -")]
    #[case("/api/v1/namespaces/a", "/namespaces - a -")]
    #[case("/api/v1/namespaces/a/status", "/namespaces - a status")]
    #[case("/api/v1/namespaces/a/pods/p/eviction", "/pods a p eviction")]
    #[case("/apis/batch/v1/namespaces/a/jobs?watch=1", "batch/jobs a - -")]
    #[case("/apis/batch/v1/namespaces/a/jobs/x%2Fy", "batch/jobs a x/y -")]
    #[case("/version", "none")]
    fn paths_are_understood(#[case] uri: &str, #[case] expected: &str) {
        let found = request(uri).place().map_or("none".to_owned(), |p| {
            let or = |o: Option<String>| o.unwrap_or("-".to_owned());
            let Resource { group, plural } = p.resource;
            format!(
                "{group}/{plural} {} {} {}",
                or(p.namespace),
                or(p.name),
                or(p.subresource)
            )
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn parameters_are_decoded() {
        let request = request("/api/v1/nodes?labelSelector=a%3Db%2Cc&fieldSelector=&x=1+2");
        assert_eq!(request.parameter("labelSelector"), Some("a=b,c"));
        assert_eq!(request.parameter("fieldSelector"), None);
        assert_eq!(request.parameter("x"), Some("1 2"));
    }
}
