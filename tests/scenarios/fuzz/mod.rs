//! A thousand objects that nobody would write, on the real API server: each is refused, or says what the operator thinks
//! of it; the good ones beside them go on.

mod generator;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use kube::{Api, Client, ResourceExt, api::ListParams};
use openshift_upgrade_operator::api::{UpgradeJob, conditions, labels};
use serde_json::{Value, json};

use self::generator::{KINDS, Kind, Numbers};
use crate::harness::{
    NAMESPACE, PATIENCE, Scenario, assert_succeeded, objects::job, scenario, status, until,
};

const SEED: u64 = 0x5eed;
const OBJECTS: usize = 1_000;
/// So many are there at the same time.
const BATCH: usize = 250;

/// An object that the API server took.
struct Accepted {
    kind: Kind,
    name: String,
    sent: Value,
}

#[test]
fn the_same_seed_makes_the_same_objects_and_all_kinds() {
    let all = || {
        let mut numbers = Numbers(SEED);
        (0..OBJECTS)
            .map(|n| generator::object(&mut numbers, n))
            .map(|(kind, object)| (kind.name, without_times(object)))
            .collect::<Vec<_>>()
    };
    assert_eq!(all(), all());
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/crds");
    let files = std::fs::read_dir(crds).unwrap().map(|f| f.unwrap().file_name());
    let kinds = files.filter(|name| name != "kustomization.yaml").count();
    assert_eq!(kinds, KINDS.len(), "a kind is left out");
    for kind in KINDS {
        assert!(all().iter().filter(|(k, _)| *k == kind.name).count() > OBJECTS / 20);
    }
}

/// The times of a job are relative to now.
fn without_times(mut object: Value) -> Value {
    for field in ["startAfter", "startBefore"] {
        object["spec"].as_object_mut().map(|spec| spec.remove(field));
    }
    object
}

fn path(kind: Kind) -> String {
    format!(
        "/apis/managedupgrade.appuio.io/v1beta1/namespaces/{NAMESPACE}/{}",
        kind.plural
    )
}

/// Sends it as it is: a client's types would refuse much of it before the API server can. The error is the answer.
async fn send(client: &Client, kind: Kind, object: &Value) -> Result<Value, kube::Error> {
    let request = http::Request::post(path(kind))
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object).unwrap())
        .unwrap();
    client.request::<Value>(request).await
}

async fn delete(client: &Client, kind: Kind, name: &str) {
    let request = http::Request::delete(format!("{}/{name}", path(kind)))
        .body(Vec::new())
        .unwrap();
    // An error says that it is gone.
    let _ = client.request::<Value>(request).await;
}

/// Status of the condition `Valid` of each object of a kind that has one for its newest generation.
async fn verdicts(client: &Client, kind: Kind) -> Option<BTreeMap<String, String>> {
    let request = http::Request::get(path(kind)).body(Vec::new()).unwrap();
    let list = client.request::<Value>(request).await.ok()?;
    let of = |object: &Value| {
        let all = object.pointer("/status/conditions")?.as_array()?;
        let valid = all.iter().find(|c| c["type"] == "Valid")?;
        let name = object["metadata"]["name"].as_str()?.to_owned();
        Some((name, valid["status"].as_str()?.to_owned()))
    };
    Some(list["items"].as_array()?.iter().filter_map(of).collect())
}

/// Sends the objects; those that were taken.
async fn send_all(s: &Scenario, batch: Vec<(Kind, Value)>) -> Vec<Accepted> {
    let sent = stream::iter(batch).map(|(kind, object)| async move {
        let answer = send(&s.client, kind, &object).await;
        (kind, object, answer)
    });
    let answers: Vec<_> = sent.buffer_unordered(8).collect().await;
    let taken = answers
        .into_iter()
        .filter_map(|(kind, sent, answer)| match answer {
            Ok(object) => Some(Accepted {
                kind,
                name: object["metadata"]["name"].as_str()?.to_owned(),
                sent,
            }),
            // Not read (400), or not valid (422); anything else is a defect of this test.
            Err(kube::Error::Api(refusal)) if [400, 422].contains(&refusal.code) => None,
            Err(other) => panic!("{other}: {sent}"),
        });
    taken.collect()
}

