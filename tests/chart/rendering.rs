//! What the real helm makes of the chart.

use std::process::{Command, Output, Stdio};

use clap::Parser;
use openshift_upgrade_operator::cli::run;
use rstest::rstest;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{CHART, path, text};

const BASE: &str = "deploy/kustomize/operator.yaml";

fn documents(yaml: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(yaml)
        .map(|d| Value::deserialize(d).unwrap())
        .filter(|d| !d.is_null())
        .collect()
}

/// What the chart renders by default, as it is kept in the repository.
pub fn base() -> Vec<Value> {
    documents(&text(BASE))
}

/// Runs helm in the repository.
pub fn helm(arguments: &[&str]) -> Output {
    Command::new("helm")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .expect("helm, which comes with the test cluster: tests/cluster/build helm")
}

fn template_of(chart: &str, set: &[&str]) -> Result<Vec<Value>, String> {
    let mut arguments = vec!["template", "upgrade-operator", chart, "--namespace", "ns"];
    arguments.extend(set.iter().flat_map(|s| ["--set-json", s]));
    let output = helm(&arguments);
    let said = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        Ok(documents(&said(output.stdout)))
    } else {
        Err(said(output.stderr))
    }
}

/// The objects that the chart makes with these values.
pub fn template(set: &[&str]) -> Vec<Value> {
    template_of(CHART, set).unwrap()
}

fn the<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut all = objects.iter().filter(|o| o["kind"] == kind);
    let one = all.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(all.next().is_none(), "more than one {kind}");
    one
}

fn names(objects: &[Value]) -> Vec<String> {
    let name = |o: &Value| {
        format!(
            "{} {}",
            o["kind"].as_str().unwrap(),
            o["metadata"]["name"].as_str().unwrap()
        )
    };
    let mut names: Vec<String> = objects.iter().map(name).collect();
    names.sort();
    names
}

fn rules(objects: &[Value]) -> Vec<&Value> {
    let of_roles = objects.iter().filter(|o| o["rules"].is_array());
    of_roles.flat_map(|o| o["rules"].as_array().unwrap()).collect()
}

/// Whether some role allows this.
fn may(objects: &[Value], verb: &str, group: &str, resource: &str) -> bool {
    let has = |list: &Value, what: &str| list.as_array().unwrap().iter().any(|v| v == what);
    rules(objects)
        .iter()
        .any(|r| has(&r["verbs"], verb) && has(&r["apiGroups"], group) && has(&r["resources"], resource))
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    _args: run::Args,
    #[arg(long)]
    _log_format: Option<String>,
    #[arg(long)]
    _log_level: Option<String>,
}

