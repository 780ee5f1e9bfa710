//! Two operators that run by accident, ours or the peer's: never two writers, in simulated time.

use std::{collections::BTreeSet, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    api::{Identity, Logged},
    operator::Machine,
    scenario::{Scenario, Timeline},
    simulation::{self, Simulation},
};
use crate::{
    api::{
        UpgradeJob, UpgradeJobHook,
        conditions::{self, types},
        upgrade_job::{JobPhase, StepPhase},
    },
    clock::Clock,
    controller::{self, Stores, prometheus::Asker},
    leader::LEASE,
    metrics,
    outside::PEER_LEASE,
    schedule::Zones,
    settings::Settings,
};

const NAMESPACE: &str = "openshift-upgrade";
const START: &str = "2026-11-21T20:00:00Z";
/// Longest time without a leader after one was killed.
const TAKEOVER: SignedDuration = SignedDuration::from_secs(20);

fn settings() -> Settings {
    Settings {
        identity: Some("operator".into()),
        ..Settings::new(NAMESPACE, Zones::bundled("UTC").unwrap())
    }
}

/// A cluster with a job that is due five minutes after the start, and a hook at each of three events.
struct World {
    simulation: Simulation,
    start: Timestamp,
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl World {
    async fn new() -> Self {
        let start: Timestamp = START.parse().unwrap();
        let mut simulation = Simulation::new(Clock::starting_at(start));
        simulation.server.keep_log();
        let scenario = Scenario::parse(
            std::path::Path::new("s.yaml"),
            "updates: {releases: [{version: 4.18.5}]}\ndurations: {controlPlane: 10m, node: 1m}",
        )
        .unwrap();
        let end = start + SignedDuration::from_hours(48);
        let timeline = Arc::new(Timeline::new(scenario, start, end, 1).unwrap());
        simulation.start_cluster(&timeline).await.unwrap();
        let world = Self { simulation, start };
        for event in ["Start", "UpgradeComplete", "Finish"] {
            let name = format!("at-{}", event.to_lowercase());
            let container = json!({"name": "c", "image": "i"});
            let hook: UpgradeJobHook = object(json!({
                "metadata": {"name": name},
                "spec": {"events": [event], "selector": {}, "template": {"spec": {"template": {"spec": {
                    "restartPolicy": "Never", "containers": [container]}}}}},
            }));
            let api: Api<UpgradeJobHook> = world.api();
            api.create(&PostParams::default(), &hook).await.unwrap();
        }
        let api: Api<UpgradeJob> = world.api();
        api.create(&PostParams::default(), &world.job()).await.unwrap();
        world
    }

    fn job(&self) -> UpgradeJob {
        let version = "4.18.5";
        object(json!({
            "metadata": {"name": "job"},
            "spec": {
                "startAfter": self.at(300).to_string(), "startBefore": self.at(300 + 3_600).to_string(),
                "desiredVersion": {"version": version, "image": super::openshift::releases::image(version)},
                "config": {"upgradeTimeout": "12h"},
            },
        }))
    }

    fn at(&self, seconds: i64) -> Timestamp {
        self.start + SignedDuration::from_secs(seconds)
    }

    fn now(&self) -> Timestamp {
        self.simulation.clock.now()
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.simulation.admin(), NAMESPACE)
    }

    async fn the_job(&self) -> UpgradeJob {
        self.api::<UpgradeJob>().get("job").await.unwrap()
    }

