//! Tables of stored objects and what is said about them.

use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::api::UpgradeJobHook;

/// An object of our group with this spec, in flow YAML.
fn object<T: DeserializeOwned>(kind: &str, spec: &str) -> T {
    let header =
        format!("apiVersion: managedupgrade.appuio.io/v1beta1\nkind: {kind}\nmetadata: {{name: a}}\n");
    serde_yaml::from_str(&format!("{header}spec: {spec}")).unwrap()
}

fn job(rest: &str) -> UpgradeJob {
    let times = r#"startAfter: "2026-01-01T22:00:00Z", startBefore: "2026-01-01T23:00:00Z""#;
    object("UpgradeJob", &format!("{{{times}, {rest}}}"))
}

fn config(rest: &str) -> UpgradeConfig {
    object(
        "UpgradeConfig",
        &format!("{{schedule: {{cron: '@weekly'}}, {rest}}}"),
    )
}

fn pool(name: &str, labels: &Value) -> MachineConfigPool {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": name, "labels": labels},
        "spec": {}
    }))
    .unwrap()
}

fn pools() -> Vec<MachineConfigPool> {
    vec![
        pool("master", &json!({"role": "master", "tier": "a"})),
        pool(
            "infra",
            &json!({"role": "infra", "operator.machineconfiguration.openshift.io/required-for-upgrade": ""}),
        ),
        pool("worker", &json!({"role": "worker", "tier": "a"})),
    ]
}

/// Asserts that exactly one problem was found, at this field, with this in its message.
#[track_caller]
fn only(problems: &[Problem], field: &str, message: &str) {
    let [problem] = problems else {
        panic!("one problem is expected, found {problems:?}");
    };
    assert_eq!(problem.field, field);
    assert!(problem.message.contains(message), "{problem}");
}

#[rstest]
#[case("")]
#[case("desiredVersion: {version: 4.18.5}")]
#[case("desiredVersion: {image: 'quay.io/a@sha256:0', version: ''}")]
#[case("desiredVersion: {version: 4.18.0-rc.1, force: false, architecture: ''}")]
#[case(
    "config: {upgradeTimeout: 2h, machineConfigPools: [{matchLabels: {role: worker}, delayUpgrade: {delayMin: 119m, delayMax: 119m}}]}"
)]
#[case("config: {machineConfigPools: [{matchLabels: {}, delayUpgrade: {delayMin: 1h}}]}")]
#[case("config: {machineConfigPools: [{matchLabels: {tier: a}, delayUpgrade: {delayMin: 1h}}]}")]
#[case("config: {machineConfigPools: [{matchLabels: {role: none}, delayUpgrade: {delayMin: 1h}}]}")]
// Nothing is held: no delay, or no maximum.
#[case("config: {machineConfigPools: [{matchLabels: {role: master}}]}")]
#[case("config: {machineConfigPools: [{matchLabels: {role: master}, delayUpgrade: {delayMin: 0s}}]}")]
#[case(
    "config: {machineConfigPools: [{matchLabels: {role: worker}, delayUpgrade: {delayMin: 3h, delayMax: 0s}}]}"
)]
#[case("config: {preUpgradeHealthChecks: {checkDegradedOperators: true, skipDegradedOperatorsCheck: false}}")]
fn a_job_is_valid(#[case] rest: &str) {
    assert_eq!(upgrade_job(&job(rest), &pools()), []);
}