/// The arguments of the operator, which it takes.
fn arguments(objects: &[Value]) -> Vec<String> {
    let container = &the(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    if let Err(error) = Cli::try_parse_from(&arguments) {
        panic!("the operator does not take {arguments:?}: {error}");
    }
    arguments
}

#[test]
fn nothing_may_be_done_by_wildcard() {
    let objects = base();
    assert!(rules(&objects).len() > 20);
    for rule in rules(&objects) {
        assert!(!rule.to_string().contains('*'), "{rule}");
    }
    arguments(&objects);
}

#[test]
fn the_deployment_is_restricted_probed_and_placed() {
    let objects = base();
    let pod = &the(&objects, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(
        container["securityContext"],
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    assert!(container["resources"]["limits"]["memory"].is_string());
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(
        the(&objects, "Deployment")["spec"]["strategy"]["type"],
        "Recreate"
    );
}

#[test]
#[ignore = "needs helm: tests/run"]
fn the_kustomize_base_is_what_the_chart_renders() {
    let output = Command::new(path("deploy/kustomize/render")).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        String::from_utf8(output.stdout).unwrap() == text(BASE),
        "{BASE} is out of date: deploy/kustomize/render >{BASE}"
    );
}

#[test]
#[ignore = "needs helm and kubectl: tests/run"]
fn kubectl_reads_the_kustomize_base() {
    let folder = path("deploy/kustomize");
    let output = Command::new("kubectl")
        .arg("kustomize")
        .arg(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let based = documents(&String::from_utf8(output.stdout).unwrap());
    // The hook that runs before a release is removed.
    let mut rendered = template(&["removal.enabled=false"]);
    rendered.push(json!({"kind": "Namespace", "metadata": {"name": "openshift-upgrade"}}));
    assert_eq!(names(&based), names(&rendered));
}

#[test]
#[ignore = "needs helm: tests/run"]
fn the_crds_are_those_of_the_operator_and_helm_keeps_them() {
    let objects = template(&[]);
    let kept: Vec<&Value> = objects
        .iter()
        .filter(|o| o["kind"] == "CustomResourceDefinition")
        .collect();
    let files = openshift_upgrade_operator::cli::crds::files().unwrap();
    assert_eq!(kept.len(), files.len());
    for (file, crd) in files.iter().zip(kept) {
        let mut ours: Value = serde_yaml::from_str(&file.yaml).unwrap();
        ours["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
        assert!(&ours == crd, "{}", file.name);
    }
    let without = template(&["crds.install=false"]);
    assert!(without.iter().all(|o| o["kind"] != "CustomResourceDefinition"));
}

#[test]
#[ignore = "needs helm: tests/run"]
fn the_alerts_are_those_of_the_repository() {
    let ours: Value = serde_yaml::from_str(&text("deploy/alerts/upgrade-operator.yaml")).unwrap();
    assert_eq!(the(&template(&[]), "PrometheusRule")["spec"], ours["spec"]);
}

#[rstest]
#[case::with_a_slash("https://git.example.com/platform/upgrades/blob/main/")]
#[case::without("https://git.example.com/platform/upgrades/blob/main")]
#[ignore = "needs helm: tests/run"]
fn links_to_runbooks_can_be_opened_where_it_is_said_where_they_are(#[case] base: &str) {
    let objects = template(&[&format!("metrics.prometheusRule.runbookBaseUrl={}", json!(base))]);
    let mut ours: Value = serde_yaml::from_str(&text("deploy/alerts/upgrade-operator.yaml")).unwrap();
    let rules = ours["spec"]["groups"][0]["rules"].as_array_mut().unwrap();
    assert!(rules.len() > 10);
    for rule in rules {
        let url = &mut rule["annotations"]["runbook_url"];
        let page = url.as_str().unwrap();
        *url = json!(format!(
            "https://git.example.com/platform/upgrades/blob/main/{page}"
        ));
    }
    assert_eq!(the(&objects, "PrometheusRule")["spec"], ours["spec"]);
}

#[test]
#[ignore = "needs helm: tests/run"]
fn of_two_replicas_one_waits_on_another_node() {
    let objects = template(&["replicas=2"]);
    let spec = &the(&objects, "Deployment")["spec"];
    assert_eq!(spec["strategy"]["type"], "RollingUpdate");
    // A default would belong to nobody, and could not be taken back for `Recreate`.
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxSurge"], 1);
    let spread = &spec["template"]["spec"]["topologySpreadConstraints"][0];
    assert_eq!(spread["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(
        spread["labelSelector"]["matchLabels"],
        spec["selector"]["matchLabels"]
    );
    assert!(arguments(&objects).contains(&"--leader-election=true".to_owned()));
}

#[test]
#[ignore = "needs helm: tests/run"]
fn openshifts_own_prometheus_may_find_the_pods_if_it_is_to() {
    let of_monitoring = |objects: &[Value]| -> Vec<Value> {
        let is_it = |o: &&Value| o["subjects"][0]["name"] == "prometheus-k8s" && o["kind"] == "RoleBinding";
        objects.iter().filter(is_it).cloned().collect()
    };
    assert!(of_monitoring(&template(&[])).is_empty());
    let objects = template(&["metrics.platformMonitoring=true"]);
    let bindings = of_monitoring(&objects);
    assert_eq!(bindings.len(), 1);
    let name = &bindings[0]["roleRef"]["name"];
    let role = objects
        .iter()
        .find(|o| o["kind"] == "Role" && o["metadata"]["name"] == *name);
    let first = &role.expect("its role")["rules"][0];
    assert_eq!(first["resources"], json!(["endpoints", "pods", "services"]));
    assert_eq!(first["verbs"], json!(["get", "list", "watch"]));
}

#[test]
#[ignore = "needs helm: tests/run"]
fn everything_can_be_off() {
    let objects = template(&[
        "crds.install=false",
        "serviceAccount.create=false",
        "workflowServiceAccount.create=false",
        "rbac.create=false",
        "metrics.service.enabled=false",
        "metrics.serviceMonitor.enabled=false",
        "metrics.prometheusRule.enabled=false",
        "removal.enabled=false",
        r#"operator.prometheusUrl="""#,
        r#"operator.workflowServiceAccount="""#,
        "tolerations=[]",
        "nodeAffinity=null",
        r#"priorityClassName="""#,
    ]);
    assert_eq!(names(&objects), ["Deployment upgrade-operator"]);
    let arguments = arguments(&objects);
    assert!(
        !arguments.iter().any(|a| a.contains("prometheus")),
        "{arguments:?}"
    );
    let pod = &the(&objects, "Deployment")["spec"]["template"]["spec"];
    for absent in [
        "affinity",
        "tolerations",
        "priorityClassName",
        "volumes",
        "topologySpreadConstraints",
    ] {
        assert!(pod[absent].is_null(), "{absent}");
    }
}

#[test]
#[ignore = "needs helm: tests/run"]
fn before_it_is_removed_it_gives_back_what_it_holds() {
    let objects = template(&[r#"operator.namespace="served""#]);
    let job = the(&objects, "Job");
    let annotations = &job["metadata"]["annotations"];
    assert_eq!(annotations["helm.sh/hook"], "pre-delete");
    // One that succeeds names the pools that it leaves paused.
    assert_eq!(
        annotations["helm.sh/hook-output-log-policy"],
        "hook-succeeded,hook-failed"
    );
    let of_job = &job["spec"]["template"]["spec"];
    let of_operator = &the(&objects, "Deployment")["spec"]["template"]["spec"];
    for same in [
        "serviceAccountName",
        "securityContext",
        "tolerations",
        "priorityClassName",
    ] {
        assert_eq!(of_job[same], of_operator[same], "{same}");
    }
    let (container, operator) = (&of_job["containers"][0], &of_operator["containers"][0]);
    assert_eq!(container["securityContext"], operator["securityContext"]);
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    assert_eq!(arguments, ["release", "--all", "--namespace=served"]);
    // The Deployment must not take the pod for one of its own.
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let selector = &the(&objects, "Deployment")["spec"]["selector"]["matchLabels"];
    assert_ne!(
        labels["app.kubernetes.io/name"],
        selector["app.kubernetes.io/name"]
    );
}

#[test]
#[ignore = "needs helm: tests/run"]
fn every_flag_reaches_the_operator() {
    let values = json!({
        "namespace": "served", "kubeconfig": "/k/config", "leaderElection": false, "identity": "me", "defaultLocation": "Europe/Zurich",
        "tzdataDir": "/usr/share/zoneinfo", "engine": "tekton", "workflowServiceAccount": "flow",
        "workflowUrlTemplate": "https://a.example.com/{namespace}/{name}", "engineHandoverAfter": "0", "liveMessageInterval": "1m",
        "defaultHookDeadline": "1h30m", "retrievalGrace": "1.5h", "preconditionGrace": "5m", "drainReportAfter": "90s",
        "prometheusUrl": "https://p.example.com", "prometheusCaFile": "/ca", "prometheusTokenFile": "/t", "prometheusTimeout": "5s",
        "listen": "[::]:9090", "logFormat": "text", "logLevel": "info,kube=debug",
    });
    let known: Value = serde_yaml::from_str(&text(&format!("{CHART}/values.yaml"))).unwrap();
    assert_eq!(
        known["operator"].as_object().unwrap().len(),
        values.as_object().unwrap().len(),
        "one is not tested"
    );
    let objects = template(&[&format!("operator={values}"), "removal.enabled=false"]);
    let arguments = arguments(&objects);
    for (name, value) in values.as_object().unwrap() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let ends = format!("={value}");
        assert!(
            arguments
                .iter()
                .any(|a| a.starts_with("--") && a.ends_with(&ends)),
            "{name}: {arguments:?}"
        );
    }
    let pod = &the(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["ports"][0]["containerPort"], 9090);
    assert_eq!(the(&objects, "Service")["spec"]["ports"][0]["port"], 9090);
    // What is served decides where the rights are.
    let roles = objects
        .iter()
        .filter(|o| o["kind"] == "Role" || o["kind"] == "RoleBinding");
    assert!(roles.clone().count() == 4 && roles.clone().all(|o| o["metadata"]["namespace"] == "served"));
    let flow = objects.iter().find(|o| o["metadata"]["name"] == "flow").unwrap();
    assert_eq!(flow["metadata"]["namespace"], "served");
}

#[rstest]
#[case("argo", &[("list", "argoproj.io", "workflows"), ("create", "argoproj.io", "workflowtaskresults"), ("get", "argoproj.io", "clusterworkflowtemplates")])]
#[case("tekton", &[("create", "tekton.dev", "pipelineruns"), ("patch", "tekton.dev", "customruns/status"), ("get", "", "pods")])]
#[case("nodeForceDrain", &[("delete", "", "pods"), ("get", "", "namespaces")])]
#[case("drainReports", &[("create", "", "pods/eviction"), ("list", "policy", "poddisruptionbudgets")])]
#[case("machines", &[("list", "machine.openshift.io", "machines")])]
#[ignore = "needs helm: tests/run"]
fn rights_for_what_is_not_used_can_be_taken_away(#[case] part: &str, #[case] rights: &[(&str, &str, &str)]) {
    let (with, without) = (template(&[]), template(&[&format!("rbac.{part}=false")]));
    for (verb, group, resource) in rights {
        assert!(may(&with, verb, group, resource), "{verb} {group}/{resource}");
        assert!(!may(&without, verb, group, resource), "{verb} {group}/{resource}");
    }
    // Which pods there are is a question of drains and of engines.
    assert!(may(&without, "list", "", "pods"));
    let drains = ["rbac.nodeForceDrain=false", "rbac.drainReports=false"];
    let none = template(&[&drains[..], &["rbac.argo=false", "rbac.tekton=false"]].concat());
    assert!(!may(&none, "list", "", "pods"));
    let one = template(&[&drains[..], &[&format!("rbac.{part}=false")]].concat());
    assert!(may(&one, "list", "", "pods"), "the other engine's");
}

#[rstest]
#[case::misspelt("replcas=1", "replcas")]
#[case::misspelt_flag(r#"operator.defaultLoction="UTC""#, "defaultLoction")]
#[case::misspelt_right("rbac.tecton=false", "tecton")]
#[case::nobody("replicas=0", "/replicas")]
#[case::three("replicas=3", "/replicas")]
#[case::text(r#"replicas="1""#, "/replicas")]
#[case::no_duration(r#"operator.retrievalGrace="5 minutes""#, "/operator/retrievalGrace")]
#[case::no_engine(r#"operator.engine="argocd""#, "/operator/engine")]
#[case::no_port(r#"operator.listen="0.0.0.0""#, "/operator/listen")]
#[case::no_link(
    r#"metrics.prometheusRule.runbookBaseUrl="git.example.com""#,
    "/metrics/prometheusRule/runbookBaseUrl"
)]
#[case::no_digest(r#"image.digest="abc""#, "/image/digest")]
#[ignore = "needs helm: tests/run"]
fn wrong_values_are_refused_by_name(#[case] set: &str, #[case] named: &str) {
    let error = template_of(CHART, &[set]).unwrap_err();
    assert!(error.contains(named), "{error}");
}

#[rstest]
#[case("operator.leaderElection=false")]
#[case(r#"operator.identity="me""#)]
#[ignore = "needs helm: tests/run"]
fn two_replicas_elect_one(#[case] set: &str) {
    let without_removal = "removal.enabled=false";
    template(&[set, without_removal]);
    let error = template_of(CHART, &["replicas=2", set, without_removal]).unwrap_err();
    assert!(error.contains("/operator/"), "{error}");
}

#[test]
#[ignore = "needs helm: tests/run"]
fn an_operator_without_election_cannot_be_told_to_stop_by_the_removal() {
    let error = template_of(CHART, &["operator.leaderElection=false"]).unwrap_err();
    for said in [
        "removal.enabled=false",
        "scale its Deployment to 0",
        "release --all",
    ] {
        assert!(error.contains(said), "{error}");
    }
}

#[test]
#[ignore = "needs helm: tests/run"]
fn a_packaged_chart_holds_all_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().to_str().unwrap();
    let output = helm(&["package", CHART, "--destination", to]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let file = std::fs::read_dir(folder.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(template_of(file.to_str().unwrap(), &[]).unwrap(), template(&[]));
}

#[test]
#[ignore = "needs helm: tests/run"]
fn a_copy_without_its_symbolic_links_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (link, other) in [
        ("crds", "metrics.prometheusRule.enabled=false"),
        ("alerts", "crds.install=false"),
    ] {
        let copy = folder.path().join(link);
        let copied = Command::new("cp")
            .arg("-RL")
            .arg(path(CHART))
            .arg(&copy)
            .status()
            .unwrap();
        assert!(copied.success());
        std::fs::remove_dir_all(copy.join("files").join(link)).unwrap();
        let error = template_of(copy.to_str().unwrap(), &[other]).unwrap_err();
        assert!(
            error.contains(&format!("files/{link} is not in this copy")),
            "{error}"
        );
    }
}

#[test]
#[ignore = "needs helm: tests/run"]
fn helm_has_nothing_against_the_chart() {
    let output = helm(&["lint", "--strict", CHART]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
