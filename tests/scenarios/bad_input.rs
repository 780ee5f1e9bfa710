//! What people write by mistake: the API server refuses it in words that help, or the object says so itself; what is
//! right beside it goes on.

use serde_json::{Value, json};

use crate::harness::{
    NAMESPACE, NIGHT, Scenario, assert_succeeded, condition, has, is_updated,
    objects::{self, hold_night, hook, in_seconds, job, job_between},
    scenario, status, until,
};
use openshift_upgrade_operator::api::{UpgradeJob, conditions};

/// What is to become of an object: parts of the message that must be there.
pub enum Expected {
    /// By the API server.
    Refused(&'static [&'static str]),
    /// By the condition Valid.
    Invalid(&'static [&'static str]),
}
use Expected::{Invalid, Refused};

fn with_config(name: &str, config: Value) -> Value {
    job(name, Some("4.18.5"), config)
}

fn delaying(labels: &Value, delay: &Value) -> Value {
    json!({"machineConfigPools": [{"matchLabels": labels, "delayUpgrade": delay}]})
}

fn bad_jobs() -> Vec<(Value, Expected)> {
    let night = json!({"name": "x-app-night-maintenance"});
    let master = json!({"pools.operator.machineconfiguration.openshift.io/master": ""});
    let mut forced = with_config("forced", json!({}));
    forced["spec"]["desiredVersion"]["force"] = json!(true);
    let mut empty = with_config("no-version", json!({}));
    empty["spec"]["desiredVersion"] = json!({});
    vec![
        (
            with_config("negative", json!({"upgradeTimeout": "-1h"})),
            Refused(&["spec.config.upgradeTimeout", "-1h"]),
        ),
        (
            with_config("nonsense", json!({"upgradeTimeout": "soon"})),
            Refused(&["spec.config.upgradeTimeout", "soon"]),
        ),
        (
            with_config("no-unit", delaying(&night, &json!({"delayMin": "90"}))),
            Refused(&["machineConfigPools[0].delayUpgrade.delayMin", "90"]),
        ),
        (
            job_between(
                "backwards",
                Some("4.18.5"),
                json!({}),
                in_seconds(60),
                in_seconds(-60),
            ),
            Refused(&["startBefore must be later than startAfter"]),
        ),
        (
            with_config(
                "both-spellings",
                delaying(&night, &json!({"delayMin": "1h", "startAfter": "1h"})),
            ),
            Refused(&["startAfter is an older spelling of delayMin"]),
        ),
        (
            with_config("only-master", delaying(&master, &json!({"delayMin": "1h"}))),
            Invalid(&["matchLabels", "selects only master"]),
        ),
        (
            with_config(
                "min-above-max",
                delaying(&night, &json!({"delayMin": "2h", "delayMax": "1h"})),
            ),
            Invalid(&["delayMin", "2h is longer than the maximum, 1h"]),
        ),
        (
            with_config("min-above-timeout", delaying(&night, &json!({"delayMin": "13h"}))),
            Invalid(&["13h is not shorter than upgradeTimeout, 12h"]),
        ),
        (
            forced,
            Invalid(&[
                "spec.desiredVersion.force",
                "bypasses the check of the release's signature",
            ]),
        ),
        (empty, Invalid(&["neither version nor image is set"])),
        (
            job("unknown-version", Some("4.18.99"), json!({})),
            Invalid(&["spec.desiredVersion", "give both"]),
        ),
        (
            job("no-semver", Some("latest"), json!({})),
            Invalid(&["\"latest\" is not a version"]),
        ),
    ]
}

