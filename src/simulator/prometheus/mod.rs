//! A Prometheus that is not there: alerts that fire, and fixed answers, in the format of Prometheus' HTTP API
//! (<https://prometheus.io/docs/prometheus/latest/querying/api/>, instant queries).
//!
//! It understands selectors (`ALERTS{alertstate="firing"}`); other expressions are answered by the scenario, by default
//! with an empty vector.

pub mod selector;
pub mod service;

use std::{borrow::Cow, collections::BTreeMap};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::selector::{NAME, Query};

/// What Prometheus knows at an instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prometheus {
    /// Its alerts.
    pub alerts: Vec<Alert>,
    /// Fixed answers, by [`normalized`] query. They go before anything else.
    pub answers: BTreeMap<String, Answer>,
    /// Every request gets 503.
    pub is_away: bool,
}

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its labels, with `alertname` and `alertstate`.
    pub labels: BTreeMap<String, String>,
}

/// One sample of a vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sample {
    /// Its labels. Default: none.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its value. Default: 1.
    #[serde(default = "one")]
    pub value: f64,
}

fn one() -> f64 {
    1.0
}

/// A fixed answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The vector.
    pub result: Vec<Sample>,
    /// Warnings beside it.
    pub warnings: Vec<String>,
    /// The query fails instead.
    pub error: Option<String>,
}

/// An HTTP answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// JSON body.
    pub body: Value,
}

impl Response {
    fn vector(samples: &[Sample], warnings: &[String], now: Timestamp) -> Self {
        let at = json!(now.as_millisecond()).as_f64().unwrap_or_default() / 1000.0;
        let results: Vec<Value> = samples
            .iter()
            .map(|s| json!({"metric": s.labels, "value": [at, s.value.to_string()]}))
            .collect();
        let mut body = json!({"status": "success", "data": {"resultType": "vector", "result": results}});
        if let Some(body) = body.as_object_mut().filter(|_| !warnings.is_empty()) {
            body.insert("warnings".to_owned(), json!(warnings));
        }
        Self { status: 200, body }
    }

    fn error(status: u16, type_: &str, error: impl Into<String>) -> Self {
        let body = json!({"status": "error", "errorType": type_, "error": error.into()});
        Self { status, body }
    }
}

