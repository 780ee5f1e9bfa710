//! Objects of every kind with fields that nobody would write: valid ones, mutated by a seeded generator, so that the same
//! seed makes the same objects.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::harness::{
    NAMESPACE,
    objects::{hook, in_seconds, now},
};

/// A kind of ours, as it is addressed.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub plural: &'static str,
    /// Whether the operator says in the condition `Valid` what it thinks of each object. NodeForceDrain is only known to
    /// the API server so far.
    pub is_marked: bool,
    base: fn(&str) -> Value,
}

impl Kind {
    /// A valid object with every field set.
    pub fn valid(self, name: &str) -> Value {
        (self.base)(name)
    }
}

/// All kinds.
pub const KINDS: [Kind; 6] = [
    Kind {
        name: "UpgradeConfig",
        plural: "upgradeconfigs",
        is_marked: true,
        base: config,
    },
    Kind {
        name: "UpgradeJob",
        plural: "upgradejobs",
        is_marked: true,
        base: job,
    },
    Kind {
        name: "UpgradeJobHook",
        plural: "upgradejobhooks",
        is_marked: true,
        base: full_hook,
    },
    Kind {
        name: "UpgradeSuspensionWindow",
        plural: "upgradesuspensionwindows",
        is_marked: true,
        base: window,
    },
    Kind {
        name: "ClusterVersion",
        plural: "clusterversions",
        is_marked: true,
        base: cluster_version,
    },
    Kind {
        name: "NodeForceDrain",
        plural: "nodeforcedrains",
        is_marked: false,
        base: node_force_drain,
    },
];

/// Numbers that look random and are the same every time (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n).unwrap()).unwrap()
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// The `n`th object: of which kind, and as it is sent.
pub fn object(numbers: &mut Numbers, n: usize) -> (Kind, Value) {
    // Two thirds are of the kinds that are acted upon most.
    let kind = KINDS[if n.is_multiple_of(3) {
        n / 3 % KINDS.len()
    } else {
        n % 3 - 1 + n / 3 % 2
    }];
    let name = match numbers.below(25) {
        0 => format!("{n}.{}", "x".repeat(253 - n.to_string().len() - 1)),
        1 => format!("fuzz_{n}"),
        2 => format!("füzz-{n}"),
        3 => n.to_string(),
        _ => format!("fuzz-{n}"),
    };
    let base = (kind.base)(&name);
    let mut object = base.clone();
    for _ in 0..*numbers.one_of(&[1, 1, 1, 2, 4]) {
        mutate(numbers, &mut object);
    }
    tame(kind, &mut object, &base, &format!("fuzz-{n}"));
    (kind, object)
}

// --- what is mutated: every field is set ------------------------------------------------------------------------------

fn of_kind(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"fuzz": "true"}, "annotations": {"note": "x"}},
    });
    object["spec"] = spec;
    object
}

fn selector() -> Value {
    json!({
        "matchLabels": {"fuzz": "true"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["prod", "dev"]}, {"key": "a", "operator": "Exists"}],
    })
}

fn job_config() -> Value {
    let checks = json!({
        "timeout": "30m", "checkDegradedOperators": true, "checkCriticalAlerts": true, "checkMachineConfigPools": true,
        "excludeAlerts": [{"alertname": "A"}], "excludeNamespaces": ["x"], "excludeOperators": ["insights"],
        "customQueries": [{"query": "up == 0", "severity": "Warn"}], "severity": {"operators": "Warn", "nodes": "Block"},
    });
    json!({
        "upgradeTimeout": "12h", "preUpgradeHealthChecks": checks, "postUpgradeHealthChecks": checks,
        "machineConfigPools": [
            {"matchLabels": {"name": "x"}, "delayUpgrade": {"delayMin": "1h", "delayMax": "3h"}},
            {"matchLabels": selector(), "delayUpgrade": {"startAfter": "1h", "startBefore": "3h"}},
        ],
        "pauseMachineConfigPoolsOnFailure": {"enabled": true, "selector": selector()},
        "workflow": {"engine": "argo", "template": {"name": "t"}, "serviceAccountName": "s", "ttl": "24h"},
    })
}

