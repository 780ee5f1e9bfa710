//! UpgradeConfigs: from the cron expression to the end of the upgrade.

use jiff::SignedDuration;
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use openshift_upgrade_operator::api::{UpgradeConfig, UpgradeJob, conditions, labels};
use serde_json::{Value, json};

use crate::{
    bad_input::{
        Expected::{Invalid, Refused},
        check,
    },
    harness::{
        NAMESPACE, Scenario, assert_succeeded, creations, has, history, is_installed, lock,
        objects::{hold_night, hook, in_seconds, job_between},
        scenario, until,
    },
};

/// An UpgradeConfig; `more` goes into its spec.
fn config(name: &str, schedule: &Value, more: &Value) -> Value {
    let mut config = json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeConfig",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedule": schedule,
            "jobTemplate": {
                "metadata": {"labels": {"team": "night"}},
                "spec": {"config": {"machineConfigPools": hold_night("1s", None)}},
            },
        },
    });
    for (key, value) in more.as_object().unwrap() {
        config["spec"][key] = value.clone();
    }
    config
}

/// As often as cron can.
fn every_minute() -> Value {
    json!({"cron": "* * * * *"})
}

fn configs(s: &Scenario) -> Api<UpgradeConfig> {
    Api::namespaced(s.client.clone(), NAMESPACE)
}

/// The jobs of a config, by start.
async fn jobs_of(s: &Scenario, config: &str) -> Vec<UpgradeJob> {
    let api: Api<UpgradeJob> = Api::namespaced(s.client.clone(), NAMESPACE);
    let selector = format!(
        "{}={}",
        labels::UPGRADE_CONFIG,
        openshift_upgrade_operator::api::names::label_value(config)
    );
    let Ok(found) = api.list(&ListParams::default().labels(&selector)).await else {
        return Vec::new();
    };
    let mut all = found.items;
    all.sort_by_key(|j| j.spec.start_after.0);
    all
}

/// Waits for the job of the `n`th run.
async fn until_job_of(s: &Scenario, config: &str, n: usize) -> UpgradeJob {
    until(&format!("UpgradeConfig {config} has made job {n}"), async || {
        jobs_of(s, config).await.get(n).cloned()
    })
    .await
}

async fn until_config(
    s: &Scenario,
    name: &str,
    what: &str,
    is: impl Fn(&UpgradeConfig) -> bool,
) -> UpgradeConfig {
    let api = configs(s);
    until(&format!("UpgradeConfig {name}: {what}"), async || {
        api.get(name).await.ok().filter(|c| is(c))
    })
    .await
}

async fn suspend(s: &Scenario, name: &str) {
    let patch = json!({"spec": {"schedule": {"suspend": true}}});
    configs(s)
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .expect("suspending a config");
}