#[rstest]
#[case("desiredVersion: {}", "spec.desiredVersion", "neither version nor image")]
#[case(
    "desiredVersion: {version: '', image: ''}",
    "spec.desiredVersion",
    "neither version nor image"
)]
#[case(
    "desiredVersion: {version: '4.18'}",
    "spec.desiredVersion.version",
    "\"4.18\" is not a version"
)]
#[case(
    "desiredVersion: {version: v4.18.5}",
    "spec.desiredVersion.version",
    "write for example 4.18.5"
)]
#[case(
    "desiredVersion: {version: 4.18.5, force: true}",
    "spec.desiredVersion.force",
    "signature"
)]
#[case(
    "desiredVersion: {version: 4.18.5, architecture: Multi}",
    "spec.desiredVersion.architecture",
    "Multi"
)]
#[case(
    "config: {upgradeTimeout: 1d}",
    "spec.config.upgradeTimeout",
    "\"1d\" is not a duration: unknown unit"
)]
#[case("config: {upgradeTimeout: -1h}", "spec.config.upgradeTimeout", "negative")]
#[case(
    "config: {upgradeTimeout: 0s}",
    "spec.config.upgradeTimeout",
    "with 0s every job would fail"
)]
#[case(
    "config: {preUpgradeHealthChecks: {timeout: x}}",
    "spec.config.preUpgradeHealthChecks.timeout",
    "\"x\""
)]
#[case(
    "config: {postUpgradeHealthChecks: {timeout: x}}",
    "spec.config.postUpgradeHealthChecks.timeout",
    "\"x\""
)]
#[case("config: {workflow: {ttl: x}}", "spec.config.workflow.ttl", "\"x\"")]
#[case(
    "config: {workflow: {template: {name: 'a/b'}}}",
    "spec.config.workflow.template.name",
    "\"a/b\" is not the name of anything"
)]
#[case(
    "config: {workflow: {serviceAccountName: 'A'}}",
    "spec.config.workflow.serviceAccountName",
    "is not the name"
)]
#[case(
    "config: {preUpgradeHealthChecks: {checkDegradedOperators: true, skipDegradedOperatorsCheck: true}}",
    "spec.config.preUpgradeHealthChecks.skipDegradedOperatorsCheck",
    "contradicts checkDegradedOperators: true"
)]
#[case(
    "config: {preUpgradeHealthChecks: {excludeAlerts: [{alertname: x}, {}]}}",
    "spec.config.preUpgradeHealthChecks.excludeAlerts",
    "excludes every alert"
)]
#[case(
    "config: {pauseMachineConfigPoolsOnFailure: {selector: {matchExpressions: [{key: a, operator: Is}]}}}",
    "spec.config.pauseMachineConfigPoolsOnFailure.selector",
    "unknown operator"
)]
#[case(
    "config: {machineConfigPools: [{}, {matchLabels: {a: true}}]}",
    "spec.config.machineConfigPools[1].matchLabels",
    "neither a label map nor"
)]
#[case(
    "config: {machineConfigPools: [{matchLabels: {role: master}, delayUpgrade: {delayMin: 1h}}]}",
    "spec.config.machineConfigPools[0].matchLabels",
    "only master, which an upgrade of the control plane cannot do without"
)]
#[case(
    "config: {machineConfigPools: [{matchLabels: {matchLabels: {role: infra}}, delayUpgrade: {startAfter: 1h}}]}",
    "spec.config.machineConfigPools[0].matchLabels",
    "only infra"
)]
#[case(
    "config: {machineConfigPools: [{matchLabels: {}, delayUpgrade: {delayMin: 3h, delayMax: 2h59m}}]}",
    "spec.config.machineConfigPools[0].delayUpgrade.delayMin",
    "3h is longer than the maximum, 2h59m"
)]
#[case(
    "config: {machineConfigPools: [{matchLabels: {}, delayUpgrade: {startAfter: 3h, startBefore: 2h}}]}",
    "spec.config.machineConfigPools[0].delayUpgrade.startAfter",
    "3h is longer than the maximum, 2h"
)]
#[case(
    "config: {machineConfigPools: [{matchLabels: {}, delayUpgrade: {delayMin: 12h}}]}",
    "spec.config.machineConfigPools[0].delayUpgrade.delayMin",
    "12h is not shorter than upgradeTimeout, 12h"
)]
#[case(
    "config: {machineConfigPools: [{matchLabels: {}, delayUpgrade: {delayMin: 1h, startAfter: 2h}}]}",
    "spec.config.machineConfigPools[0].delayUpgrade.startAfter",
    "older spelling of delayMin"
)]
#[case(
    "config: {machineConfigPools: [{matchLabels: {}, delayUpgrade: {delayMin: 1h, delayMax: 2h, startBefore: 2h}}]}",
    "spec.config.machineConfigPools[0].delayUpgrade.startBefore",
    "older spelling of delayMax"
)]
#[case(
    "config: {machineConfigPools: [{matchLabels: {}, delayUpgrade: {delayMin: 1h, delayMax: late}}]}",
    "spec.config.machineConfigPools[0].delayUpgrade.delayMax",
    "\"late\""
)]
fn a_job_is_not_valid(#[case] rest: &str, #[case] field: &str, #[case] message: &str) {
    only(&upgrade_job(&job(rest), &pools()), field, message);
}

