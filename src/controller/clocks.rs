//! How far our clock is from the API server's: measured by every answer, by its `Date` header.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Request, header};
use jiff::{SignedDuration, fmt::rfc2822};
use kube::{Api, Client, client::Body};
use tokio::{sync::Notify, time::Instant};

use super::calls::call;
use crate::{
    clock::Clock,
    openshift::cluster_version::{self, ClusterVersion},
    outside,
};

/// What was measured last.
#[derive(Clone)]
pub struct Clocks {
    clock: Clock,
    changed: Arc<Notify>,
    ahead: Arc<Mutex<(SignedDuration, Instant)>>,
}

impl Clocks {
    /// Nothing is measured yet; `changed` is notified when the difference changes.
    pub fn new(clock: Clock, changed: &Arc<Notify>) -> Self {
        Self {
            clock,
            changed: Arc::clone(changed),
            ahead: Arc::new(Mutex::new((SignedDuration::ZERO, Instant::now()))),
        }
    }

    /// How far our clock is ahead.
    pub fn ahead(&self) -> SignedDuration {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// The same client, whose answers are looked at.
    pub fn watch(&self, client: &Client) -> Client {
        let (watched, clocks) = (client.clone(), self.clone());
        let measured = tower::service_fn(move |request: Request<Body>| {
            let (client, clocks) = (watched.clone(), clocks.clone());
            async move {
                let sent = clocks.clock.now();
                let answer = client.send(request).await?;
                let came = clocks.clock.now();
                let date = answer.headers().get(header::DATE);
                let date =
                    date.and_then(|d| rfc2822::DateTimeParser::new().parse_timestamp(d.as_bytes()).ok());
                if let Some(date) = date {
                    clocks.note(outside::clock_ahead(date, sent, came));
                }
                Ok::<_, kube::Error>(answer)
            }
        });
        Client::new(measured, client.default_namespace())
    }

    /// Makes sure that there is an answer at least this often.
    pub async fn keep_measured(self, client: Client, every: Duration) {
        loop {
            let (_, at) = *self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            tokio::time::sleep_until(at + every).await;
            let (_, newest) = *self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            if newest == at {
                let api: Api<ClusterVersion> = Api::all(client.clone());
                let attempt = "read the ClusterVersion, for the API server's time";
                if let Err(error) = call(attempt, api.get_metadata(cluster_version::NAME)).await {
                    tracing::debug!(%error, "the clocks were not compared");
                }
                // Without an answer the next one is asked for no sooner.
                self.note(self.ahead());
            }
        }
    }

    fn note(&self, measured: SignedDuration) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = outside::settled(ahead.0, measured);
        let has_changed = settled != ahead.0;
        *ahead = (settled, Instant::now());
        drop(ahead);
        if has_changed {
            self.changed.notify_one();
        }
    }
}
