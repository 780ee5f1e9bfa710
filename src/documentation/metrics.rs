//! docs/metrics.md: its table is what the code emits. `UPDATE_FILES=1 cargo test --lib documentation::metrics` writes it anew.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use crate::{
    api::{UpgradeJob, validity},
    controller::Stores,
    metrics::{Exposition, Family, Type},
    openshift::machine::{self, MachineView},
    plan::build,
    world::World,
};

const PREFIX: &str = "openshift_upgrade_controller_";
const NOW: &str = "2026-11-24T21:30:00Z";
const BEGIN: &str = "<!-- generated: UPDATE_FILES=1 cargo test --lib documentation::metrics -->\n";
const END: &str = "<!-- end of what is generated -->";

/// Names and labels of openshift-upgrade-controller's metrics (its `controllers/*_collector.go` and
/// `nodeforcedrain_controller.go`). Dashboards and alerts made for it go on working.
const PEER: [(&str, &str); 19] = [
    ("cluster_upgrading", ""),
    (
        "cluster_version_info",
        "baseline_capability_set channel cluster_id cluster_version upstream",
    ),
    (
        "cluster_version_overlay_timestamp_seconds",
        "baseline_capability_set channel cluster_id cluster_version from upstream",
    ),
    ("machine_config_pools_paused", "pool"),
    ("machine_config_pools_upgrading", "pool"),
    ("machine_info", "machine machineset node_ref phase provider_id"),
    ("node_draining", "node"),
    // Those of the peer have pod_name and pod_uid besides, of which there is no end.
    (
        "node_force_drain_pod_deletions_total",
        "namespace node node_force_drain",
    ),
    (
        "node_force_drain_pod_terminations_total",
        "namespace node node_force_drain",
    ),
    ("upgradeconfig_info", "cron location suspended upgradeconfig"),
    (
        "upgradeconfig_next_possible_schedule_timestamp_seconds",
        "n timestamp upgradeconfig",
    ),
    ("upgradeconfig_pin_version_window_seconds", "upgradeconfig"),
    ("upgradejob_start_after_timestamp_seconds", "upgradejob"),
    ("upgradejob_start_before_timestamp_seconds", "upgradejob"),
    (
        "upgradejob_state",
        "desired_version_force desired_version_image desired_version_version matches_disruptive_hooks reason \
         start_after start_before state upgradejob",
    ),
    (
        "upgradesuspensionwindow_end_timestamp_seconds",
        "upgradesuspensionwindow",
    ),
    ("upgradesuspensionwindow_info", "reason upgradesuspensionwindow"),
    (
        "upgradesuspensionwindow_matching_config",
        "config upgradesuspensionwindow",
    ),
    (
        "upgradesuspensionwindow_start_timestamp_seconds",
        "upgradesuspensionwindow",
    ),
];

