//! Servers that hooks talk to: a webhook that records, and Alertmanager, with and without somebody in between.

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header},
};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

use crate::cluster::{Cluster, NODE_ADDRESS};

/// The real Alertmanager, see `prepare`.
pub const ALERTMANAGER: &str = "https://10.99.0.1:19093";

/// A request that came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub content_type: String,
    pub authorization: String,
    pub body: String,
}

/// How a server answers.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// With this status and a few words.
    Status(u16),
    /// As Alertmanager does, of which it is told.
    Alertmanager,
    /// Not at all, though Alertmanager is told.
    AlertmanagerUnheard,
}

struct Shared {
    seen: Vec<Seen>,
    /// What is answered to the first, the second, …; the last one to all that follow.
    answers: Vec<Answer>,
}

/// A server at the node's address that records what it is told.
pub struct Recorder {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// What is answered to the first request, the second, …; the last to all that follow.
    pub async fn start(answers: &[Answer]) -> Self {
        let shared = Arc::new(Mutex::new(Shared {
            seen: Vec::new(),
            answers: answers.to_vec(),
        }));
        let listener = TcpListener::bind((NODE_ADDRESS, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(record).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            shared,
            task,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared).seen.clone()
    }

    /// The one body that came, as JSON.
    pub fn message(&self) -> Value {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "one message: {seen:#?}");
        assert_eq!(seen[0].content_type, "application/json");
        serde_json::from_str(&seen[0].body).unwrap()
    }
}

async fn record(
    State(shared): State<Arc<Mutex<Shared>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let header = |name| {
        let value = headers.get(name).and_then(|v| v.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let seen = Seen {
        method,
        path: uri.path().to_owned(),
        content_type: header(header::CONTENT_TYPE),
        authorization: header(header::AUTHORIZATION),
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let answer = {
        let mut shared = lock(&shared);
        shared.seen.push(seen.clone());
        let index = shared.seen.len().min(shared.answers.len());
        shared.answers[index - 1]
    };
    match answer {
        Answer::Status(status) => (StatusCode::from_u16(status).unwrap(), "no_service".to_owned()),
        Answer::Alertmanager => (
            StatusCode::OK,
            alertmanager(seen.method.as_str(), &seen.path, &seen.body),
        ),
        Answer::AlertmanagerUnheard => {
            alertmanager(seen.method.as_str(), &seen.path, &seen.body);
            std::future::pending().await
        }
    }
}

/// What Alertmanager answers.
fn alertmanager(method: &str, path: &str, body: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--fail",
        "--max-time",
        "10",
        "--cacert",
    ]);
    curl.arg(Cluster::file("pki/ca.crt"));
    curl.args(["--request", method, &format!("{ALERTMANAGER}{path}")]);
    if !body.is_empty() {
        curl.args(["--header", "Content-Type: application/json", "--data", body]);
    }
    let said = curl.stdin(Stdio::null()).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap()
}

/// The silences whose comment names the job with this UID, and that are not over.
pub fn silences(uid: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(&alertmanager("GET", "/api/v2/silences", "")).unwrap();
    let of_job = |s: &Value| {
        let comment = s["comment"].as_str().unwrap();
        s["status"]["state"] != "expired" && comment.contains(&format!(", {uid})"))
    };
    all.into_iter().filter(of_job).collect()
}

/// Makes a silence by hand.
pub fn silence_by_hand(silence: &Value) {
    alertmanager("POST", "/api/v2/silences", &silence.to_string());
}
