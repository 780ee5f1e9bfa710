//! The Job of a hook.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::{
    api::{
        batch::v1::{
            Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
        },
        core::v1::{EnvVar, PodSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, ResourceExt};

use super::environment::{self, Environment, Event};
use crate::api::{UpgradeJob, UpgradeJobHook, finalizers, labels, names, upgrade_job_hook::HookEvent};

/// Annotation on a hook's Job whose environment did not fit and was trimmed.
pub const ENVIRONMENT_TRIMMED: &str = "managedupgrade.appuio.io/environment-trimmed";

/// Most bytes that we add to a Job as environment, over all containers. etcd takes requests of 1.5 MiB; the template
/// and the Pod's own fields need room, too.
const MAX_ENVIRONMENT: usize = 1024 * 1024;

/// A hook that cannot become a Job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// It has no `template`.
    #[error("hook {hook} has no template of a Job: set spec.template")]
    NoTemplate {
        /// Name of the hook.
        hook: String,
    },
    /// Its template has no container.
    #[error("the template of hook {hook} has no containers: set spec.template.spec.template.spec.containers")]
    NoContainers {
        /// Name of the hook.
        hook: String,
    },
    /// Jobs do not take this restart policy.
    #[error("the template of hook {hook} has restartPolicy {policy}: a Job takes Never or OnFailure")]
    RestartPolicy {
        /// Name of the hook.
        hook: String,
        /// The policy as written.
        policy: String,
    },
    /// It has so many containers that their environment does not fit into one object.
    #[error(
        "the template of hook {hook} has {containers} containers, and their environment does not fit into one job: use fewer containers"
    )]
    TooLarge {
        /// Name of the hook.
        hook: String,
        /// Number of containers and init containers.
        containers: usize,
    },
    /// The UpgradeJob was not read from the API server.
    #[error(
        "cannot build the job of hook {hook}: the upgrade job {job} has no uid; read it from the cluster first"
    )]
    NoUid {
        /// Name of the hook.
        hook: String,
        /// Name of the UpgradeJob.
        job: String,
    },
}