fn bad_hooks() -> Vec<(Value, Expected)> {
    let mut empty = hook("no-container", &["Start"]);
    empty["spec"]["template"]["spec"]["template"]["spec"]["containers"] = json!([]);
    let mut nothing = hook("nothing-to-run", &["Start"]);
    nothing["spec"].as_object_mut().unwrap().remove("template");
    let unknown = hook("unknown-event", &["Started"]);
    vec![
        (empty, Refused(&["containers must name at least one container"])),
        (nothing, Refused(&["write exactly one of template"])),
        (unknown, Refused(&["spec.events[0]", "Started", "\"Start\""])),
    ]
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn assert_says(message: &str, parts: &[&str], name: &str) {
    for part in parts {
        assert!(
            message.contains(part),
            "{name}: {message:?} does not say {part:?}"
        );
    }
}

/// The condition Valid of the object, once it is False.
async fn invalidity(s: &Scenario, object: &Value) -> String {
    let api = s.dynamic(
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    let name = name_of(object);
    until(&format!("{name} says that it is not valid"), async || {
        let found = api.get(&name).await.ok()?;
        let all = found.data.pointer("/status/conditions")?.as_array()?.clone();
        let valid = all
            .into_iter()
            .find(|c| c["type"] == "Valid" && c["status"] == "False")?;
        Some(valid["message"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

/// Creates bad objects, and waits until each is refused or says what is wrong, in its status and as an Event.
pub async fn check(s: &Scenario, all: Vec<(Value, Expected)>) {
    let mut accepted = Vec::new();
    for (object, expected) in all {
        let name = name_of(&object);
        match (s.try_create(&object).await, expected) {
            (Err(message), Refused(parts)) => assert_says(&message, parts, &name),
            (Ok(_), Invalid(parts)) => accepted.push((object, parts)),
            (Err(message), Invalid(_)) => panic!("{name} was refused: {message}"),
            (Ok(_), Refused(_)) => panic!("{name} was accepted"),
        }
    }
    for (object, parts) in accepted {
        let name = name_of(&object);
        assert_says(&invalidity(s, &object).await, parts, &name);
        until(&format!("an Event says that {name} is not valid"), async || {
            let events = s.events_about(&name).await;
            events
                .iter()
                .any(|e| e.note.as_deref().is_some_and(|n| n.contains(parts[0])))
                .then_some(())
        })
        .await;
    }
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn bad_jobs_and_hooks_say_what_is_wrong_and_a_good_job_beside_them_runs_through() {
    scenario(&[], async |s| {
        check(s, bad_hooks()).await;
        let jobs = bad_jobs();
        let names: Vec<String> = jobs
            .iter()
            .filter(|(_, e)| matches!(e, Invalid(_)))
            .map(|(o, _)| name_of(o))
            .collect();
        check(s, jobs).await;
        s.create(&job("good", Some("4.18.5"), json!({}))).await;
        assert_succeeded(&s.until_over("good").await);
        for name in names {
            let job = s.job(&name).await;
            assert_eq!(condition(&job, "Valid"), "Valid=False/Invalid", "{name}");
            assert!(has(&job, "Started").is_none(), "{name} must not start");
        }
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn an_invalid_job_that_is_mended_in_its_window_starts() {
    scenario(&[], async |s| {
        let night = json!({"name": "x-app-night-maintenance"});
        s.create(&with_config(
            "mended",
            delaying(&night, &json!({"delayMin": "2h", "delayMax": "1h"})),
        ))
        .await;
        s.until_job("mended", "is invalid", |j| {
            condition(j, "Valid") == "Valid=False/Invalid"
        })
        .await;
        s.edit_job(
            "mended",
            json!({"spec": {"config": {"machineConfigPools": hold_night("1s", Some("1h"))}}}),
        )
        .await;
        assert_succeeded(&s.until_over("mended").await);
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn an_invalid_job_expires_at_the_end_of_its_window_and_says_why() {
    scenario(&[], async |s| {
        s.create(&hook("at-finish", &["Finish"])).await;
        let mut forced = job_between("forced", Some("4.18.5"), json!({}), objects::now(), in_seconds(6));
        forced["spec"]["desiredVersion"]["force"] = json!(true);
        s.create(&forced).await;
        let done = s
            .until_job("forced", "has run its hook of Finish", |j| {
                status(j)
                    .hook_tracker
                    .iter()
                    .any(|t| format!("{:?}", t.status) == "Complete")
            })
            .await;
        assert_eq!(condition(&done, "Succeeded"), "Succeeded=True/Skipped");
        assert_eq!(condition(&done, "Expired"), "Expired=True/Invalid");
        let message = &has(&done, "Expired").unwrap().message;
        assert!(message.contains("spec.desiredVersion.force"), "{message}");
        let reason = s
            .operators_writes()
            .into_iter()
            .find(|w| w.resource == "jobs")
            .unwrap();
        assert!(
            reason.body.to_string().contains("EVENT_reason"),
            "{:#}",
            reason.body
        );
        let environment = reason.body["spec"]["template"]["spec"]["containers"][0]["env"].clone();
        let reason = environment
            .as_array()
            .unwrap()
            .iter()
            .find(|e| e["name"] == "EVENT_reason")
            .unwrap();
        assert_eq!(reason["value"], "\"Expired\"");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn names_as_long_as_the_api_server_takes_work() {
    scenario(&[], async |s| {
        let long = |first: &str| format!("{first}{}", "x".repeat(253 - first.len()));
        s.create(&hook(
            &long("hook-one-"),
            &["Start", "MachineConfigPoolUnpause", "Finish"],
        ))
        .await;
        s.create(&hook(
            &long("hook-two-"),
            &["Start", "MachineConfigPoolUnpause", "Finish"],
        ))
        .await;
        let name = long("job-");
        s.create(&job(
            &name,
            Some("4.18.5"),
            json!({"machineConfigPools": hold_night("1s", None)}),
        ))
        .await;
        let done = s.until_over(&name).await;
        assert_succeeded(&done);
        assert_eq!(
            status(&done).hook_tracker.len(),
            6,
            "{:#?}",
            status(&done).hook_tracker
        );
        assert!(is_updated(&s.pool(NIGHT).await));
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn what_must_not_change_in_a_job_cannot_be_changed() {
    scenario(&[], async |s| {
        s.create(&job_between(
            "later",
            Some("4.18.5"),
            json!({"machineConfigPools": hold_night("1h", None)}),
            in_seconds(3_000),
            in_seconds(3_600),
        ))
        .await;
        let api: kube::Api<UpgradeJob> = kube::Api::namespaced(s.client.clone(), NAMESPACE);
        for (patch, said) in [
            (
                json!({"spec": {"startAfter": in_seconds(10)}}),
                "startAfter cannot be changed",
            ),
            (
                json!({"spec": {"startBefore": in_seconds(9_000)}}),
                "startBefore cannot be changed",
            ),
            (
                json!({"spec": {"desiredVersion": {"version": "4.18.4"}}}),
                "desiredVersion cannot be changed",
            ),
            (
                json!({"spec": {"desiredVersion": null}}),
                "desiredVersion cannot be changed",
            ),
            (
                json!({"spec": {"config": {"machineConfigPools": []}}}),
                "cannot be changed, and no entry added or removed",
            ),
        ] {
            let patch = kube::api::Patch::Merge(patch);
            let refusal = api
                .patch("later", &kube::api::PatchParams::default(), &patch)
                .await
                .unwrap_err()
                .to_string();
            assert!(refusal.contains(said), "{refusal}");
        }
        let untouched = s.job("later").await;
        assert!(conditions::get(&status(&untouched).conditions, "Started").is_none());
    })
    .await;
}
