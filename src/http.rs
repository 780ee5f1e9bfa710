//! /healthz, /readyz and /metrics.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};

use crate::metrics::{self, Exposition};

/// What is missing before the operator can decide; `None` = ready.
pub type Readiness = watch::Receiver<Option<String>>;

/// The listener cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for /healthz, /readyz and /metrics: {source}; choose another --listen")]
pub struct ListenError {
    /// Address.
    pub address: SocketAddr,
    /// Why not.
    pub source: std::io::Error,
}

/// Opens the listener; serve it with [`serve`].
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ListenError { address, source })
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, ready: Readiness, exposition: Exposition) {
    if let Err(error) = axum::serve(listener, app(ready, exposition)).await {
        tracing::error!(%error, "cannot serve /healthz, /readyz and /metrics");
    }
}

fn app(ready: Readiness, exposition: Exposition) -> Router {
    let exposition = Arc::new(exposition);
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(ready)
        .route("/metrics", get(async move || scrape(&exposition)))
}

fn scrape(exposition: &Exposition) -> Response {
    match exposition.text() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            let text = format!("cannot write the metrics: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

async fn readyz(State(ready): State<Readiness>) -> (StatusCode, String) {
    match ready.borrow().as_deref() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {missing}\n")),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::metrics::{Family, Series};

    /// Status, type and text of the answer.
    async fn get(path: &str, missing: Option<&str>) -> (u16, String, String) {
        let (_tell, ready) = watch::channel(missing.map(str::to_owned));
        let exposition = Exposition::new(|| {
            vec![Family {
                name: "a",
                help: "An a.",
                type_: metrics::Type::Gauge,
                series: vec![Series::new(vec![("b", "c".to_owned())], true)],
            }]
        });
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let answer = app(ready, exposition).oneshot(request).await.unwrap();
        let (status, kind) = (
            answer.status().as_u16(),
            answer.headers().get(header::CONTENT_TYPE),
        );
        let kind = kind.map(|k| k.to_str().unwrap().to_owned()).unwrap_or_default();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(text.to_vec()).unwrap())
    }

    #[rstest::rstest]
    #[case::alive("/healthz", Some("UpgradeJob"), 200, "ok\n")]
    #[case::ready("/readyz", None, 200, "ok\n")]
    #[case::not_ready(
        "/readyz",
        Some("UpgradeJob is not listed yet"),
        503,
        "not ready: UpgradeJob is not listed yet\n"
    )]
    #[case::metrics(
        "/metrics",
        Some("UpgradeJob"),
        200,
        "# HELP a An a.\n# TYPE a gauge\na{b=\"c\"} 1.0\n# EOF\n"
    )]
    #[case::nothing("/", None, 404, "")]
    #[tokio::test]
    async fn what_is_answered(
        #[case] path: &str,
        #[case] missing: Option<&str>,
        #[case] status: u16,
        #[case] expected: &str,
    ) {
        let (code, kind, text) = get(path, missing).await;
        assert_eq!((code, text.as_str()), (status, expected));
        assert_eq!(kind == metrics::CONTENT_TYPE, path == "/metrics");
    }
}
