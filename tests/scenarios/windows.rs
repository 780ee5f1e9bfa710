//! Suspension windows: what they say of themselves, and what they keep from happening.

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    discovery::ApiResource,
};
use openshift_upgrade_operator::api::{
    UpgradeConfig, UpgradeSuspensionWindow, conditions, labels, upgrade_suspension_window::MatchingObject,
};
use serde_json::{Value, json};

use crate::{
    bad_input::{
        Expected::{Invalid, Refused},
        check,
    },
    harness::{
        NAMESPACE, Scenario, condition, has,
        objects::{in_seconds, job_between},
        scenario, status, until,
    },
};

/// A window; `selectors` go into its spec.
fn window(name: &str, start: Timestamp, end: Timestamp, selectors: &Value) -> Value {
    let mut window = json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeSuspensionWindow",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"start": start, "end": end, "reason": "end of year"},
    });
    for (key, value) in selectors.as_object().unwrap() {
        window["spec"][key] = value.clone();
    }
    window
}

fn windows(s: &Scenario) -> Api<UpgradeSuspensionWindow> {
    Api::namespaced(s.client.clone(), NAMESPACE)
}

async fn edit(s: &Scenario, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    let edited = windows(s).patch(name, &PatchParams::default(), &patch).await;
    edited.expect("editing a window");
}

fn names(found: &[MatchingObject]) -> Vec<&str> {
    found.iter().map(|m| m.name.as_str()).collect()
}

/// A job that starts in some seconds, with a label.
fn job_in(seconds: i64, name: &str, team: &str) -> Value {
    let mut job = job_between(
        name,
        Some("4.18.5"),
        json!({}),
        in_seconds(seconds),
        in_seconds(3_600),
    );
    job["metadata"]["labels"]["team"] = json!(team);
    job
}

