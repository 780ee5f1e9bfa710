//! On an API server in memory that answers badly.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::{
    schedule::Zones,
    simulator::api::{ApiServer, Identity, Kinds},
};

const NAMESPACE: &str = "openshift-upgrade";

struct Bench {
    admin: Client,
    clock: Clock,
    settings: Settings,
}

/// How a request is served badly.
#[derive(Clone)]
enum Badly {
    /// It is not done, and this is the answer.
    Answers(StatusCode, String),
    /// It is done so much later.
    After(Duration),
}

fn is_of_pools(request: &Request<Body>) -> bool {
    request.uri().path().ends_with("/machineconfigpools")
}

/// The `count`th write of a Lease, counted from 1.
fn is_write_of_lease(count: usize) -> impl Fn(&Request<Body>) -> bool + Clone + Send + Sync + 'static {
    let writes = Arc::new(AtomicUsize::new(0));
    move |request| request.method() == Method::PUT && writes.fetch_add(1, Ordering::Relaxed) + 1 == count
}

/// A cluster with a ClusterVersion, and an operator that holds the Lease.
async fn bench() -> Bench {
    let clock = Clock::starting_at("2026-11-21T00:00:00Z".parse().unwrap());
    let server = ApiServer::new(clock, Kinds::ours());
    let bench = Bench {
        admin: server.client(Identity::Admin),
        clock,
        settings: Settings::new(NAMESPACE.to_owned(), Zones::bundled("UTC").unwrap()),
    };
    let version = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "ClusterVersion",
        "metadata": {"name": "version"},
        "spec": {"clusterID": "c"},
    });
    bench
        .create::<crate::openshift::cluster_version::ClusterVersion>(version)
        .await;
    let mut lease = Lease::default();
    lease.metadata.name = Some(LEASE.to_owned());
    let mut record = taken(&Record::default(), clock.now());
    record.holder = Some("an operator".to_owned());
    lease.spec = Some(record.to_spec());
    bench
        .leases()
        .create(&PostParams::default(), &lease)
        .await
        .unwrap();
    bench
}

impl Bench {
    async fn create<K: kube::Resource<DynamicType = ()>>(&self, object: Value) {
        let api: Api<DynamicObject> = Api::all_with(self.admin.clone(), &ApiResource::erase::<K>(&()));
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    async fn holder(&self) -> Option<String> {
        let lease = self.leases().get(LEASE).await.unwrap();
        Record::from(&lease).holder
    }

    async fn release_by(
        &self,
        client: &Client,
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<String>, Error> {
        release_all(client, &self.settings, self.clock, stop).await
    }

    /// A client that is answered with this where the path ends so.
    fn answering(&self, plural: &'static str, code: StatusCode, answer: &Value) -> Client {
        self.badly(Badly::Answers(code, answer.to_string()), move |request| {
            request.uri().path().ends_with(plural)
        })
    }

    /// A client that is served so where this holds of the request.
    fn badly(
        &self,
        badly: Badly,
        holds: impl Fn(&Request<Body>) -> bool + Clone + Send + Sync + 'static,
    ) -> Client {
        let behind = self.admin.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (behind, badly) = (behind.clone(), holds(&request).then(|| badly.clone()));
            async move {
                match badly {
                    Some(Badly::Answers(code, answer)) => {
                        let body = Body::from(answer.into_bytes());
                        return Ok(Response::builder().status(code).body(body).unwrap());
                    }
                    Some(Badly::After(pause)) => sleep(pause).await,
                    None => {}
                }
                behind.send(request).await
            }
        });
        Client::new(service, NAMESPACE)
    }
}

#[tokio::test(start_paused = true)]
async fn without_tekton_and_with_nothing_held_nothing_is_said() {
    let bench = bench().await;
    let said = bench
        .release_by(&bench.admin, std::future::pending())
        .await
        .unwrap();
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(bench.holder().await.as_deref(), Some("upgrade-operator release"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_the_kind_of_pools_has_none_and_that_is_said() {
    let bench = bench().await;
    let client = bench.answering(
        "/machineconfigpools",
        StatusCode::NOT_FOUND,
        &json!("404 page not found"),
    );
    let said = bench.release_by(&client, std::future::pending()).await.unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("MachineConfigPools were not looked at"),
        "{said:?}"
    );
}

/// One that is starting says for a moment that it has no such kind.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_starting_is_asked_for_pools_again() {
    let bench = bench().await;
    bench.create::<MachineConfigPool>(pool("night", true)).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let no_such_kind = Badly::Answers(StatusCode::NOT_FOUND, json!("404 page not found").to_string());
    let client = bench.badly(no_such_kind, move |request| {
        is_of_pools(request) && asked.fetch_add(1, Ordering::Relaxed) < 3
    });
    let said = bench.release_by(&client, std::future::pending()).await.unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("MachineConfigPool night stays paused"),
        "{said:?}"
    );
}