/// A world in which everything that is told is there.
fn world() -> World {
    let t = "2026-11-24T21:00:00Z";
    let condition = |type_: &str, reason: &str| json!({"type": type_, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": t});
    let spec = json!({"startAfter": t, "startBefore": "2026-11-24T22:00:00Z", "desiredVersion": {"version": "4.18.5", "image": "i"}, "config": {}});
    let step = |name: &str, kind: &str, phase: &str, end: Json| json!({"name": name, "kind": kind, "phase": phase, "startedAt": t, "finishedAt": end});
    let blocker = json!({"node": "w-8", "namespace": "shop", "pod": "cart-7", "cause": "PodDisruptionBudget", "message": "m",
        "since": t, "drainingSince": t});
    let writers = json!([{"manager": "kubectl-patch", "time": t, "fieldsV1": {"f:spec": {"f:paused": {}}}}]);
    let pools: Vec<Json> = [("worker", "ns/failed"), ("night", "ns/failed"), ("canary", "ns/gone")]
        .map(|(name, job)| {
            json!({"metadata": {"name": name, "annotations": {"managedupgrade.appuio.io/upgrade-job": job}, "managedFields": writers},
                "spec": {"paused": name != "worker"}, "status": {"machineCount": 3, "updatedMachineCount": 1}})
        })
        .to_vec();
    let of = |value: Json| value;
    let mut world = World {
        pools: serde_json::from_value(of(json!(pools))).unwrap(),
        ..World::default()
    };
    let mut running: UpgradeJob = serde_json::from_value(json!({
        "metadata": {"name": "running", "namespace": "ns", "uid": "running"}, "spec": spec,
        "status": {
            "startedAt": t, "conditions": [condition("Started", "Started"), condition("Valid", "Valid")], "blockers": [blocker],
            "workflow": {"engine": "argo", "name": "running-run-1"},
            "steps": [step("pre-health-check", "PreHealthCheck", "Succeeded", json!(t)), step("await-pools", "AwaitPools", "Running", Json::Null),
                step("hooks-start", "HooksJoin", "Running", Json::Null)],
            "hookTracker": [{"hookEvent": "Start", "upgradeJobHook": "ask", "status": "active"}],
        },
    }))
    .unwrap();
    let plan = build::main_plan(&running, &[], &world.pools, 1);
    running.status.as_mut().unwrap().plan = Some(plan.to_value().unwrap());
    let owner = json!([{"apiVersion": "v1", "kind": "UpgradeConfig", "name": "weekly", "uid": "u", "controller": true}]);
    world.jobs = serde_json::from_value(json!([
        {"metadata": {"name": "pending", "namespace": "ns"}, "spec": spec},
        {"metadata": {"name": "failed", "namespace": "ns"}, "spec": spec,
            "status": {"finishedAt": t, "conditions": [condition("Failed", "TimedOut"), condition("PoolsLeftPaused", "Orphaned")]}},
        {"metadata": {"name": "good", "namespace": "ns", "ownerReferences": owner}, "spec": spec,
            "status": {"finishedAt": t, "conditions": [condition("Succeeded", "Succeeded")]}},
    ]))
    .unwrap();
    world.jobs.push(running);
    let label = |name: &str| format!("upgradejobs.managedupgrade.appuio.io/{name}");
    world.hook_jobs = serde_json::from_value(json!([{
        "metadata": {"name": "ask", "labels": {label("upgradejobhook"): "ask", label("upgradejobk"): "running", label("event"): "Start"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "UpgradeJob", "name": "running", "uid": "running"}]},
        "spec": {"activeDeadlineSeconds": 14_400, "template": {}}, "status": {"startTime": t},
    }]))
    .unwrap();
    world.configs = serde_json::from_value(json!([{
        "metadata": {"name": "weekly", "namespace": "ns", "uid": "u", "creationTimestamp": t},
        "spec": {"schedule": {"cron": "0 22 * * 2"}, "jobTemplate": {"spec": {}}},
        "status": {"nextPossibleSchedules": [{"time": t, "verdict": "WillRun"}], "conditions": [condition("RunMissed", "NotCreatedInTime")]},
    }]))
    .unwrap();
    world.windows = serde_json::from_value(json!([{
        "metadata": {"name": "holidays"}, "spec": {"start": t, "end": "2027-01-01T00:00:00Z"}, "status": {"matchingConfigs": [{"name": "weekly"}]},
    }]))
    .unwrap();
    world.cluster_version =
        serde_json::from_value(json!({"metadata": {"name": "version"}, "spec": {}})).unwrap();
    world.managed_versions = serde_json::from_value(json!([{
        "metadata": {"name": "version"}, "spec": {"template": {"spec": {}}},
        "status": {"current": {"clusterID": "c"}, "overlays": [{"from": t, "preview": {"spec": {"clusterID": "c"}}}]},
    }]))
    .unwrap();
    world.nodes = vec![crate::openshift::node::NodeView::default()];
    world
}

/// Everything that is emitted, in the order of a scrape; families without series that have some in [`world`] are taken from there.
fn emitted() -> Vec<Family> {
    let now: Timestamp = NOW.parse().unwrap();
    let world = world();
    let mut filled: BTreeMap<&str, Family> = BTreeMap::new();
    let mut sample = world.metrics(now);
    sample.extend(validity::metrics(&world, &[], now));
    sample.extend(machine::metrics(vec![MachineView::default()]));
    filled.extend(sample.into_iter().map(|family| (family.name, family)));
    let all = Stores::at_work().metrics(now);
    let fill = |family: Family| {
        let sample = filled.remove(family.name).filter(|_| family.series.is_empty());
        sample.unwrap_or(family)
    };
    let mut all: Vec<Family> = all.into_iter().map(fill).collect();
    all.sort_by_key(|family| family.name);
    all
}

fn labels(family: &Family) -> Vec<&'static str> {
    let first = family.series.first();
    let first = first.unwrap_or_else(|| panic!("no series of {} in the example", family.name));
    let mut labels: Vec<_> = first.labels.iter().map(|(name, _)| *name).collect();
    labels.sort_unstable();
    labels
}

/// The name as it is queried.
fn name(family: &Family) -> String {
    match family.type_ {
        Type::Counter => format!("{}_total", family.name),
        Type::Gauge | Type::Histogram => family.name.to_owned(),
    }
}

fn unit(name: &str) -> &'static str {
    if name.ends_with("_timestamp_seconds") {
        "seconds since 1970"
    } else if name.ends_with("_seconds") {
        "seconds"
    } else if name.ends_with("_total") {
        "how many"
    } else {
        ""
    }
}

/// What a metric is about, by its name; in this order on the page.
const SECTIONS: [(&str, &[&str]); 5] = [
    ("UpgradeJobs", &["upgradejob_", "engine_stalled"]),
    (
        "UpgradeConfigs, UpgradeSuspensionWindows and other objects",
        &["upgradeconfig_", "upgradesuspensionwindow_", "resource_"],
    ),
    ("The cluster", &["cluster_", "machine_"]),
    ("Drains", &["node_", "drain_"]),
    ("The operator", &OF_THE_PROCESS),
];