async fn until_matching(s: &Scenario, name: &str, jobs: &[&str]) -> UpgradeSuspensionWindow {
    let api = windows(s);
    until(&format!("window {name} matches {jobs:?}"), async || {
        let window = api.get(name).await.ok()?;
        let status = window.status.clone()?;
        let is_new = status.observed_generation == window.metadata.generation;
        (is_new && names(&status.matching_jobs) == jobs).then_some(window)
    })
    .await
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn windows_say_what_they_match_and_what_is_wrong_with_them() {
    scenario(&[], async |s| {
        s.create(&job_in(3_000, "b", "a")).await;
        s.create(&job_in(3_000, "a", "a")).await;
        s.create(&job_in(3_000, "c", "b")).await;
        let (start, end) = (in_seconds(86_400), in_seconds(2 * 86_400));
        s.create(&window("all", start, end, &json!({"jobSelector": {}}))).await;
        s.create(&window("some", start, end, &json!({"jobSelector": {"matchLabels": {"team": "a"}}}))).await;
        s.create(&window("none", start, end, &json!({}))).await;
        until_matching(s, "all", &["a", "b", "c"]).await;
        let some = until_matching(s, "some", &["a", "b"]).await;
        assert_eq!(some.status.as_ref().unwrap().matching_configs, []);
        let none = until_matching(s, "none", &[]).await;
        let valid = conditions::get(&none.status.as_ref().unwrap().conditions, "Valid").unwrap().clone();
        assert_eq!(valid.status, "True");
        assert!(valid.message.contains("matches nothing"), "{}", valid.message);

        edit(s, "some", json!({"jobSelector": {"matchLabels": {"team": "b"}}})).await;
        until_matching(s, "some", &["c"]).await;
        s.delete_job("c").await;
        until_matching(s, "some", &[]).await;

        let expression = |operator: &str| json!({"configSelector": {"matchExpressions": [{"key": "a", "operator": operator}]}});
        check(
            s,
            vec![
                (
                    window("backwards", end, start, &json!({})),
                    Refused(&["end must be later than start"]),
                ),
                (
                    window("of-no-length", start, start, &json!({})),
                    Refused(&["end must be later than start"]),
                ),
                (
                    window("near", start, end, &expression("Near")),
                    Invalid(&["spec.configSelector", "unknown operator \"Near\""]),
                ),
            ],
        )
        .await;
    })
    .await;
}

/// Replaces the CRD by one with another schema, as an older release had it: what is stored under it stays when it goes.
async fn change_the_schema(s: &Scenario, operation: &str, field: &str, value: Value) {
    let kind = ApiResource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "apiextensions.k8s.io/v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(s.client.clone(), &kind);
    let path = format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec{field}");
    let change = serde_json::from_value(json!([{"op": operation, "path": path, "value": value}])).unwrap();
    api.patch(
        "upgradesuspensionwindows.managedupgrade.appuio.io",
        &PatchParams::default(),
        &Patch::<Value>::Json(change),
    )
    .await
    .expect("patching the CRD");
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_stored_window_that_ends_before_it_starts_says_so_and_suspends_nothing() {
    scenario(&[], async |s| {
        change_the_schema(s, "remove", "/x-kubernetes-validations", Value::Null).await;
        let backwards = window(
            "backwards",
            in_seconds(3_600),
            in_seconds(-3_600),
            &json!({"jobSelector": {}}),
        );
        until("the API server takes it", async || {
            s.try_create(&backwards).await.ok()
        })
        .await;
        let api = windows(s);
        let message = until("it says what is wrong", async || {
            let window = api.get("backwards").await.ok()?;
            let valid = conditions::get(&window.status?.conditions, "Valid")?.clone();
            (valid.status == "False").then_some(valid.message)
        })
        .await;
        assert!(
            message.contains("spec.end: ") && message.contains("is not later than spec.start"),
            "{message}"
        );
        s.create(&job_in(0, "upgrade", "a")).await;
        s.until_job("upgrade", "has started", |j| has(j, "Started").is_some())
            .await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_stored_window_that_cannot_be_read_says_so_and_holds_every_start() {
    scenario(&[], async |s| {
        let no_zone = json!({"apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
            "metadata": {"name": "holidays", "namespace": NAMESPACE},
            "spec": {"start": "2026-12-24T00:00:00", "end": in_seconds(3_600), "jobSelector": {"matchLabels": {"no": "one"}}}});
        assert!(s.try_create(&no_zone).await.is_err(), "our schema refuses it");
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        change_the_schema(s, "replace", "", anything).await;
        until("the API server takes it", async || s.try_create(&no_zone).await.ok()).await;
        let api = s.dynamic("managedupgrade.appuio.io/v1beta1", "UpgradeSuspensionWindow");
        let message = until("it says that it cannot be read", async || {
            let window = api.get("holidays").await.ok()?;
            let conditions = window.data["status"]["conditions"].as_array()?.clone();
            let valid = conditions.into_iter().find(|c| c["type"] == "Valid")?;
            (valid["reason"] == "Unreadable").then(|| valid["message"].as_str().unwrap_or_default().to_owned())
        })
        .await;
        assert!(
            message.contains("spec.start: ") && message.contains("no upgrade starts"),
            "{message}"
        );
        until("an Event says so", async || {
            let events = s.events_about("holidays").await;
            let mut notes = events.into_iter().filter_map(|e| e.note);
            notes.find(|n| n.contains("spec.start: "))
        })
        .await;

        s.create(&job_in(0, "upgrade", "a")).await;
        let held = s
            .until_job("upgrade", "says what it waits for", |j| {
                let message = status(j).message;
                message.is_some_and(|m| m.contains("UpgradeSuspensionWindow holidays"))
            })
            .await;
        assert!(has(&held, "Started").is_none());
        api.delete("holidays", &DeleteParams::default()).await.expect("deleting the window");
        s.until_job("upgrade", "has started", |j| has(j, "Started").is_some())
            .await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn windows_that_are_made_or_edited_at_the_last_moment_count() {
    scenario(&[], async |s| {
        let start = in_seconds(12);
        for (name, team) in [("made", "a"), ("edited", "b"), ("moved-away", "c")] {
            let mut job = job_in(0, name, team);
            job["spec"]["startAfter"] = json!(start);
            s.create(&job).await;
        }
        let of = |team: &str| json!({"jobSelector": {"matchLabels": {"team": team}}});
        let far = in_seconds(3_600);
        s.create(&window("edited", in_seconds(1_800), far, &of("b")))
            .await;
        s.create(&window("moved-away", in_seconds(-60), far, &of("c")))
            .await;
        until_matching(s, "moved-away", &["moved-away"]).await;
        let just_before = start - jiff::SignedDuration::from_secs(3);
        until("it is the last moment", async || {
            (Timestamp::now() >= just_before).then_some(())
        })
        .await;
        // At once, for each has to be there in time.
        let made = window("made", start, far, &of("a"));
        tokio::join!(
            s.create(&made),
            edit(s, "edited", json!({"start": in_seconds(-60)})),
            edit(s, "moved-away", json!({"start": in_seconds(1_800)})),
        );
        for name in ["made", "edited"] {
            let over = s.until_over(name).await;
            assert_eq!(condition(&over, "Succeeded"), "Succeeded=True/Skipped");
            let message = &has(&over, "Succeeded").unwrap().message;
            assert!(
                message.contains(&format!("UpgradeSuspensionWindow {name} (end of year) until")),
                "{message}"
            );
            assert!(has(&over, "Started").is_none());
            until("an Event says so", async || {
                let events = s.events_about(name).await;
                let mut notes = events.into_iter().filter_map(|e| e.note);
                notes.find(|n| n.contains("end of year"))
            })
            .await;
        }
        s.until_job("moved-away", "has started", |j| has(j, "Started").is_some())
            .await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_config_makes_no_job_in_windows_that_abut_and_says_why_until_the_last_has_ended() {
    scenario(&[], async |s| {
        // Two windows, one after the other, over the next two runs.
        let now = Timestamp::now().as_second();
        let minute = |n: i64| Timestamp::from_second((now / 60 + n) * 60).unwrap();
        let all = json!({"configSelector": {"matchLabels": {"team": "night"}}});
        s.create(&window("first", in_seconds(-3_600), minute(2), &all))
            .await;
        s.create(&window("second", minute(2), minute(3), &all)).await;
        s.create(&json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
            "metadata": {"name": "nightly", "namespace": NAMESPACE, "labels": {"team": "night"}},
            "spec": {"schedule": {"cron": "* * * * *"}, "jobTemplate": {"spec": {"config": {}}}},
        }))
        .await;
        let configs: Api<UpgradeConfig> = Api::namespaced(s.client.clone(), NAMESPACE);
        let shown = until("the coming runs are shown", async || {
            let status = configs.get("nightly").await.ok()?.status?;
            (!status.next_possible_schedules.is_empty()).then_some(status.next_possible_schedules)
        })
        .await;
        for next in &shown {
            let inside = next.time.0 < minute(3);
            let reason = next.reason.as_deref().unwrap_or_default();
            assert_eq!(next.verdict.as_deref() == Some("Suspended"), inside, "{next:#?}");
            assert_eq!(reason.contains("(end of year) until"), inside, "{next:#?}");
        }
        let api = windows(s);
        until("both windows name the config", async || {
            let first = api.get("first").await.ok()?.status?;
            let second = api.get("second").await.ok()?.status?;
            let both = [&first, &second].map(|w| names(&w.matching_configs) == ["nightly"]);
            (both == [true, true]).then_some(())
        })
        .await;
        // A run that was passed over is an Event with the reason, and what lies ahead a condition.
        let config = until("a run was passed over", async || {
            let config = configs.get("nightly").await.ok()?;
            config.status.as_ref()?.last_scheduled_upgrade.as_ref()?;
            Some(config)
        })
        .await;
        let all = config.status.unwrap().conditions;
        assert!(
            conditions::get(&all, "RunMissed").is_none(),
            "suspended is not missed"
        );
        until("an Event says so", async || {
            let events = s.events_about("nightly").await;
            let suspended =
                |n: &str| n.contains("was suspended: UpgradeSuspensionWindow") && n.contains("end of year");
            events
                .iter()
                .any(|e| e.note.as_deref().is_some_and(suspended))
                .then_some(())
        })
        .await;
        // The second is called off: the next run makes its job.
        api.delete("second", &DeleteParams::default()).await.unwrap();
        let made = until("a job is made", async || {
            let all = s.dynamic("managedupgrade.appuio.io/v1beta1", "UpgradeJob");
            let all = all.list(&kube::api::ListParams::default()).await.ok()?;
            all.items
                .into_iter()
                .find(|j| j.labels().contains_key(labels::UPGRADE_CONFIG))
        })
        .await;
        let start: Timestamp = made.data["spec"]["startAfter"].as_str().unwrap().parse().unwrap();
        assert!(start >= minute(2), "{start}: not in the first window");
    })
    .await;
}
