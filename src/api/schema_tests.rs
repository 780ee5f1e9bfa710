//! The shipped schemas against good and bad objects: structure, unknown fields and CEL rules, as the API server
//! checks them under strict validation.

use std::{collections::BTreeMap, sync::LazyLock};

use kube::core::cel::Validator;
use rstest::rstest;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    NodeForceDrain, UpgradeConfig, UpgradeJob, UpgradeJobHook, UpgradeSuspensionWindow,
    cluster_version::ClusterVersion, validation,
};
use crate::cli::crds;

const SEED: &str = include_str!("testdata/seed.yaml");
const PEER: &str = include_str!("testdata/peer.yaml");

pub(crate) fn documents(stream: &str) -> Vec<Value> {
    let read = |d| <Value as serde::Deserialize>::deserialize(d).unwrap();
    serde_yaml::Deserializer::from_str(stream).map(read).collect()
}

/// The schemas as shipped, by kind.
static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let files = crds::files().unwrap().into_iter();
    let schemas = files.map(|file| {
        let crd: Value = serde_yaml::from_str(&file.yaml).unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        (
            kind,
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone(),
        )
    });
    schemas.collect()
});

fn schema(kind: &str) -> &'static Value {
    SCHEMAS
        .get(kind)
        .unwrap_or_else(|| panic!("there is no CRD of kind {kind}"))
}

/// What the API server would say about `object`, replacing `old` if there is one.
pub(crate) fn refusals(object: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = schema(object["kind"].as_str().unwrap());
    let mut errors = Vec::new();
    for part in ["spec", "status"] {
        if let Some(value) = object.get(part) {
            structure(&schema["properties"][part], value, part, &mut errors);
        }
    }
    if let Err(rules) = Validator::new().validate(schema, object, old) {
        errors.extend(rules.iter().map(|e| format!("{}: {}", e.field_path, e.message)));
    }
    errors
}

/// Structural validation, with unknown fields as errors (they would be pruned).
fn structure(schema: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
    let mut refuse = |what: &str| errors.push(format!("{path}: {what}"));
    if value.is_null() {
        // A null that is not allowed is dropped before validation, except under server-side apply.
        return;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        if !(value.is_i64() || value.is_string()) {
            refuse("must be integer or string");
        }
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        refuse("unsupported value");
    }
    match (schema["type"].as_str(), value) {
        (Some("string"), Value::String(text)) => {
            let length = u64::try_from(text.chars().count()).unwrap();
            if schema["maxLength"].as_u64().is_some_and(|max| length > max) {
                refuse("too long");
            }
            if schema["minLength"].as_u64().is_some_and(|min| length < min) {
                refuse("too short");
            }
            if let Some(pattern) = schema["pattern"].as_str()
                && !regex::Regex::new(pattern).unwrap().is_match(text)
            {
                refuse("should match the pattern");
            }
            if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
                refuse("must be a time");
            }
        }
        (Some("boolean"), Value::Bool(_)) | (Some("number"), Value::Number(_)) => {}
        (Some("integer"), Value::Number(n)) if n.is_i64() => {}
        (Some("array"), Value::Array(items)) => {
            let max = schema["maxItems"].as_u64();
            if max.is_some_and(|max| u64::try_from(items.len()).unwrap() > max) {
                refuse("too many");
            }
            for (index, item) in items.iter().enumerate() {
                structure(&schema["items"], item, &format!("{path}[{index}]"), errors);
            }
        }
        (Some("object"), Value::Object(fields)) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                if !fields.contains_key(name.as_str().unwrap()) {
                    refuse(&format!("{name} is required"));
                }
            }
            for (name, below) in fields {
                let path = format!("{path}.{name}");
                if let Some(property) = schema["properties"].get(name) {
                    structure(property, below, &path, errors);
                } else if schema["additionalProperties"].is_object() {
                    structure(&schema["additionalProperties"], below, &path, errors);
                } else if schema["x-kubernetes-preserve-unknown-fields"] != true {
                    errors.push(format!("{path}: unknown field"));
                }
            }
        }
        (None, _) if schema["x-kubernetes-preserve-unknown-fields"] == true => {}
        (type_, _) => refuse(&format!("must be of type {type_:?}")),
    }
}

/// Problems that the operator finds in an object, having read and written it once.
pub(crate) fn problems(object: &Value) -> Vec<validation::Problem> {
    fn through<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(object: &Value) -> T {
        let read: T = serde_json::from_value(object.clone()).unwrap();
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(serde_json::from_value::<T>(written).unwrap(), read);
        read
    }
    match object["kind"].as_str().unwrap() {
        "UpgradeJob" => validation::upgrade_job(&through::<UpgradeJob>(object), &[]),
        "UpgradeConfig" => validation::upgrade_config(&through::<UpgradeConfig>(object), &[], None),
        "UpgradeJobHook" => validation::upgrade_job_hook(&through::<UpgradeJobHook>(object)),
        "UpgradeSuspensionWindow" => {
            validation::upgrade_suspension_window(&through::<UpgradeSuspensionWindow>(object))
        }
        "ClusterVersion" => validation::cluster_version(&through::<ClusterVersion>(object)),
        "NodeForceDrain" => validation::node_force_drain(&through::<NodeForceDrain>(object), None),
        kind => panic!("unknown kind {kind}"),
    }
}

