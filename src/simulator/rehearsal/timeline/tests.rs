use jiff::ToSpan;
use serde_json::json;

use super::*;
use crate::simulator::rehearsal::{Recording, fixtures::*};

const STYLE: Style = Style {
    colours: Colours::Off,
    detail: Detail::Eventful,
    seed: 7,
};

fn told(recording: &Recording, warnings: &[String], style: Style) -> String {
    timeline(&Story::of(recording), warnings, style)
}

/// A job that took two hours, one that failed, one that was skipped, a suspended run, and a job made by hand.
fn eventful() -> Recording {
    let mut recording = recording();
    let config = config("c", &json!({}));
    let status = json!({"nextPossibleSchedules": [
        {"time": "2026-12-22T21:00:00Z", "verdict": "Suspended", "reason": "UpgradeSuspensionWindow w (holidays)"}]});
    recording.see_config(&with_status(&config, status), at(FROM));
    recording.see_cluster_version(&cluster_version("4.18.3", "Completed"), at(FROM));
    let done = succeeded("2026-12-01T21:00:07Z", "2026-12-01T23:00:08Z");
    recording.see_job(&job(&config, "2026-12-01T21:00:00Z", done), at(FROM));
    let late = failed(
        "2026-12-08T21:00:00Z",
        "2026-12-09T01:00:00Z",
        "TimedOut",
        "not done\nin 4h",
    );
    recording.see_job(&job(&config, "2026-12-08T21:00:00Z", late), at(FROM));
    let not_run = skipped("2026-12-15T21:00:00Z", "Upgrade job skipped by a window");
    recording.see_job(&job(&config, "2026-12-15T21:00:00Z", not_run), at(FROM));
    let mut by_hand = job(
        &config,
        "2026-12-20T12:00:00Z",
        json!({"phase": "Pending", "message": "waits"}),
    );
    by_hand.metadata.labels = None;
    by_hand.metadata.owner_references = None;
    by_hand.spec.desired_version = None;
    recording.see_job(&by_hand, at(FROM));
    recording
}

#[test]
fn an_eventful_month_reads_well() {
    let text = told(&eventful(), &["f.yaml:3: careful".to_owned()], STYLE);
    let expected = "\
Rehearsed from Tue 2026-12-01 00:00 UTC to Tue 2026-12-29 00:00 UTC: 28 days, seed 7

UpgradeConfig c: 0 22 * * 2, Europe/Zurich
  Tue 2026-12-01 22:00 (Europe/Zurich) / 2026-12-01 21:00 UTC  4.18.3 to 4.18.5  Succeeded in 2h
      Tue 22:00:07       0s  pre-health-check     healthy
      Tue 22:00:07       2h  await-control-plane  the control plane is at 4.18.5
  Tue 2026-12-08 22:00 (Europe/Zurich) / 2026-12-08 21:00 UTC  4.18.3 to 4.18.5  Failed after 4h: TimedOut: not done in 4h
      Tue 22:00:00       4h  await-control-plane  Failed: 62% done, waiting on etcd
      not reached: await-pools
      left paused: night
  Tue 2026-12-15 22:00 (Europe/Zurich) / 2026-12-15 21:00 UTC  to 4.18.5  Skipped: Upgrade job skipped by a window
  Tue 2026-12-22 22:00 (Europe/Zurich) / 2026-12-22 21:00 UTC  no UpgradeJob: UpgradeSuspensionWindow w (holidays)

UpgradeJobs without an UpgradeConfig
  Sun 2026-12-20 12:00 UTC  no update  Pending when the rehearsal ended: waits

5 runs: 1 succeeded, 1 failed, 2 skipped, 1 not over at the end
The longest took 4h, that of Tue 2026-12-08 21:00 UTC.
The cluster was never on the move outside of a window (from startAfter until upgradeTimeout is over).

Warnings
  - f.yaml:3: careful
";
    assert_eq!(text, expected);
}

#[test]
fn colours_are_only_added() {
    let recording = eventful();
    let colours = Style {
        colours: Colours::On,
        ..STYLE
    };
    let (plain, coloured) = (told(&recording, &[], STYLE), told(&recording, &[], colours));
    assert!(!plain.contains('\u{1b}'));
    assert!(
        coloured.contains("\u{1b}[31mFailed\u{1b}[0m after 4h"),
        "{coloured}"
    );
    let codes = regex::Regex::new("\u{1b}\\[[0-9]+m").unwrap();
    assert_eq!(codes.replace_all(&coloured, ""), plain);
}

/// So many hourly runs of one config, each with its own status.
fn hourly(runs: i64, status: impl Fn(i64) -> serde_json::Value) -> Recording {
    let mut recording = recording();
    let config = config(
        "c",
        &json!({"schedule": {"cron": "0 * * * *", "location": "UTC"}}),
    );
    recording.end = at(FROM) + runs.hours();
    recording.see_config(&config, at(FROM));
    for n in 1..=runs {
        let run = (at(FROM) + n.hours()).to_string();
        recording.see_job(&job(&config, &run, status(n)), at(FROM));
    }
    recording
}