/// `status/reason` of a condition, and its message.
fn said(config: &UpgradeConfig, type_: &str) -> (String, String) {
    let found = config
        .status
        .as_ref()
        .and_then(|s| conditions::get(&s.conditions, type_));
    found
        .map(|c| (format!("{}/{}", c.status, c.reason), c.message.clone()))
        .unwrap_or_default()
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_config_pins_makes_and_runs_a_job_and_without_an_update_one_for_maintenance() {
    scenario(&[], async |s| {
        s.create(&hook("at-create", &["Create"])).await;
        s.create(&config(
            "nightly",
            &every_minute(),
            &json!({"pinVersionWindow": "15s", "maxUpgradeStartDelay": "10m"}),
        ))
        .await;
        let made = until_job_of(s, "nightly", 0).await;
        let start = made.spec.start_after.0;
        assert_eq!(start.as_second() % 60, 0, "a run is at a full minute: {start}");
        let created = made.creation_timestamp().unwrap().0;
        let ahead = start.duration_since(created);
        assert!(ahead <= SignedDuration::from_secs(15), "pinned {ahead:#} ahead");
        assert_eq!(
            made.spec.start_before.0.duration_since(start),
            SignedDuration::from_mins(10)
        );
        let desired = made.spec.desired_version.clone().expect("the version is pinned");
        assert_eq!(
            desired.version.as_deref(),
            Some("4.18.5"),
            "the newest that is offered"
        );
        assert!(desired.image.is_some_and(|i| i.contains("@sha256:")));
        assert_eq!(made.labels()["team"], "night");
        assert!(
            made.owner_references()
                .iter()
                .any(|o| o.kind == "UpgradeConfig" && o.name == "nightly")
        );

        let done = s.until_over(&made.name_any()).await;
        assert_succeeded(&done);
        assert!(
            !done.owner_references().iter().any(|o| o.kind == "UpgradeConfig"),
            "a started job is its own"
        );
        assert!(is_installed(&s.cluster_version().await, "4.18.5"));

        let second = until_job_of(s, "nightly", 1).await;
        assert!(second.spec.start_after.0 > start);
        assert_eq!(second.spec.desired_version, None, "no update is available");
        suspend(s, "nightly").await;
        let again = until("the maintenance run is over or skipped", async || {
            let job = s.job(&second.name_any()).await;
            has(&job, "Succeeded")
                .or_else(|| has(&job, "Failed"))
                .is_some()
                .then_some(job)
        })
        .await;
        let ending = has(&again, "Succeeded").expect("it succeeded");
        // It was suspended before or after its start.
        assert!(
            ["Succeeded", "Skipped"].contains(&ending.reason.as_str()),
            "{ending:#?}"
        );
        let cluster = s.cluster_version().await;
        assert_eq!(history(&cluster), ["4.18.5", "4.18.3"]);
        let writes = s.operators_writes();
        let mut runs: Vec<String> = creations(&writes, "upgradejobs")
            .map(|w| w.body["spec"]["startAfter"].as_str().unwrap().to_owned())
            .collect();
        let count = runs.len();
        runs.dedup();
        assert_eq!(runs.len(), count, "one run, one job");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_suspended_config_makes_no_job_and_says_so() {
    scenario(&[], async |s| {
        let mut schedule = every_minute();
        schedule["suspend"] = json!(true);
        let one = json!({"successfulJobsHistoryLimit": 1});
        s.create(&config("suspended", &schedule, &one)).await;
        let created = until_config(s, "suspended", "says that it is suspended", |c| {
            said(c, "Suspended").0.starts_with("True")
        })
        .await;
        assert_eq!(said(&created, "Suspended").0, "True/ScheduleSuspended");
        let next = &created.status.as_ref().unwrap().next_possible_schedules;
        assert_eq!(next.len(), 10);
        assert!(
            next.iter()
                .all(|n| n.verdict.as_deref() == Some("ScheduleSuspended")),
            "{next:#?}"
        );
        // A run has passed.
        until_config(s, "suspended", "has let a run pass", |c| {
            c.status
                .as_ref()
                .is_some_and(|x| x.last_scheduled_upgrade.is_some())
        })
        .await;
        assert!(jobs_of(s, "suspended").await.is_empty());
        the_history_limit_holds(s, &created).await;
    })
    .await;
}

/// Of two jobs that the config has left from before and that were skipped, one is kept.
async fn the_history_limit_holds(s: &Scenario, config: &UpgradeConfig) {
    for (name, hours) in [("older", 3), ("newer", 2)] {
        let start = -3_600 * hours;
        let mut left = job_between(name, None, json!({}), in_seconds(start), in_seconds(start + 60));
        left["metadata"]["ownerReferences"] = json!([config.controller_owner_ref(&()).unwrap()]);
        s.create(&left).await;
    }
    let is_skipped = |job: &UpgradeJob| has(job, "Succeeded").is_some_and(|c| c.reason == "Skipped");
    s.until_job("newer", "is skipped", is_skipped).await;
    s.until_gone("older").await;
    assert!(s.job("newer").await.metadata.deletion_timestamp.is_none());
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn bad_configs_say_what_is_wrong_and_a_good_one_with_the_longest_name_runs() {
    scenario(&[], async |s| {
        let cron = |text: &str| json!({"cron": text});
        let master = json!({"pools.operator.machineconfiguration.openshift.io/master": ""});
        let mut only_master = config("only-master", &cron("@weekly"), &json!({}));
        only_master["spec"]["jobTemplate"]["spec"]["config"]["machineConfigPools"] =
            json!([{"matchLabels": master, "delayUpgrade": {"delayMin": "1h"}}]);
        check(
            s,
            vec![
                (
                    config(
                        "unknown-zone",
                        &json!({"cron": "@weekly", "location": "Mars/Olympus"}),
                        &json!({}),
                    ),
                    Invalid(&["Mars/Olympus"]),
                ),
                (
                    config(
                        "offset",
                        &json!({"cron": "@weekly", "location": "+02:00"}),
                        &json!({}),
                    ),
                    Refused(&["must be an IANA time zone such as Europe/Zurich"]),
                ),
                (
                    config("four-fields", &cron("* * * *"), &json!({})),
                    Invalid(&["* * * *", "4 fields instead of 5"]),
                ),
                (
                    config("minute-61", &cron("61 * * * *"), &json!({})),
                    Invalid(&["61"]),
                ),
                (
                    config("every", &cron("@every 1h"), &json!({})),
                    Invalid(&["@every"]),
                ),
                (
                    config(
                        "week",
                        &json!({"cron": "@weekly", "isoWeek": "every second"}),
                        &json!({}),
                    ),
                    Refused(&["isoWeek must be @odd, @even"]),
                ),
                (
                    config("negative", &cron("@weekly"), &json!({"pinVersionWindow": "-4h"})),
                    Refused(&["spec.pinVersionWindow", "-4h"]),
                ),
                (
                    config(
                        "never-starts",
                        &cron("@weekly"),
                        &json!({"maxUpgradeStartDelay": "0"}),
                    ),
                    Invalid(&["maxUpgradeStartDelay", "a job could never start"]),
                ),
                (only_master, Invalid(&["matchLabels", "selects only master"])),
            ],
        )
        .await;
        let name = format!("config-{}", "x".repeat(246));
        s.create(&config(&name, &every_minute(), &json!({}))).await;
        let made = until_job_of(s, &name, 0).await;
        assert!(made.name_any().len() <= 63, "{}", made.name_any());
        assert_succeeded(&s.until_over(&made.name_any()).await);
        let cluster = s.cluster_version().await;
        assert_eq!(
            (history(&cluster), lock(&cluster)),
            (vec!["4.18.5", "4.18.3"], None)
        );
    })
    .await;
}
