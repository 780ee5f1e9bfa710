//! The pods of hooks that an engine runs: what they tell of an engine that takes no note of them. Pure; read by
//! `controller::hook_pods`.
//!
//! A node of a workflow or a TaskRun stays as it is when its controller is away, while its pod runs on to its end. So pods
//! are looked at, of a hook that runs for long and at most once a minute. None is watched.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

/// A look counts for so long; then the pods are read again.
const COUNTS_FOR: SignedDuration = SignedDuration::from_mins(1);
/// What was seen of pods that nobody asked for since is forgotten.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Annotation by which Argo names the node of a pod.
const NODE_NAME: &str = "workflows.argoproj.io/node-name";
/// Label by which Tekton names the TaskRun of a pod.
const TASK_RUN: &str = "tekton.dev/taskRun";
/// How Tekton's names of the containers of steps begin; others are sidecars, which only its controller ends.
const STEP: &str = "step-";

/// What pods are made for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodOwner {
    /// A Workflow of Argo.
    Workflow(String),
    /// A TaskRun of Tekton.
    TaskRun(String),
}

impl PodOwner {
    /// The labels of its pods. Argo sets `completed` when it has taken note of a pod's end.
    pub fn selector(&self) -> String {
        match self {
            Self::Workflow(name) => {
                format!("workflows.argoproj.io/workflow={name},workflows.argoproj.io/completed=false")
            }
            Self::TaskRun(name) => format!("{TASK_RUN}={name}"),
        }
    }
}

/// As messages name it.
impl std::fmt::Display for PodOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Workflow(name) => write!(f, "workflow {name}"),
            Self::TaskRun(name) => write!(f, "TaskRun {name}"),
        }
    }
}

/// A pod of a hook, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookPod {
    /// Its name.
    pub name: String,
    /// The node of Argo's that it is of.
    pub node: Option<String>,
    /// When it was made.
    pub made_at: Option<Timestamp>,
    /// How it ended; `None`: it has not.
    pub end: Option<PodEnd>,
}

/// How a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    /// When, if its status says so.
    pub at: Option<Timestamp>,
    /// Why it failed; `None`: it has succeeded.
    pub failure: Option<String>,
}

impl From<&Pod> for HookPod {
    fn from(pod: &Pod) -> Self {
        Self {
            name: pod.name_any(),
            node: pod.annotations().get(NODE_NAME).cloned(),
            made_at: pod.metadata.creation_timestamp.as_ref().map(|t| t.0),
            end: PodEnd::of(pod),
        }
    }
}

impl PodEnd {
    /// A pod of a TaskRun has ended with its steps: its sidecars run until Tekton's controller ends them.
    fn of(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref()?;
        let all = status.container_statuses.as_deref().unwrap_or_default();
        let is_step = |c: &&ContainerStatus| !pod.labels().contains_key(TASK_RUN) || c.name.starts_with(STEP);
        let containers: Vec<&ContainerStatus> = all.iter().filter(is_step).collect();
        let ends: Vec<_> = containers
            .iter()
            .filter_map(|c| Some((&c.name, c.state.as_ref()?.terminated.as_ref()?)))
            .collect();
        let bad = ends
            .iter()
            .find(|(_, end)| end.exit_code != 0)
            .map(|(name, end)| {
                let reason = end.reason.as_deref().unwrap_or("Error");
                format!("{name}: {reason} (exit code {})", end.exit_code)
            });
        let failure = match status.phase.as_deref() {
            Some("Succeeded") => None,
            Some("Failed") => {
                let said = status.message.clone().or_else(|| status.reason.clone());
                Some(bad.or(said).unwrap_or_else(|| "no message".to_owned()))
            }
            Some(_) | None if !ends.is_empty() && ends.len() == containers.len() => bad,
            Some(_) | None => return None,
        };
        let at = ends
            .iter()
            .filter_map(|(_, end)| Some(end.finished_at.as_ref()?.0));
        Some(Self {
            at: at.max(),
            failure,
        })
    }
}

/// A look at the pods of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// When it was taken.
    pub at: Timestamp,
    /// What was seen.
    pub said: Result<Vec<HookPod>, Unread>,
}

/// Why pods could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The operator may not.
    NoRight,
    /// There are more than are read.
    TooMany,
    /// The API server did not answer as it should; it may the next time.
    Failed,
}

/// What the operator has seen of the pods of hooks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookPods(BTreeMap<PodOwner, Seen>);

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    first: Timestamp,
    look: Look,
    /// By name: the node of a pod that was seen, when it was seen last, and when it was seen last before its end.
    pods: BTreeMap<String, SeenPod>,
}

#[derive(Clone, Debug, PartialEq)]
struct SeenPod {
    node: Option<String>,
    at: Timestamp,
    going_at: Option<Timestamp>,
}