/// Waits until every object says whether it is valid; how many are not.
async fn until_all_are_judged(s: &Scenario, accepted: &[Accepted]) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut silent = Vec::new();
        let mut invalid = 0;
        for kind in KINDS.into_iter().filter(|k| k.is_marked) {
            let verdicts = verdicts(&s.client, kind).await.unwrap_or_default();
            for object in accepted.iter().filter(|a| a.kind.name == kind.name) {
                match verdicts.get(&object.name).map(String::as_str) {
                    Some("False") => invalid += 1,
                    Some(_) => {}
                    None => silent.push(object),
                }
            }
        }
        if silent.is_empty() {
            return invalid;
        }
        assert!(
            Instant::now() < deadline,
            "{} objects say nothing about their validity, such as {}",
            silent.len(),
            silent
                .iter()
                .take(5)
                .map(|a| a.sent.to_string())
                .collect::<Vec<_>>()
                .join("\n")
        );
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// The first job that a config has made.
async fn first_job_of(s: &Scenario, config: &str) -> UpgradeJob {
    let api: Api<UpgradeJob> = Api::namespaced(s.client.clone(), NAMESPACE);
    let of = ListParams::default().labels(&format!("{}={config}", labels::UPGRADE_CONFIG));
    until(&format!("UpgradeConfig {config} has made a job"), async || {
        let mut all = api.list(&of).await.ok()?.items;
        all.sort_by_key(|j| j.spec.start_after.0);
        all.into_iter().next()
    })
    .await
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_thousand_fuzzed_objects_never_stop_the_operator_and_each_is_refused_or_marked() {
    scenario(&[], async |s| {
        let valid: Vec<_> = KINDS
            .into_iter()
            .map(|kind| (kind, kind.valid(&format!("unchanged-{}", kind.plural))))
            .collect();
        let unchanged = send_all(s, valid).await;
        assert_eq!(unchanged.len(), KINDS.len(), "what is mutated is valid");
        let invalid = until_all_are_judged(s, &unchanged).await;
        assert_eq!(
            invalid, 1,
            "only the ClusterVersion is not, for its name: a valid one would act on the cluster"
        );

        s.create(&json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
            "metadata": {"name": "good", "namespace": NAMESPACE},
            "spec": {"schedule": {"cron": "* * * * *"}, "jobTemplate": {"spec": {"config": {}}}},
        }))
        .await;
        let mut numbers = Numbers(SEED);
        let (mut taken, mut marked) = (0, 0);
        for from in (0..OBJECTS).step_by(BATCH) {
            let batch: Vec<_> = (from..from + BATCH)
                .map(|n| generator::object(&mut numbers, n))
                .collect();
            let accepted = send_all(s, batch).await;
            if from == BATCH {
                // Among them, and of the same kind as many of them.
                s.create(&job("good", None, json!({}))).await;
            }
            marked += until_all_are_judged(s, &accepted).await;
            taken += accepted.len();
            if from == BATCH {
                assert_succeeded(&s.until_over("good").await);
            }
            let all = stream::iter(&accepted).map(|a| delete(&s.client, a.kind, &a.name));
            all.buffer_unordered(8).collect::<Vec<()>>().await;
        }
        // The generator is worth something: neither is all refused, nor all taken, nor all good.
        assert!((200..900).contains(&taken), "{taken} of {OBJECTS} were taken");
        assert!(marked > 50, "{marked} of {taken} are marked as invalid");

        let upgraded = s.until_over(&first_job_of(s, "good").await.name_any()).await;
        assert_succeeded(&upgraded);
        assert!(conditions::is_true(&status(&upgraded).conditions, "Valid"));
        eprintln!("{taken} of {OBJECTS} were taken, {marked} of them are marked as invalid");
    })
    .await;
}