#[rstest]
#[case("2026-01-01T22:00:00Z")]
#[case("2026-01-01T21:59:59Z")]
fn a_job_must_start_before_it_expires(#[case] before: &str) {
    let job = object(
        "UpgradeJob",
        &format!("{{startAfter: '2026-01-01T22:00:00Z', startBefore: '{before}'}}"),
    );
    only(
        &upgrade_job(&job, &[]),
        "spec.startBefore",
        "is not later than spec.startAfter",
    );
}

#[test]
fn nothing_is_said_about_pools_that_are_not_known() {
    let job =
        job("config: {machineConfigPools: [{matchLabels: {role: master}, delayUpgrade: {delayMin: 1h}}]}");
    assert_eq!(upgrade_job(&job, &[]), []);
}

#[test]
fn all_problems_are_said_at_once() {
    let job = job("desiredVersion: {version: x, force: true}, config: {upgradeTimeout: y}");
    let problems = upgrade_job(&job, &[]);
    assert_eq!(problems.len(), 3);
    let summary = summary(&problems);
    for expected in [
        "spec.desiredVersion.version: \"x\"",
        "; spec.desiredVersion.force: ",
        "; spec.config.upgradeTimeout: ",
    ] {
        assert!(summary.contains(expected), "{summary}");
    }
}

#[rstest]
#[case("jobTemplate: {spec: {}}", None, None)]
#[case(
    "pinVersionWindow: 0s, maxSchedulingDelay: 0s, jobTemplate: {spec: {}}",
    None,
    None
)]
#[case("jobTemplate: {spec: {}}", Some("cron: 7 is no day"), Some(("spec.schedule", "cron: 7 is no day")))]
#[case("pinVersionWindow: x, jobTemplate: {spec: {}}", None, Some(("spec.pinVersionWindow", "\"x\"")))]
#[case("maxSchedulingDelay: x, jobTemplate: {spec: {}}", None, Some(("spec.maxSchedulingDelay", "\"x\"")))]
#[case("maxUpgradeStartDelay: x, jobTemplate: {spec: {}}", None, Some(("spec.maxUpgradeStartDelay", "\"x\"")))]
#[case("maxUpgradeStartDelay: 0h, jobTemplate: {spec: {}}", None, Some(("spec.maxUpgradeStartDelay", "with 0h a job could never start")))]
#[case("jobTemplate: {spec: {config: {upgradeTimeout: x}}}", None, Some(("spec.jobTemplate.spec.config.upgradeTimeout", "\"x\"")))]
#[case(
    "jobTemplate: {metadata: {labels: {example.com/team: a.b_c-d, e: ''}}, spec: {}}",
    None,
    None
)]
#[case("jobTemplate: {metadata: {labels: {team: -a}}, spec: {}}", None, Some(("spec.jobTemplate.metadata.labels", "\"-a\" cannot be the value of label team")))]
#[case("jobTemplate: {metadata: {labels: {team: a b}}, spec: {}}", None, Some(("spec.jobTemplate.metadata.labels", "\"a b\"")))]
#[case("jobTemplate: {metadata: {labels: {a/b/c: x}}, spec: {}}", None, Some(("spec.jobTemplate.metadata.labels", "\"a/b/c\" cannot be the name")))]
#[case("jobTemplate: {metadata: {labels: {a/: x}}, spec: {}}", None, Some(("spec.jobTemplate.metadata.labels", "\"a/\" cannot be the name")))]
#[case::window_of_nothing("maxUpgradeStartDelay: 500ms, jobTemplate: {spec: {}}", None, Some(("spec.maxUpgradeStartDelay", "with 500ms a job could never start")))]
#[case("jobTemplate: {metadata: {labels: {x.Example.com/team: a}}, spec: {}}", None, Some(("spec.jobTemplate.metadata.labels", "\"x.Example.com/team\" cannot be the name of a label")))]
#[case("jobTemplate: {metadata: {labels: {-x.com/team: a}}, spec: {}}", None, Some(("spec.jobTemplate.metadata.labels", "\"-x.com/team\"")))]
#[case("jobTemplate: {metadata: {annotations: {schlüssel: a}}, spec: {}}", None, Some(("spec.jobTemplate.metadata.annotations", "\"schlüssel\" cannot be the name of an annotation")))]
#[case("jobTemplate: {metadata: {annotations: {a b: x}}, spec: {}}", None, Some(("spec.jobTemplate.metadata.annotations", "\"a b\"")))]
#[case(
    "jobTemplate: {metadata: {annotations: {X.Example.com/Team: 'any ⚡ text'}}, spec: {}}",
    None,
    None
)]
fn a_config_is_judged(
    #[case] rest: &str,
    #[case] schedule_problem: Option<&str>,
    #[case] expected: Option<(&str, &str)>,
) {
    let problems = upgrade_config(&config(rest), &pools(), schedule_problem.map(str::to_owned));
    match expected {
        None => assert_eq!(problems, []),
        Some((field, message)) => only(&problems, field, message),
    }
}

