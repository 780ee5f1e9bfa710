//! A real Prometheus with rules of its own, behind a door that asks for a token over TLS, and switches for what is wrong.
//!
//! Prometheus itself knows no bearer tokens: on OpenShift a proxy in front of it checks them, and here this door does.

use std::{
    collections::BTreeSet,
    fmt::Write,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Request, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::StreamExt;
use kube::{Client, Config};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};

use super::{
    https::{Authority, Server},
    lane::Lane,
    process::Process,
    until,
};

/// Where both listen. The kernel gives ports of 127.0.0.1 to outgoing connections: one that was free may not be when it is wanted.
const ADDRESS: &str = "127.0.0.2";

/// Alerts that fire as soon as there is trouble of their name, everywhere in this namespace and pod.
const ALERTS: [(&str, &str, &str); 3] = [
    ("KubeAPIDown", "openshift-kube-apiserver", ""),
    ("KubePodCrashLooping", "shop", "cart-7"),
    ("WebhookDown", "openshift-console", ""),
];

/// What the door and the target show.
#[derive(Default)]
struct Switches {
    /// Troubles that there are.
    troubles: BTreeSet<&'static str>,
    /// The token that is let in.
    token: String,
    /// Whether it answers with 100 MB instead of asking Prometheus.
    is_flooding: bool,
}

type Shared = Arc<Mutex<Switches>>;

/// Prometheus, its target, and the door to it.
pub struct Monitoring {
    folder: TempDir,
    switches: Shared,
    authority: Authority,
    door: Option<Server>,
    /// Where the door is, open or not.
    port: u16,
    /// Where Prometheus itself listens.
    inner: u16,
    target: JoinHandle<()>,
    prometheus: Option<Process>,
}

