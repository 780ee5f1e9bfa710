//! Takes and renews our Lease, and tells the gate. The rules are in [`crate::leader`].

use std::time::Duration;

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    calls::{CallError, call_within},
    effects::MANAGER,
    gate::Leadership,
};
use crate::{
    clock::Clock,
    leader::{Candidate, FENCE, LEASE, Observation, RETRY, Record, Term, Verdict, decide},
};

/// No call of the election may take longer: of two that follow each other, the second must still be in time.
const TIMEOUT: Duration = Duration::from_secs(FENCE.as_secs() / 2);

/// Who has not listed everything yet leaves the lease to others for so long: one that is warm decides at once, and this one could
/// not. Then it takes it nevertheless, for somebody must lead.
const PATIENCE: Duration = Duration::from_secs(30);

/// Stands for election.
pub struct Elector {
    api: Api<Lease>,
    clock: Clock,
    us: Candidate,
    /// The Lease as the API server has it, if that is known for sure.
    lease: Known,
    /// What the Lease said when it was read last, and since when.
    observed: Option<Observation>,
    terms: u64,
    /// Whether the last attempt failed: it is said once.
    failing: bool,
    /// Whether everything is listed.
    warm: watch::Receiver<bool>,
    /// From when on it takes the lease even if that is not so.
    patient_until: Instant,
    tell: watch::Sender<Leadership>,
}

#[derive(Clone, Debug)]
enum Known {
    No,
    Absent,
    There(Box<Lease>),
}

impl Elector {
    /// A candidate of this identity, which no other process may have. `client` must not go through the gate; `warm` says whether
    /// everything is listed.
    pub fn new(
        client: Client,
        namespace: &str,
        identity: &str,
        clock: Clock,
        warm: watch::Receiver<bool>,
    ) -> (Self, watch::Receiver<Leadership>) {
        let (tell, leadership) = watch::channel(Leadership::Following);
        let elector = Self {
            api: Api::namespaced(client, namespace),
            clock,
            us: Candidate {
                identity: identity.to_owned(),
                attempted: None,
                term: None,
            },
            lease: Known::No,
            observed: None,
            terms: 0,
            failing: false,
            warm,
            patient_until: Instant::now() + PATIENCE,
            tell,
        };
        (elector, leadership)
    }