#[test]
fn a_label_value_has_at_most_63_characters() {
    let with = |length: usize| {
        let value = "x".repeat(length);
        let config = config(&format!(
            "jobTemplate: {{metadata: {{labels: {{team: {value}}}}}, spec: {{}}}}"
        ));
        upgrade_config(&config, &[], None).len()
    };
    assert_eq!((with(63), with(64)), (0, 1));
}

#[test]
fn annotations_have_a_limit_in_all() {
    let with = |length: usize| {
        let value = "x".repeat(length);
        let config = config(&format!(
            "jobTemplate: {{metadata: {{annotations: {{note: {value}}}}}, spec: {{}}}}"
        ));
        upgrade_config(&config, &[], None).len()
    };
    assert_eq!((with(256 * 1024 - 4), with(256 * 1024 - 3)), (0, 1));
}

const CONTAINER: &str = "restartPolicy: Never, containers: [{name: a, image: b}]";

fn hook(rest: &str) -> UpgradeJobHook {
    object("UpgradeJobHook", &format!("{{{rest}}}"))
}

fn job_hook(pod: &str) -> UpgradeJobHook {
    hook(&format!(
        "events: [Start], template: {{spec: {{template: {{spec: {{{pod}}}}}}}}}"
    ))
}

#[rstest]
#[case::operator_sets_never(job_hook("containers: [{name: a, image: b}]"))]
#[case(job_hook(CONTAINER))]
#[case(hook("events: [Start], templateRef: {name: x}"))]
#[case(hook("events: [Start], taskRef: {name: x}"))]
#[case(hook(
    "events: [Start], taskRef: {name: x, namespace: y, serviceAccountName: z, timeout: 30m, retries: 2, arguments: [{name: a, value: b}]}"
))]
fn a_hook_is_valid(#[case] hook: UpgradeJobHook) {
    assert_eq!(upgrade_job_hook(&hook), []);
}

#[rstest]
#[case(hook("templateRef: {name: x}"), "spec.events", "the hook never runs")]
#[case(hook("events: [Start]"), "spec", "there is nothing to run")]
#[case(
    hook("events: [Start], taskRef: {name: x}, templateRef: {name: x}"),
    "spec",
    "exclude each other"
)]
#[case(
    hook("events: [Start], taskRef: {name: ''}"),
    "spec.taskRef.name",
    "it is empty"
)]
#[case(
    hook("events: [Start], templateRef: {name: ''}"),
    "spec.templateRef.name",
    "it is empty"
)]
#[case(
    hook("events: [Start], template: {}"),
    "spec.template.spec.template.spec.containers",
    "there is no container"
)]
#[case(
    job_hook("containers: []"),
    "spec.template.spec.template.spec.containers",
    "there is no container"
)]
#[case(
    job_hook("restartPolicy: Always, containers: [{name: a, image: b}]"),
    "spec.template.spec.template.spec.restartPolicy",
    "a Job cannot have Always"
)]
#[case(
    job_hook("restartPolicy: Never, containers: [{name: a, image: b}, {name: c}]"),
    "spec.template.spec.template.spec.containers[1].image",
    "container \"c\" has no image"
)]
#[case(
    hook("events: [Start], taskRef: {name: x}, selector: {matchExpressions: [{key: a, operator: In}]}"),
    "spec.selector",
    "list at least one value"
)]
#[case(
    hook("events: [Start], taskRef: {name: x, namespace: 'Ops'}"),
    "spec.taskRef.namespace",
    "\"Ops\" is not the name of anything"
)]
#[case(
    hook("events: [Start], taskRef: {name: x, serviceAccountName: ''}"),
    "spec.taskRef.serviceAccountName",
    "leave it out"
)]
#[case(
    hook("events: [Start], taskRef: {name: x, timeout: soon}"),
    "spec.taskRef.timeout",
    "is not a duration"
)]
#[case(
    hook("events: [Start], taskRef: {name: x, timeout: 0s}"),
    "spec.taskRef.timeout",
    "could never end in time"
)]
#[case(
    hook("events: [Start], taskRef: {name: x, arguments: [{name: a, value: b}, {name: a, value: c}]}"),
    "spec.taskRef.arguments[1].name",
    "a has a value already"
)]
#[case(
    hook("events: [Start], templateRef: {name: x, arguments: [{name: '', value: b}]}"),
    "spec.templateRef.arguments[0].name",
    "it is empty"
)]
fn a_hook_is_not_valid(#[case] hook: UpgradeJobHook, #[case] field: &str, #[case] message: &str) {
    only(&upgrade_job_hook(&hook), field, message);
}

