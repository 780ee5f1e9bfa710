//! The answer of Prometheus' HTTP API to an instant query, read.
//!
//! Source: <https://prometheus.io/docs/prometheus/latest/querying/api/>, "Format overview" and "Instant queries".

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

use super::answers::{Sample, Vector};
use crate::text;

/// Most samples of an answer that are kept; the others are counted.
pub const MAX_SAMPLES: usize = 2_000;
/// Most characters of somebody else's text in a message.
const MAX_TEXT: usize = 200;

/// Why there is no vector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVector {
    /// 401.
    #[error("refuses our token (401): {0}")]
    Unauthorized(String),
    /// 403.
    #[error("does not let us query (403): {0}; does the operator's ServiceAccount have the right?")]
    Forbidden(String),
    /// The query is wrong.
    #[error("finds the query wrong: {0}")]
    BadQuery(String),
    /// Prometheus says that it cannot.
    #[error("answers with an error ({kind}): {error}")]
    Error {
        /// `errorType`.
        kind: String,
        /// `error`.
        error: String,
    },
    /// An answer that is not of Prometheus' API: of a proxy, a login page, or another program.
    #[error("answers with something that is not Prometheus' ({status}): {text}")]
    Foreign {
        /// HTTP status.
        status: u16,
        /// Where it leads to, or its beginning.
        text: String,
    },
    /// The query gives something else than a vector.
    #[error("answers the query with a {0}; it must give a vector")]
    OtherType(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<R> {
    status: String,
    data: Option<Data<R>>,
    #[serde(default)]
    error_type: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<R> {
    result_type: String,
    result: R,
}

/// Reads an answer by its HTTP status and body.
pub fn read(status: u16, body: &[u8]) -> Result<Vector, NoVector> {
    let foreign = || NoVector::Foreign {
        status,
        text: beginning(body),
    };
    // The type first: what another one looks like inside does not matter.
    let envelope: Option<Envelope<IgnoredAny>> = serde_json::from_slice(body).ok();
    match (status, envelope) {
        (401, _) => Err(NoVector::Unauthorized(beginning(body))),
        (403, _) => Err(NoVector::Forbidden(beginning(body))),
        (_, Some(said)) if said.status == "error" => Err(error(&said)),
        (200..=299, Some(said)) => match said.data {
            Some(data) if data.result_type == "vector" => vector(body, said.warnings).ok_or_else(foreign),
            Some(data) => Err(NoVector::OtherType(text::line(&data.result_type, MAX_TEXT))),
            None => Err(foreign()),
        },
        (_, _) => Err(foreign()),
    }
}

fn error(said: &Envelope<IgnoredAny>) -> NoVector {
    let error = text::line(&said.error, MAX_TEXT);
    match said.error_type.as_str() {
        "bad_data" => NoVector::BadQuery(error),
        kind => NoVector::Error {
            kind: text::line(kind, MAX_TEXT),
            error,
        },
    }
}

fn vector(body: &[u8], warnings: Vec<String>) -> Option<Vector> {
    let envelope: Envelope<Kept> = serde_json::from_slice(body).ok()?;
    let Kept { samples, more } = envelope.data?.result;
    Some(Vector {
        samples,
        more,
        warnings,
    })
}

/// The beginning of a body that is not what was expected, on one line.
fn beginning(body: &[u8]) -> String {
    let start = body.get(..4 * MAX_TEXT).unwrap_or(body);
    let text = text::line(&String::from_utf8_lossy(start), MAX_TEXT);
    if text.is_empty() {
        "an empty answer".to_owned()
    } else {
        text
    }
}

/// The first samples of a vector, and how many there were besides.
#[derive(Default)]
struct Kept {
    samples: Vec<Sample>,
    more: usize,
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(KeptVisitor)
    }
}

struct KeptVisitor;

impl<'de> Visitor<'de> for KeptVisitor {
    type Value = Kept;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of samples")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Kept, A::Error> {
        let mut kept = Kept::default();
        while kept.samples.len() < MAX_SAMPLES {
            let Some(element) = all.next_element::<Element>()? else {
                return Ok(kept);
            };
            kept.samples.push(element.into());
        }
        while all.next_element::<IgnoredAny>()?.is_some() {
            kept.more += 1;
        }
        Ok(kept)
    }
}

#[derive(Deserialize)]
struct Element {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    /// Time and value; absent where the sample is a native histogram.
    value: Option<(f64, String)>,
}

impl From<Element> for Sample {
    fn from(element: Element) -> Self {
        Self {
            labels: element.metric,
            value: element
                .value
                .map_or_else(|| "a histogram".to_owned(), |(_, value)| value),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const VECTOR: &str = r#"{"status":"success","warnings":["w"],"data":{"resultType":"vector","result":[
        {"metric":{"__name__":"up","job":"a"},"value":[1795554000.25,"0"]},
        {"metric":{},"histogram":[1795554000.25,{"count":"1"}]}]}}"#;

    #[test]
    fn a_vector_is_read_with_its_warnings() {
        let got = read(200, VECTOR.as_bytes()).unwrap();
        let labels = |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let samples = vec![
            Sample {
                labels: labels(&[("__name__", "up"), ("job", "a")]),
                value: "0".into(),
            },
            Sample {
                labels: labels(&[]),
                value: "a histogram".into(),
            },
        ];
        let expected = Vector {
            samples,
            more: 0,
            warnings: vec!["w".into()],
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn of_a_long_vector_the_beginning_is_kept_and_the_rest_is_counted() {
        let samples = vec![r#"{"metric":{"a":"b"},"value":[1,"1"]}"#; MAX_SAMPLES + 3].join(",");
        let body = format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{samples}]}}}}"#);
        let got = read(200, body.as_bytes()).unwrap();
        assert_eq!((got.samples.len(), got.more), (MAX_SAMPLES, 3));
    }

    #[rstest]
    #[case::scalar(
        200,
        r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#,
        "answers the query with a scalar; it must give a vector"
    )]
    #[case::matrix(
        200,
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"]]}]}}"#,
        "answers the query with a matrix; it must give a vector"
    )]
    #[case::bad_query(
        400,
        r#"{"status":"error","errorType":"bad_data","error":"1:4: parse error: unexpected end of input"}"#,
        "finds the query wrong: 1:4: parse error: unexpected end of input"
    )]
    #[case::too_slow(
        503,
        r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#,
        "answers with an error (timeout): query timed out"
    )]
    #[case::no_token(401, "Unauthorized\n", "refuses our token (401): Unauthorized")]
    #[case::no_right(
        403,
        "Forbidden (user=x)",
        "does not let us query (403): Forbidden (user=x); does the operator's ServiceAccount have the right?"
    )]
    #[case::login_page(
        200,
        "<html>\n <title>Log in</title>",
        "answers with something that is not Prometheus' (200): <html> <title>Log in</title>"
    )]
    #[case::a_proxy(
        502,
        "",
        "answers with something that is not Prometheus' (502): an empty answer"
    )]
    #[case::another_program(
        200,
        r#"{"status":"success"}"#,
        "answers with something that is not Prometheus' (200): {\"status\":\"success\"}"
    )]
    #[case::cut_off(
        200,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":"#,
        "answers with something that is not Prometheus' (200): {\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":"
    )]
    #[case::success_with_a_wrong_status(
        500,
        r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
        "answers with something that is not Prometheus' (500): {\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[]}}"
    )]
    fn everything_else_says_what_it_is(#[case] status: u16, #[case] body: &str, #[case] expected: &str) {
        assert_eq!(read(status, body.as_bytes()).unwrap_err().to_string(), expected);
    }
}