    /// Stands for election until `stop` completes; then gives the lease back, so that the next one need not wait.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            let began = Instant::now();
            let next = match self.attempt().await {
                Ok(next) => {
                    self.failing = false;
                    next
                }
                Err(error) => {
                    // Half a write may have been done: read again before the next.
                    self.lease = Known::No;
                    if error.is_conflict() || error.is_already_exists() {
                        tracing::debug!(%error, "somebody else wrote first");
                    } else if self.failing {
                        tracing::debug!(%error, "still cannot stand for election");
                    } else {
                        self.failing = true;
                        tracing::warn!(%error, "cannot stand for election; trying again");
                    }
                    began + RETRY
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = self.warmed() => {}
                () = sleep_until(next) => {}
            }
        }
        if let Err(error) = self.release().await {
            tracing::warn!(%error, "the lease was not given back; another process can take it once it has run out");
        }
    }

    /// Does what is to be done now; returns when to look again.
    async fn attempt(&mut self) -> Result<Instant, CallError> {
        let began = Instant::now();
        self.step_down_if_too_late();
        if matches!(self.lease, Known::No) {
            self.read().await?;
        }
        match decide(&self.us, self.observed.as_ref(), Instant::now()) {
            Verdict::Wait(until) => {
                self.lease = Known::No;
                Ok(until)
            }
            Verdict::StepDown => {
                self.step_down();
                self.lease = Known::No;
                Ok(Instant::now())
            }
            Verdict::Acquire if self.is_cold() => {
                // It is looked at meanwhile, so that nothing is lost by waiting: how long it is left alone is known.
                self.lease = Known::No;
                Ok(self.patient_until.min(began + RETRY))
            }
            Verdict::Acquire | Verdict::Renew => {
                self.write().await?;
                Ok(began + RETRY)
            }
        }
    }

    /// Whether it leaves the lease to others.
    fn is_cold(&self) -> bool {
        !*self.warm.borrow() && Instant::now() < self.patient_until
    }

    /// Completes when everything is listed that was not.
    async fn warmed(&mut self) {
        let is_news = self.is_cold() && self.warm.wait_for(|is_warm| *is_warm).await.is_ok();
        if !is_news {
            std::future::pending::<()>().await;
        }
    }

    fn step_down_if_too_late(&mut self) {
        if self.us.term.is_some_and(|t| Instant::now() >= t.fence()) {
            self.step_down();
            self.lease = Known::No;
        }
    }

    fn step_down(&mut self) {
        self.us.term = None;
        self.tell.send_replace(Leadership::Following);
    }

    async fn read(&mut self) -> Result<(), CallError> {
        let attempt = format!("read Lease {LEASE}");
        let lease = match call_within(TIMEOUT, attempt, self.api.get(LEASE)).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        self.keep(lease);
        Ok(())
    }

    fn keep(&mut self, lease: Option<Lease>) {
        let record = lease.as_ref().map(Record::from);
        self.observed = record.map(|r| Observation::after(self.observed.as_ref(), r, Instant::now()));
        self.lease = lease.map_or(Known::Absent, |l| Known::There(Box::new(l)));
    }

    /// Takes or renews the lease. Guarded by its resourceVersion: of two that take it at once one is refused.
    async fn write(&mut self) -> Result<(), CallError> {
        let record = self
            .us
            .claim(self.observed.as_ref().map(|o| &o.record), self.clock.now());
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        self.us.attempted = record.acquired;
        let before = std::mem::replace(&mut self.lease, Known::No);
        let asked = Instant::now();
        // Too late for this term is too late: the next look begins a new one, or follows.
        let fence = self.us.term.map(|t| t.fence().saturating_duration_since(asked));
        let limit = fence.map_or(TIMEOUT, |left| left.min(TIMEOUT));
        let lease = match before {
            Known::There(mut lease) => {
                lease.spec = Some(record.to_spec());
                let attempt = format!("take or renew Lease {LEASE}");
                call_within(limit, attempt, self.api.replace(LEASE, &params, &lease)).await?
            }
            Known::Absent | Known::No => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(LEASE.to_owned()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(record.to_spec()),
                };
                let attempt = format!("create Lease {LEASE}");
                call_within(limit, attempt, self.api.create(&params, &lease)).await?
            }
        };
        let previous = self.observed.as_ref().and_then(|o| o.record.holder.clone());
        self.keep(Some(lease));
        self.lead(asked, previous.as_deref());
        Ok(())
    }

    fn lead(&mut self, asked: Instant, previous: Option<&str>) {
        let Some(acquired) = self.us.attempted else { return };
        if self.us.term.is_none() {
            self.terms += 1;
            tracing::info!(
                identity = self.us.identity,
                previous,
                "holding Lease {LEASE}: this process writes"
            );
        }
        let term = Term { acquired, asked };
        self.us.term = Some(term);
        self.tell.send_replace(Leadership::Leading {
            term: self.terms,
            until: term.fence(),
        });
    }

    async fn release(mut self) -> Result<(), CallError> {
        let held = self.us.term.is_some();
        self.step_down();
        if !held {
            return Ok(());
        }
        if matches!(self.lease, Known::No) {
            self.read().await?;
        }
        let (Known::There(mut lease), Some(observed)) = (self.lease, self.observed) else {
            return Ok(());
        };
        let Some(record) = self.us.release(&observed.record, self.clock.now()) else {
            return Ok(());
        };
        lease.spec = Some(record.to_spec());
        let attempt = format!("give back Lease {LEASE}");
        let params = PostParams::default();
        call_within(TIMEOUT, attempt, self.api.replace(LEASE, &params, &lease)).await?;
        tracing::info!("gave back Lease {LEASE}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::simulator::simulation::{self, Simulation};

    /// Seconds until a candidate holds the lease that has listed everything after so many, or never.
    fn leads_after(warm_after: Option<u64>) -> u64 {
        simulation::run(async {
            let start: Timestamp = "2026-11-21T20:00:00Z".parse().unwrap();
            let simulation = Simulation::new(Clock::starting_at(start));
            let (tell, warm) = watch::channel(false);
            let (elector, mut leadership) =
                Elector::new(simulation.admin(), "ns", "a", simulation.clock, warm);
            let began = Instant::now();
            tokio::spawn(elector.run(std::future::pending()));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(warm_after.unwrap_or(3_600))).await;
                tell.send_replace(true);
            });
            let leads = |now: &Leadership| *now != Leadership::Following;
            leadership.wait_for(leads).await.unwrap();
            began.elapsed().as_secs()
        })
        .unwrap()
    }

    #[rstest::rstest]
    #[case::at_once(Some(0), 0)]
    #[case::as_soon_as_everything_is_listed(Some(7), 7)]
    #[case::for_somebody_must_lead(None, 30)]
    fn a_process_stands_for_election_once_it_could_decide(
        #[case] warm_after: Option<u64>,
        #[case] expected: u64,
    ) {
        assert_eq!(leads_after(warm_after), expected);
    }
}
