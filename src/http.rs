//! /healthz and /readyz.

use std::net::SocketAddr;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::{net::TcpListener, sync::watch};

/// What is missing before the operator can decide; `None` = ready.
pub type Readiness = watch::Receiver<Option<String>>;

/// The listener cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for /healthz and /readyz: {source}; choose another --listen")]
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
pub async fn serve(listener: TcpListener, ready: Readiness) {
    let app = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(ready);
    if let Err(error) = axum::serve(listener, app).await {
        tracing::error!(%error, "cannot serve /healthz and /readyz");
    }
}

async fn readyz(State(ready): State<Readiness>) -> (StatusCode, String) {
    match ready.borrow().as_deref() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {missing}\n")),
    }
}