/// Runs once in a year or so, never during a test, and is pinned at once.
fn config(name: &str) -> Value {
    of_kind(
        "UpgradeConfig",
        name,
        json!({
            "schedule": {"cron": far_cron(), "isoWeek": "", "location": "Europe/Zurich", "suspend": false},
            "pinVersionWindow": "10000h", "maxUpgradeStartDelay": "1h", "maxSchedulingDelay": "10000h",
            "successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 2,
            "jobTemplate": {
                "metadata": {"labels": {"fuzz": "true", "tier": "prod"}, "annotations": {"note": "x"}},
                "spec": {"config": job_config()},
            },
        }),
    )
}

fn far_cron() -> String {
    let month = in_seconds(180 * 24 * 3_600)
        .to_zoned(jiff::tz::TimeZone::UTC)
        .month();
    format!("0 3 1 {month} *")
}

fn job(name: &str) -> Value {
    of_kind(
        "UpgradeJob",
        name,
        json!({
            "startAfter": in_seconds(90_000), "startBefore": in_seconds(99_000),
            "desiredVersion": {"version": "4.18.5", "image": "quay.io/x@sha256:1", "force": false, "architecture": ""},
            "desiredVersionCheckAvailability": true, "allowDowngrade": false, "config": job_config(),
        }),
    )
}

fn full_hook(name: &str) -> Value {
    let mut full = hook(name, &["Start", "Finish"]);
    full["metadata"]["labels"] = json!({"fuzz": "true"});
    for (key, value) in [
        ("run", json!("All")),
        ("failurePolicy", json!("Ignore")),
        ("disruptive", json!(true)),
        ("selector", selector()),
    ] {
        full["spec"][key] = value;
    }
    full["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": "b"}]);
    full
}

fn window(name: &str) -> Value {
    of_kind(
        "UpgradeSuspensionWindow",
        name,
        json!({
            "start": "2040-12-24T00:00:00Z", "end": "2041-01-04T00:00:00Z", "reason": "holidays",
            "configSelector": selector(), "jobSelector": selector(),
        }),
    )
}

fn cluster_version(name: &str) -> Value {
    of_kind(
        "ClusterVersion",
        name,
        json!({
            "template": {"spec": {"channel": "stable-4.18", "clusterID": "x"}},
            "overlays": [{"from": "2040-01-01T00:00:00Z", "overlay": {"spec": {"channel": "stable-4.19"}}}],
        }),
    )
}

fn node_force_drain(name: &str) -> Value {
    of_kind(
        "NodeForceDrain",
        name,
        json!({
            "nodeSelector": selector(), "namespaceSelector": selector(), "podJQSelector": ".metadata.name == \"x\"",
            "nodeDrainGracePeriod": "1h", "podForceDeleteGracePeriod": "1h",
        }),
    )
}

// --- mutations --------------------------------------------------------------------------------------------------------

/// Changes one field, wherever it is.
fn mutate(numbers: &mut Numbers, object: &mut Value) {
    let mut paths = Vec::new();
    collect(object, String::new(), &mut paths);
    // Most of it below spec; names, kinds and namespaces say where an object goes and are no fields of it.
    paths.retain(|p| {
        p.starts_with("/spec") || p.starts_with("/metadata/labels") || p.starts_with("/metadata/annotations")
    });
    if paths.is_empty() {
        return;
    }
    let path = numbers.one_of(&paths).clone();
    let field = path.rsplit('/').next().unwrap_or_default().to_owned();
    let Some(value) = object.pointer_mut(&path) else {
        return;
    };
    match numbers.below(20) {
        0 | 1 => {
            let (above, key) = path.rsplit_once('/').unwrap();
            if let Some(Value::Object(fields)) = object.pointer_mut(above) {
                fields.remove(key);
            }
        }
        2..=4 => add_to(numbers, value),
        5..=16 => *value = suited(numbers, &field, value),
        _ => *value = anything(numbers),
    }
}