    async fn until(&self, what: &str, is: impl Fn(&UpgradeJob) -> bool) -> UpgradeJob {
        let end = self.now() + SignedDuration::from_hours(12);
        while self.now() < end {
            let job = self.the_job().await;
            if is(&job) {
                return job;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        panic!("gave up waiting for: {what}: {:#?}", self.the_job().await.status);
    }

    async fn until_step_runs(&self, step: &str) {
        self.until(step, |j| {
            let steps = j.status.iter().flat_map(|s| &s.steps);
            steps
                .into_iter()
                .any(|s| s.name == step && s.phase == StepPhase::Running)
        })
        .await;
    }

    async fn until_done(&self) {
        let job = self
            .until("the job has ended", |j| {
                let status = j.status.as_ref();
                status.is_some_and(|s| s.finished_at.is_some()) && j.finalizers().is_empty()
            })
            .await;
        let status = job.status.unwrap();
        assert_eq!(
            status.phase,
            Some(JobPhase::Succeeded),
            "{:#?}",
            status.conditions
        );
    }

    async fn holder(&self) -> String {
        let lease: Api<Lease> = self.api();
        let lease = lease.get(LEASE).await.unwrap();
        lease.spec.unwrap().holder_identity.unwrap()
    }

    /// Writes of operators to anything but leases, whether they went through or not.
    fn writes(&self) -> Vec<Logged> {
        let all = self.simulation.server.log().into_iter();
        all.filter(|l| l.write.is_some() && !l.line.contains("/leases"))
            .collect()
    }

    /// Who wrote, in the order of their turns: the same one twice has had two turns.
    fn turns(&self) -> Vec<Identity> {
        let mut turns: Vec<Identity> = self.writes().into_iter().map(|w| w.identity).collect();
        turns.dedup();
        turns
    }

    /// The upgrade was done once, whoever did it.
    fn assert_done_once(&self) {
        let writes = self.writes();
        let went_through = |l: &&Logged| (200..300).contains(&l.code);
        let jobs: Vec<&Logged> = writes
            .iter()
            .filter(|l| l.line.starts_with("POST") && l.line.contains("/jobs"))
            .filter(went_through)
            .collect();
        assert_eq!(jobs.len(), 3, "Jobs of hooks: {jobs:#?}");
        let desired: Vec<&Logged> = writes
            .iter()
            .filter(|l| l.body.contains("/spec/desiredUpdate"))
            .filter(went_through)
            .collect();
        assert_eq!(desired.len(), 1, "{desired:#?}");
        assert_eq!(self.simulation.server.unknown_requests(), Vec::<String>::new());
    }
}

/// The operators on two machines, the first of which leads.
async fn two(world: &mut World) -> (Machine, Machine) {
    let first = world
        .simulation
        .start_operator_with(&settings(), SignedDuration::ZERO);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let second = world
        .simulation
        .start_operator_with(&settings(), SignedDuration::ZERO);
    (first, second)
}

fn run(test: impl AsyncFnOnce(&mut World)) {
    simulation::run(async {
        let mut world = World::new().await;
        test(&mut world).await;
    })
    .unwrap();
}

#[test]
fn only_the_one_with_the_lease_writes() {
    run(async |world| {
        let (first, second) = two(world).await;
        world.until_done().await;
        assert_eq!(world.turns(), [first.operator(1)]);
        assert_eq!(world.holder().await, "operator-0-1");
        let log = world.simulation.server.log();
        let of_second: BTreeSet<&str> = log
            .iter()
            .filter(|l| l.identity == second.operator(1))
            .filter_map(|l| l.line.split(' ').next())
            .collect();
        assert_eq!(
            of_second,
            BTreeSet::from(["GET"]),
            "watches, and a look at the lease"
        );
        world.assert_done_once();
    });
}

#[test]
fn the_other_carries_on_when_the_leader_is_killed() {
    run(async |world| {
        let (first, second) = two(world).await;
        world.until_step_runs("await-control-plane").await;
        let killed = world.now();
        world.simulation.server.kill(first.operator(1));
        while world.holder().await != "operator-1-1" {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let after = world.now().duration_since(killed);
        assert!(after <= TAKEOVER, "{after}");
        world.until_done().await;
        assert_eq!(world.turns(), [first.operator(1), second.operator(1)]);
        world.assert_done_once();
    });
}

/// The network of the leader is cut: no call of its own ends, and it must stop by its own clock.
#[test]
fn a_leader_that_is_cut_off_stops_before_the_other_starts() {
    run(async |world| {
        let (first, second) = two(world).await;
        world.until_step_runs("await-control-plane").await;
        let until = world.now() + SignedDuration::from_mins(10);
        world.simulation.server.cut_off_until(first.operator(1), until);
        world.until_done().await;
        assert_eq!(world.turns(), [first.operator(1), second.operator(1)]);
        assert_eq!(world.holder().await, "operator-1-1", "who comes back follows");
        world.assert_done_once();
    });
}

/// Whoever leads when the API server is back, goes on; the lease of before is still its own, so nobody waits for it.
#[test]
fn an_api_server_that_was_away_finds_one_writer() {
    run(async |world| {
        let (first, second) = two(world).await;
        world.until_step_runs("await-control-plane").await;
        let until = world.now() + SignedDuration::from_mins(10);
        world.simulation.server.set_away_until(until);
        world.until_done().await;
        let turns = world.turns();
        assert!(
            turns == [first.operator(1)] || turns == [first.operator(1), second.operator(1)],
            "{turns:?}"
        );
        world.assert_done_once();
    });
}

#[test]
fn who_ends_in_order_gives_the_lease_back() {
    run(async |world| {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let machine = Machine {
            number: 7,
            clock_offset: SignedDuration::ZERO,
        };
        let client = world.simulation.server.client(machine.operator(1));
        let settings = simulation::in_simulated_time(Settings {
            identity: Some("a".into()),
            ..settings()
        });
        let (clock, nobody) = (world.simulation.clock, Asker::nobody());
        let stores = Stores::default();
        let seen = stores.clone();
        let tells = |line: &str| {
            let told = metrics::told(&seen.metrics(clock.now()));
            told.iter().any(|l| l.starts_with(line))
        };
        assert!(tells("leader  0") && tells("ready  0"));
        let running = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            Box::pin(controller::run(
                client,
                settings,
                clock,
                nobody,
                stores,
                |_| {},
                stopped,
            ))
            .await;
        });
        world.until_step_runs("await-control-plane").await;
        let requests = "api_requests patch,managedupgrade.appuio.io,upgradejobs/status,200 ";
        let expected = [
            "leader  1",
            "ready  1",
            "upgradejob_current_step_seconds ",
            requests,
        ];
        assert!(expected.into_iter().all(tells));
        let other = world
            .simulation
            .start_operator_with(&self::settings(), SignedDuration::ZERO);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        drop(stop);
        running.await.unwrap();
        assert!(tells("leader  0"));
        assert_eq!(world.holder().await, "");
        world.until_done().await;
        assert_eq!(world.turns(), [machine.operator(1), other.operator(1)]);
        world.assert_done_once();
    });
}

/// A lease that nobody renews any more, of an operator of long ago: it is not known how long ago, so it is waited for.
#[test]
fn a_lease_that_was_left_is_taken_when_it_has_run_out() {
    run(async |world| {
        let lease: Lease = object(json!({
            "metadata": {"name": LEASE},
            "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 15, "leaseTransitions": 4,
                "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z"},
        }));
        world.api().create(&PostParams::default(), &lease).await.unwrap();
        let began = world.now();
        let machine = world
            .simulation
            .start_operator_with(&settings(), SignedDuration::ZERO);
        world.until_done().await;
        let first = world.writes().first().unwrap().at.duration_since(began);
        assert!((15..=20).contains(&first.as_secs()), "{first}");
        assert_eq!(world.turns(), [machine.operator(1)]);
        let lease: Lease = world.api().get(LEASE).await.unwrap();
        assert_eq!(lease.spec.unwrap().lease_transitions, Some(5));
    });
}