impl Monitoring {
    /// The door, the target and the files; Prometheus itself is started later, from a lane's binaries.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().expect("making a folder for Prometheus");
        let switches = Shared::default();
        "good".clone_into(&mut lock(&switches).token);
        let metrics = TcpListener::bind("127.0.0.1:0").await.expect("listening");
        let target = metrics.local_addr().expect("an address");
        let shown = Arc::clone(&switches);
        let router = Router::new().route("/metrics", get(async move || exposition(&shown)));
        let task = tokio::spawn(async move { axum::serve(metrics, router).await.expect("serving") });
        let inner = free_port().await;
        let authority = Authority::new("the cluster's CA");
        let mut monitoring = Self {
            folder,
            switches,
            authority,
            door: None,
            port: 0,
            inner,
            target: task,
            prometheus: None,
        };
        monitoring.write("token", "good\n");
        monitoring.write("ca.crt", &monitoring.authority.pem);
        monitoring.write("rules.yaml", &rules());
        let config = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}\n\
             rule_files: [rules.yaml]\n\
             scrape_configs:\n  - {{job_name: target, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}\n"
        );
        monitoring.write("prometheus.yaml", &config);
        monitoring.open().await;
        monitoring
    }

    /// The operator's flags that lead here.
    pub fn flags(&self) -> Vec<String> {
        let file = |name: &str| self.path(name).display().to_string();
        vec![
            format!("--prometheus-url=https://{ADDRESS}:{}", self.port),
            format!("--prometheus-ca-file={}", file("ca.crt")),
            format!("--prometheus-token-file={}", file("token")),
        ]
    }

    /// Starts the real Prometheus, and waits until it has evaluated its rules with these troubles.
    pub async fn start(&mut self, lane: &Lane, troubles: &[&'static str]) {
        let binary = std::env::split_paths(lane.variable("PATH"))
            .map(|folder| folder.join("prometheus"))
            .find(|path| path.exists())
            .expect("the lane's modules have Prometheus");
        let arguments = [
            format!("--config.file={}", self.path("prometheus.yaml").display()),
            format!("--storage.tsdb.path={}", self.path("data").display()),
            format!("--web.listen-address={ADDRESS}:{}", self.inner),
            "--log.level=warn".to_owned(),
        ];
        let log = self.path("prometheus.log");
        self.prometheus = Some(Process::start_program("Prometheus", &binary, &arguments, &log));
        until("Prometheus has scraped its target", async || {
            let up = self.query("up%7Bjob%3D%22target%22%7D%20%3D%3D%201").await?;
            (!up.is_empty()).then_some(())
        })
        .await;
        self.trouble(troubles).await;
    }

    /// From now on exactly these alerts shall fire; waits until they do.
    pub async fn trouble(&self, troubles: &[&'static str]) {
        let wanted: BTreeSet<&str> = troubles.iter().copied().collect();
        lock(&self.switches)
            .troubles
            .clone_from(&wanted.iter().copied().collect());
        until(&format!("exactly {troubles:?} fire"), async || {
            let firing = self.query("ALERTS%7Balertstate%3D%22firing%22%7D").await?;
            let names = firing.iter().filter_map(|s| s["metric"]["alertname"].as_str());
            (names.collect::<BTreeSet<_>>() == wanted).then_some(())
        })
        .await;
    }

    /// What Prometheus itself answers to a query, which is part of a URL; `None` if it does not.
    async fn query(&self, query: &str) -> Option<Vec<serde_json::Value>> {
        let request = Request::get(format!("/api/v1/query?query={query}"));
        let request = request.body(Vec::new()).expect("a request");
        let mut answer: serde_json::Value = self.inner_client().request(request).await.ok()?;
        serde_json::from_value(answer["data"]["result"].take()).ok()
    }

    /// Another token is wanted from now on.
    pub fn want_token(&self, token: &str) {
        token.clone_into(&mut lock(&self.switches).token);
    }

    /// Writes the operator's token.
    pub fn give_token(&self, token: &str) {
        self.write("token", token);
    }

    /// Whether every answer has 100 MB.
    pub fn flood(&self, is_flooding: bool) {
        lock(&self.switches).is_flooding = is_flooding;
    }

    /// Nobody listens any more.
    pub async fn close(&mut self) {
        self.door = None;
        until("the door is closed", async || {
            let open = tokio::net::TcpStream::connect((ADDRESS, self.port)).await;
            open.is_err().then_some(())
        })
        .await;
    }

    /// Listens again, with a certificate of the CA that the operator knows.
    pub async fn open(&mut self) {
        let router = self.router();
        let door = Server::start(&self.authority, ADDRESS, self.port, router).await;
        self.port = door.address.port();
        self.door = Some(door);
    }

    /// Listens again, with a certificate of a CA that the operator does not know.
    pub async fn open_as_a_stranger(&mut self) {
        let router = self.router();
        let stranger = Authority::new("another CA");
        self.door = Some(Server::start(&stranger, ADDRESS, self.port, router).await);
    }

    fn router(&self) -> Router {
        let (switches, inner) = (Arc::clone(&self.switches), self.inner_client());
        Router::new().fallback(post(async move |uri: Uri, headers: HeaderMap, body: Bytes| {
            pass(&switches, &inner, &uri, &headers, body).await
        }))
    }

    fn inner_client(&self) -> Client {
        let url = format!("http://{ADDRESS}:{}", self.inner);
        let mut config = Config::new(url.parse().expect("a URL"));
        config.default_retry = false;
        Client::try_from(config).expect("making a client")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("writing a file");
    }
}

impl Drop for Monitoring {
    fn drop(&mut self) {
        self.target.abort();
        if let (true, Some(prometheus)) = (std::thread::panicking(), &self.prometheus) {
            eprintln!("--- end of Prometheus' log\n{}", prometheus.tail().trim_end());
        }
    }
}

fn lock(switches: &Shared) -> std::sync::MutexGuard<'_, Switches> {
    switches.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn free_port() -> u16 {
    let listener = TcpListener::bind((ADDRESS, 0)).await.expect("listening");
    listener.local_addr().expect("an address").port()
}

/// One series for each trouble, whether there is it or not.
fn exposition(switches: &Shared) -> String {
    let mut text = String::new();
    for (name, namespace, pod) in ALERTS {
        let is_there = u8::from(lock(switches).troubles.contains(name));
        let labels = format!("kind=\"{name}\",namespace=\"{namespace}\",pod=\"{pod}\"");
        let _ = writeln!(text, "trouble{{{labels}}} {is_there}");
    }
    text
}

/// By what was seen last: where a scrape takes too long there is no value, and no alert must go because of that.
fn rules() -> String {
    let mut text = "groups:\n  - name: troubles\n    rules:\n".to_owned();
    for (name, _, _) in ALERTS {
        let _ = writeln!(
            text,
            "      - {{alert: {name}, expr: 'sum by (kind, namespace, pod) (last_over_time(trouble{{kind=\"{name}\"}}[5m])) == 1', labels: {{severity: critical}}}}"
        );
    }
    text
}

/// Who has the token is let through to Prometheus.
async fn pass(switches: &Shared, inner: &Client, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Response {
    let (token, is_flooding) = {
        let switches = lock(switches);
        (format!("Bearer {}", switches.token), switches.is_flooding)
    };
    if headers.get(header::AUTHORIZATION).is_none_or(|t| *t != *token) {
        return (StatusCode::UNAUTHORIZED, "Unauthorized\n").into_response();
    }
    if is_flooding {
        let chunks = futures::stream::iter(0..100);
        let chunks = chunks.map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 20])));
        return Body::from_stream(chunks).into_response();
    }
    let mut request = Request::post(uri.clone());
    if let Some(kind) = headers.get(header::CONTENT_TYPE) {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    let request = request
        .body(kube::client::Body::from(body.to_vec()))
        .expect("a request");
    match inner.send(request).await {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}
