//! Asks Prometheus: the only place that does. Answers become a part of what decisions are made from.
//!
//! Every round of questions has a connection of its own, with the token and the CA as the files have them at that moment:
//! both rotate, and while nodes are drained a connection that is kept open may lead to a pod that is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::Timestamp;
use kube::{Client, Config, client::Body};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::time::{Instant, timeout_at};
use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};

use crate::health::{
    answers::{Answer, Answers, COUNTS_FOR, Vector},
    response::{self, NoVector},
};

/// Largest answer that is read.
pub const MAX_BYTES: usize = 5 << 20;
/// So many questions are on their way at a time.
const AT_A_TIME: usize = 4;

/// Longest `--prometheus-timeout`: an answer must count for a while when it comes.
const MAX_TIMEOUT: Duration = Duration::from_secs(20);

/// Where Prometheus is and how to reach it, as given on the command line.
#[derive(Clone, Debug)]
pub struct Access {
    /// Its URL; `/api/v1/query` is added.
    pub url: Uri,
    /// The CA that vouches for it; `None` = the machine's.
    pub ca_file: Option<PathBuf>,
    /// The bearer token; `None` = none is sent.
    pub token_file: Option<PathBuf>,
    /// How long all questions of a moment may take together.
    pub timeout: Duration,
}

/// What `--prometheus-url` and its companions cannot be.
#[derive(Debug, thiserror::Error)]
pub enum BadAccess {
    /// Not a URL of a server.
    #[error(
        "--prometheus-url {0} must be a URL such as https://thanos-querier.openshift-monitoring.svc:9091"
    )]
    Url(Uri),
    /// A token must not travel in the clear.
    #[error(
        "--prometheus-token-file goes with an https:// URL only: {0} would show the token to everyone on the way"
    )]
    TokenInTheClear(Uri),
    /// Too short to answer, or so long that answers are too old when they come.
    #[error("--prometheus-timeout must be longer than 0 and at most {} s", MAX_TIMEOUT.as_secs())]
    Timeout,
}

impl Access {
    /// Refuses what can never work.
    pub fn validate(&self) -> Result<(), BadAccess> {
        let scheme = self.url.scheme_str().unwrap_or_default();
        if self.url.host().is_none() || !["http", "https"].contains(&scheme) {
            return Err(BadAccess::Url(self.url.clone()));
        }
        if scheme == "http" && self.token_file.is_some() {
            return Err(BadAccess::TokenInTheClear(self.url.clone()));
        }
        if self.timeout.is_zero() || self.timeout > MAX_TIMEOUT {
            return Err(BadAccess::Timeout);
        }
        Ok(())
    }
}

/// Who is asked.
enum Source {
    Nobody,
    Server(Access),
    /// A client that is there already, such as that of a simulation.
    Client(Client, Duration),
}

/// Asks, and keeps the answers that still count.
pub struct Asker {
    source: Source,
    answers: Answers,
    /// What failed in the last round, so that the log tells changes only.
    failure: Option<String>,
}

/// Why nothing can be asked at all.
#[derive(Debug, thiserror::Error)]
enum NoAccess {
    #[error("cannot read the {what} in {}: {source}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("there is no {what} in {}", path.display())]
    Content { what: &'static str, path: PathBuf },
    #[error("cannot make a client: {0}")]
    Client(String),
}

/// Why there is no answer. The texts go on after "Prometheus at <URL>".
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("cannot be asked: {0}")]
    NotAsked(String),
    #[error("does not answer within {} s (--prometheus-timeout)", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("has a certificate that {trust} does not vouch for: {problem}")]
    Untrusted { trust: String, problem: String },
    #[error("cannot be reached: {0}; does it run, and is --prometheus-url right?")]
    Unreachable(String),
    #[error("broke off in the middle of its answer: {0}")]
    BrokeOff(String),
    #[error("answers with more than {} MiB: make the query narrower", MAX_BYTES >> 20)]
    TooLarge,
    #[error("redirects to {0} instead of answering: is --prometheus-url right?")]
    Redirect(String),
    #[error(transparent)]
    NoVector(#[from] NoVector),
}

impl Asker {
    fn new(source: Source, answers: Answers) -> Self {
        Self {
            source,
            answers,
            failure: None,
        }
    }

    /// There is nobody to ask.
    pub fn nobody() -> Self {
        Self::new(Source::Nobody, Answers::NobodyToAsk)
    }

    /// Asks the server at this address.
    pub fn server(access: Access) -> Self {
        Self::new(Source::Server(access), Answers::Known(BTreeMap::new()))
    }

    /// Asks by this client; all questions of a moment may take `timeout` together.
    pub fn client(client: Client, timeout: Duration) -> Self {
        Self::new(Source::Client(client, timeout), Answers::Known(BTreeMap::new()))
    }

    /// What was said.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Forgets answers from before `t`, so that they are asked for again.
    pub fn forget_before(&mut self, t: Timestamp) {
        if let Answers::Known(all) = &mut self.answers {
            all.retain(|_, answer| answer.at >= t);
        }
    }

