//! Hooks that are Tekton Tasks: for each the operator makes a TaskRun, as it makes a Job for others.
//!
//! They are no tasks of the PipelineRun, whose step for such a hook is a `CustomRun` like any other. Tekton refuses
//! `onError: continue` together with `retries` on a pipeline task (`PipelineTask.ValidateOnError` in
//! `pkg/apis/pipeline/v1/pipeline_validation.go`), so there a hook with `failurePolicy: Ignore` could survive the drain of its
//! node or leave the pipeline alive, not both; and which pools a group has is known only when it is their turn.
//!
//! `retries` of a TaskRun are none for drains either: they repeat a script that failed as well. So the operator looks at
//! what ended a pod ([`ending`]) and makes a further TaskRun only where it was killed, as `podFailurePolicy` does for Jobs
//! and an expression does for Argo.

mod build;
mod ending;
pub mod problem;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

use super::{
    hook_run::{Again, is_held},
    pods::{Awaited, PodOwner, PodWait, WithoutPod},
};
use crate::api::{GoDuration, annotations, upgrade_job::HookState};

pub use build::{build, has_no_limit, next};
pub use ending::PodSight;

/// So often is a hook started again whose pod was killed, as in Argo's workflows.
pub const MAX_RESTARTS: u32 = 10;

/// Tekton's reason while a quota leaves no room for the pod.
const NO_ROOM: &str = "ExceededResourceQuota";

/// The kind.
pub fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "TaskRun");
    ApiResource::from_gvk_with_plural(&kind, "taskruns")
}

/// What we keep of a `tekton.dev/v1` TaskRun.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskRun {
    /// Its metadata, without managed fields.
    pub metadata: ObjectMeta,
    /// `spec.timeout`; `None`: no limit.
    timeout: Option<SignedDuration>,
    /// The condition `Succeeded`; `None` before Tekton has seen the TaskRun.
    condition: Option<Condition>,
    /// Its pod; empty before there is one.
    pod: String,
    /// How the container ended whose failure counts.
    exit: Option<Exit>,
    /// The step at work and how many there are, where there are several.
    step: Option<String>,
    /// What the script says of its failure: the result `message`.
    said: Option<String>,
    /// What was seen of its pod.
    pub pod_sight: PodSight,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Condition {
    status: String,
    reason: String,
    message: String,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exit {
    code: i64,
    reason: String,
}

/// Where a TaskRun is.
pub struct Seen {
    /// Its state.
    pub state: HookState,
    /// Why it failed, or what it does.
    pub message: String,
    /// Its pod was killed.
    pub again: Option<Again>,
}

impl From<DynamicObject> for TaskRun {
    fn from(object: DynamicObject) -> Self {
        let data = &object.data;
        let text = |pointer: &str| data.pointer(pointer).and_then(Value::as_str);
        let condition = list(data, "/status/conditions")
            .find(|c| c["type"] == "Succeeded")
            .map(|c| {
                let text = |key: &str| c[key].as_str().unwrap_or_default().to_owned();
                Condition {
                    status: text("status"),
                    reason: text("reason"),
                    message: text("message"),
                }
            });
        let timeout = text("/spec/timeout").and_then(|t| GoDuration(t.to_owned()).positive());
        let said = list(data, "/status/results").find(|r| r["name"] == "message");
        let said = said.and_then(|r| r["value"].as_str().map(|t| t.trim().to_owned()));
        let exits = list(data, "/status/steps").filter_map(exit);
        Self {
            timeout,
            condition,
            pod: text("/status/podName").unwrap_or_default().to_owned(),
            exit: exits.into_iter().find(|e| e.code != 0),
            step: step(data),
            said: said.filter(|t| !t.is_empty()),
            pod_sight: PodSight::NotLooked,
            metadata: ObjectMeta {
                managed_fields: None,
                ..object.metadata
            },
        }
    }
}

fn list<'a>(data: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    data.pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn exit(step: &Value) -> Option<Exit> {
    let ended = step.get("terminated")?;
    Some(Exit {
        code: ended.get("exitCode")?.as_i64()?,
        reason: ended["reason"].as_str().unwrap_or_default().to_owned(),
    })
}

/// Steps run one after the other, although their containers all run from the beginning.
fn step(data: &Value) -> Option<String> {
    let all: Vec<&Value> = list(data, "/status/steps").collect();
    let at = all.iter().position(|s| s.get("terminated").is_none())?;
    let name = all.get(at)?["name"].as_str()?;
    let (number, count) = (at.saturating_add(1), all.len());
    (count > 1).then(|| format!("step {name}, {number} of {count}"))
}

