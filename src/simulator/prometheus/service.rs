//! The simulated Prometheus behind a client, as our operator asks it.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use tower::{BoxError, service_fn};

use super::Prometheus;
use crate::{clock::Clock, controller::prometheus::Asker};

/// The default of `--prometheus-timeout`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Somebody who asks `prometheus`, which is looked up for each question. Inside of a tokio runtime.
pub fn asker(clock: Clock, prometheus: impl Fn() -> Prometheus + Clone + Send + 'static) -> Asker {
    let answer = service_fn(move |request: Request<Body>| {
        let prometheus = prometheus.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let question = head.uri.path_and_query().map_or("", |p| p.as_str());
            let answer = prometheus().respond(question, &String::from_utf8_lossy(&body), clock.now());
            let response = Response::builder().status(answer.status);
            let response = response.body(Body::from(answer.body.to_string().into_bytes()))?;
            Ok::<_, BoxError>(response)
        }
    });
    Asker::client(kube::Client::new(answer, "default"), TIMEOUT)
}