fn condition(job: &UpgradeJob, type_: &str) -> (String, String) {
    let all = job.status.as_ref().map_or(&[][..], |s| s.conditions.as_slice());
    let found = conditions::get(all, type_);
    found.map_or_else(Default::default, |c| (c.status.clone(), c.reason.clone()))
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// The clock of the leader's machine is wrong: it starts nothing, and says so. The other one's is right.
#[rstest::rstest]
#[case::ahead(3_600)]
#[case::behind(-3_600)]
fn a_leader_whose_clock_is_wrong_starts_nothing(#[case] offset: i64) {
    run(async |world| {
        let offset = SignedDuration::from_secs(offset);
        let wrong = world.simulation.start_operator_with(&settings(), offset);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let right = world
            .simulation
            .start_operator_with(&settings(), SignedDuration::ZERO);
        world.simulation.until(world.at(1_800)).await;
        let job = world.the_job().await;
        assert_eq!(condition(&job, types::HELD), is("True", "ClockSkew"));
        assert_eq!(condition(&job, types::STARTED), is("", ""));
        let written: BTreeSet<String> = world.writes().into_iter().map(|w| w.line).collect();
        assert!(
            written
                .iter()
                .all(|l| l.contains("/status") || l.contains("/events")),
            "{written:#?}"
        );
        assert!(world.writes().len() < 30, "it is not said all the time");

        world.simulation.server.kill(wrong.operator(1));
        world.until_done().await;
        assert_eq!(world.turns(), [wrong.operator(1), right.operator(1)]);
        assert_eq!(
            condition(&world.the_job().await, types::HELD),
            is("False", "NotHeld")
        );
        world.assert_done_once();
    });
}

/// Renews the lease of the peer, in a namespace of its own, until dropped.
async fn be_the_peer(leases: Api<Lease>, clock: Clock) {
    for second in (0..).step_by(2) {
        let now = clock.now().to_string();
        let lease: Lease = object(json!({
            "metadata": {"name": PEER_LEASE},
            "spec": {"holderIdentity": "controller-0", "leaseDurationSeconds": 15, "renewTime": now},
        }));
        if second == 0 {
            leases.create(&PostParams::default(), &lease).await.unwrap();
        } else {
            let patch = Patch::Merge(&lease);
            leases
                .patch(PEER_LEASE, &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
}

#[test]
fn beside_the_peer_nothing_is_done_until_its_lease_has_run_out() {
    run(async |world| {
        let leases: Api<Lease> = Api::namespaced(world.simulation.admin(), "of-the-peer");
        let peer = tokio::spawn(be_the_peer(leases, world.simulation.clock));
        let machine = world
            .simulation
            .start_operator_with(&settings(), SignedDuration::ZERO);
        world.simulation.until(world.at(1_800)).await;
        let job = world.the_job().await;
        assert_eq!(condition(&job, types::HELD), is("True", "PeerAtWork"));
        let message = job.status.unwrap().message.unwrap();
        assert!(
            message.contains("controller-0") && message.contains("of-the-peer"),
            "{message}"
        );
        assert_eq!(
            world.writes().len(),
            2,
            "condition and Event: {:#?}",
            world.writes()
        );

        peer.abort();
        world
            .until("the job has started", |j| {
                condition(j, types::STARTED).0 == "True"
            })
            .await;
        let after = world.now().duration_since(world.at(1_800));
        assert!((13..=60).contains(&after.as_secs()), "{after}");
        world.until_done().await;
        assert_eq!(world.turns(), [machine.operator(1)]);
        world.assert_done_once();
    });
}

/// Left by a peer that was removed: it holds nothing up for longer than it takes to see that nobody renews it.
#[test]
fn a_lease_that_the_peer_left_is_ignored() {
    run(async |world| {
        let leases: Api<Lease> = Api::namespaced(world.simulation.admin(), "of-the-peer");
        let renewing = tokio::spawn(be_the_peer(leases, world.simulation.clock));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        renewing.abort();
        let began = world.now();
        world
            .simulation
            .start_operator_with(&settings(), SignedDuration::ZERO);
        world.until_done().await;
        let first = world.writes().first().unwrap().at.duration_since(began);
        assert!((14..=17).contains(&first.as_secs()), "{first}");
        assert_eq!(
            condition(&world.the_job().await, types::HELD),
            is("", ""),
            "nothing was said"
        );
    });
}
