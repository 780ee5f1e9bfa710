//! What is answered, and what is refused.

use clap::Parser;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// Standard output and standard error.
fn answer(args: &[&str]) -> Result<(String, String), String> {
    let args = Cli::try_parse_from([&["next-runs", "--from", "2026-11-20T00:00:00Z"], args].concat())
        .map_err(|e| e.to_string())?
        .args;
    let (mut out, mut warn) = (Vec::new(), Vec::new());
    write(&args, args.from.unwrap(), &mut out, &mut warn).map_err(|e| e.to_string())?;
    Ok((String::from_utf8(out).unwrap(), String::from_utf8(warn).unwrap()))
}

fn json_of(args: &[&str]) -> Value {
    serde_json::from_str(&answer(&[args, &["-o", "json"]].concat()).unwrap().0).unwrap()
}

#[test]
fn an_expression_is_answered_as_the_contract_says() {
    let got = json_of(&[
        "--cron",
        "0 22 * * 2",
        "--location",
        "Europe/Zurich",
        "--count",
        "1",
    ]);
    assert_eq!(
        got,
        json!({"runs": [{"time": "2026-11-24T21:00:00Z", "local": "2026-11-24T22:00:00+01:00", "isoWeek": 48,
                "verdict": "WillRun", "reason": ""}]})
    );
    let got = json_of(&["--cron", "0 22 * * 2", "--iso-week", "@odd", "--count", "1"]);
    assert_eq!(got["runs"][0]["local"], "2026-12-01T22:00:00+00:00");
}

#[test]
fn an_expression_that_never_fires_is_an_empty_answer_with_a_warning() {
    let (out, warn) = answer(&["--cron", "30 2 31 2 *", "-o", "json"]).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["runs"], json!([]));
    assert!(warn.starts_with("warning: the schedule never fires"), "{warn}");
}

#[test]
fn configs_in_files_are_answered_with_verdicts() {
    let dir = tempfile::tempdir().unwrap();
    let manifests = r#"
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeConfig
metadata: {name: a, labels: {team: a}}
spec:
  schedule: {cron: "0 22 * * 2", location: Europe/Zurich}
  jobTemplate: {metadata: {labels: {tier: prod}}, spec: {}}
---
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeConfig
metadata: {name: b}
spec:
  schedule: {cron: "0 22 * * 2", suspend: true}
  jobTemplate: {spec: {}}
---
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeSuspensionWindow
metadata: {name: freeze, namespace: other}
spec: {start: "2026-12-01T00:00:00Z", end: "2026-12-02T00:00:00Z", reason: release, jobSelector: {matchLabels: {tier: prod}}}
---
apiVersion: v1
kind: ConfigMap
"#;
    std::fs::write(dir.path().join("all.yaml"), manifests).unwrap();
    let dir = dir.path().to_str().unwrap();
    let got = json_of(&["-f", dir, "--count", "2"]);
    let verdicts: Vec<(&Value, Vec<&Value>)> = got["configs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            (
                &c["name"],
                c["runs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|r| &r["verdict"])
                    .collect(),
            )
        })
        .collect();
    assert_eq!(
        verdicts,
        [
            (&json!("a"), vec![&json!("WillRun"), &json!("Suspended")]),
            (
                &json!("b"),
                vec![&json!("ScheduleSuspended"), &json!("ScheduleSuspended")]
            ),
        ]
    );
    let reason = got["configs"][0]["runs"][1]["reason"].as_str().unwrap();
    assert!(reason.contains("freeze (release)"), "{reason}");
    let (text, _) = answer(&["-f", dir, "--count", "1"]).unwrap();
    assert!(
        text.starts_with("UpgradeConfig a\nTue 2026-11-24 22:00 (Europe/Zurich)"),
        "{text}"
    );
}