#[rstest]
#[case::seed(SEED, 7)]
#[case::peer(PEER, 6)]
fn objects_of_the_seed_and_the_peer_apply_unchanged_and_are_valid(
    #[case] stream: &str,
    #[case] count: usize,
) {
    let documents = documents(stream);
    assert_eq!(documents.len(), count);
    for object in documents {
        assert_eq!(refusals(&object, None), Vec::<String>::new(), "{object}");
        assert_eq!(problems(&object), [], "{object}");
    }
}

/// An object of a kind with this spec, in flow YAML.
fn object(kind: &str, spec: &str) -> Value {
    let header =
        format!("apiVersion: managedupgrade.appuio.io/v1beta1\nkind: {kind}\nmetadata: {{name: a}}\n");
    serde_yaml::from_str(&format!("{header}spec: {spec}")).unwrap()
}

fn job(rest: &str) -> Value {
    let times = r#"startAfter: "2026-01-01T22:00:00Z", startBefore: "2026-01-01T23:00:00Z""#;
    object("UpgradeJob", &format!("{{{times}, {rest}}}"))
}

fn config(schedule: &str, rest: &str) -> Value {
    object(
        "UpgradeConfig",
        &format!("{{schedule: {{{schedule}}}, jobTemplate: {{spec: {{}}}}, {rest}}}"),
    )
}

#[rstest]
#[case(job(""))]
#[case(job("config: {upgradeTimeout: 1.5h}"))]
#[case(job("desiredVersion: {version: 4.18.5, force: true, architecture: Multi}"))]
#[case(job("config: {machineConfigPools: [{matchLabels: {}, delayUpgrade: {delayMin: 3h, delayMax: 2h}}]}"))]
#[case(job("config: {workflow: {engine: tekton, template: {name: mine}, serviceAccountName: x, ttl: 24h}}"))]
#[case(job(
    "config: {preUpgradeHealthChecks: {severity: {nodes: Block}, customQueries: [{query: up, severity: Warn}]}}"
))]
#[case(config("cron: '@weekly'", "failedJobsHistoryLimit: -1"))]
#[case(config(
    "cron: '0 22 * * 2', isoWeek: '53', location: America/Argentina/Buenos_Aires",
    ""
))]
#[case(config("cron: '0 22 * * 2', isoWeek: '07', location: Etc/GMT+2", ""))]
#[case(config("cron: '0 22 * * 2', isoWeek: '', location: ''", ""))]
#[case(object(
    "UpgradeJobHook",
    "{events: [Start], templateRef: {name: x, template: y, clusterScope: true, arguments: [{name: a, value: b}]}}"
))]
#[case(object(
    "UpgradeJobHook",
    "{events: [Start], taskRef: {name: x, namespace: y, serviceAccountName: z, timeout: 30m, retries: 2, arguments: [{name: a, value: b}]}}"
))]
fn the_api_server_accepts(#[case] object: Value) {
    assert_eq!(refusals(&object, None), Vec::<String>::new());
}