impl TaskRun {
    /// Which try it is, from 1.
    pub fn attempt(&self) -> u32 {
        let written = self
            .metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get(annotations::ATTEMPT));
        written.and_then(|t| t.parse().ok()).unwrap_or(1)
    }

    /// Whether our finalizer holds it.
    pub fn is_held(&self) -> bool {
        is_held(&self.metadata)
    }

    /// When it ends by its own deadline; `None`: it has none.
    pub(super) fn ends_by(&self) -> Option<Timestamp> {
        let made = self.metadata.creation_timestamp.as_ref()?.0;
        made.saturating_add(self.timeout?).ok()
    }

    /// The pod that has to be looked at before it is known whether the hook failed.
    pub fn pod_to_look_at(&self) -> Option<&str> {
        let failed = self.condition.as_ref().filter(|c| c.status == "False")?;
        let open = ending::is_open(&failed.reason, self.exit.as_ref());
        (open && !self.pod.is_empty()).then_some(self.pod.as_str())
    }

    /// Where it is now.
    pub(super) fn seen(&self, now: Timestamp) -> Seen {
        let name = self.metadata.name.clone().unwrap_or_default();
        let title = match self.attempt() {
            0 | 1 => format!("TaskRun {name}"),
            n => format!("TaskRun {name}, try {n} since pods of others were killed"),
        };
        let (state, message) = match self.condition.as_ref() {
            Some(c) if c.status == "True" => (HookState::Complete, String::new()),
            Some(c) if c.status == "False" => return self.ended(c, &name, now),
            Some(_) | None if self.metadata.deletion_timestamp.is_some() => (
                HookState::Failed,
                format!("TaskRun {name} was deleted before it ended"),
            ),
            Some(c) => (HookState::Active, format!("{title}{}", self.doing(c))),
            None => {
                let look = self.look("describe taskrun", &name);
                let message = format!("{title}: Tekton has not begun it yet; see {look}");
                (HookState::Active, message)
            }
        };
        Seen {
            state,
            message,
            again: None,
        }
    }

    /// Whether Tekton has looked at it.
    pub fn is_begun(&self) -> bool {
        self.condition.is_some()
    }

    /// Whether Tekton says that it has ended.
    pub fn has_ended(&self) -> bool {
        let condition = self.condition.as_ref();
        condition.is_some_and(|c| c.status == "True" || c.status == "False")
    }

    /// The pod that it waits for; `None` once it has ended.
    ///
    /// Without one, Tekton may wait itself: for a Task of another namespace, or for room in a quota. Only what has the name of
    /// a pod had one. Tekton takes the name away before another try, and leaves it where a pod that vanished has no room any
    /// more (`retryTaskRun` and `handlePodCreationError` in `pkg/reconciler/taskrun/taskrun.go`).
    pub fn wait(&self) -> Option<PodWait> {
        if self.has_ended() || self.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let (pods, without) = match &self.condition {
            None => (Awaited::Any, WithoutPod::NotBegun),
            Some(c) if self.pod.is_empty() || c.reason == NO_ROOM => (Awaited::Next, WithoutPod::EngineWaits),
            Some(_) => (Awaited::Named(self.pod.clone()), WithoutPod::Gone),
        };
        Some(PodWait {
            owner: PodOwner::TaskRun(self.metadata.name.clone()?),
            pods,
            since: self.metadata.creation_timestamp.as_ref()?.0,
            without,
            is_all: true,
        })
    }

    fn ended(&self, condition: &Condition, name: &str, now: Timestamp) -> Seen {
        let failed = |why: String| Seen {
            state: HookState::Failed,
            message: format!("TaskRun {name} {why}"),
            again: None,
        };
        let Some(cause) = ending::killed(&condition.reason, self.exit.as_ref(), self.pod_sight) else {
            return failed(format!("failed: {}", self.failure(condition)));
        };
        if self.attempt() > MAX_RESTARTS {
            return failed(format!(
                "failed: its pod was killed ({cause}), as {MAX_RESTARTS} were before it"
            ));
        }
        let timeout = match self.timeout {
            None => None,
            Some(timeout) => {
                let began = self.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
                let left = timeout.saturating_sub(now.duration_since(began));
                if left < SignedDuration::from_secs(1) {
                    return failed(format!(
                        "failed: its pod was killed ({cause}), and its time was over"
                    ));
                }
                Some(left)
            }
        };
        Seen {
            state: HookState::Active,
            message: format!("TaskRun {name}: its pod was killed ({cause}); it is started again"),
            again: Some(Again { timeout }),
        }
    }

    fn failure(&self, condition: &Condition) -> String {
        let Condition { reason, message, .. } = condition;
        let told = match (&self.said, message.trim()) {
            (Some(said), "") => format!("{said} ({reason})"),
            (Some(said), message) => format!("{said} ({reason}: {message})"),
            (None, "") => reason.clone(),
            (None, message) => format!("{message} ({reason})"),
        };
        if self.exit.is_none() || self.pod.is_empty() {
            return told;
        }
        let look = self.look("logs --all-containers", &self.pod);
        format!("{told}; see {look}")
    }

    /// What is said of one that goes on: nothing more than its step where all is well.
    fn doing(&self, condition: &Condition) -> String {
        let step = self.step.as_ref().map_or_else(String::new, |s| format!(", {s}"));
        match condition.reason.as_str() {
            "" | "Started" | "Running" => step,
            reason => {
                let look = if self.pod.is_empty() {
                    self.look(
                        "describe taskrun",
                        &self.metadata.name.clone().unwrap_or_default(),
                    )
                } else {
                    self.look("describe pod", &self.pod)
                };
                format!(": {reason}: {}; see {look}", condition.message.trim())
            }
        }
    }

    fn look(&self, verb: &str, name: &str) -> String {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        format!("oc -n {namespace} {verb} {name}")
    }
}

#[cfg(test)]
mod tests;
