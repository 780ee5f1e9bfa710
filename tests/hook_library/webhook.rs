//! notify-webhook, against a server that records, and the formats that Slack and Teams document.

use openshift_upgrade_operator::api::upgrade_job_hook::HookEvent;
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, NAMESPACE},
    hook::{Hook, NASTY},
    outside::{Answer, Recorder},
};

/// A part of the URL that nobody may read.
const TOKEN: &str = "T0KEN-of-the-webhook";

async fn hook(cluster: &Cluster, secret: &'static str, server: &Recorder, event: HookEvent) -> Hook {
    cluster.secret(secret, &format!("{}/{TOKEN}", server.url())).await;
    Hook::new("notify-webhook", event, secret).with("secret", secret)
}

/// What Slack takes: https://docs.slack.dev/reference/block-kit/blocks and, for escapes,
/// https://docs.slack.dev/messaging/formatting-message-text.
fn assert_slack_takes(message: &Value) {
    let is_escaped = |text: &str| {
        let without = ["&amp;", "&lt;", "&gt;"]
            .iter()
            .fold(text.to_owned(), |t, e| t.replace(e, ""));
        !without.contains(['&', '<', '>'])
    };
    assert!(is_escaped(message["text"].as_str().unwrap()), "{message:#}");
    let blocks = message["blocks"].as_array().unwrap();
    assert!(!blocks.is_empty() && blocks.len() <= 50);
    let check_text = |text: &Value, types: &[&str], most: usize| {
        assert!(types.contains(&text["type"].as_str().unwrap()), "{text:#}");
        let text = text["text"].as_str().unwrap();
        assert!(!text.is_empty() && text.chars().count() <= most, "{text}");
    };
    for block in blocks {
        match block["type"].as_str().unwrap() {
            "header" => check_text(&block["text"], &["plain_text"], 150),
            "section" => {
                check_text(&block["text"], &["mrkdwn", "plain_text"], 3000);
                assert!(is_escaped(block["text"]["text"].as_str().unwrap()), "{block:#}");
            }
            "context" => {
                let elements = block["elements"].as_array().unwrap();
                assert!(!elements.is_empty() && elements.len() <= 10);
                for element in elements {
                    check_text(element, &["mrkdwn", "plain_text"], 3000);
                }
            }
            other => panic!("a block of type {other}"),
        }
    }
}

/// What a workflow of Teams takes: "Send Adaptive Cards using an incoming webhook" in Microsoft's book on Teams, and the
/// schema at https://adaptivecards.io/explorer.
fn assert_teams_takes(message: &Value) {
    assert_eq!(message["type"], "message");
    assert!(
        message.to_string().len() < 28 * 1024,
        "a message has at most 28 KB"
    );
    let attachments = message["attachments"].as_array().unwrap();
    assert_eq!(attachments.len(), 1);
    assert_eq!(
        attachments[0]["contentType"],
        "application/vnd.microsoft.card.adaptive"
    );
    let card = &attachments[0]["content"];
    assert_eq!(card["type"], "AdaptiveCard");
    assert_eq!(
        card["$schema"],
        "http://adaptivecards.io/schemas/adaptive-card.json"
    );
    assert!(["1.2", "1.3", "1.4", "1.5"].contains(&card["version"].as_str().unwrap()));
    for element in card["body"].as_array().unwrap() {
        match element["type"].as_str().unwrap() {
            "TextBlock" => assert!(!element["text"].as_str().unwrap().is_empty()),
            "FactSet" => {
                for fact in element["facts"].as_array().unwrap() {
                    assert!(fact["title"].is_string() && fact["value"].is_string(), "{fact}");
                }
            }
            other => panic!("an element of type {other}"),
        }
    }
    for action in card["actions"].as_array().into_iter().flatten() {
        assert_eq!(action["type"], "Action.OpenUrl");
        assert!(action["url"].as_str().unwrap().starts_with("https://"));
    }
}