#[rstest]
#[case(
    job("config: {upgradeTimeout: 1d}"),
    "spec.config.upgradeTimeout: must be a duration such as 90s"
)]
#[case(
    job("config: {upgradeTimeout: -1h}"),
    "spec.config.upgradeTimeout: must be a duration such as 90s"
)]
#[case(
    job("config: {upgradeTimeout: ''}"),
    "spec.config.upgradeTimeout: should match the pattern"
)]
#[case(
    job("config: {upgradeTimeout: 3600}"),
    "spec.config.upgradeTimeout: must be of type"
)]
#[case(
    job("config: {machineConfigPools: [{delayUpgrade: {delayMin: soon}}]}"),
    "must be a duration"
)]
#[case(
    job("config: {machineConfigPools: [{delayUpgrade: {delayMin: 1h, startAfter: 1h}}]}"),
    "write delayMin only"
)]
#[case(
    job("config: {machineConfigPools: [{delayUpgrade: {delayMax: 1h, startBefore: 1h}}]}"),
    "write delayMax only"
)]
#[case(
    job("config: {machineConfigPools: [{matchLabels: name}]}"),
    "matchLabels: must be of type"
)]
#[case(
    job("config: {workflow: {engine: jenkins}}"),
    "spec.config.workflow.engine: unsupported value"
)]
#[case(job("timeout: 1h"), "spec.timeout: unknown field")]
#[case(
    object(
        "UpgradeJob",
        "{startAfter: '2026-01-01T22:00:00Z', startBefore: '2026-01-01T21:00:00Z'}"
    ),
    "startBefore must be later than startAfter"
)]
#[case(
    // The same instant in two zones.
    object("UpgradeJob", "{startAfter: '2026-01-01T22:00:00Z', startBefore: '2026-01-01T23:00:00+01:00'}"),
    "startBefore must be later than startAfter"
)]
#[case(
    object("UpgradeJob", "{startAfter: '2026-01-01T22:00:00Z'}"),
    "\"startBefore\" is required"
)]
#[case(
    object("UpgradeJob", "{startAfter: tomorrow, startBefore: '2026-01-01T22:00:00Z'}"),
    "must be a time"
)]
#[case(config("cron: ''", ""), "spec.schedule.cron: too short")]
#[case(
    config("cron: '@weekly', isoWeek: '@third'", ""),
    "isoWeek must be @odd, @even or"
)]
#[case(
    config("cron: '@weekly', isoWeek: '54'", ""),
    "isoWeek must be @odd, @even or"
)]
#[case(config("cron: '@weekly', isoWeek: '0'", ""), "isoWeek must be @odd, @even or")]
#[case(
    config("cron: '@weekly', isoWeek: 7", ""),
    "spec.schedule.isoWeek: must be of type"
)]
#[case(
    config("cron: '@weekly', location: '+02:00'", ""),
    "location must be an IANA time zone"
)]
#[case(
    config("cron: '@weekly', location: Europe/", ""),
    "location must be an IANA time zone"
)]
#[case(
    config("cron: '@weekly', location: Europe/Zürich", ""),
    "location must be an IANA time zone"
)]
#[case(
    config("cron: '@weekly'", "pinVersionWindow: 4"),
    "spec.pinVersionWindow: must be of type"
)]
#[case(
    config("cron: '@weekly'", "pinVersionWindow: 4 h"),
    "spec.pinVersionWindow: must be a duration"
)]
#[case(
    object("UpgradeJobHook", "{events: [Start]}"),
    "write exactly one of template"
)]
#[case(
    object(
        "UpgradeJobHook",
        "{events: [Start], taskRef: {name: x}, templateRef: {name: y}}"
    ),
    "write exactly one of template"
)]
#[case(
    object("UpgradeJobHook", "{events: [Begin], taskRef: {name: x}}"),
    "spec.events[0]: unsupported value"
)]
#[case(
    object("UpgradeJobHook", "{events: [Start], taskRef: {name: ''}}"),
    "spec.taskRef.name: too short"
)]
#[case(
    object("UpgradeJobHook", "{events: [Start], template: {metadata: {}}}"),
    "at least one container"
)]
#[case(
    object(
        "UpgradeJobHook",
        "{events: [Start], template: {spec: {template: {spec: {containers: []}}}}}"
    ),
    "at least one container"
)]
#[case(
    object(
        "UpgradeSuspensionWindow",
        "{start: '2026-01-02T00:00:00Z', end: '2026-01-02T00:00:00Z'}"
    ),
    "end must be later than start"
)]
#[case(
    object("NodeForceDrain", "{nodeSelector: {}, nodeDrainGracePeriod: 1h}"),
    "\"podForceDeleteGracePeriod\" is required"
)]
fn the_api_server_refuses(#[case] object: Value, #[case] expected: &str) {
    let refusals = refusals(&object, None);
    assert!(refusals.iter().any(|r| r.contains(expected)), "{refusals:?}");
}

const POOLS: &str =
    "config: {machineConfigPools: [{matchLabels: {name: x}, delayUpgrade: {delayMin: 1h}}, {}]}";

