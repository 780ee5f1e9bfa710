use clap::Parser;
use jiff::ToSpan;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{api::UpgradeJob as Job, pinning};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

const NOW: &str = "2026-12-01T12:34:56.7Z";

const CONFIG: &str = "
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeConfig
metadata: {name: c, namespace: team}
spec: {schedule: {cron: '0 22 * * 2'}, jobTemplate: {spec: {}}}
";

fn args(args: &[&str]) -> Args {
    let args = std::iter::once("rehearse").chain(args.iter().copied());
    Cli::try_parse_from(args).unwrap_or_else(|e| panic!("{e}")).args
}

/// The request that these arguments make; `FILE` stands for a file with this text.
fn request(text: &str, rest: &[&str]) -> Result<Request, Error> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.yaml");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let rest: Vec<&str> = rest
        .iter()
        .map(|arg| if *arg == "FILE" { file } else { arg })
        .collect();
    Request::read(&args(&rest), NOW.parse().unwrap())
}

/// What is written, and how it ends, where every run of the config ended in this phase.
fn answered(phase: &str, arguments: &[&str]) -> (String, ExitCode) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f.yaml"), CONFIG).unwrap();
    let mut all = args(arguments);
    all.files.push(folder.path().to_owned());
    let simulate = |request: &Request| {
        let end = request.from + request.length;
        let mut recording = Recording::new(request.from, end, request.settings.zones.clone());
        let mut config: UpgradeConfig = request.objects[0].parse().unwrap();
        config.metadata.uid = Some("u".to_owned());
        recording.see_config(&config, request.from);
        let conditions = match phase {
            "Failed" => json!([{"type": "Failed", "status": "True", "reason": "HookFailed", "message": "m",
                "lastTransitionTime": request.from}]),
            _ => json!([]),
        };
        for run in (1..=4).map(|week| request.from + (week * 7 * 24 - 1).hours()) {
            let mut job: Job = pinning::job::of_run(&config, run, None, None);
            job.status = serde_json::from_value(json!({"phase": phase, "conditions": conditions})).unwrap();
            recording.see_job(&job, run);
        }
        Ok(recording)
    };
    let mut out = Vec::new();
    let streams = Streams {
        out: &mut out,
        colours: Colours::Off,
    };
    let code = answer(&all, NOW.parse().unwrap(), simulate, streams).unwrap();
    (String::from_utf8(out).unwrap(), code)
}

#[test]
fn the_defaults_are_the_shipped_example_now_and_90_days() {
    let request = request("", &[]).unwrap();
    assert_eq!(request.from.to_string(), "2026-12-01T12:34:00Z");
    assert_eq!(request.length, SignedDuration::from_hours(90 * 24));
    assert_eq!(
        (request.seed, request.settings.namespace.as_str()),
        (0, "openshift-upgrade")
    );
    let kinds: Vec<_> = request
        .objects
        .iter()
        .map(|m| m.object.types.clone().unwrap().kind)
        .collect();
    assert_eq!(kinds, ["UpgradeConfig", "UpgradeJobHook"]);
    assert!(request.passed_over.is_empty());
    let pools: Vec<String> = request
        .scenario
        .cluster
        .pools()
        .iter()
        .map(|p| p.name.to_string())
        .collect();
    assert_eq!(pools, ["master", "worker", "x-app-night"]);
}

#[test]
fn files_are_given_with_and_without_a_flag() {
    let namespaces = |rest| request(CONFIG, rest).unwrap().settings.namespace;
    assert_eq!(namespaces(&["FILE"]), "team");
    assert_eq!(namespaces(&["-f", "FILE"]), "team");
    assert_eq!(
        request(CONFIG, &["FILE", "-f", "FILE", "FILE"])
            .unwrap()
            .objects
            .len(),
        3
    );
    assert_eq!(namespaces(&["FILE", "--namespace", "other"]), "other");
    let without = CONFIG.replace(", namespace: team", "");
    assert_eq!(
        request(&without, &["FILE"]).unwrap().settings.namespace,
        NAMESPACE
    );
}

#[rstest]
#[case(&["--from", "2026-12-01T22:00:00.9+01:00"], "2026-12-01T21:00:00Z")]
#[case(&["--from", "2026-12-01T21:00:59Z"], "2026-12-01T21:00:59Z")]
fn a_rehearsal_begins_at_a_whole_second(#[case] rest: &[&str], #[case] expected: &str) {
    assert_eq!(request("", rest).unwrap().from.to_string(), expected);
}

#[rstest]
#[case("90d", Ok(90 * 24))]
#[case("1y", Ok(365 * 24))]
#[case("1d12h", Ok(36))]
#[case("20y", Ok(20 * 365 * 24))]
#[case("21y", Err("longer than 20 years"))]
#[case("0s", Err("takes some time"))]
#[case("1w", Err("unknown unit"))]
#[case("-1d", Err("negative"))]
fn a_length_is_a_go_duration_with_days_and_years(#[case] text: &str, #[case] expected: Result<i64, &str>) {
    match (length(text), expected) {
        (Ok(length), Ok(hours)) => assert_eq!(length, SignedDuration::from_hours(hours)),
        (Err(problem), Err(expected)) => assert!(problem.contains(expected), "{problem}"),
        (got, _) => panic!("{text}: {got:?}"),
    }
}