fn lines(recording: &Recording, detail: Detail) -> Vec<String> {
    let style = Style { detail, ..STYLE };
    told(recording, &[], style)
        .lines()
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn only_the_first_upgrade_is_told_step_by_step() {
    let recording = hourly(10, |_| succeeded(FROM, FROM));
    let steps = |detail| {
        let lines = lines(&recording, detail);
        lines
            .iter()
            .filter(|line| line.contains("pre-health-check"))
            .count()
    };
    assert_eq!((steps(Detail::Eventful), steps(Detail::All)), (1, 10));
}

#[test]
fn a_long_row_of_the_same_is_cut_unless_all_is_asked_for() {
    let recording = hourly(24 * 365, |_| succeeded(FROM, FROM));
    let short = lines(&recording, Detail::Eventful);
    assert!(short.len() < 40, "{} lines", short.len());
    let cut = "  … 8740 more succeeded, the last of Wed 2027-12-01 00:00 UTC; --verbose shows all";
    assert!(short.iter().any(|line| line == cut), "{short:#?}");
    assert!(lines(&recording, Detail::All).len() > 3 * 8760);
}

#[test]
fn what_happens_in_the_middle_of_a_row_is_shown() {
    let recording = hourly(200, |n| {
        if n == 100 {
            failed(FROM, FROM, "HookFailed", "hook x failed")
        } else {
            succeeded(FROM, FROM)
        }
    });
    let lines = lines(&recording, Detail::Eventful);
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with("HookFailed: hook x failed"))
    );
    let cut: Vec<_> = lines.iter().filter(|line| line.contains("… ")).collect();
    assert_eq!(cut.len(), 2);
    assert!(cut[0].starts_with("  … 79 more succeeded") && cut[1].starts_with("  … 80 more succeeded"));
}

#[test]
fn the_first_failure_of_each_reason_is_told_step_by_step() {
    let recording = hourly(30, |n| {
        let reason = ["HookFailed", "TimedOut"][usize::from(n % 3 == 0)];
        failed(FROM, FROM, reason, &format!("failure {n}"))
    });
    let lines = lines(&recording, Detail::Eventful);
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("Failed after"), count("not reached")), (30, 2));
}

#[test]
fn steps_of_hooks_that_say_nothing_are_left_out() {
    let step = |name: &str, kind: &str, phase: &str| {
        let started = ["Succeeded", "Failed"].contains(&phase).then_some(FROM);
        json!({"name": name, "kind": kind, "phase": phase, "startedAt": started})
    };
    let mut status = failed(FROM, FROM, "HookFailed", "m");
    status["steps"] = json!([
        step("hook-start-x", "Hook", "Succeeded"),
        step("hooks-start", "HooksJoin", "Succeeded"),
        step("hook-upgrade-complete-x", "Hook", "Failed"),
        step("hooks-upgrade-complete", "HooksJoin", "Failed"),
        step("hook-success-x", "Hook", "Pending"),
        step("hooks-success", "HooksJoin", "Pending"),
        step("final-health-check", "FinalHealthCheck", "Pending"),
    ]);
    let recording = hourly(1, |_| status.clone());
    let names = |detail| {
        let lines = lines(&recording, detail);
        let steps = lines
            .iter()
            .filter(|line| line.starts_with("      "))
            .map(|line| line.trim());
        steps
            .map(|line| line.trim_start_matches("Tue 00:00:00").trim().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(Detail::Eventful),
        [
            "…  hook-start-x",
            "…  hook-upgrade-complete-x  Failed:",
            "…  hooks-upgrade-complete   Failed:",
            "not reached: final-health-check",
            "left paused: night",
        ]
    );
    assert!(
        names(Detail::All)
            .iter()
            .any(|line| line.contains("hook-success-x"))
    );
}

#[test]
fn kinds_that_have_nothing_to_do_with_it_are_counted() {
    let mut recording = recording();
    for kind in ["Deployment", "Application", "Deployment"] {
        recording.left_out(kind);
    }
    let text = told(&recording, &[], STYLE);
    assert!(
        text.ends_with("nothing to do with upgrades: 1 Application, 2 Deployment.\n"),
        "{text}"
    );
}

#[test]
fn long_messages_are_cut() {
    let recording = hourly(1, |_| failed(FROM, FROM, "HookFailed", &"ä ".repeat(1000)));
    assert!(
        lines(&recording, Detail::All)
            .iter()
            .all(|line| line.chars().count() < 400)
    );
}

#[test]
fn a_rehearsal_without_runs_says_so() {
    let mut recording = recording();
    recording.see_config(
        &config("c", &json!({"schedule": {"cron": "30 2 31 2 *"}})),
        at(FROM),
    );
    let text = told(&recording, &[], STYLE);
    assert!(text.contains("Europe/Zurich\n  no runs\n"), "{text}");
    assert!(
        text.ends_with("0 runs: 0 succeeded, 0 failed, 0 skipped\n"),
        "{text}"
    );
}