/// The Job that runs `hook` at `event` for `job`.
///
/// `tracking_key` tells several runs of one event apart (the pool), and is empty otherwise. The same input makes the same
/// name, so a Job that exists already is this one. `default_deadline` is set only where the template has none.
/// A Job whose environment was trimmed has the annotation [`ENVIRONMENT_TRIMMED`].
pub fn build(
    hook: &UpgradeJobHook,
    event: &Event,
    job: &UpgradeJob,
    tracking_key: &str,
    matches_disruptive: bool,
    default_deadline: Option<SignedDuration>,
) -> Result<Job, BuildError> {
    let hook_name = hook.name_any();
    let template = hook.spec.template.clone().unwrap_or_default();
    let Some(mut spec) = template.spec else {
        return Err(BuildError::NoTemplate { hook: hook_name });
    };
    let (Some(owner), Some(_)) = (job.controller_owner_ref(&()), job.uid()) else {
        return Err(BuildError::NoUid {
            hook: hook_name,
            job: job.name_any(),
        });
    };
    set_restart_policy(&hook_name, &mut spec)?;
    survive_drains(&mut spec);
    if spec.active_deadline_seconds.is_none() {
        spec.active_deadline_seconds = default_deadline.map(|d| d.as_secs().max(1));
    }
    let trimmed = add_environment(&hook_name, &mut spec, event, job, matches_disruptive)?;

    let template_meta = template.metadata.unwrap_or_default();
    let mut annotations = template_meta.annotations.unwrap_or_default();
    let mut job_labels = template_meta.labels.unwrap_or_default();
    identify(
        &mut job_labels,
        &mut annotations,
        &hook_name,
        event.name,
        job,
        tracking_key,
    );
    if trimmed {
        annotations.insert(ENVIRONMENT_TRIMMED.to_owned(), "true".to_owned());
    }
    Ok(Job {
        metadata: ObjectMeta {
            name: Some(name(job, &hook_name, event.name, tracking_key)),
            namespace: job.namespace(),
            labels: Some(job_labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            finalizers: Some(vec![finalizers::HOOK_JOB.to_owned()]),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

/// Whether the environment of a hook's Job was trimmed.
pub fn is_trimmed(job: &Job) -> bool {
    job.annotations().contains_key(ENVIRONMENT_TRIMMED)
}

/// Name of the Job: `<job>-<hook>-<event>[-<key>]-<hash>`, a DNS label of at most 63 characters.
///
/// The longest parts are shortened first, so that hook and event stay readable. The hash covers all parts and the UID of
/// the UpgradeJob: the names alone are ambiguous (`a-b` + `c`, `a` + `b-c`), and a job that was re-created under its old
/// name must not meet the Jobs of its predecessor.
pub fn name(job: &UpgradeJob, hook: &str, event: HookEvent, key: &str) -> String {
    let job_name = job.name_any();
    let identity = serde_json::json!([job.uid(), job_name, hook, event.as_str(), key]).to_string();
    let hash = names::hash(&identity, 10);

    let mut parts = [job_name.as_str(), hook, event.as_str(), key]
        .map(dns_part)
        .to_vec();
    parts.retain(|p| !p.is_empty());
    let budget = names::MAX - hash.len() - parts.len();
    while parts.iter().map(String::len).sum::<usize>() > budget {
        if let Some(longest) = parts.iter_mut().max_by_key(|p| p.len()) {
            longest.pop();
        }
    }
    parts.push(hash);
    let trimmed: Vec<&str> = parts.iter().map(|p| p.trim_matches('-')).collect();
    trimmed.join("-")
}

fn dns_part(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    clean.trim_matches('-').to_owned()
}

/// The peer's labels. A name that is no label value is shortened there, and complete in the annotation of the same key.
fn identify(
    job_labels: &mut BTreeMap<String, String>,
    annotations: &mut BTreeMap<String, String>,
    hook: &str,
    event: HookEvent,
    job: &UpgradeJob,
    tracking_key: &str,
) {
    for (key, text) in [
        (labels::HOOK, hook),
        (labels::HOOK_JOB, job.name_any().as_str()),
        (labels::HOOK_EVENT, event.as_str()),
        (labels::HOOK_TRACKING_KEY, tracking_key),
    ] {
        let value = label_value(text);
        if value == text {
            annotations.remove(key);
        } else {
            annotations.insert(key.to_owned(), text.to_owned());
        }
        job_labels.insert(key.to_owned(), value);
    }
}

/// A valid label value out of any text; the text itself where it is one.
pub(super) fn label_value(text: &str) -> String {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    if text.chars().all(inner) && edge(text.chars().next()) && edge(text.chars().next_back()) {
        names::label_value(text)
    } else {
        // The prefix keeps the first character valid whatever the text begins with.
        names::dns_label(&format!("x-{text}"))
    }
}

fn set_restart_policy(hook: &str, spec: &mut JobSpec) -> Result<(), BuildError> {
    let pod = pod_spec(spec);
    if pod.containers.is_empty() {
        return Err(BuildError::NoContainers {
            hook: hook.to_owned(),
        });
    }
    match pod.restart_policy.as_deref() {
        Some("Never" | "OnFailure") => Ok(()),
        None | Some("") => {
            pod.restart_policy = Some("Never".to_owned());
            Ok(())
        }
        Some(policy) => Err(BuildError::RestartPolicy {
            hook: hook.to_owned(),
            policy: policy.to_owned(),
        }),
    }
}

fn pod_spec(spec: &mut JobSpec) -> &mut PodSpec {
    spec.template.spec.get_or_insert_default()
}

/// The upgrade drains the node below the hook's Pod; that is no failure of the hook.
///
/// Added only where the API takes it: a failure policy needs restartPolicy Never, and podReplacementPolicy Failed if any.
fn survive_drains(spec: &mut JobSpec) {
    let never = pod_spec(spec).restart_policy.as_deref() == Some("Never");
    let replaced_after_failure = spec
        .pod_replacement_policy
        .as_deref()
        .is_none_or(|p| p == "Failed");
    if spec.pod_failure_policy.is_some() || !never || !replaced_after_failure {
        return;
    }
    spec.pod_failure_policy = Some(PodFailurePolicy {
        rules: vec![PodFailurePolicyRule {
            action: "Ignore".to_owned(),
            on_exit_codes: None,
            on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                type_: "DisruptionTarget".to_owned(),
                status: "True".to_owned(),
            }]),
        }],
    });
}

/// Appends our variables to every container. They come last, so ours win over the template's of the same name, as with
/// the peer. Returns whether something had to be trimmed.
fn add_environment(
    hook: &str,
    spec: &mut JobSpec,
    event: &Event,
    job: &UpgradeJob,
    matches_disruptive: bool,
) -> Result<bool, BuildError> {
    let pod = pod_spec(spec);
    let containers = pod.containers.len() + pod.init_containers.as_ref().map_or(0, Vec::len);
    let fits = |e: &Environment| stored_size(&e.vars).saturating_mul(containers) <= MAX_ENVIRONMENT;

    let mut max_job = environment::MAX_JOB;
    let mut environment = environment::variables(event, job, matches_disruptive);
    while !fits(&environment) && max_job > 1024 {
        max_job /= 2;
        environment = environment::variables_within(event, job, matches_disruptive, max_job);
    }
    if !fits(&environment) {
        return Err(BuildError::TooLarge {
            hook: hook.to_owned(),
            containers,
        });
    }
    for container in pod
        .containers
        .iter_mut()
        .chain(pod.init_containers.iter_mut().flatten())
    {
        container
            .env
            .get_or_insert_default()
            .extend(environment.vars.iter().cloned());
    }
    Ok(environment.trimmed)
}

/// What the API server stores for one container: the variables, and their names once more in `managedFields`.
fn stored_size(vars: &[EnvVar]) -> usize {
    vars.iter()
        .map(|v| 2 * v.name.len() + v.value.as_ref().map_or(0, String::len) + 64)
        .sum()
}
