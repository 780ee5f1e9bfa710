//! The Job of a hook.

use jiff::SignedDuration;
use k8s_openapi::{
    api::{
        batch::v1::{
            Job, JobSpec, JobTemplateSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern,
            PodFailurePolicyRule,
        },
        core::v1::{EnvVar, PodSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Resource, ResourceExt};

use super::{
    environment::{self, Environment, Event},
    naming,
};
use crate::api::{UpgradeJob, UpgradeJobHook, finalizers};

pub use super::naming::name;

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
    /// It is for a workflow engine, not a Job.
    #[error(
        "hook {hook} has a {field}, which only {engine} can run, and {engine} does not run it for this job: use a template"
    )]
    Native {
        /// Name of the hook.
        hook: String,
        /// The field that names what to run.
        field: &'static str,
        /// Name of the engine.
        engine: &'static str,
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
    let template = template_of(hook)?;
    let mut spec = template.spec.unwrap_or_default();
    let owner = owner(job, &hook_name)?;
    set_restart_policy(&hook_name, &mut spec)?;
    survive_drains(&mut spec);
    if spec.active_deadline_seconds.is_none() {
        spec.active_deadline_seconds = default_deadline.map(|d| d.as_secs().max(1));
    }
    let trimmed = add_environment(&hook_name, &mut spec, event, job, matches_disruptive)?;

    let template_meta = template.metadata.unwrap_or_default();
    let mut annotations = template_meta.annotations.unwrap_or_default();
    let mut job_labels = template_meta.labels.unwrap_or_default();
    naming::identify(
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

/// The owner of what runs a hook: the UpgradeJob.
pub(super) fn owner(job: &UpgradeJob, hook: &str) -> Result<OwnerReference, BuildError> {
    let owner = job.controller_owner_ref(&()).filter(|_| job.uid().is_some());
    owner.ok_or_else(|| BuildError::NoUid {
        hook: hook.to_owned(),
        job: job.name_any(),
    })
}

/// Whether the environment of a hook's Job or TaskRun was trimmed.
pub fn is_trimmed(of: &ObjectMeta) -> bool {
    let annotations = of.annotations.as_ref();
    annotations.is_some_and(|a| a.contains_key(ENVIRONMENT_TRIMMED))
}

/// Why a hook is nothing for a Job, if it is made for a workflow engine.
pub fn native(hook: &UpgradeJobHook) -> Option<String> {
    match template_of(hook) {
        Err(error @ BuildError::Native { .. }) => Some(error.to_string()),
        Ok(_) | Err(_) => None,
    }
}

fn template_of(hook: &UpgradeJobHook) -> Result<JobTemplateSpec, BuildError> {
    let spec = &hook.spec;
    let hook = hook.name_any();
    let native = |hook, field, engine| Err(BuildError::Native { hook, field, engine });
    match (&spec.template, &spec.template_ref, &spec.task_ref) {
        (Some(template), _, _) => Ok(template.clone()),
        (None, Some(_), _) => native(hook, "templateRef", "Argo Workflows"),
        (None, None, Some(_)) => native(hook, "taskRef", "Tekton"),
        (None, None, None) => Err(BuildError::NoTemplate { hook }),
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
    let environment = environment_for(hook, containers, event, job, matches_disruptive)?;
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

/// The environment of one of so many containers, so that all of them fit into one object.
pub(super) fn environment_for(
    hook: &str,
    containers: usize,
    event: &Event,
    job: &UpgradeJob,
    matches_disruptive: bool,
) -> Result<Environment, BuildError> {
    let fits = |e: &Environment| stored_size(&e.vars).saturating_mul(containers) <= MAX_ENVIRONMENT;
    let mut max_job = environment::MAX_JOB;
    let mut environment = environment::variables(event, job, matches_disruptive);
    while !fits(&environment) && max_job > 1024 {
        max_job /= 2;
        environment = environment::variables_within(event, job, matches_disruptive, max_job);
    }
    if fits(&environment) {
        return Ok(environment);
    }
    Err(BuildError::TooLarge {
        hook: hook.to_owned(),
        containers,
    })
}

/// What the API server stores for one container: the variables, and their names once more in `managedFields`.
fn stored_size(vars: &[EnvVar]) -> usize {
    vars.iter()
        .map(|v| 2 * v.name.len() + v.value.as_ref().map_or(0, String::len) + 64)
        .sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::{labels, upgrade_job_hook::HookEvent},
        hooks::fixtures::{event, hook, upgrade_job},
    };

    fn built(spec: &Value) -> Job {
        build(
            &hook("notify", spec),
            &event(HookEvent::Start),
            &upgrade_job(),
            "",
            false,
            None,
        )
        .unwrap()
    }

    fn pod_template(pod: &Value) -> Value {
        json!({"template": {"spec": {"template": {"spec": pod}}}})
    }

    fn value<'a>(env: &'a [EnvVar], name: &str) -> Option<&'a str> {
        // The kubelet takes the last one of a name.
        env.iter().rev().find(|v| v.name == name)?.value.as_deref()
    }

    #[test]
    fn the_job_is_owned_labelled_and_held() {
        let spec = json!({"template": {"metadata": {
            "labels": {"mine": "yes", labels::HOOK_EVENT: "forged"}, "annotations": {"note": "mine"}
        }}});
        let job = built(&spec);
        assert_eq!(job.namespace().as_deref(), Some("upgrades"));
        assert_eq!(
            *job.labels(),
            BTreeMap::from(
                [
                    ("mine", "yes"),
                    (labels::HOOK, "notify"),
                    (labels::HOOK_JOB, "cluster-upgrade-1609531200-ef11c47"),
                    (labels::HOOK_EVENT, "Start"),
                    (labels::HOOK_TRACKING_KEY, ""),
                ]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
            )
        );
        assert_eq!(
            *job.annotations(),
            BTreeMap::from([("note".to_owned(), "mine".to_owned())])
        );
        assert_eq!(job.finalizers(), [finalizers::HOOK_JOB]);
        let [owner] = job.owner_references() else {
            panic!("one owner")
        };
        assert_eq!((owner.uid.as_str(), owner.controller), ("job-uid", Some(true)));
        assert_eq!(
            (owner.kind.as_str(), owner.api_version.as_str()),
            ("UpgradeJob", "managedupgrade.appuio.io/v1beta1")
        );
    }

    #[test]
    fn every_container_gets_the_environment_and_ours_wins() {
        let containers = |prefix: &str| -> Vec<Value> {
            (0..20)
                .map(|i| {
                    json!({"name": format!("{prefix}{i}"), "env": [
                        {"name": "MINE", "value": "kept"}, {"name": "EVENT_NAME", "value": "forged"}
                    ]})
                })
                .collect()
        };
        let job = built(&pod_template(
            &json!({"containers": containers("c"), "initContainers": containers("i")}),
        ));
        let pod = job.spec.unwrap().template.spec.unwrap();
        let all: Vec<_> = pod
            .containers
            .iter()
            .chain(pod.init_containers.iter().flatten())
            .collect();
        assert_eq!(all.len(), 40);
        for container in all {
            let env = container.env.as_deref().unwrap();
            assert_eq!(env[0].name, "MINE");
            assert_eq!(value(env, "EVENT_NAME"), Some(r#""Start""#));
            assert_eq!(value(env, "JOB_metadata_uid"), Some(r#""job-uid""#));
        }
    }

    #[test]
    fn the_environment_of_many_containers_fits_into_one_object() {
        let mut job = upgrade_job();
        job.metadata.annotations = Some(BTreeMap::from([("note".to_owned(), "x".repeat(90_000))]));
        let with = |count: usize| {
            let containers: Vec<Value> = (0..count).map(|i| json!({"name": format!("c{i}")})).collect();
            let hook = hook("notify", &pod_template(&json!({"containers": containers})));
            build(&hook, &event(HookEvent::Start), &job, "", false, None)
        };
        let one = with(1).unwrap();
        assert!(!is_trimmed(&one.metadata));
        let many = with(30).unwrap();
        assert!(is_trimmed(&many.metadata));
        assert!(serde_json::to_vec(&many).unwrap().len() < 1_500_000);
        let Err(BuildError::TooLarge { containers, .. }) = with(2000) else {
            panic!("2000 environments cannot fit")
        };
        assert_eq!(containers, 2000);
    }

    #[rstest]
    #[case(json!({}), "Never", true)]
    #[case(json!({"restartPolicy": "Never"}), "Never", true)]
    #[case(json!({"restartPolicy": "OnFailure"}), "OnFailure", false)]
    fn drains_are_survived_where_the_api_takes_it(
        #[case] pod: Value,
        #[case] policy: &str,
        #[case] added: bool,
    ) {
        let spec = built(&pod_template(&pod)).spec.unwrap();
        assert_eq!(
            spec.template.spec.unwrap().restart_policy.as_deref(),
            Some(policy)
        );
        let rules = spec
            .pod_failure_policy
            .map(|p| serde_json::to_value(p.rules).unwrap());
        let expected = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        ]);
        assert_eq!(rules, added.then_some(expected));
    }

    #[test]
    fn a_pod_failure_policy_of_the_template_stays() {
        let policy =
            json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
        let job = built(&json!({"template": {"spec": {"podFailurePolicy": policy}}}));
        let stays = serde_json::to_value(job.spec.unwrap().pod_failure_policy).unwrap();
        assert_eq!(stays, policy);
    }

    #[rstest]
    #[case("TerminatingOrFailed", false)]
    #[case("Failed", true)]
    fn no_failure_policy_beside_a_replacement_policy_that_forbids_it(
        #[case] policy: &str,
        #[case] added: bool,
    ) {
        let job = built(&json!({"template": {"spec": {"podReplacementPolicy": policy}}}));
        assert_eq!(job.spec.unwrap().pod_failure_policy.is_some(), added);
    }

    #[rstest]
    #[case(None, None, None)]
    #[case(Some(300), None, Some(300))]
    #[case(Some(300), Some(60), Some(300))]
    #[case(None, Some(60), Some(60))]
    #[case(None, Some(0), Some(1))]
    fn a_deadline_is_set_only_where_none_is_and_one_is_wanted(
        #[case] own: Option<i64>,
        #[case] default: Option<i64>,
        #[case] expected: Option<i64>,
    ) {
        let hook = hook(
            "notify",
            &json!({"template": {"spec": {"activeDeadlineSeconds": own}}}),
        );
        let default = default.map(SignedDuration::from_secs);
        let job = build(
            &hook,
            &event(HookEvent::Start),
            &upgrade_job(),
            "",
            false,
            default,
        )
        .unwrap();
        assert_eq!(job.spec.unwrap().active_deadline_seconds, expected);
    }

    #[test]
    fn the_fields_of_the_template_stay() {
        let job =
            built(&json!({"template": {"spec": {"backoffLimit": 3, "ttlSecondsAfterFinished": 43200}}}));
        let spec = job.spec.unwrap();
        assert_eq!(
            (spec.backoff_limit, spec.ttl_seconds_after_finished),
            (Some(3), Some(43200))
        );
    }

    #[rstest]
    #[case(json!({"template": null}), "hook notify has no template of a Job: set spec.template")]
    #[case(pod_template(&json!({"containers": []})), "the template of hook notify has no containers: set spec.template.spec.template.spec.containers")]
    #[case(pod_template(&json!({"restartPolicy": "Always"})), "the template of hook notify has restartPolicy Always: a Job takes Never or OnFailure")]
    fn a_template_that_cannot_run_is_refused(#[case] spec: Value, #[case] message: &str) {
        let hook = hook("notify", &spec);
        let refused = build(&hook, &event(HookEvent::Start), &upgrade_job(), "", false, None);
        assert_eq!(refused.unwrap_err().to_string(), message);
    }

    #[test]
    fn a_job_without_uid_owns_nothing() {
        let mut job = upgrade_job();
        job.metadata.uid = None;
        let refused = build(
            &hook("notify", &json!({})),
            &event(HookEvent::Start),
            &job,
            "",
            false,
            None,
        );
        assert!(matches!(refused, Err(BuildError::NoUid { .. })));
    }
}
