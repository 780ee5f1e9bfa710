//! silence-alerts and unsilence-alerts, against a real Alertmanager.

use openshift_upgrade_operator::api::upgrade_job_hook::HookEvent;
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, unique, wait_for},
    hook::{Hook, SOON},
    outside::{ALERTMANAGER, Answer, Recorder, silence_by_hand, silences},
};

/// The CA of the cluster; OpenShift's for services is service-ca.crt beside it.
pub const CA_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
const MATCHERS: &str = "alertname=~KubeNode.+|TargetDown\n\n  severity != critical\nteam=\"a, \\\"b\\\"\"\n";

fn silence(uid: &str, url: &str) -> Hook {
    Hook::new("silence-alerts", HookEvent::Start, uid)
        .with("url", url)
        .with("ca-file", CA_FILE)
        .with("matchers", MATCHERS)
        .with("duration", "10m")
}

fn unsilence(uid: &str) -> Hook {
    Hook::new("unsilence-alerts", HookEvent::Finish, uid)
        .with("url", ALERTMANAGER)
        .with("ca-file", CA_FILE)
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_job_has_one_silence_which_is_extended_and_ended_and_no_other_is_touched() {
    let cluster = Cluster::ready().await;
    let (one, two) = (&unique("one"), &unique("two"));
    let (ours, others) = (silence(one, ALERTMANAGER), silence(two, ALERTMANAGER));
    let ended = tokio::join!(ours.run(&cluster), others.run(&cluster));
    ended.0.succeeded();
    ended.1.succeeded();
    let before = silences(one);
    assert_eq!(before.len(), 1, "{before:#?}");
    let mut matchers = before[0]["matchers"].as_array().unwrap().clone();
    matchers.sort_by_key(ToString::to_string);
    assert_eq!(
        matchers,
        [
            json!({"isEqual": false, "isRegex": false, "name": "severity", "value": "critical"}),
            json!({"isEqual": true, "isRegex": false, "name": "team", "value": "a, \"b\""}),
            json!({"isEqual": true, "isRegex": true, "name": "alertname", "value": "KubeNode.+|TargetDown"}),
        ]
    );
    assert_eq!(
        before[0]["comment"],
        json!(format!(
            "UpgradeJob openshift-upgrade/cluster-upgrade-{one}: upgrade to 4.18.5 (silence-alerts, {one})"
        ))
    );
    // One that somebody made for the same job.
    let mut by_hand = before[0].clone();
    by_hand["createdBy"] = json!("somebody");
    by_hand
        .as_object_mut()
        .unwrap()
        .retain(|k, _| !["id", "status", "updatedAt"].contains(&k.as_str()));
    silence_by_hand(&by_hand);

    silence(one, ALERTMANAGER)
        .with("duration", "20m")
        .run(&cluster)
        .await
        .succeeded();
    let after: Vec<Value> = silences(one)
        .into_iter()
        .filter(|s| s["createdBy"] != "somebody")
        .collect();
    assert_eq!(after.len(), 1, "no second one: {after:#?}");
    assert_eq!(after[0]["id"], before[0]["id"]);
    assert!(
        after[0]["endsAt"].as_str() > before[0]["endsAt"].as_str(),
        "it was extended: {before:#?} {after:#?}"
    );

    unsilence(one).run(&cluster).await.succeeded().said("ended");
    unsilence(one)
        .run(&cluster)
        .await
        .succeeded()
        .said("has no silence that is not over");
    let left = silences(one);
    assert!(left.len() == 1 && left[0]["createdBy"] == "somebody", "{left:#?}");
    assert_eq!(silences(two).len(), 1, "the other job keeps its silence");
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_hook_that_is_killed_before_it_hears_of_its_silence_makes_no_second_one() {
    let cluster = Cluster::ready().await;
    let uid = &unique("killed");
    // The list; then a silence is made, and nobody hears of it.
    let between = Recorder::start(&[
        Answer::Alertmanager,
        Answer::AlertmanagerUnheard,
        Answer::Alertmanager,
    ])
    .await;
    let hook = silence(uid, &between.url());
    let mut run = hook.start(&cluster).await;
    wait_for("the silence is made", SOON, async || {
        (between.seen().len() == 2).then_some(())
    })
    .await;
    run.kill().await;
    run.end().await.was_killed_once().said("was there");
    assert_eq!(silences(uid).len(), 1);
    for seen in between.seen() {
        assert!(seen.authorization.starts_with("Bearer ey"), "{seen:?}");
    }
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn what_is_wrong_with_a_silence_is_said() {
    let cluster = Cluster::ready().await;
    let door = Recorder::start(&[Answer::Status(403)]).await;
    let foolish = silence("bad", ALERTMANAGER).with("matchers", "alertname=Good\nKubeNode");
    let empty = silence("bad", ALERTMANAGER).with("matchers", " \n");
    let forever = silence("bad", ALERTMANAGER).with("duration", "forever");
    let stranger = silence("bad", ALERTMANAGER).with("ca-file", "/etc/passwd");
    // Alertmanager's own refusal: it would match everything.
    let everything = silence("bad", ALERTMANAGER).with("matchers", "alertname=~.*");
    let shut = silence("bad", &door.url());
    let ended = tokio::join!(
        foolish.run(&cluster),
        empty.run(&cluster),
        forever.run(&cluster),
        stranger.run(&cluster),
        everything.run(&cluster),
        shut.run(&cluster),
    );
    ended
        .0
        .failed(2, &["parameter matchers", "\"KubeNode\" is no matcher"]);
    ended.1.failed(2, &["parameter matchers", "there is none"]);
    ended
        .2
        .failed(2, &["parameter duration is 'forever'", "90m or 4h"]);
    ended
        .3
        .failed(2, &[ALERTMANAGER, "mend the parameters url and ca-file"]);
    ended.4.failed(3, &["cannot make a silence", "400"]);
    ended.5.failed(3, &["403", "apply the roles"]);
    assert_eq!(silences("bad"), Vec::<Value>::new());
}