async fn name_the_cluster(cluster: &Cluster) {
    for (kind, field, value) in [
        ("Infrastructure", "infrastructureName", "prod-x7k2p"),
        ("Console", "consoleURL", "https://console.apps.prod.example.com"),
    ] {
        let api = cluster.dynamic("config.openshift.io", "v1", kind, "");
        cluster
            .apply(json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": "cluster"}, "spec": {}}))
            .await;
        let status = json!({"status": {field: value}});
        let merge = kube::api::Patch::Merge(&status);
        api.patch_status("cluster", &kube::api::PatchParams::default(), &merge)
            .await
            .unwrap();
    }
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn each_format_is_what_its_service_documents() {
    let cluster = Cluster::ready().await;
    name_the_cluster(&cluster).await;
    let servers = [
        Recorder::start(&[Answer::Status(200)]).await,
        Recorder::start(&[Answer::Status(200)]).await,
        Recorder::start(&[Answer::Status(202)]).await,
    ];
    let json = hook(
        &cluster,
        "webhook-json",
        &servers[0],
        HookEvent::MachineConfigPoolUnpause,
    )
    .await;
    let slack = hook(&cluster, "webhook-slack", &servers[1], HookEvent::Create).await;
    let teams = hook(&cluster, "webhook-teams", &servers[2], HookEvent::Finish).await;
    let slack = slack.with("format", "slack").with("cluster", "a & \"b\" <c>");
    let teams = teams
        .with("format", "teams")
        .with("link", "https://example.com/jobs");
    let ended = tokio::join!(json.run(&cluster), slack.run(&cluster), teams.run(&cluster));
    for ended in [&ended.0, &ended.1, &ended.2] {
        ended.succeeded();
        assert!(
            !ended.log.contains(TOKEN),
            "the URL is in the log:\n{}",
            ended.log
        );
    }

    let message = servers[0].message();
    let job = "cluster-upgrade-webhook-json";
    assert_eq!(
        message,
        json!({
            "id": "webhook-json/MachineConfigPoolUnpause/worker",
            "text": "prod-x7k2p: upgrade to 4.18.5 goes on with pool worker",
            "cluster": "prod-x7k2p", "event": "MachineConfigPoolUnpause", "pool": "worker", "outcome": "Running",
            "time": "2026-11-24T21:00:00Z", "reason": "Reason", "message": NASTY, "job": job, "namespace": NAMESPACE,
            "version": "4.18.5",
            "link": format!("https://console.apps.prod.example.com/k8s/ns/{NAMESPACE}/managedupgrade.appuio.io~v1beta1~UpgradeJob/{job}"),
        })
    );
    let message = servers[1].message();
    assert_slack_takes(&message);
    assert_eq!(
        message["blocks"][0]["text"]["text"],
        "a & \"b\" <c>: upgrade to 4.18.5 is planned for 2026-11-24 21:00:00 UTC"
    );
    assert!(
        message["blocks"][1]["text"]["text"]
            .as_str()
            .unwrap()
            .contains("$HOME $(EVENT) `id`")
    );
    let message = servers[2].message();
    assert_teams_takes(&message);
    let card = &message["attachments"][0]["content"];
    assert_eq!(card["body"][0]["text"], "prod-x7k2p: upgrade to 4.18.5 succeeded");
    assert_eq!(card["actions"][0]["url"], "https://example.com/jobs");
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_webhook_that_is_away_is_told_later_and_what_is_wrong_is_said() {
    let cluster = Cluster::ready().await;
    let away = Recorder::start(&[Answer::Status(503), Answer::Status(200)]).await;
    let refusing = Recorder::start(&[Answer::Status(404)]).await;
    let away_hook = hook(&cluster, "webhook-away", &away, HookEvent::Start).await;
    let refused = hook(&cluster, "webhook-refusing", &refusing, HookEvent::Start).await;
    let format = hook(&cluster, "webhook-format", &refusing, HookEvent::Start)
        .await
        .with("format", "xml");
    let missing = Hook::new("notify-webhook", HookEvent::Start, "none").with("secret", "nowhere");
    cluster.secret("webhook-url", "example.com/x").await;
    let url = Hook::new("notify-webhook", HookEvent::Start, "url").with("secret", "webhook-url");
    let ended = tokio::join!(
        away_hook.run(&cluster),
        refused.run(&cluster),
        format.run(&cluster),
        missing.run(&cluster),
        url.run(&cluster),
    );

    ended.0.succeeded().said("again in 10 s: it answered 503");
    assert_eq!(away.seen().len(), 2);
    ended.1.failed(
        3,
        &["Secret webhook-refusing", "404: no_service", "check its url"],
    );
    assert_eq!(refusing.seen().len(), 1, "what is refused is not tried again");
    ended
        .2
        .failed(2, &["parameter format is 'xml'", "json, slack or teams"]);
    ended
        .3
        .failed(2, &["Secret nowhere has no key url", "oc create secret"]);
    ended.4.failed(2, &["Secret webhook-url", "must be URLs"]);
}