/// What was done, and what a person has to do, is seen once only.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_kept_hides_nothing_of_what_was_done() {
    let bench = bench().await;
    bench.create::<MachineConfigPool>(pool("night", true)).await;
    bench.create::<MachineConfigPool>(pool("worker", false)).await;
    let broken = json!({"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "etcd is away"});
    let broken = Badly::Answers(StatusCode::INTERNAL_SERVER_ERROR, broken.to_string());
    let client = bench.badly(broken, is_write_of_lease(2));
    let error = bench
        .release_by(&client, std::future::pending())
        .await
        .unwrap_err();
    let error = error.to_string();
    for said in [
        "MachineConfigPool worker: the name of a job was removed",
        "MachineConfigPool night stays paused",
        "etcd is away",
        "run it again",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn pools_that_may_not_be_read_are_not_taken_for_none() {
    let bench = bench().await;
    let client = bench.answering(
        "/machineconfigpools",
        StatusCode::FORBIDDEN,
        &forbidden("machineconfigpools"),
    );
    let error = bench
        .release_by(&client, std::future::pending())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("cannot list MachineConfigPools"),
        "{error}"
    );
    assert_eq!(bench.holder().await.as_deref(), Some("an operator"));
}

#[tokio::test(start_paused = true)]
async fn task_runs_that_may_not_be_read_are_told() {
    let bench = bench().await;
    let client = bench.answering("/taskruns", StatusCode::FORBIDDEN, &forbidden("taskruns"));
    let said = bench.release_by(&client, std::future::pending()).await.unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("TaskRuns were not looked at") && said[0].contains("taskruns is forbidden"),
        "{said:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_signal_gives_the_lease_back_to_the_operator() {
    let bench = bench().await;
    // While it waits for the operator to stop.
    let stop = sleep(DURATION / 2);
    let error = bench.release_by(&bench.admin, stop).await.unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert!(error.to_string().contains("run it again"), "{error}");
    assert_eq!(bench.holder().await, None);
    bench
        .release_by(&bench.admin, std::future::pending())
        .await
        .unwrap();
}

/// Before the Lease is taken, as later: an answer that takes long is not waited for.
#[tokio::test(start_paused = true)]
async fn a_signal_ends_the_first_look_too() {
    let bench = bench().await;
    let client = bench.badly(Badly::After(Duration::from_secs(8)), is_of_pools);
    let begin = Instant::now();
    let stop = sleep(Duration::from_secs(1));
    let error = bench.release_by(&client, stop).await.unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(bench.holder().await.as_deref(), Some("an operator"));
}

#[rstest::rstest]
#[case::that_comes_soon(2, None)]
#[case::that_comes_late(8, Some("an operator"))]
#[tokio::test(start_paused = true)]
async fn a_signal_while_the_lease_is_being_taken_leaves_it_to_nobody_else(
    #[case] answer: u64,
    #[case] holder: Option<&str>,
) {
    let bench = bench().await;
    let slow = Badly::After(Duration::from_secs(answer));
    let client = bench.badly(slow, is_write_of_lease(1));
    let begin = Instant::now();
    let stop = sleep(Duration::from_secs(1));
    let error = bench.release_by(&client, stop).await.unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(7), "{:?}", begin.elapsed());
    assert_eq!(bench.holder().await.as_deref(), holder);
}

/// A pool with the name of a job that is gone.
fn pool(name: &str, is_paused: bool) -> Value {
    let owner = format!("{NAMESPACE}/gone");
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "annotations": {crate::api::annotations::UPGRADE_JOB: owner}},
        "spec": {"paused": is_paused},
    })
}

fn forbidden(plural: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("{plural} is forbidden: User \"u\" cannot list resource \"{plural}\""),
    })
}