fn collect(value: &Value, path: String, all: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect(below, format!("{path}/{key}"), all);
            }
        }
        Value::Array(items) => {
            for (n, below) in items.iter().enumerate() {
                collect(below, format!("{path}/{n}"), all);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    all.push(path);
}

/// More of what is there: unknown fields, long lists.
fn add_to(numbers: &mut Numbers, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let key = numbers.one_of(&KEYS).to_owned().to_owned();
            let more = anything(numbers);
            fields.insert(key, more);
        }
        Value::Array(items) => {
            let more = items.first().cloned().unwrap_or_else(|| anything(numbers));
            let count = *numbers.one_of(&[1, 2, 40, 300]);
            items.extend(std::iter::repeat_n(more, count));
        }
        other => *other = anything(numbers),
    }
}

const KEYS: [&str; 8] = [
    "surplus",
    "",
    "a/b/c",
    "schlüssel",
    "x.example.com/Key",
    "UPPER/case",
    "force",
    "key with blanks",
];

const DURATIONS: [&str; 14] = [
    "-1h",
    "0",
    "0s",
    "1ns",
    "500ms",
    "+1h",
    "1.5h",
    ".5h",
    "99999999h",
    "9223372036854775807ns",
    "9999999999999999999h",
    "1d",
    "h",
    "1h 30m",
];
const CRONS: [&str; 16] = [
    "* * * *",
    "0 22 * * 7",
    "30 2 31 2 *",
    "0 0 29 2 1",
    "@every 1h",
    "@yearly",
    "TZ=Mars/Base 0 3 * * *",
    "CRON_TZ=Asia/Tokyo 0 3 * * *",
    "*/0 * * * *",
    "99999999999999999999 * * * *",
    "1-5-9 * * * *",
    "0 0 L * *",
    "MON * * * *",
    "0 0 1 1 *\n",
    "٣ * * * *",
    "0 0 ? * ?/3",
];
const TIMES: [&str; 13] = [
    "2040-01-01T00:00:00.12345678901Z",
    "2040-02-30T00:00:00Z",
    "2040-01-01",
    "2040-01-01T24:00:00Z",
    "2040-01-01T00:00:60Z",
    "2040-12-31T23:59:60Z",
    "2040-01-01t00:00:00z",
    "2040-01-01T00:00:00.123456789Z",
    "2040-01-01T00:00:00+23:59",
    "2040-01-01T00:00:00-00:00",
    "9999-12-31T23:59:59Z",
    "10000-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
];
const ZONES: [&str; 9] = [
    "+02:00",
    "UTC+2",
    "Europe/Zürich",
    "../etc/passwd",
    "Local",
    "Etc/Unknown",
    "europe/zurich",
    "Pacific/Apia",
    "EST5EDT",
];
const WEEKS: [&str; 8] = ["@odd", "@ODD", "53", "54", "07", "007", "1,3", "-1"];
const VERSIONS: [&str; 8] = [
    "latest",
    "4.18",
    "v4.18.5",
    "4.18.5+build",
    "99999999999999999999.0.0",
    "4.18.5\n",
    "4.18.5-",
    "",
];

