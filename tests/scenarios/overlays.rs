//! ClusterVersion of our kind: template, overlays, and the real ClusterVersion that people change as well.

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use openshift_upgrade_operator::{
    api::{
        UpgradeConfig, UpgradeJob, annotations, cluster_version::ClusterVersion as ManagedClusterVersion,
        conditions, labels,
    },
    openshift::cluster_version::{ClusterVersion, NAME as VERSION},
};
use serde_json::{Value, json};

use crate::harness::{
    NAMESPACE, Scenario, assert_succeeded, failure, has, history,
    objects::{in_seconds, job, job_between},
    scenario, status, until,
};

/// A ClusterVersion of our kind.
fn managed(name: &str, template: &Value, overlays: &Value) -> Value {
    json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "ClusterVersion",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"template": {"spec": template}, "overlays": overlays},
    })
}

/// An overlay that changes the channel.
fn channel_from(from: Timestamp, channel: &str) -> Value {
    json!({"from": from, "overlay": {"spec": {"channel": channel}}})
}

fn api(s: &Scenario) -> Api<ManagedClusterVersion> {
    Api::namespaced(s.client.clone(), NAMESPACE)
}

/// `status/reason` of a condition, and its message.
fn said(managed: &ManagedClusterVersion, type_: &str) -> (String, String) {
    let found = managed
        .status
        .as_ref()
        .and_then(|s| conditions::get(&s.conditions, type_));
    found
        .map(|c| (format!("{}/{}", c.status, c.reason), c.message.clone()))
        .unwrap_or_default()
}

/// Waits until our object says this of itself, for the newest generation; returns the message of that condition.
async fn until_said(s: &Scenario, name: &str, type_: &str, expected: &str) -> String {
    let api = api(s);
    until(
        &format!("ClusterVersion {name} says {type_}={expected}"),
        async || {
            let managed = api.get(name).await.ok()?;
            let (value, message) = said(&managed, type_);
            let is_new = managed.status.as_ref()?.observed_generation == managed.metadata.generation;
            (value == expected && is_new).then_some(message)
        },
    )
    .await
}

const INFO: &str = "openshift_upgrade_controller_cluster_version_info";
const OVERLAY: &str = "openshift_upgrade_controller_cluster_version_overlay_timestamp_seconds";

async fn edit(s: &Scenario, name: &str, spec: Value) {
    api(s)
        .patch(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": spec})),
        )
        .await
        .expect("editing our ClusterVersion");
}

/// Changes the spec of the real ClusterVersion as a person would.
async fn by_hand(s: &Scenario, spec: Value) {
    let params = PatchParams {
        field_manager: Some("a-person".to_owned()),
        ..PatchParams::default()
    };
    let real: Api<ClusterVersion> = Api::all(s.client.clone());
    real.patch(VERSION, &params, &Patch::Merge(json!({"spec": spec})))
        .await
        .expect("changing the ClusterVersion by hand");
}

async fn until_channel(s: &Scenario, channel: &str) -> ClusterVersion {
    s.until_cluster_version(&format!("channel is {channel}"), |c| {
        c.spec.channel.as_deref() == Some(channel)
    })
    .await
}

async fn until_event(s: &Scenario, about: &str, parts: &[&str]) -> String {
    until(&format!("an Event about {about} says {parts:?}"), async || {
        let events = s.events_about(about).await;
        let mut notes = events.into_iter().filter_map(|e| e.note);
        notes.find(|n| parts.iter().all(|p| n.contains(p)))
    })
    .await
}

