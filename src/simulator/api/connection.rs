//! A client's connection, and the order in which requests are served.

use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Response, header};
use jiff::Timestamp;
use tokio::{sync::oneshot, time::Instant};

use super::{ApiServer, Identity, answer::Body, lock, request::Request};

/// How long a request takes in simulated time.
const LATENCY: Duration = Duration::from_millis(1);

/// A request that waits for its turn, and where its answer goes.
type Waiting = (Identity, Request, oneshot::Sender<Option<Response<Body>>>);
/// What waits, in the order in which it is served, and how many came so far.
pub type Queue = (BTreeMap<(Instant, String, Bytes, u64), Waiting>, u64);

impl ApiServer {
    /// Serves the request when its time has come, together with all others of that instant, in their order.
    async fn in_turn(&self, identity: Identity, request: Request) -> Option<Response<Body>> {
        if !self.inner.clock.is_virtual() {
            return self.serve(identity, &request);
        }
        let due = Instant::now() + LATENCY;
        let (tell, told) = oneshot::channel();
        {
            let (queue, count) = &mut *lock(&self.inner.queue);
            *count += 1;
            let turn = (due, request.line.clone(), request.body.clone(), *count);
            queue.insert(turn, (identity, request, tell));
        }
        tokio::time::sleep_until(due).await;
        while let Some((identity, request, tell)) = self.next_due() {
            // A client that gave up meanwhile has closed its connection before the server read the request.
            if !tell.is_closed() {
                // The one that asked may be gone by the time of the answer: then nobody misses it.
                let _ = tell.send(self.serve(identity, &request));
            }
        }
        told.await.ok().flatten()
    }

    fn next_due(&self) -> Option<Waiting> {
        let (queue, _) = &mut *lock(&self.inner.queue);
        let first = queue.first_entry()?;
        (first.key().0 <= Instant::now()).then(|| first.remove())
    }
}

/// A client's connection.
pub struct Connection {
    /// Where it leads to.
    pub server: ApiServer,
    /// Whose it is.
    pub identity: Identity,
}

/// The connection broke.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// Nobody listens.
    #[error("connection refused (the simulated API server is away)")]
    Away,
    /// The request could not be read.
    #[error("cannot read the request: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

impl tower::Service<http::Request<kube::client::Body>> for Connection {
    type Response = Response<Body>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Broken>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let (server, identity) = (self.server.clone(), self.identity);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body
                .collect_bytes()
                .await
                .map_err(|e| Broken::Body(Box::new(e)))?;
            if server.is_away(identity) {
                return Err(Broken::Away);
            }
            if server.is_cut_off(identity) {
                return std::future::pending().await;
            }
            match server.in_turn(identity, Request::new(&parts, body)).await {
                Some(answer) => Ok(dated(answer, server.inner.clock.now())),
                None => std::future::pending().await,
            }
        })
    }
}

/// With the time in it, as every HTTP server says it.
fn dated(mut answer: Response<Body>, now: Timestamp) -> Response<Body> {
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
    if let Some(date) = date.ok().and_then(|d| header::HeaderValue::from_str(&d).ok()) {
        answer.headers_mut().insert(header::DATE, date);
    }
    answer
}