    /// Asks all `queries` at once and keeps the answers, an error being one too. An answer is as old as its question, which is
    /// asked `at`.
    pub async fn ask(&mut self, queries: &BTreeSet<String>, at: Timestamp) {
        let Answers::Known(known) = &mut self.answers else {
            return;
        };
        known.retain(|_, answer| at.duration_since(answer.at) < COUNTS_FOR);
        let mut failure = None;
        for (query, said) in self.source.ask(queries).await {
            let said = said.map_err(|why| format!("{} {why}", self.source));
            failure = failure.or_else(|| said.as_ref().err().cloned());
            known.insert(query, Answer { at, said });
        }
        match (&failure, &self.failure) {
            (Some(now), before) if before.as_ref() != Some(now) => {
                tracing::warn!(error = now, "cannot tell what Prometheus knows");
            }
            (None, Some(_)) => tracing::info!("Prometheus answers again"),
            (Some(_), _) | (None, None) => {}
        }
        self.failure = failure;
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nobody | Self::Client(..) => f.write_str("Prometheus"),
            Self::Server(access) => write!(f, "Prometheus at {}", access.url),
        }
    }
}

impl Source {
    async fn ask(&self, queries: &BTreeSet<String>) -> Vec<(String, Result<Vector, NoAnswer>)> {
        let (connected, timeout) = match self {
            Self::Nobody => return Vec::new(),
            Self::Server(access) => (access.connect(), access.timeout),
            Self::Client(client, timeout) => (Ok((client.clone(), None)), *timeout),
        };
        let (client, token) = match connected {
            Ok(connected) => connected,
            Err(why) => {
                let why = why.to_string();
                let all = queries.iter();
                return all
                    .map(|q| (q.clone(), Err(NoAnswer::NotAsked(why.clone()))))
                    .collect();
            }
        };
        let deadline = Instant::now() + timeout;
        let (client, token) = (&client, token.as_ref());
        let questions = queries.iter().cloned().map(|query| async move {
            let answer = timeout_at(deadline, self.one(client, token, &query)).await;
            (query, answer.unwrap_or(Err(NoAnswer::Timeout(timeout))))
        });
        let answers = futures::stream::iter(questions)
            .buffer_unordered(AT_A_TIME)
            .collect();
        // The client tells the log of each failure by itself, without a word about what was asked.
        answers.with_subscriber(NoSubscriber::default()).await
    }

    async fn one(
        &self,
        client: &Client,
        token: Option<&HeaderValue>,
        query: &str,
    ) -> Result<Vector, NoAnswer> {
        // By POST: a query may be longer than what proxies take for a URL. Thanos of OpenShift takes both.
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", query)
            .finish();
        let mut request = Request::post("/api/v1/query")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request
            .body(Body::from(form.into_bytes()))
            .map_err(|e| NoAnswer::NotAsked(e.to_string()))?;
        let response = client.send(request).await.map_err(|e| self.unreachable(&e))?;
        let status = response.status();
        if let Some(location) = response.headers().get(header::LOCATION)
            && status.is_redirection()
        {
            return Err(NoAnswer::Redirect(
                String::from_utf8_lossy(location.as_bytes()).into_owned(),
            ));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|e| match e.downcast_ref::<LengthLimitError>() {
            Some(_) => NoAnswer::TooLarge,
            None => NoAnswer::BrokeOff(root_cause(e.as_ref()).to_string()),
        })?;
        Ok(response::read(status.as_u16(), &body.to_bytes())?)
    }

    fn unreachable(&self, error: &kube::Error) -> NoAnswer {
        match root_cause(error).downcast_ref::<rustls::Error>() {
            Some(problem @ rustls::Error::InvalidCertificate(_)) => NoAnswer::Untrusted {
                trust: match self {
                    Self::Server(Access {
                        ca_file: Some(path), ..
                    }) => format!("{} (--prometheus-ca-file)", path.display()),
                    Self::Nobody | Self::Client(..) | Self::Server(_) => {
                        "this machine (give --prometheus-ca-file)".to_owned()
                    }
                },
                problem: problem.to_string(),
            },
            Some(_) | None => NoAnswer::Unreachable(root_cause(error).to_string()),
        }
    }
}

impl Access {
    /// A client without a connection yet, and the header with the token.
    fn connect(&self) -> Result<(Client, Option<HeaderValue>), NoAccess> {
        let mut config = Config::new(self.url.clone());
        config.default_retry = false;
        config.connect_timeout = Some(self.timeout);
        config.root_cert = self.ca_file.as_deref().map(certificates).transpose()?;
        let token = self.token_file.as_deref().map(bearer).transpose()?;
        let client = Client::try_from(config).map_err(|e| NoAccess::Client(root_cause(&e).to_string()))?;
        Ok((client, token))
    }
}

fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, NoAccess> {
    let what = "certificate in PEM";
    let pem = read(path, what)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem)
        .map(|c| c.map(|c| c.as_ref().to_vec()))
        .collect();
    all.ok()
        .filter(|all| !all.is_empty())
        .ok_or_else(|| NoAccess::Content {
            what,
            path: path.to_owned(),
        })
}

fn bearer(path: &Path) -> Result<HeaderValue, NoAccess> {
    let what = "token";
    let token = read(path, what)?;
    let token = String::from_utf8_lossy(&token).trim().to_owned();
    let header = HeaderValue::from_str(&format!("Bearer {token}")).ok();
    let mut header = header
        .filter(|_| !token.is_empty())
        .ok_or_else(|| NoAccess::Content {
            what,
            path: path.to_owned(),
        })?;
    header.set_sensitive(true);
    Ok(header)
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, NoAccess> {
    std::fs::read(path).map_err(|source| NoAccess::File {
        what,
        path: path.to_owned(),
        source,
    })
}

/// The innermost error: those around it only say that there was one.
fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    // An I/O error that wraps another one does not name it as its source.
    let wrapped = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
        .map(|e| e as &(dyn Error + 'static));
    match wrapped.or_else(|| error.source()) {
        Some(inner) => root_cause(inner),
        None => error,
    }
}