#[rstest]
#[case("", "config: {upgradeTimeout: 3h}", None)]
#[case(
    "config: {upgradeTimeout: 3h}",
    "config: {preUpgradeHealthChecks: {timeout: 2h, excludeOperators: [a]}}",
    None
)]
#[case("", "config: {machineConfigPools: []}", None)]
#[case(
    POOLS,
    "config: {machineConfigPools: [{matchLabels: {name: x}, delayUpgrade: {delayMax: 9h}}, {}]}",
    None
)]
#[case(
    POOLS,
    "config: {machineConfigPools: [{matchLabels: {name: y}}, {}]}",
    Some("matchLabels of config.machineConfigPools cannot")
)]
#[case(
    POOLS,
    "config: {machineConfigPools: [{matchLabels: {matchLabels: {name: x}}}, {}]}",
    Some("matchLabels of config")
)]
#[case(
    POOLS,
    "config: {machineConfigPools: [{}, {matchLabels: {name: x}}]}",
    Some("matchLabels of config")
)]
#[case(
    POOLS,
    "config: {machineConfigPools: [{matchLabels: {name: x}}]}",
    Some("matchLabels of config")
)]
#[case(POOLS, "config: {}", Some("matchLabels of config"))]
#[case("", POOLS, Some("matchLabels of config"))]
#[case(
    "config: {workflow: {engine: argo}}",
    "config: {workflow: {engine: argo, ttl: 1h}}",
    None
)]
#[case(
    "config: {workflow: {engine: argo}}",
    "config: {workflow: {engine: tekton}}",
    Some("config.workflow.engine cannot")
)]
#[case(
    "config: {workflow: {engine: argo}}",
    "",
    Some("config.workflow.engine cannot")
)]
#[case(
    "",
    "config: {workflow: {engine: argo}}",
    Some("config.workflow.engine cannot")
)]
#[case(
    "desiredVersion: {version: 4.18.5}",
    "desiredVersion: {version: 4.18.6}",
    Some("desiredVersion cannot")
)]
#[case("desiredVersion: {version: 4.18.5}", "", Some("desiredVersion cannot"))]
#[case("", "desiredVersion: {version: 4.18.5}", Some("desiredVersion cannot"))]
fn of_a_job_only_timeouts_delays_and_checks_may_be_edited(
    #[case] old: &str,
    #[case] new: &str,
    #[case] expected: Option<&str>,
) {
    let refusals = refusals(&job(new), Some(&job(old)));
    match expected {
        None => assert_eq!(refusals, Vec::<String>::new()),
        Some(expected) => assert!(refusals.iter().any(|r| r.contains(expected)), "{refusals:?}"),
    }
}

#[rstest]
#[case("startAfter", "2026-01-01T22:00:01Z", true)]
#[case("startBefore", "2026-01-01T23:00:01Z", true)]
#[case("startAfter", "2026-01-01T23:00:00+01:00", false)]
fn the_window_of_a_job_cannot_be_moved(#[case] field: &str, #[case] time: &str, #[case] refused: bool) {
    let old = job("");
    let mut new = old.clone();
    new["spec"][field] = Value::String(time.to_owned());
    let refusals = refusals(&new, Some(&old));
    assert_eq!(
        refusals
            .iter()
            .any(|r| r.contains(&format!("{field} cannot be changed"))),
        refused,
        "{refusals:?}"
    );
}

/// Every property below a schema: its path, and itself.
fn properties(schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        found.push((path.clone(), property.clone()));
        properties(property, &path, found);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(below) = schema.get(below) {
            properties(below, &format!("{path}[]"), found);
        }
    }
}

#[test]
fn every_field_of_ours_has_a_description() {
    for kind in SCHEMAS.keys() {
        let mut found = Vec::new();
        properties(schema(kind), "", &mut found);
        assert!(found.len() > 10, "{kind}");
        for (path, property) in found {
            let embedded = path.starts_with(".spec.template.spec.template.spec.");
            assert!(embedded || property["description"].is_string(), "{kind}{path}");
        }
    }
}

#[test]
fn defaults_in_the_schema_are_those_of_the_operator() {
    let mut found = Vec::new();
    for kind in ["UpgradeConfig", "UpgradeJob", "UpgradeJobHook"] {
        properties(&schema(kind)["properties"]["spec"], kind, &mut found);
    }
    let of = |path: &str| {
        let (_, property) = found.iter().find(|(p, _)| p == path).unwrap();
        property["default"].as_str().unwrap().to_owned()
    };
    let duration = |path: &str| super::GoDuration(of(path)).get().unwrap();

    let config: UpgradeConfig = serde_json::from_value(config("cron: '@weekly'", "")).unwrap();
    let template = &config.spec.job_template.spec.config;
    assert_eq!(
        duration("UpgradeConfig.maxUpgradeStartDelay"),
        config.spec.max_upgrade_start_delay()
    );
    assert_eq!(
        duration("UpgradeConfig.maxSchedulingDelay"),
        config.spec.max_scheduling_delay()
    );
    assert_eq!(
        duration("UpgradeJob.config.upgradeTimeout"),
        template.upgrade_timeout()
    );
    assert_eq!(
        duration("UpgradeJob.config.preUpgradeHealthChecks.timeout"),
        template.pre_upgrade_health_checks.timeout()
    );
    assert_eq!(config.spec.schedule.location(), None);
    assert_eq!(of("UpgradeConfig.schedule.location"), "Local");

    let hook: UpgradeJobHook = serde_json::from_value(object("UpgradeJobHook", "{}")).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    assert_eq!(
        of("UpgradeJobHook.run"),
        text(&serde_json::to_value(hook.spec.run()).unwrap())
    );
    assert_eq!(
        of("UpgradeJobHook.failurePolicy"),
        text(&serde_json::to_value(hook.spec.failure_policy()).unwrap())
    );
}