/// Metrics that are there without any object.
const OF_THE_PROCESS: [&str; 8] = [
    "api_",
    "build_",
    "clock_",
    "engine_up",
    "held",
    "leader",
    "ready",
    "tzdata_",
];

fn page(families: &[Family]) -> String {
    let mut page = String::new();
    let mut left: Vec<&Family> = families.iter().collect();
    for (title, prefixes) in SECTIONS {
        let is_here = |f: &&Family| {
            prefixes
                .iter()
                .any(|p| f.name.strip_prefix(PREFIX).unwrap().starts_with(p))
        };
        let (here, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(is_here);
        left = rest;
        write!(
            page,
            "\n## {title}\n\n| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n"
        )
        .unwrap();
        for family in here {
            let name = name(family);
            let type_ = format!("{:?}", family.type_).to_lowercase();
            let labels: Vec<String> = labels(family).iter().map(|l| format!("`{l}`")).collect();
            let labels = labels.join(", ");
            let short = name.strip_prefix(PREFIX).unwrap();
            let mark = if PEER.iter().any(|(peer, _)| *peer == short) {
                " (peer)"
            } else {
                ""
            };
            writeln!(
                page,
                "| `{name}`{mark} | {type_} | {labels} | {} | {} |",
                unit(&name),
                family.help
            )
            .unwrap();
        }
    }
    assert!(
        left.is_empty(),
        "in no section: {:?}",
        left.iter().map(|f| f.name).collect::<Vec<_>>()
    );
    page
}

#[test]
fn the_page_has_what_is_emitted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (there, tail) = rest.split_once(END).unwrap();
    let page = format!("{}\n", page(&emitted()));
    if std::env::var_os("UPDATE_FILES").is_some() {
        fs::write(&path, format!("{head}{BEGIN}{page}{END}{tail}")).unwrap();
    } else {
        assert_eq!(
            there, page,
            "docs/metrics.md is not up to date: run UPDATE_FILES=1 cargo test --lib documentation::metrics"
        );
    }
}

#[test]
fn names_and_labels_of_the_peer_are_there() {
    let families = emitted();
    for (short, expected) in PEER {
        let family = families
            .iter()
            .find(|f| name(f).strip_prefix(PREFIX) == Some(short));
        let family = family.unwrap_or_else(|| panic!("there is no {short}"));
        assert_eq!(labels(family).join(" "), expected, "{short}");
    }
}

/// Whatever there are many of, or new ones of all the time, is no label.
#[test]
fn labels_are_bounded() {
    for family in emitted() {
        let names: Vec<_> = family
            .series
            .iter()
            .map(|s| s.labels.iter().map(|(n, _)| *n).collect::<Vec<_>>())
            .collect();
        assert!(
            names.iter().all(|n| n == &names[0]),
            "{} has series of several kinds",
            family.name
        );
        for label in labels(&family) {
            assert!(
                !["pod", "pod_name", "pod_uid", "uid", "message", "instance", "job"].contains(&label),
                "{}",
                family.name
            );
        }
    }
}

/// A series goes with its object, and pods are nowhere: the cost of a scrape does not grow with them.
#[test]
fn without_objects_there_are_no_series_of_them() {
    let counters = "node_force_drain_";
    for family in Stores::at_work().metrics(NOW.parse().unwrap()) {
        let short = family.name.strip_prefix(PREFIX).unwrap();
        let is_of_the_process = OF_THE_PROCESS
            .iter()
            .chain([&counters])
            .any(|p| short.starts_with(p));
        assert_eq!(family.series.is_empty(), !is_of_the_process, "{short}");
    }
    let (now, mut world) = (NOW.parse().unwrap(), world());
    let count = |world: &World| world.metrics(now).iter().map(|f| f.series.len()).sum::<usize>();
    let before = count(&world);
    let status = world
        .jobs
        .iter_mut()
        .find_map(|job| job.status.as_mut().filter(|s| !s.blockers.is_empty()))
        .unwrap();
    let more = vec![status.blockers[0].clone(); 20];
    status.blockers.extend(more);
    assert_eq!(count(&world), before, "twenty pods more");
    world
        .jobs
        .retain(|job| job.metadata.name.as_deref() != Some("running"));
    assert!(count(&world) < before);
}

/// The text of a scrape in the older format that promtool reads: there a counter has its whole name in the first lines too.
fn text(families: Vec<Family>) -> String {
    let counters: Vec<&str> = families
        .iter()
        .filter(|f| f.type_ == Type::Counter)
        .map(|f| f.name)
        .collect();
    let mut text = Exposition::new(move || families.clone()).text().unwrap();
    for name in counters {
        for comment in ["HELP", "TYPE"] {
            text = text.replace(
                &format!("# {comment} {name} "),
                &format!("# {comment} {name}_total "),
            );
        }
    }
    text
}

#[test]
#[ignore = "needs promtool: tests/run"]
fn prometheus_understands_a_scrape_and_its_linter_finds_nothing() {
    let mut command = Command::new("promtool");
    command
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut promtool = command.spawn().expect("promtool, which comes with Prometheus");
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(text(emitted()).as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
}