#[rstest]
#[case::not_yaml("kind: [", &["FILE"], "f.yaml:2: not valid YAML")]
#[case::empty("", &["FILE"], "holds no Kubernetes object")]
#[case::missing(CONFIG, &["FILE", "/no/such/file"], "cannot read /no/such/file: ")]
#[case::nothing_to_do("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}", &["FILE"],
    "there is no UpgradeConfig and no UpgradeJob in the files")]
#[case::zone(CONFIG, &["FILE", "--default-location", "Mars"], "cannot use --default-location: there is no time zone")]
#[case::calendar(CONFIG, &["FILE", "--from", "9999-12-01T00:00:00Z", "--for", "1y"],
    "cannot rehearse 8760h from 9999-12-01T00:00:00Z")]
fn wrong_input_is_an_error(#[case] text: &str, #[case] rest: &[&str], #[case] expected: &str) {
    let problem = request(text, rest).unwrap_err().to_string();
    assert!(problem.contains(expected), "{problem}");
    assert_eq!(problem.lines().count(), 1, "{problem}");
}

#[rstest]
#[case("", Monitoring::Absent)]
#[case("queries: {up: []}", Monitoring::Simulated)]
#[case("events: [{at: +1h, do: {restartOperator: {}}}]", Monitoring::Absent)]
fn a_scenario_is_read_and_may_have_a_prometheus(#[case] text: &str, #[case] expected: Monitoring) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.yaml");
    std::fs::write(&file, format!("description: mine\n{text}")).unwrap();
    let request = request(CONFIG, &["FILE", "--scenario", file.to_str().unwrap()]).unwrap();
    assert_eq!(request.scenario.description, "mine");
    assert_eq!(monitoring(&request.scenario), expected);
    std::fs::write(&file, "cluser: {}").unwrap();
    let problem = self::request(CONFIG, &["FILE", "--scenario", file.to_str().unwrap()])
        .unwrap_err()
        .to_string();
    assert!(
        problem.contains("s.yaml:1: ") && problem.contains("cluser"),
        "{problem}"
    );
    assert_eq!(problem.lines().count(), 1);
}

#[test]
fn what_is_no_object_is_a_warning() {
    let (text, _) = {
        let request = request(&format!("{CONFIG}---\na: 1\n"), &["FILE"]).unwrap();
        (request.passed_over[0].to_string(), request)
    };
    assert!(
        text.ends_with("f.yaml:7: not a Kubernetes object: it has no apiVersion"),
        "{text}"
    );
}

#[rstest]
#[case("Succeeded", &[], 0)]
#[case("Succeeded", &["--fail-on", "failed"], 0)]
#[case("Succeeded", &["--fail-on", "skipped"], 0)]
#[case("Succeeded", &["--fail-on", "warning"], 0)]
#[case("Failed", &[], 0)]
#[case("Failed", &["--fail-on", "failed"], 1)]
#[case("Failed", &["--fail-on", "skipped"], 1)]
#[case("Skipped", &[], 0)]
#[case("Skipped", &["--fail-on", "failed"], 0)]
#[case("Skipped", &["--fail-on", "skipped"], 1)]
// Two days short of the first run, the config has none: a warning.
#[case("Pending", &["--for", "2h"], 0)]
#[case("Pending", &["--for", "2h", "--fail-on", "skipped"], 0)]
#[case("Pending", &["--for", "2h", "--fail-on", "warning"], 1)]
fn the_exit_code_is_what_was_asked_for(#[case] phase: &str, #[case] rest: &[&str], #[case] code: u8) {
    let from = ["--from", "2026-12-01T23:00:00Z"];
    let mut all = from.to_vec();
    all.extend(rest);
    if !rest.contains(&"--for") {
        all.extend(["--for", "28d"]);
    }
    let (_, got) = answered(phase, &all);
    assert_eq!(format!("{got:?}"), format!("{:?}", ExitCode::from(code)));
}

#[test]
fn the_answer_is_one_document_or_a_timeline() {
    let period = ["--from", "2026-12-01T23:00:00Z", "--for", "28d"];
    let json: Vec<&str> = period.iter().copied().chain(["-o", "json"]).collect();
    let document: Value = serde_json::from_str(&answered("Succeeded", &json).0).unwrap();
    assert_eq!(document["jobs"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&document["skipped"], &document["warnings"]),
        (&json!([]), &json!([]))
    );
    let (text, _) = answered("Succeeded", &period);
    assert!(
        text.starts_with("Rehearsed from Tue 2026-12-01 23:00 UTC to "),
        "{text}"
    );
    assert!(
        text.contains("\n4 runs: 4 succeeded, 0 failed, 0 skipped\n"),
        "{text}"
    );
}
