//! What other programs rely on: exit codes, one plain line on standard error, nothing on standard output then.

// Helpers of tests may fail loudly, as tests do.
#![allow(clippy::unwrap_used)]

use assert_cmd::Command;
use rstest::rstest;

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::cargo_bin("upgrade-operator")
        .unwrap()
        .args(args)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[rstest]
#[case::cron(&["--cron", "0 22 * * 7"], "day of week \"7\"")]
#[case::empty(&["--cron", ""], "the cron expression is empty")]
#[case::every(&["--cron", "@every 1h"], "@every counts from")]
#[case::zone(&["--cron", "@daily", "--location", "UTC+2"], "is an offset")]
#[case::week(&["--cron", "@daily", "--iso-week", "54"], "isoWeek \"54\"")]
#[case::count(&["--cron", "@daily", "--count", "0"], "--count <N>")]
#[case::from(&["--cron", "@daily", "--from", "tomorrow"], "--from <TIME>")]
#[case::output(&["--cron", "@daily", "-o", "yaml"], "[possible values: text, json]")]
#[case::nothing(&[], "--cron <EXPR>")]
#[case::location_alone(&["--location", "UTC"], "--cron <EXPR>")]
#[case::both(&["--cron", "@daily", "-f", "x"], "cannot be used with")]
#[case::unknown(&["--cron", "@daily", "--surplus"], "unexpected argument '--surplus'")]
#[case::no_file(&["-f", "/does/not/exist"], "cannot read /does/not/exist")]
fn wrong_input_of_next_runs_is_one_line_and_exit_code_2(#[case] args: &[&str], #[case] says: &str) {
    let (code, out, error) = run(&[&["next-runs"], args].concat());
    assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("error: ") && error.contains(says), "{error}");
}

#[test]
fn an_answer_is_one_document_and_warnings_are_beside_it() {
    let (code, out, error) = run(&["next-runs", "--cron", "30 2 31 2 *", "-o", "json"]);
    assert_eq!(code, Some(0));
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["runs"], serde_json::json!([]));
    assert!(error.starts_with("warning: the schedule never fires"), "{error}");
}

/// As in `kustomize build | upgrade-operator next-runs -f -`.
#[rstest]
#[case::good("schedule: {cron: '0 22 * * 2'}", Some(0), "")]
#[case::bad(
    "schedule: {cron: '0 22 * * 7'}",
    Some(2),
    "standard input:1: UpgradeConfig c"
)]
fn manifests_are_read_from_standard_input(#[case] spec: &str, #[case] code: Option<i32>, #[case] says: &str) {
    let config = format!(
        "{{apiVersion: managedupgrade.appuio.io/v1beta1, kind: UpgradeConfig, metadata: {{name: c}}, \
         spec: {{{spec}, jobTemplate: {{spec: {{}}}}}}}}"
    );
    let output = Command::cargo_bin("upgrade-operator")
        .unwrap()
        .args([
            "next-runs",
            "-f",
            "-",
            "--from",
            "2026-11-20T00:00:00Z",
            "--count",
            "1",
        ])
        .write_stdin(config)
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), code, "{error}");
    assert!(error.contains(says), "{error}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(out.contains("2026-11-24 22:00 UTC"), code == Some(0), "{out}");
}

#[rstest]
#[case(&["--help"])]
#[case(&["next-runs", "--help"])]
#[case(&["--version"])]
fn help_is_an_answer(#[case] args: &[&str]) {
    let (code, out, error) = run(args);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(!out.is_empty());
}

/// As in `upgrade-operator … | head`: no error, no panic, and nothing on standard error.
#[rstest]
#[case(&["crds"])]
#[case(&["next-runs", "--cron", "@daily", "--count", "10000"])]
#[case(&["next-runs", "-f", "docs/examples/cluster-upgrade.yaml", "-o", "json"])]
#[case(&["rehearse", "--for", "7d"])]
#[case(&["rehearse", "--for", "7d", "-o", "json"])]
fn a_reader_that_has_seen_enough_is_no_error(#[case] args: &[&str]) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = std::process::Command::new(assert_cmd::cargo::cargo_bin("upgrade-operator"))
        .args(args)
        .env_remove("RUST_LOG")
        .stdout(writer)
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""));
}

/// The Job of the chart tries again at 2 and gives up at 1, so a drain of its node must not look like an answer.
#[test]
fn a_release_that_is_told_to_stop_ends_with_exit_code_2_whatever_it_waits_for() {
    // Connections are taken, and nobody ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         users: [{{name: u, user: {{}}}}], clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]}}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), kubeconfig).unwrap();
    let release = std::process::Command::new(assert_cmd::cargo::cargo_bin("upgrade-operator"))
        .args(["release", "--all", "--namespace=ns", "--kubeconfig"])
        .arg(file.path())
        .env_remove("RUST_LOG")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Once it is connected, it is past everything that could have kept it from hearing a signal.
    let (tell, connected) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(silent.accept()));
    let _connection = connected
        .recv_timeout(std::time::Duration::from_secs(60))
        .unwrap()
        .unwrap();
    let pid = release.id().to_string();
    let told = std::process::Command::new("kill").args(["-TERM", &pid]).status();
    assert!(told.unwrap().success());
    // It gives up by itself 10 s after it asked.
    let output = release.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(2), &b""[..])
    );
    assert!(error.contains("stopped by a signal"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn the_documented_commands_print_what_is_documented() {
    let text = include_str!("../docs/next-runs.md");
    let blocks = text
        .split("```console\n$ upgrade-operator ")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let mut checked = 0;
    for block in blocks {
        let (command, expected) = block.split_once('\n').unwrap();
        // The one argument with spaces is in quotes.
        let arguments = command.split('\'').enumerate().flat_map(|(i, part)| match i % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        let arguments: Vec<String> = arguments.collect();
        let (code, out, error) = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(
            (code, out.as_str(), error.as_str()),
            (Some(0), expected, ""),
            "{command}"
        );
        checked += 1;
    }
    assert_eq!(checked, 2);
}

/// A log store is asked for one job or one step: `docs/logs.md`.
#[test]
fn each_decision_about_a_step_is_a_line_with_job_step_and_verdict() {
    let (code, out, log) = run(&[
        "rehearse",
        "docs/examples/cluster-upgrade.yaml",
        "--from=2026-11-22T00:00:00Z",
        "--for=14d",
        "-o=json",
        "--log-format=json",
        "--log-level=openshift_upgrade_operator::controller=info",
    ]);
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<serde_json::Value> = log.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let told = |job: &str, step: &str, verdict: &str| {
        let is = |l: &&serde_json::Value| {
            let fields = &l["fields"];
            fields["job"] == job && fields["step"] == step && fields["verdict"] == verdict
        };
        lines.iter().filter(is).count()
    };
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    let job = &document["jobs"][0];
    let steps = job["steps"].as_array().unwrap();
    assert!(steps.len() > 10, "{steps:#?}");
    for step in steps {
        let (name, phase) = (step["name"].as_str().unwrap(), step["phase"].as_str().unwrap());
        assert_eq!(told(job["name"].as_str().unwrap(), name, phase), 1, "{name}");
    }
}

#[test]
fn a_log_level_that_is_none_is_wrong_input() {
    let (code, out, error) = run(&["crds", "--log-level", "kube=loud"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
    assert!(error.contains("info,kube=debug"), "{error}");
}