/// The operator's writes to the real ClusterVersion that were not dry runs.
fn patches(s: &Scenario) -> Vec<Value> {
    let writes = s.operators_writes().into_iter();
    writes
        .filter(|w| w.resource == "clusterversions" && w.body.is_array())
        .map(|w| w.body)
        .collect()
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn the_whole_spec_but_desired_update_follows_template_and_overlays_and_is_set_back() {
    scenario(&[], async |s| {
        let before = s.cluster_version().await;
        let image = before.newest().unwrap().image.clone();
        let desired = json!({"version": "4.18.3", "image": image});
        let an_override = json!({"kind": "Deployment", "group": "apps", "namespace": "n", "name": "d", "unmanaged": true});
        by_hand(s, json!({"upstream": "https://example.com/graph", "overrides": [an_override], "desiredUpdate": desired})).await;

        let core = json!({"kind": "ConfigMap", "group": "", "namespace": "n", "name": "m", "unmanaged": false});
        let template = json!({"channel": "fast-4.18", "overrides": [core], "upstream": "",
            "desiredUpdate": {"version": "4.18.5"}});
        s.create(&managed(VERSION, &template, &json!([channel_from(in_seconds(3_000), "stable-4.19")]))).await;
        until_channel(s, "fast-4.18").await;
        let message = until_said(s, VERSION, "Applied", "True/Applied").await;
        assert!(message.contains("the next overlay is due at") && message.contains("channel fast-4.18 → stable-4.19"));
        assert_eq!(until_said(s, VERSION, "Valid", "True/Valid").await, "template and overlays are valid");
        let spec = serde_json::to_value(&s.cluster_version().await.spec).unwrap();
        let expected = json!({"clusterID": before.spec.cluster_id, "channel": "fast-4.18", "overrides": [core], "desiredUpdate": desired});
        assert_eq!(spec, expected);
        let shown = api(s).get(VERSION).await.unwrap().status.unwrap();
        assert_eq!((shown.overlays.len(), shown.overlay_applied.clone()), (1, None));
        assert_eq!(shown.overlays[0].preview.spec["clusterID"], json!(before.spec.cluster_id));

        let due = in_seconds(2);
        edit(s, VERSION, json!({"overlays": [channel_from(due, "stable-4.19")]})).await;
        let changed = until_channel(s, "stable-4.19").await;
        let late = Timestamp::now().duration_since(due);
        assert!(!late.is_negative() && late.as_secs() < 20, "{late:#} after it was due");
        assert!(changed.annotations().contains_key(annotations::CHANNEL_CHANGED_AT));
        until_said(s, VERSION, "Applied", "True/Applied").await;
        until_event(s, VERSION, &["the overlay from", "applied to the ClusterVersion: channel fast-4.18 → stable-4.19"]).await;
        let shown = api(s).get(VERSION).await.unwrap().status.unwrap();
        assert_eq!(shown.overlay_applied.unwrap().0, due);
        assert_eq!(shown.current.unwrap()["channel"], "stable-4.19");
        let labels = "cluster_version=\"version\",baseline_capability_set=\"\",channel=\"stable-4.19\"";
        for (metric, value) in [(INFO, 1), (OVERLAY, due.as_second())] {
            let [line] = s.series(metric).try_into().expect("one series");
            assert!(line.contains(labels) && line.ends_with(&format!("}} {value}.0")), "{line}");
        }

        // By hand, while the operator runs and while it does not.
        by_hand(s, json!({"channel": "candidate-4.20"})).await;
        until_channel(s, "stable-4.19").await;
        until_event(s, VERSION, &["was changed by a-person", "channel candidate-4.20 → stable-4.19"]).await;
        s.kill_operator();
        by_hand(s, json!({"overrides": null, "desiredUpdate": null})).await;
        s.start_operator();
        s.until_cluster_version("the override is back", |c| c.spec.other.contains_key("overrides")).await;
        assert_eq!(s.cluster_version().await.spec.desired_update, None, "it is nobody's but a job's or a person's");

        // The overlay is called off, then the whole object: the cluster keeps what it has.
        edit(s, VERSION, json!({"overlays": []})).await;
        until_channel(s, "fast-4.18").await;
        until_said(s, VERSION, "Applied", "True/Applied").await;
        api(s).delete(VERSION, &DeleteParams::default()).await.unwrap();
        by_hand(s, json!({"channel": "eus-4.18"})).await;
        s.until_simulator_has_looked().await;
        assert_eq!(s.cluster_version().await.spec.channel.as_deref(), Some("eus-4.18"));
        assert_eq!(s.series(INFO), Vec::<String>::new(), "the series goes with its object");
        for write in s.operators_writes() {
            assert!(!write.is_of_desired_update(), "{}", write.body);
        }
        let count = patches(s).len();
        // Template, a dry run each for template and edits, overlay, twice set back, back to the template.
        assert!(count <= 13, "{count} writes are too many");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn what_the_api_server_refuses_is_said_in_its_words_and_not_tried_all_the_time() {
    scenario(&[], async |s| {
        let channel = s.cluster_version().await.spec.channel;
        let next_year = in_seconds(365 * 86_400);
        let bad_time = managed(VERSION, &json!({"channel": "a"}), &json!([{"from": "soon", "overlay": {}}]));
        let refused = s.try_create(&bad_time).await.unwrap_err();
        assert!(refused.contains("spec.overlays[0].from"), "{refused}");

        s.create(&managed("other", &json!({"channel": "other"}), &json!([]))).await;
        let message = until_said(s, "other", "Valid", "False/NotServed").await;
        assert!(message.contains("\"other\" is not served"), "{message}");
        until_event(s, "other", &["\"other\" is not served"]).await;

        s.create(&managed(VERSION, &json!({"clusterID": "11111111-2222-4333-8444-555555555555"}), &json!([]))).await;
        let message = until_said(s, VERSION, "Valid", "False/Invalid").await;
        assert!(message.contains("is another cluster, this one is 5f0c5a6e-"), "{message}");

        // What only the real API server knows.
        for (template, parts) in [
            (json!({"clusterID": null, "channels": "stable-4.18"}), ["unknown field", "channels"]),
            (json!({"channels": null, "capabilities": {"baselineCapabilitySet": "v9.9"}}),
                ["spec.capabilities.baselineCapabilitySet", "Unsupported value: \"v9.9\""]),
            (json!({"capabilities": null, "overrides": [{"kind": "Deployment", "name": "d"}]}),
                ["spec.overrides[0]", "Required value"]),
        ] {
            edit(s, VERSION, json!({"template": {"spec": template}})).await;
            let message = until_said(s, VERSION, "Applied", "False/Refused").await;
            for part in parts {
                assert!(message.contains(part), "{part:?} is not in: {message}");
            }
            let said = until_said(s, VERSION, "Valid", "False/Refused").await;
            assert!(said.contains(parts[0]), "{said}");
            until_event(s, VERSION, &parts).await;
        }
        let tried = |s: &Scenario| s.writes().iter().filter(|w| w.resource == "clusterversions" && w.code >= 400).count();
        let before = tried(s);
        s.until_simulator_has_looked().await;
        s.until_simulator_has_looked().await;
        assert!(tried(s) <= before + 1, "a hot loop: {} more tries", tried(s) - before);
        assert_eq!(s.cluster_version().await.spec.channel, channel, "nothing was applied");

        // One that comes is tried ahead; what is due is applied all the same.
        let overlay = json!({"from": next_year, "overlay": {"spec": {"capabilities": {"baselineCapabilitySet": "v9.9"}}}});
        let mended = json!({"template": {"spec": {"overrides": null, "channel": "fast-4.18"}},
            "overlays": [overlay, channel_from(in_seconds(2 * 365 * 86_400), "stable-4.19")]});
        edit(s, VERSION, mended).await;
        until_channel(s, "fast-4.18").await;
        until_said(s, VERSION, "Applied", "True/Applied").await;
        let message = until_said(s, VERSION, "Valid", "False/Refused").await;
        assert!(message.starts_with("the API server would refuse the overlay from"), "{message}");
        assert!(message.contains("Unsupported value: \"v9.9\"") && !message.contains("stable-4.19"), "{message}");
        edit(s, VERSION, json!({"overlays": []})).await;
        until_said(s, VERSION, "Valid", "True/Valid").await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn an_overlay_that_falls_due_in_an_upgrade_is_held_until_the_control_plane_is_done() {
    scenario(&[], async |s| {
        let template = json!({"channel": s.cluster_version().await.spec.channel});
        s.create(&managed(VERSION, &template, &json!([]))).await;
        until_said(s, VERSION, "Applied", "True/Applied").await;
        s.fault("stall-at", "40").await;
        s.create(&job("upgrade", Some("4.18.5"), json!({}))).await;
        s.until_step_runs("upgrade", "await-control-plane").await;
        edit(
            s,
            VERSION,
            json!({"overlays": [channel_from(in_seconds(-1), "stable-4.19")]}),
        )
        .await;
        let message = until_said(s, VERSION, "Applied", "False/Held").await;
        assert!(
            message.contains("held back until the control plane of UpgradeJob upgrade has been updated"),
            "{message}"
        );
        until_event(
            s,
            VERSION,
            &["held back until the control plane of UpgradeJob upgrade"],
        )
        .await;
        // An operator that comes new into this holds it back too.
        s.kill_operator();
        s.start_operator();
        s.until_ready().await;
        s.until_simulator_has_looked().await;
        assert_eq!(json!(s.cluster_version().await.spec.channel), template["channel"]);
        s.fault("stall-at", "").await;
        let changed = until_channel(s, "stable-4.19").await;
        assert!(changed.newest().unwrap().is_completed(), "{:#?}", changed.status);
        until_said(s, VERSION, "Applied", "True/Applied").await;
        let done = s.until_over("upgrade").await;
        assert_succeeded(&done);
        assert_eq!(history(&s.cluster_version().await), ["4.18.5", "4.18.3"]);
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_channel_change_before_the_start_of_a_pinned_job_is_announced_on_it() {
    scenario(&[], async |s| {
        s.fault("offers.stable-4.19", "4.19.1").await;
        let start = in_seconds(25);
        // As a config pins it: with the image.
        let offered = s
            .cluster_version()
            .await
            .status
            .unwrap()
            .available_updates
            .unwrap();
        let release = offered.into_iter().find(|r| r.version == "4.18.5").unwrap();
        let mut pinned = job_between("pinned", Some("4.18.5"), json!({}), start, in_seconds(3_600));
        pinned["spec"]["desiredVersion"]["image"] = json!(release.image);
        s.create(&pinned).await;
        let template = json!({"channel": s.cluster_version().await.spec.channel});
        s.create(&managed(
            VERSION,
            &template,
            &json!([channel_from(in_seconds(20), "stable-4.19")]),
        ))
        .await;
        let told = s
            .until_job("pinned", "announces the change", |j| {
                has(j, "ChannelChangeAhead").is_some()
            })
            .await;
        let message = status(&told).message.unwrap_or_default();
        assert!(
            message.contains("changes the channel from stable-4.18 to stable-4.19"),
            "{message}"
        );
        assert!(
            message.contains("the job keeps 4.18.5, which may not be offered any more then"),
            "{message}"
        );
        until_event(
            s,
            "pinned",
            &["changes the channel from stable-4.18 to stable-4.19"],
        )
        .await;
        let sooner = json!({"overlays": [channel_from(in_seconds(-1), "stable-4.19")]});
        edit(s, VERSION, sooner).await;
        until_channel(s, "stable-4.19").await;
        // And so it is.
        let over = s.until_over("pinned").await;
        failure(&over, "UpgradeWithdrawn");
    })
    .await;
}

/// The how-to `docs/overlays.md`, in short: the channel of the next minor before the pin, and the run takes the minor.
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_minor_upgrade_by_overlay_is_pinned_once_the_updates_of_the_new_channel_are_known() {
    scenario(&[], async |s| {
        s.fault("offers.stable-4.19", "4.19.0,4.19.1").await;
        // The answer to the new channel is late.
        s.fault("update-service", "RemoteFailed no route to host").await;
        let overlays = json!([channel_from(in_seconds(-1), "stable-4.19")]);
        s.create(&managed(VERSION, &json!({"channel": "stable-4.18"}), &overlays)).await;
        let changed = until_channel(s, "stable-4.19").await;
        s.create(&json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
            "metadata": {"name": "minor", "namespace": NAMESPACE},
            "spec": {"schedule": {"cron": "* * * * *"}, "pinVersionWindow": "50s", "jobTemplate": {"spec": {"config": {}}}},
        }))
        .await;
        let configs: Api<UpgradeConfig> = Api::namespaced(s.client.clone(), NAMESPACE);
        until("the config waits for the updates", async || {
            let config = configs.get("minor").await.ok()?;
            let scheduled = conditions::get(&config.status.as_ref()?.conditions, "Scheduled")?.clone();
            (scheduled.reason == "UpdatesUnknown").then_some(())
        })
        .await;
        // An answer of the same second could be the old channel's.
        let changed: Timestamp = changed.annotations()[annotations::CHANNEL_CHANGED_AT].parse().unwrap();
        let later = changed + jiff::SignedDuration::from_millis(1_100);
        until("a second has passed", async || (Timestamp::now() > later).then_some(())).await;
        s.fault("update-service", "").await;
        let jobs: Api<UpgradeJob> = Api::namespaced(s.client.clone(), NAMESPACE);
        let made = until("the config has made a job", async || {
            let all = jobs.list(&kube::api::ListParams::default()).await.ok()?;
            all.items.into_iter().find(|j| j.labels().contains_key(labels::UPGRADE_CONFIG))
        })
        .await;
        let version = made.spec.desired_version.clone().and_then(|v| v.version);
        assert_eq!(version.as_deref(), Some("4.19.1"));
        assert_succeeded(&s.until_over(&made.name_any()).await);
        assert_eq!(history(&s.cluster_version().await), ["4.19.1", "4.18.3"]);
    })
    .await;
}
