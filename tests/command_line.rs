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

#[rstest]
#[case(&["--help"])]
#[case(&["next-runs", "--help"])]
#[case(&["--version"])]
fn help_is_an_answer(#[case] args: &[&str]) {
    let (code, out, error) = run(args);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(!out.is_empty());
}