impl HookPods {
    /// Keeps a look, and forgets what nobody asks for any more.
    pub fn keep(&mut self, owner: PodOwner, look: Look) {
        let (now, first) = (look.at, look.at);
        self.0
            .retain(|_, s| now.duration_since(s.look.at) < FORGOTTEN_AFTER);
        let seen = self.0.entry(owner).or_insert_with(|| Seen {
            first,
            look: look.clone(),
            pods: BTreeMap::new(),
        });
        for pod in look.said.iter().flatten() {
            let known = seen.pods.get(&pod.name).and_then(|p| p.going_at);
            let going_at = if pod.end.is_none() { Some(now) } else { known };
            let node = pod.node.clone();
            seen.pods.insert(
                pod.name.clone(),
                SeenPod {
                    node,
                    at: now,
                    going_at,
                },
            );
        }
        seen.look = look;
    }
}

/// A run of a hook that waits for a pod: when that has ended, the engine is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWait {
    /// What the pods are made for.
    pub owner: PodOwner,
    /// Only those of this node and of nodes below it; `None`: all.
    pub node: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// What it means that there is none.
    pub without: WithoutPod,
    /// Whether the hook is over with its pod, and as well as that.
    pub is_all: bool,
}

/// Why there is no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutPod {
    /// The engine itself waits: for room, for a lock, for what it looks up elsewhere.
    EngineWaits,
    /// There was one; the engine has to make another, or to say that it is gone.
    Gone,
    /// The engine has not looked at the hook.
    NotBegun,
}

/// What pods tell of a run that waits for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing against the engine.
    Nothing,
    /// A pod is at work.
    AtWork,
    /// They could not be read, which may be different soon.
    Unknown,
    /// The engine does not go on.
    Silent {
        /// Since when.
        since: Timestamp,
        /// After what.
        after: After,
    },
}

/// What an engine that is silent does not go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// The end of this pod; of several the newest.
    End {
        /// Its name.
        pod: String,
        /// Why it failed; `None`: it has succeeded.
        failure: Option<String>,
    },
    /// The pod is gone.
    Gone,
    /// The hook was given to the engine.
    NotBegun,
}

/// When the pods that a run waits for are to be read: not before it waits for `patience`, and then at intervals.
pub fn look_at(wait: &PodWait, pods: &HookPods, patience: SignedDuration) -> Timestamp {
    let first = later(wait.since, patience);
    let last = pods.0.get(&wait.owner).map(|s| s.look.at);
    last.map_or(first, |at| first.max(later(at, COUNTS_FOR.min(patience))))
}

/// What the pods tell of a run that waits for one.
///
/// When a pod ended is in its status. When one vanished is not on record: it counts from when it was last there, or else from
/// when it was looked for first.
pub fn told(wait: &PodWait, pods: &HookPods, patience: SignedDuration, now: Timestamp) -> Told {
    if now < later(wait.since, patience) {
        return Told::Nothing;
    }
    let not_begun = Told::Silent {
        since: wait.since,
        after: After::NotBegun,
    };
    let Some(seen) = pods.0.get(&wait.owner) else {
        return Told::Unknown;
    };
    let all = match (&seen.look.said, wait.without) {
        (Ok(all), _) => all,
        (Err(_), WithoutPod::NotBegun) => return not_begun,
        (Err(Unread::NoRight | Unread::TooMany), WithoutPod::EngineWaits | WithoutPod::Gone) => {
            return Told::Nothing;
        }
        (Err(Unread::Failed), WithoutPod::EngineWaits | WithoutPod::Gone) => return Told::Unknown,
    };
    let mine: Vec<&HookPod> = all.iter().filter(|p| is_below(wait, p.node.as_ref())).collect();
    if mine.iter().any(|p| p.end.is_none()) {
        return Told::AtWork;
    }
    let newest = mine.iter().max_by_key(|p| (p.made_at, &p.name));
    if let Some((pod, end)) = newest.and_then(|p| Some((p, p.end.as_ref()?))) {
        let going_at = seen.pods.get(&pod.name).and_then(|p| p.going_at);
        let since = end.at.or(going_at).unwrap_or(seen.first);
        let after = After::End {
            pod: pod.name.clone(),
            failure: end.failure.clone(),
        };
        return Told::Silent { since, after };
    }
    match wait.without {
        WithoutPod::EngineWaits => Told::Nothing,
        WithoutPod::NotBegun => not_begun,
        WithoutPod::Gone => {
            let known = seen.pods.values().filter(|p| is_below(wait, p.node.as_ref()));
            let last = known.map(|p| p.at).max();
            Told::Silent {
                since: last.unwrap_or(seen.first).max(wait.since),
                after: After::Gone,
            }
        }
    }
}

/// Whether a node is the one that a run waits for, or below it: Argo names the way.
fn is_below(wait: &PodWait, node: Option<&String>) -> bool {
    let Some(root) = &wait.node else { return true };
    let rest = node.and_then(|n| n.strip_prefix(root.as_str()));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '(']))
}

fn later(t: Timestamp, by: SignedDuration) -> Timestamp {
    t.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
