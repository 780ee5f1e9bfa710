//! The one place through which every write goes: nothing is written by a process that does not hold the lease.
//!
//! The gate is a layer below the client, so no reconciler can forget it. It lets reads pass. A write begins only while the
//! lease is held, and is given up at the instant at which the lease may be another's soon; what the API server makes of a
//! request that was under way then, it makes within the rest of the lease (see [`crate::leader::FENCE`]), or refuses because
//! of the resourceVersion in it. That is also what is left where a whole machine was suspended, since its monotonic clock then
//! stood still.

use http::{Method, Request};
use kube::{Client, client::Body};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

/// Whether this process may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Another one may be writing.
    Following,
    /// It may, until then, unless the lease is renewed.
    Leading {
        /// Number of the term: after a loss, however short, it is another one.
        term: u64,
        /// From then on it must not.
        until: Instant,
    },
}

/// A write that was not made, or given up.
#[derive(Debug, thiserror::Error)]
enum Closed {
    /// The lease is not ours.
    #[error("this process does not hold the lease, so it does not write; the one that does will")]
    Following,
    /// It was lost with the write under way.
    #[error(
        "the lease was not renewed in time, so the write was given up; whoever takes the lease decides again"
    )]
    Lost,
}

/// Knows whether this process may write.
#[derive(Clone, Debug)]
pub struct Gate {
    /// `None` = there is no election, and it always may.
    leadership: Option<watch::Receiver<Leadership>>,
}

impl Gate {
    /// A gate that is always open: without leader election.
    pub const OPEN: Self = Self { leadership: None };

    /// A gate that is open while the lease is held.
    pub fn new(leadership: watch::Receiver<Leadership>) -> Self {
        Self {
            leadership: Some(leadership),
        }
    }

    /// The same client, with its writes through the gate.
    pub fn guard(&self, client: &Client) -> Client {
        let Some(leadership) = &self.leadership else {
            return client.clone();
        };
        let (guarded, leadership) = (client.clone(), leadership.clone());
        let gated = tower::service_fn(move |request: Request<Body>| {
            let (client, leadership) = (guarded.clone(), leadership.clone());
            async move {
                if is_read(request.method()) {
                    return Ok(client.send(request).await?);
                }
                let open = open_until(*leadership.borrow(), None);
                let until = open.ok_or(Closed::Following)?;
                let answer = timeout_at(until, client.send(request)).await;
                Ok::<_, tower::BoxError>(answer.map_err(|_| Closed::Lost)??)
            }
        });
        Client::new(gated, client.default_namespace())
    }

    /// Whether this process may write now.
    pub fn is_open(&self) -> bool {
        let leadership = self.leadership.as_ref();
        leadership.is_none_or(|now| open_until(*now.borrow(), None).is_some())
    }

    /// Completes when this process may write; returns the number of the term.
    pub async fn opened(&self) -> u64 {
        let Some(mut leadership) = self.leadership.clone() else {
            return 0;
        };
        loop {
            if let Leadership::Leading { term, until } = *leadership.borrow_and_update()
                && Instant::now() < until
            {
                return term;
            }
            if leadership.changed().await.is_err() {
                // The election has ended, and with it the process.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Completes when this term is over.
    pub async fn closed(&self, of: u64) {
        let Some(mut leadership) = self.leadership.clone() else {
            return std::future::pending().await;
        };
        loop {
            let now = *leadership.borrow_and_update();
            let Some(until) = open_until(now, Some(of)) else {
                return;
            };
            tokio::select! {
                biased;
                () = sleep_until(until) => {}
                renewed = leadership.changed() => if renewed.is_err() {
                    // An election that has ended renews no more.
                    return sleep_until(until).await;
                },
            }
        }
    }
}

/// Until when writes may go on, in this term or in any; `None` if they may not.
fn open_until(leadership: Leadership, of: Option<u64>) -> Option<Instant> {
    match leadership {
        Leadership::Leading { term, until } if of.is_none_or(|of| of == term) && Instant::now() < until => {
            Some(until)
        }
        Leadership::Leading { .. } | Leadership::Following => None,
    }
}

fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, api::PostParams};
    use serde_json::json;

    use super::*;
    use crate::{
        clock::Clock,
        simulator::api::{ApiServer, Fault, Identity, Kinds},
    };

    const TERM: u64 = 4;

    struct Bench {
        server: ApiServer,
        tell: watch::Sender<Leadership>,
        gate: Gate,
        maps: Api<ConfigMap>,
    }

    fn bench(leadership: Leadership) -> Bench {
        let clock = Clock::starting_at("2026-11-21T00:00:00Z".parse().unwrap());
        let server = ApiServer::new(clock, Kinds::ours());
        let (tell, receiver) = watch::channel(leadership);
        let gate = Gate::new(receiver);
        let client = gate.guard(&server.client(Identity::Operator(1)));
        Bench {
            server,
            tell,
            gate,
            maps: Api::namespaced(client, "ns"),
        }
    }

    fn leading(seconds: u64) -> Leadership {
        Leadership::Leading {
            term: TERM,
            until: Instant::now() + Duration::from_secs(seconds),
        }
    }

    async fn write(bench: &Bench) -> Result<(), String> {
        let map = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
        let made = bench.maps.create(&PostParams::default(), &map).await;
        made.map(drop).map_err(|e| e.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_reads_and_writes_nothing() {
        let bench = bench(Leadership::Following);
        assert!(
            write(&bench)
                .await
                .unwrap_err()
                .contains("does not hold the lease")
        );
        assert_eq!(bench.server.writes(), 0);
        assert_eq!(bench.maps.get_opt("m").await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_writes_until_its_lease_is_no_longer_sure() {
        let bench = bench(leading(10));
        write(&bench).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(
            write(&bench)
                .await
                .unwrap_err()
                .contains("does not hold the lease")
        );
        assert_eq!(bench.server.writes(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_is_given_up_in_time() {
        let bench = bench(leading(10));
        bench.server.plan(1, Fault::RequestLost);
        let began = Instant::now();
        assert!(write(&bench).await.unwrap_err().contains("was given up"));
        assert_eq!(began.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_told_when_the_term_is_over() {
        let bench = bench(leading(10));
        assert!(bench.gate.is_open() && Gate::OPEN.is_open());
        assert_eq!(bench.gate.opened().await, TERM);
        let began = Instant::now();
        let renew = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            bench.tell.send_replace(leading(10));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = bench.gate.closed(TERM) => {}
            () = renew => {}
        }
        assert_eq!(began.elapsed().as_secs(), 15, "ten seconds after the renewal");
        assert!(!bench.gate.is_open());
        bench.tell.send_replace(leading(10));
        bench.gate.closed(TERM - 1).await;
        assert_eq!(began.elapsed().as_secs(), 15, "a new term is not the old one");
    }
}
