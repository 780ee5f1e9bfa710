//! Jobs and the pods that they make: defaults, and what is refused.

use serde_json::{Map, Value, json};

use super::{refusal::FieldError, storage::metadata};

/// Fields of a Job's spec that cannot be changed. (The template can while a Job is suspended; we suspend none.)
const IMMUTABLE: [&str; 3] = ["completions", "selector", "template"];

fn defaults(map: &mut Map<String, Value>, defaults: &Value) {
    for (name, value) in defaults.as_object().into_iter().flatten() {
        map.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

/// As `SetDefaults_PodSpec` and `SetDefaults_Container` of Kubernetes' `pkg/apis/core/v1/defaults.go`, as far as we use pods.
pub fn fill_pod_spec(spec: &mut Value) {
    let Value::Object(map) = spec else { return };
    defaults(
        map,
        &json!({
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30,
        }),
    );
    for list in ["initContainers", "containers"] {
        let containers = map.get_mut(list).and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten().filter_map(Value::as_object_mut);
        containers.for_each(fill_container);
    }
}

fn fill_container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let is_moving = !image.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    let policy = if is_moving { "Always" } else { "IfNotPresent" };
    defaults(
        container,
        &json!({
            "imagePullPolicy": policy, "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        }),
    );
}

/// As `SetDefaults_Job` of Kubernetes' `pkg/apis/batch/v1/defaults.go`, and the selector that every Job gets.
pub fn fill_job(job: &mut Value) {
    let name = metadata(job, "name").and_then(Value::as_str).unwrap_or_default();
    let uid = metadata(job, "uid").and_then(Value::as_str).unwrap_or_default();
    let labels = json!({
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
        "controller-uid": uid, "job-name": name,
    });
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    // Until it has a UID there is nothing to select by.
    let is_new = uid.is_empty();
    let Some(Value::Object(spec)) = job.get_mut("spec") else {
        return;
    };
    defaults(
        spec,
        &json!({
            "backoffLimit": 6, "completionMode": "NonIndexed", "manualSelector": false,
            "podReplacementPolicy": "TerminatingOrFailed", "suspend": false,
        }),
    );
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".to_owned(), json!(1));
    }
    spec.entry("parallelism").or_insert(json!(1));
    if let Some(pod) = spec.get_mut("template").and_then(|t| t.get_mut("spec")) {
        fill_pod_spec(pod);
    }
    let is_manual = spec.get("manualSelector") == Some(&json!(true));
    if is_new || is_manual || spec.contains_key("selector") {
        return;
    }
    spec.insert("selector".to_owned(), selector);
    if let Some(Value::Object(template)) = spec.get_mut("template") {
        let meta = template.entry("metadata").or_insert_with(|| json!({}));
        if let Some(Value::Object(told)) = meta
            .as_object_mut()
            .map(|m| m.entry("labels").or_insert_with(|| json!({})))
        {
            defaults(told, &labels);
        }
    }
}

/// As `ValidateJobSpec` and `ValidateJobSpecUpdate` of Kubernetes' `pkg/apis/batch/validation`, as far as a hook can get it
/// wrong.
pub fn job_errors(job: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let at = |path: &str| job.pointer(path);
    let mut errors = Vec::new();
    for field in [
        "backoffLimit",
        "activeDeadlineSeconds",
        "completions",
        "parallelism",
        "ttlSecondsAfterFinished",
    ] {
        if let Some(number) = at(&format!("/spec/{field}")).filter(|n| n.as_i64() < Some(0)) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("spec.{field}"), number, why));
        }
    }
    let pod = at("/spec/template/spec");
    let containers = pod.and_then(|p| p.get("containers")).and_then(Value::as_array);
    let path = "spec.template.spec.containers";
    match containers.map(Vec::as_slice) {
        None | Some([]) => errors.push(FieldError::required(path, "")),
        Some(containers) => {
            for (index, container) in containers.iter().enumerate() {
                errors.extend(container_errors(container, &format!("{path}[{index}]")));
            }
        }
    }
    let policy = pod.and_then(|p| p.get("restartPolicy")).and_then(Value::as_str);
    if !matches!(policy, Some("Never" | "OnFailure")) {
        let why = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required("spec.template.spec.restartPolicy", why));
    }
    if let Some(old) = old {
        errors.extend(immutable(job, old));
    }
    errors
}

fn container_errors(container: &Value, path: &str) -> Vec<FieldError> {
    let is_empty = |field: &str| {
        let text = container.get(field).and_then(Value::as_str);
        text.is_none_or(str::is_empty)
    };
    let missing = ["name", "image"].into_iter().filter(|f| is_empty(f));
    missing
        .map(|f| FieldError::required(format!("{path}.{f}"), ""))
        .collect()
}

fn immutable(job: &Value, old: &Value) -> Vec<FieldError> {
    let spec = |object: &Value, field: &str| object.pointer(&format!("/spec/{field}")).cloned();
    let changed = IMMUTABLE.into_iter().filter(|f| spec(job, f) != spec(old, f));
    changed
        .map(|field| {
            let value = spec(job, field).unwrap_or_default();
            FieldError::invalid(format!("spec.{field}"), &value, "field is immutable")
        })
        .collect()
}