#[rstest]
#[case("end: '2026-01-03T00:00:00Z'", None)]
#[case("end: '2026-01-02T00:00:00Z'", Some(("spec.end", "is not later than spec.start")))]
#[case("end: '2026-01-01T00:00:00Z'", Some(("spec.end", "is not later than spec.start")))]
#[case(
    "end: '2026-01-03T00:00:00Z', configSelector: {matchExpressions: [{key: a, operator: x}]}",
    Some(("spec.configSelector", "unknown operator"))
)]
#[case(
    "end: '2026-01-03T00:00:00Z', jobSelector: {matchExpressions: [{key: a, operator: x}]}",
    Some(("spec.jobSelector", "unknown operator"))
)]
fn a_window_is_judged(#[case] rest: &str, #[case] expected: Option<(&str, &str)>) {
    let window = object(
        "UpgradeSuspensionWindow",
        &format!("{{start: '2026-01-02T00:00:00Z', {rest}}}"),
    );
    let problems = upgrade_suspension_window(&window);
    match expected {
        None => assert_eq!(problems, []),
        Some((field, message)) => only(&problems, field, message),
    }
}

#[test]
fn only_the_cluster_version_named_version_is_served() {
    let mut version: ClusterVersion = object("ClusterVersion", "{template: {spec: {channel: stable-4.18}}}");
    only(&cluster_version(&version), "metadata.name", "\"a\" is not served");
    version.metadata.name = Some("version".to_owned());
    assert_eq!(cluster_version(&version), []);
}

#[rstest]
#[case::nothing("{}")]
#[case::misspelt(
    "{template: {}, overlays: [{from: '2026-01-01T00:00:00Z', overlay: {spec: {channel: stable-4.19}}}]}"
)]
#[case::only_what_is_ignored("{template: {spec: {desiredUpdate: {version: 4.18.5}, channel: null}}}")]
fn an_empty_template_is_a_mistake(#[case] spec: &str) {
    let mut version: ClusterVersion = object("ClusterVersion", spec);
    version.metadata.name = Some("version".to_owned());
    only(&cluster_version(&version), "spec.template.spec", "it is empty");
}

#[test]
fn two_overlays_cannot_begin_at_one_instant() {
    let spec = "{template: {spec: {channel: stable-4.18}}, overlays: [{from: '2026-01-01T00:00:00Z', overlay: {}}, {from: '2026-01-02T00:00:00Z', overlay: {}},
                            {from: '2026-01-01T01:00:00+01:00', overlay: {}}]}";
    let mut version: ClusterVersion = object("ClusterVersion", spec);
    version.metadata.name = Some("version".to_owned());
    only(
        &cluster_version(&version),
        "spec.overlays[2].from",
        "only one can apply",
    );
}

#[rstest]
#[case("nodeDrainGracePeriod: 15m, podForceDeleteGracePeriod: 0s", None, None)]
#[case("nodeDrainGracePeriod: x, podForceDeleteGracePeriod: 0s", None, Some(("spec.nodeDrainGracePeriod", "\"x\"")))]
#[case("nodeDrainGracePeriod: 15m, podForceDeleteGracePeriod: x", None, Some(("spec.podForceDeleteGracePeriod", "\"x\"")))]
#[case("nodeDrainGracePeriod: 15m, podForceDeleteGracePeriod: 0s", Some("no jq"), Some(("spec.podJQSelector", "no jq")))]
fn a_node_force_drain_is_judged(
    #[case] rest: &str,
    #[case] jq_problem: Option<&str>,
    #[case] expected: Option<(&str, &str)>,
) {
    let drain = object("NodeForceDrain", &format!("{{nodeSelector: {{}}, {rest}}}"));
    let problems = node_force_drain(&drain, jq_problem.map(str::to_owned));
    match expected {
        None => assert_eq!(problems, []),
        Some((field, message)) => only(&problems, field, message),
    }
}