/// A value of the right type that is hardly ever right.
fn suited(numbers: &mut Numbers, field: &str, old: &Value) -> Value {
    let text = |numbers: &mut Numbers, all: &[&str]| json!(numbers.one_of(all));
    match field {
        "cron" => text(numbers, &CRONS),
        "location" => text(numbers, &ZONES),
        "isoWeek" => text(numbers, &WEEKS),
        "version" => text(numbers, &VERSIONS),
        "start" | "end" | "from" => text(numbers, &TIMES),
        // Both are also names of delays.
        "startAfter" | "startBefore" if old.as_str().is_some_and(|t| t.contains('T')) => {
            text(numbers, &TIMES)
        }
        _ if old.as_str().is_some_and(|t| t.ends_with(['h', 'm'])) => text(numbers, &DURATIONS),
        "labels" | "annotations" | "matchLabels" => {
            let mut map = Map::new();
            map.insert((*numbers.one_of(&KEYS)).to_owned(), anything_textual(numbers));
            Value::Object(map)
        }
        "matchExpressions" => {
            let operator = *numbers.one_of(&["In", "NotIn", "Exists", "in", "Gt", ""]);
            let count = *numbers.one_of(&[0, 1, 3, 400]);
            let values: Vec<String> = (0..count).map(|n| format!("v{n}")).collect();
            let one = json!({"key": "tier", "operator": operator, "values": values});
            Value::Array(vec![one; *numbers.one_of(&[1, 2, 50])])
        }
        "engine" => text(numbers, &["tekton", "Argo", "embedded", ""]),
        "query" => text(numbers, &["", "up{", "((((((((", "{{ .Values.x }}"]),
        _ => match old {
            Value::Number(_) => numbers
                .one_of(&[
                    json!(0),
                    json!(-1),
                    json!(i32::MAX),
                    json!(i32::MIN),
                    json!(i64::MAX),
                    json!(1e300),
                ])
                .clone(),
            Value::Bool(b) => json!(!b),
            Value::String(_) => anything_textual(numbers),
            Value::Null | Value::Array(_) | Value::Object(_) => anything(numbers),
        },
    }
}

fn anything_textual(numbers: &mut Numbers) -> Value {
    match numbers.below(12) {
        0 => json!(""),
        1 => json!(" "),
        2 => json!("x".repeat(64)),
        3 => json!("y".repeat(70_000)),
        4 => json!("日本語-名前"),
        5 => json!("a\u{0}b"),
        6 => json!("\u{202e}txet\u{1f4a5}"),
        7 => json!("{{workflow.name}} ${HOME} $(JOB) {{#if x}}"),
        8 => json!("a\nb: c\n---\n- d"),
        9 => json!("-leading.and-trailing-"),
        10 => json!("null"),
        _ => json!("\"quoted\" \\ 'text'"),
    }
}

fn anything(numbers: &mut Numbers) -> Value {
    match numbers.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(u64::MAX),
        5 => json!(1.5),
        6 => json!([]),
        7 => json!({}),
        8 => json!([null, {}, "x"]),
        9 => (0..60).fold(json!("deep"), |below, _| json!({"a": below})),
        _ => anything_textual(numbers),
    }
}

// --- limits -----------------------------------------------------------------------------------------------------------

/// Keeps an object out of the way of the good ones: none starts during the test, and no hook or window selects the good
/// ones, which an empty selector rightly would.
fn tame(kind: Kind, object: &mut Value, base: &Value, unique: &str) {
    let selects_itself = |selector: &mut Value| {
        if selector.is_null() {
            *selector = json!({});
        }
        let Some(labels) = selector
            .as_object_mut()
            .map(|s| s.entry("matchLabels").or_insert(json!({})))
        else {
            return;
        };
        if labels.is_null() {
            *labels = json!({});
        }
        if let Some(labels) = labels.as_object_mut() {
            labels.insert("fuzz".to_owned(), json!(unique));
        }
    };
    let Some(spec) = object["spec"].as_object_mut() else {
        return;
    };
    match kind.name {
        "UpgradeJob" => {
            let early = now() + SignedDuration::from_hours(1);
            for field in ["startAfter", "startBefore"] {
                let time = spec
                    .get(field)
                    .and_then(Value::as_str)
                    .map(str::parse::<Timestamp>);
                if time.is_some_and(|t| t.is_ok_and(|t| t < early)) {
                    spec.insert(field.to_owned(), base["spec"][field].clone());
                }
            }
        }
        "UpgradeConfig" => {
            if let Some(schedule) = spec.get_mut("schedule").and_then(Value::as_object_mut)
                && schedule.get("cron") != base.pointer("/spec/schedule/cron")
            {
                schedule.insert("suspend".to_owned(), json!(true));
            }
        }
        "UpgradeJobHook" => selects_itself(spec.entry("selector").or_insert(json!({}))),
        "UpgradeSuspensionWindow" => {
            for field in ["configSelector", "jobSelector"] {
                spec.get_mut(field).map(selects_itself);
            }
        }
        _ => {}
    }
}
