//! Runs a case on a server.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use futures::StreamExt;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{
    case::{Case, PatchType, Step},
    expect::Names,
};

/// No answer, and no event, may take longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at what a controller does.
const AGAIN: Duration = Duration::from_millis(100);
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// How the answers to a case differed.
pub struct Failure {
    steps: Vec<String>,
}

impl Failure {
    /// A failure of no step.
    pub fn of_case(problem: String) -> Self {
        Self { steps: vec![problem] }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "    {step}"))
    }
}

/// What a server answered.
struct Answer {
    code: u16,
    body: Value,
    /// Of a watch: its events, and whether it ended.
    events: Vec<Value>,
    ended: bool,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.body.is_null() {
            write!(f, " {}", without_managed_fields(&self.body))?;
        }
        for event in &self.events {
            write!(f, "\n        {}", without_managed_fields(event))?;
        }
        f.write_str(if self.ended { "\n        (ended)" } else { "" })
    }
}

/// They are long, and nobody here wants them.
fn without_managed_fields(document: &Value) -> Value {
    match document {
        Value::Object(map) => {
            let shown = map.iter().filter(|(name, _)| *name != "managedFields");
            Value::Object(
                shown
                    .map(|(k, v)| (k.clone(), without_managed_fields(v)))
                    .collect(),
            )
        }
        Value::Array(list) => list.iter().map(without_managed_fields).collect(),
        other => other.clone(),
    }
}

/// Runs a case in a new namespace of this name. After a wrong answer it goes on: the next ones may tell more.
pub async fn run(client: &Client, case: &Case, namespace: &str) -> Result<(), Failure> {
    let mut names = Names::default();
    names.set("ns", namespace);
    make_namespace(client, namespace).await;
    let mut steps = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        let line = names.fill(&step.ask);
        if let Err((problem, answer)) = run_step(client, step, &line, &mut names).await {
            steps.push(format!(
                "step {} ({line}): {problem}\n        answer: {answer}",
                index + 1
            ));
        }
    }
    if steps.is_empty() {
        Ok(())
    } else {
        Err(Failure { steps })
    }
}

/// The error says what is wrong, and the answer.
async fn run_step(
    client: &Client,
    step: &Step,
    line: &str,
    names: &mut Names,
) -> Result<(), (String, String)> {
    let until = Instant::now() + Duration::from_secs(step.within.unwrap_or(0));
    loop {
        let asked = timeout(PATIENCE, ask(client, step, line, names)).await;
        let (problem, answer) = match asked {
            Ok(Ok(answer)) => match compare(names, step, &answer) {
                Ok(()) => return Ok(()),
                Err(problem) => (problem, answer.to_string()),
            },
            Ok(Err(problem)) => (problem, "none".to_owned()),
            Err(_) => ("no answer in time".to_owned(), "none".to_owned()),
        };
        if Instant::now() >= until {
            return Err((problem, answer));
        }
        sleep(AGAIN).await;
    }
}

async fn make_namespace(client: &Client, name: &str) {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.unwrap();
}

fn compare(names: &mut Names, step: &Step, answer: &Answer) -> Result<(), String> {
    if answer.code != step.code {
        return Err(format!("expected {}, found {}", step.code, answer.code));
    }
    if let Some(expected) = &step.answer {
        names.compare(expected, Some(&answer.body), "")?;
    }
    if let Some(expected) = &step.events {
        let found = Value::from(answer.events.clone());
        names.compare(&Value::from(expected.clone()), Some(&found), "events")?;
    }
    if step.ends && !answer.ended {
        return Err("the watch did not end".to_owned());
    }
    Ok(())
}

async fn ask(client: &Client, step: &Step, line: &str, names: &Names) -> Result<Answer, String> {
    let request = request(step, line, names);
    let response = client.send(request).await.map_err(|e| e.to_string())?;
    let code = response.status().as_u16();
    let body = response.into_body();
    if let Some(expected) = step.events.as_ref().filter(|_| code == 200) {
        let (events, ended) = events(body, expected.len(), step.ends).await?;
        return Ok(Answer {
            code,
            body: Value::Null,
            events,
            ended,
        });
    }
    let bytes = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer {
        code,
        body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        events: Vec::new(),
        ended: true,
    })
}

fn request(step: &Step, line: &str, names: &Names) -> http::Request<Body> {
    let (method, uri) = line.split_once(' ').expect("a request is METHOD /path");
    let accept = match (step.metadata_only, &step.events) {
        (true, None) => METADATA_LIST_ONLY,
        (true, Some(_)) => METADATA_ONLY,
        (false, _) => "application/json",
    };
    let mut request = http::Request::builder()
        .method(method)
        .uri(escaped(uri))
        .header("accept", accept);
    let body = match (&step.body, &step.text) {
        (Some(body), _) => names.fill_all(body).to_string(),
        (None, Some(text)) => text.clone(),
        (None, None) => String::new(),
    };
    if step.patch != PatchType::None || !body.is_empty() {
        request = request.header("content-type", step.patch.media_type());
    }
    request.body(Body::from(body.into_bytes())).unwrap()
}

/// Escapes what a URI may not contain.
fn escaped(uri: &str) -> String {
    uri.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            _ if byte.is_ascii_alphanumeric() || b"/?&=-_.%,!:".contains(&byte) => out.push(byte.into()),
            other => write!(out, "%{other:02X}").unwrap(),
        }
        out
    })
}

/// So many events of a watch, or all until it ends.
async fn events(body: Body, count: usize, until_it_ends: bool) -> Result<(Vec<Value>, bool), String> {
    let mut data = std::pin::pin!(body.into_data_stream());
    let (mut events, mut rest) = (Vec::new(), Vec::new());
    while until_it_ends || events.len() < count {
        let Some(chunk) = data.next().await else {
            return Ok((events, true));
        };
        rest.extend_from_slice(&chunk.map_err(|e| e.to_string())?);
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            events.push(serde_json::from_slice(&line).map_err(|e| e.to_string())?);
        }
    }
    Ok((events, false))
}
