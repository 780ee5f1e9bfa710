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
    /// What was seen of pods, by name.
    pods: BTreeMap<String, SeenPod>,
}

#[derive(Clone, Debug, PartialEq)]
struct SeenPod {
    node: Option<String>,
    /// When it was seen last.
    at: Timestamp,
    /// When it was seen last before its end.
    going_at: Option<Timestamp>,
    /// When its end was seen first.
    ended_at: Option<Timestamp>,
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
            let known = seen.pods.get(&pod.name);
            let (going_at, ended_at) = match pod.end {
                None => (Some(now), None),
                Some(_) => (
                    known.and_then(|p| p.going_at),
                    Some(known.and_then(|p| p.ended_at).unwrap_or(now)),
                ),
            };
            let seen_pod = SeenPod {
                node: pod.node.clone(),
                at: now,
                going_at,
                ended_at,
            };
            seen.pods.insert(pod.name.clone(), seen_pod);
        }
        seen.look = look;
    }

    /// Since when the pods of `owner` are looked at.
    pub fn looked_at_since(&self, owner: &PodOwner) -> Option<Timestamp> {
        self.0.get(owner).map(|seen| seen.first)
    }
}

/// A run of a hook that waits for a pod: when that has ended, the engine is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWait {
    /// What the pods are made for.
    pub owner: PodOwner,
    /// Which of these.
    pub pods: Awaited,
    /// Since when.
    pub since: Timestamp,
    /// What it means that there is none.
    pub without: WithoutPod,
    /// Whether the hook is over with its pod, and as well as that.
    pub is_all: bool,
}

/// Which pods of an owner a run waits for. Ends of others tell nothing: they are of an earlier try, or of another run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Those of this node of Argo's, and of nodes below it.
    Node(String),
    /// All of the TaskRun: Tekton has not named any.
    Any,
    /// The one that Tekton has named.
    Named(String),
    /// One that Tekton has yet to make.
    Next,
}

impl Awaited {
    /// Whether the run is not over before this pod is.
    fn may_be(&self, pod: &HookPod) -> bool {
        match self {
            Self::Node(root) => is_below(root, pod.node.as_ref()),
            Self::Any | Self::Named(_) | Self::Next => true,
        }
    }

    /// Whether it is this pod, of this node, whose end the engine has to take note of.
    fn is(&self, name: &str, node: Option<&String>) -> bool {
        match self {
            Self::Node(root) => is_below(root, node),
            Self::Any => true,
            Self::Named(awaited) => awaited == name,
            Self::Next => false,
        }
    }
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
    /// Nothing yet: the run has not waited for long enough to be looked at.
    Early,
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
/// When a pod ended is in its status, by the clock of its node: that counts between the looks that saw it at work and ended. When
/// one vanished is not on record: it counts from when it was last there, or else from when it was looked for first.
pub fn told(wait: &PodWait, pods: &HookPods, patience: SignedDuration, now: Timestamp) -> Told {
    if now < later(wait.since, patience) {
        return Told::Early;
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
    if all.iter().any(|p| p.end.is_none() && wait.pods.may_be(p)) {
        return Told::AtWork;
    }
    let mine = all.iter().filter(|p| wait.pods.is(&p.name, p.node.as_ref()));
    let newest = mine.max_by_key(|p| (p.made_at, &p.name));
    if let Some((pod, end)) = newest.and_then(|p| Some((p, p.end.as_ref()?))) {
        let known = seen.pods.get(&pod.name);
        let going_at = known.and_then(|p| p.going_at);
        let first_seen = known.and_then(|p| p.ended_at).unwrap_or(seen.look.at);
        let earliest = going_at.unwrap_or(wait.since).max(wait.since);
        let said = end.at.or(going_at).unwrap_or(first_seen);
        let since = said.min(first_seen).max(earliest);
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
            let known = seen.pods.iter();
            let mine = known.filter(|(name, p)| wait.pods.is(name, p.node.as_ref()));
            let last = mine.map(|(_, p)| p.at).max();
            Told::Silent {
                since: last.unwrap_or(seen.first).max(wait.since),
                after: After::Gone,
            }
        }
    }
}

/// Whether a node is this one, or below it: Argo names the way.
fn is_below(root: &str, node: Option<&String>) -> bool {
    let rest = node.and_then(|n| n.strip_prefix(root));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '(']))
}

fn later(t: Timestamp, by: SignedDuration) -> Timestamp {
    t.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