/// A query as answers are looked up: line breaks and runs of blanks are one blank.
pub fn normalized(query: &str) -> String {
    query.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Prometheus {
    /// The answer to an instant query.
    pub fn answer(&self, query: &str, now: Timestamp) -> Response {
        if let Some(answer) = self.answers.get(&normalized(query)) {
            return match &answer.error {
                Some(error) => Response::error(422, "execution", error),
                None => Response::vector(&answer.result, &answer.warnings, now),
            };
        }
        match selector::parse(query) {
            Err(error) => Response::error(400, "bad_data", error.to_string()),
            Ok(Query::Selector(selector)) => {
                let series = self.alerts.iter().map(Alert::series);
                let selected: Vec<Sample> = series.filter(|s| selector.selects(&s.labels)).collect();
                Response::vector(&selected, &[], now)
            }
            Ok(Query::Other) if query.contains("ALERTS") => {
                let problem = format!(
                    "the simulated Prometheus evaluates only selectors such as ALERTS{{severity=\"critical\"}}; give the answer to this query in the scenario: {query}"
                );
                Response::error(422, "execution", problem)
            }
            Ok(Query::Other) => Response::vector(&[], &[], now),
        }
    }

    /// The answer to an HTTP request: path with query string, and the body of a POST.
    ///
    /// Only `/api/v1/query` is served, below any prefix that ends with it. `time` is not looked at: it is always now.
    pub fn respond(&self, path_and_query: &str, body: &str, now: Timestamp) -> Response {
        if self.is_away {
            return Response::error(503, "unavailable", "the simulated Prometheus is away");
        }
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        if !path.ends_with("/api/v1/query") {
            return Response::error(
                404,
                "not_found",
                format!("the simulated Prometheus has no {path}"),
            );
        }
        let parameter = |text: &str| {
            let mut all = form_urlencoded::parse(text.as_bytes());
            all.find(|(name, _)| name == "query")
                .map(|(_, value): (_, Cow<'_, str>)| value.into_owned())
        };
        let query = parameter(body).or_else(|| parameter(query)).unwrap_or_default();
        self.answer(&query, now)
    }
}

impl Alert {
    /// The series that Prometheus keeps of an alert.
    fn series(&self) -> Sample {
        let mut labels = self.labels.clone();
        labels.insert(NAME.to_owned(), "ALERTS".to_owned());
        Sample { labels, value: 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn prometheus() -> Prometheus {
        let alert = |name: &str, severity: &str, state: &str| Alert {
            labels: [("alertname", name), ("severity", severity), ("alertstate", state)]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
        };
        let answer = |warnings: &[&str], error: Option<&str>| Answer {
            result: vec![Sample {
                labels: [("queue".to_owned(), "mail".to_owned())].into(),
                value: 12.5,
            }],
            warnings: warnings.iter().map(|w| (*w).to_owned()).collect(),
            error: error.map(str::to_owned),
        };
        Prometheus {
            alerts: vec![
                alert("KubePodCrashLooping", "critical", "firing"),
                alert("Watchdog", "none", "firing"),
                alert("KubeNodeNotReady", "critical", "pending"),
            ],
            answers: [
                (normalized("queue_length > 10"), answer(&["partial"], None)),
                (
                    normalized("slow"),
                    answer(&[], Some("query timed out in expression evaluation")),
                ),
            ]
            .into(),
            is_away: false,
        }
    }

    const NOW: &str = "2026-11-24T21:00:00.25Z";

    fn answer(query: &str) -> Response {
        prometheus().answer(query, NOW.parse().unwrap())
    }

    #[test]
    fn firing_critical_alerts_are_answered_in_prometheus_format() {
        let got = answer(r#"ALERTS{alertstate="firing",severity="critical"}"#);
        let expected = json!({"status": "success", "data": {"resultType": "vector", "result": [{
            "metric": {"__name__": "ALERTS", "alertname": "KubePodCrashLooping", "alertstate": "firing",
                "severity": "critical"},
            "value": [1_795_554_000.25, "1"],
        }]}});
        assert_eq!((got.status, got.body), (200, expected));
    }

    #[rstest]
    #[case::fixed_whatever_the_blanks("queue_length\n  >  10 ", 200, "12.5")]
    #[case::unknown("up == 0", 200, "\"result\":[]")]
    #[case::no_such_series("up", 200, "\"result\":[]")]
    #[case::broken("up{", 400, "bad_data")]
    #[case::empty("", 400, "no expression found")]
    #[case::told_to_fail("slow", 422, "timed out")]
    #[case::beyond_us("count(ALERTS) > 3", 422, "give the answer to this query in the scenario")]
    fn queries_have_an_answer_or_an_error(#[case] query: &str, #[case] status: u16, #[case] text: &str) {
        let got = answer(query);
        assert_eq!(got.status, status, "{}", got.body);
        assert!(got.body.to_string().contains(text), "{}", got.body);
        let has_warnings = got.body.get("warnings").is_some();
        assert_eq!(has_warnings, query.starts_with("queue"), "{}", got.body);
    }

    #[rstest]
    #[case::get("/api/v1/query?query=ALERTS%7Balertname%3D%22Watchdog%22%7D&time=1", "", 200)]
    #[case::plus_is_a_blank("/prefix/api/v1/query?query=ALERTS+%7Balertname%3D%22Watchdog%22%7D", "", 200)]
    #[case::post("/api/v1/query", "query=ALERTS%7Balertname%3D%22Watchdog%22%7D", 200)]
    #[case::no_query("/api/v1/query", "", 400)]
    #[case::another_path("/api/v1/query_range?query=up", "", 404)]
    fn requests_are_served_as_over_http(#[case] path: &str, #[case] body: &str, #[case] status: u16) {
        let got = prometheus().respond(path, body, NOW.parse().unwrap());
        assert_eq!(got.status, status, "{}", got.body);
        let found = got.body["data"]["result"].as_array().map(Vec::len);
        assert_eq!(found, (status == 200).then_some(1));
    }

    #[test]
    fn one_that_is_away_answers_nothing() {
        let away = Prometheus {
            is_away: true,
            ..prometheus()
        };
        assert_eq!(
            away.respond("/api/v1/query?query=up", "", NOW.parse().unwrap())
                .status,
            503
        );
    }
}