/// What the operator shows in `status.nextPossibleSchedules`, before anything was pinned.
fn shown_by_the_operator(config: &Value, windows: &[Value]) -> Vec<(Value, Value, Value)> {
    let world = crate::world::World {
        pools: vec![serde_json::from_value(json!({"metadata": {"name": "worker"}, "spec": {}})).unwrap()],
        windows: windows
            .iter()
            .map(|w| serde_json::from_value(w.clone()).unwrap())
            .collect(),
        ..Default::default()
    };
    let settings = crate::pinning::ConfigSettings {
        zones: Zones::bundled("").unwrap(),
    };
    let config = serde_json::from_value(config.clone()).unwrap();
    let now = "2026-11-20T00:00:00Z".parse().unwrap();
    let status = crate::pinning::decide(&config, &world, now, &settings).status;
    let shown = status.next_possible_schedules.iter();
    shown
        .map(|n| {
            (
                json!(n.time),
                json!(n.verdict),
                json!(n.reason.clone().unwrap_or_default()),
            )
        })
        .collect()
}

#[rstest]
#[case::plain(json!({"cron": "0 22 * * 2"}))]
#[case::odd_weeks_in_a_zone(json!({"cron": "0 22 * * 2", "isoWeek": "@odd", "location": "Europe/Zurich"}))]
#[case::a_zone_in_the_expression(json!({"cron": "TZ=Asia/Tokyo 30 2 * * *"}))]
#[case::suspended(json!({"cron": "0 22 * * 2", "suspend": true}))]
#[case::rare(json!({"cron": "0 0 29 2 *"}))]
#[case::never(json!({"cron": "30 2 31 2 *"}))]
fn the_operator_shows_the_same_runs_and_verdicts(#[case] schedule: Value) {
    let config = json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
        "metadata": {"name": "c", "namespace": "ns", "labels": {"team": "a"},
            "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {"schedule": schedule, "jobTemplate": {"metadata": {"labels": {"tier": "prod"}}, "spec": {}}},
    });
    let window = |name: &str, start: &str, end: &str, selector: &str, labels: Value| {
        let mut window = json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
            "metadata": {"name": name, "namespace": "ns"}, "spec": {"start": start, "end": end, "reason": name},
        });
        window["spec"][selector] = json!({"matchLabels": labels});
        window
    };
    let windows = [
        window(
            "by-config",
            "2026-12-01T00:00:00Z",
            "2026-12-09T00:00:00Z",
            "configSelector",
            json!({"team": "a"}),
        ),
        window(
            "by-job",
            "2026-12-20T00:00:00Z",
            "2027-01-06T00:00:00Z",
            "jobSelector",
            json!({"tier": "prod"}),
        ),
        window(
            "of-others",
            "2026-11-01T00:00:00Z",
            "2036-11-09T00:00:00Z",
            "configSelector",
            json!({"team": "b"}),
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (n, object) in std::iter::once(&config).chain(&windows).enumerate() {
        std::fs::write(dir.path().join(format!("{n}.json")), object.to_string()).unwrap();
    }
    let answer = json_of(&["-f", dir.path().to_str().unwrap()]);
    let runs = answer["configs"][0]["runs"].as_array().unwrap().iter();
    let runs: Vec<_> = runs
        .map(|r| (r["time"].clone(), r["verdict"].clone(), r["reason"].clone()))
        .collect();
    assert_eq!(runs, shown_by_the_operator(&config, &windows));
}

#[rstest]
#[case(&["--cron", "0 22 * * 7"], "day of week")]
#[case(&["--cron", "0 22 * * 2", "--location", "+02:00"], "is an offset")]
#[case(&["--cron", "0 22 * * 2", "--default-location", "Nowhere"], "cannot use --default-location")]
#[case(&["--cron", "0 22 * * 2", "--count", "0"], "--count")]
#[case(&["--cron", "0 22 * * 2", "--from", "tomorrow"], "--from")]
#[case(&["--cron", "0 22 * * 2", "-f", "x"], "cannot be used with")]
#[case(&[], "required")]
#[case(&["-f", "/does/not/exist"], "cannot read")]
fn wrong_input_is_refused(#[case] args: &[&str], #[case] expected: &str) {
    let error = answer(args).unwrap_err();
    assert!(error.contains(expected), "{error}");
}
